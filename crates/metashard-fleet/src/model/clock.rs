//! Time in ticks.

use std::time::Duration;

use crate::time::Now;

/// Length of a tick: a quarter of the duration, so that each renewal falls on one.
pub(super) const TICK: Duration = Duration::from_millis(500);

/// How long a Lease lasts: four ticks. Its holder stops acting before the fourth.
pub(super) const DURATION: Duration = Duration::from_secs(2);

/// Ticks after which a driver reports that a request had no answer ([`crate::lease::REQUEST_TIMEOUT`]).
pub(super) const TIMEOUT: u8 = 2;

/// The clocks of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Clock {
    /// Ticks that it was suspended for, with its machine.
    suspended: u8,
}

impl Clock {
    /// What both clocks show at tick `now`.
    pub(super) fn read(self, now: u8) -> Now {
        let mono = Now::default().after(TICK * u32::from(now - self.suspended));
        let boot = Now::default().after(TICK * u32::from(now));
        Now {
            boot: boot.boot,
            mono: mono.mono,
        }
    }

    /// The monotonic clock, in ticks.
    pub(super) fn mono(self, now: u8) -> u8 {
        now - self.suspended
    }

    /// A tick passed while the machine was suspended.
    pub(super) fn sleep(&mut self) {
        self.suspended += 1;
    }
}
