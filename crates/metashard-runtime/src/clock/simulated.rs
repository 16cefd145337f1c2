//! The clocks of a simulated machine: they run with tokio's virtual time, and a process can be stopped on them.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use metashard_fleet::time::{BootTime, MonoTime, Now};
use tokio::{sync::watch, time::Instant};

use super::{Clock, Source};

/// Clocks that run with the virtual time of the runtime that they were made in.
///
/// A process that is stopped does not see time pass: its sleepers sleep on, and its clocks show the time of the stop,
/// until it goes on; then they show the true time at once. After a machine was suspended, the monotonic clock lacks the
/// length of that.
#[derive(Debug, Clone)]
pub struct SimulatedClock(Arc<Clocks>);

#[derive(Debug)]
struct Clocks {
    begin: Instant,
    wall: SystemTime,
    boot_stops: bool,
    run: watch::Sender<Run>,
}

/// Lengths are since the clocks were made.
#[derive(Debug, Clone, Copy, Default)]
struct Run {
    /// When the process was stopped, while it is.
    stopped: Option<Duration>,
    /// How long the machine was suspended.
    suspended: Duration,
}

impl SimulatedClock {
    /// Clocks that show zero and `wall` now. Within a runtime only.
    pub fn new(wall: SystemTime) -> Self {
        Self::with(wall, false)
    }

    /// Clocks whose boot clock stands still with a suspended machine: what a program gets that measures deadlines on
    /// the wrong one.
    pub fn that_stop(wall: SystemTime) -> Self {
        Self::with(wall, true)
    }

    fn with(wall: SystemTime, boot_stops: bool) -> Self {
        Self(Arc::new(Clocks {
            begin: Instant::now(),
            wall,
            boot_stops,
            run: watch::Sender::default(),
        }))
    }

    /// The clock to hand to the code under test.
    pub fn clock(&self) -> Clock {
        Clock(Source::Simulated(self.clone()))
    }

    /// Stops the process at `now`, since its clocks were made.
    pub fn stop(&self, now: Duration) {
        self.0.run.send_modify(|run| run.stopped = Some(now));
    }

    /// Lets the process go on at `now`; `suspended`: not the process alone but its machine had been stopped.
    pub fn go_on(&self, now: Duration, suspended: bool) {
        self.0.run.send_modify(|run| {
            let since = run.stopped.take().unwrap_or(now);
            if suspended {
                run.suspended += now.saturating_sub(since);
            }
        });
    }

    /// Whether the process is stopped.
    pub fn is_stopped(&self) -> bool {
        self.0.run.borrow().stopped.is_some()
    }

    /// Returns once the process is not stopped.
    pub async fn running(&self) {
        let mut run = self.0.run.subscribe();
        // It fails only if the clocks are gone, and `self` holds them.
        drop(run.wait_for(|run| run.stopped.is_none()).await);
    }

    pub(super) fn now(&self) -> Now {
        let run = *self.0.run.borrow();
        let elapsed = run.stopped.unwrap_or_else(|| self.0.begin.elapsed());
        let mono = elapsed.saturating_sub(run.suspended);
        Now {
            boot: BootTime(if self.0.boot_stops { mono } else { elapsed }),
            mono: MonoTime(mono),
        }
    }

    pub(super) fn wall(&self) -> SystemTime {
        self.0.wall + self.now().boot.0
    }

    pub(super) async fn sleep_until(&self, deadline: MonoTime) {
        loop {
            self.running().await;
            let left = self.now().mono.until(deadline);
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn shown(clock: &Clock) -> (Duration, Duration) {
        let now = clock.now();
        (now.boot.0, now.mono.0)
    }

    #[tokio::test(start_paused = true)]
    async fn a_stopped_process_sleeps_on_and_then_sees_all_time_at_once() {
        let clocks = SimulatedClock::new(SystemTime::UNIX_EPOCH);
        let clock = clocks.clock();
        let sleeper = clock.clone();
        let woken = crate::task::spawn("sleeper", async move {
            sleeper.sleep(SECOND).await;
            sleeper.now().mono.0
        });
        tokio::task::yield_now().await;

        clocks.stop(SECOND / 2);
        tokio::time::advance(5 * SECOND).await;
        assert_eq!(shown(&clock), (SECOND / 2, SECOND / 2));
        assert!(!woken.is_finished());
        clocks.go_on(5 * SECOND, false);

        assert!(woken.await.unwrap() >= 5 * SECOND);
        assert_eq!(shown(&clock).0, shown(&clock).1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_suspended_machine_is_missed_by_the_monotonic_clock_alone() {
        let clocks = SimulatedClock::new(SystemTime::UNIX_EPOCH);
        clocks.stop(Duration::ZERO);
        tokio::time::advance(5 * SECOND).await;

        clocks.go_on(5 * SECOND, true);

        let (boot, mono) = shown(&clocks.clock());
        assert_eq!(boot, mono + 5 * SECOND);
    }
}
