//! Time as an argument. Nothing in this crate reads a clock.

use serde::{Deserialize, Serialize};
use std::{ops::Add, time::Duration};

/// A point on `CLOCK_BOOTTIME`, which runs on while the machine is suspended. Acting deadlines are measured on it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct BootTime(pub Duration);

/// A point on `CLOCK_MONOTONIC`. How long something was waited for is measured on it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct MonoTime(pub Duration);

/// One reading of both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Now {
    /// For deadlines until which one may act.
    pub boot: BootTime,
    /// For waits after which another may be judged.
    pub mono: MonoTime,
}

macro_rules! point {
    ($($name:ident),+) => {$(
        impl $name {
            /// The length from `earlier` to here; zero if `earlier` is later.
            #[must_use]
            pub fn since(self, earlier: Self) -> Duration {
                self.0.saturating_sub(earlier.0)
            }

            /// The length from here to `deadline`; zero once it is reached.
            #[must_use]
            pub fn until(self, deadline: Self) -> Duration {
                deadline.0.saturating_sub(self.0)
            }
        }

        impl Add<Duration> for $name {
            type Output = Self;

            fn add(self, length: Duration) -> Self {
                Self(self.0.saturating_add(length))
            }
        }
    )+};
}

point!(BootTime, MonoTime);

impl Now {
    /// Both clocks advanced by `length`: what a test or a model uses.
    #[must_use]
    pub fn after(self, length: Duration) -> Self {
        Self {
            boot: self.boot + length,
            mono: self.mono + length,
        }
    }
}
