//! The one place that reads time: the machine's clocks, or in tests one that is moved by hand or simulated.

mod simulated;

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use metashard_fleet::time::{BootTime, MonoTime, Now};
use rustix::time::{ClockId, Timespec, clock_gettime};
use tokio::sync::watch;

pub use self::simulated::SimulatedClock;

/// Reads and waits for time. Cheap to clone; pass it by value.
#[derive(Debug, Clone)]
pub struct Clock(Source);

/// A clock that stands still until it is moved.
///
/// Sleepers on its [`Clock`] wake when it is moved past their time.
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<watch::Sender<Reading>>);

#[derive(Debug, Clone)]
enum Source {
    System,
    Manual(ManualClock),
    Simulated(SimulatedClock),
}

#[derive(Debug, Clone, Copy)]
struct Reading {
    now: Now,
    wall: SystemTime,
}

impl Clock {
    /// The machine's clocks.
    pub const fn system() -> Self {
        Self(Source::System)
    }

    /// Reads both clocks that decisions are made on.
    pub fn now(&self) -> Now {
        match &self.0 {
            Source::System => Now {
                boot: BootTime(read(BOOT)),
                mono: MonoTime(read(ClockId::Monotonic)),
            },
            Source::Manual(manual) => manual.0.borrow().now,
            Source::Simulated(simulated) => simulated.now(),
        }
    }

    /// The calendar time: for time stamps in objects, certificates and HTTP headers only, since it can jump.
    pub fn wall(&self) -> SystemTime {
        match &self.0 {
            #[expect(
                clippy::disallowed_methods,
                reason = "this is the one place that reads it"
            )]
            Source::System => SystemTime::now(),
            Source::Manual(manual) => manual.0.borrow().wall,
            Source::Simulated(simulated) => simulated.wall(),
        }
    }

    /// Waits for `length` on the monotonic clock.
    pub async fn sleep(&self, length: Duration) {
        self.sleep_until(self.now().mono + length).await;
    }

    /// Waits until `deadline`; returns at once if it has passed.
    pub async fn sleep_until(&self, deadline: MonoTime) {
        match &self.0 {
            Source::System => loop {
                let left = MonoTime(read(ClockId::Monotonic)).until(deadline);
                if left.is_zero() {
                    return;
                }
                tokio::time::sleep(left).await;
            },
            Source::Manual(manual) => {
                let mut readings = manual.0.subscribe();
                // Fails only if the clock is gone, and `self` holds it.
                let reached = readings.wait_for(|reading| reading.now.mono >= deadline);
                drop(reached.await);
            }
            Source::Simulated(simulated) => simulated.sleep_until(deadline).await,
        }
    }

    /// Waits until `deadline`, or for ever without one: what `poll_timeout` of a machine gives.
    pub async fn sleep_until_some(&self, deadline: Option<MonoTime>) {
        match deadline {
            Some(deadline) => self.sleep_until(deadline).await,
            None => std::future::pending().await,
        }
    }
}

impl ManualClock {
    /// A clock that shows `now` and `wall`.
    pub fn new(now: Now, wall: SystemTime) -> Self {
        Self(Arc::new(watch::Sender::new(Reading { now, wall })))
    }

    /// The clock to hand to the code under test.
    pub fn clock(&self) -> Clock {
        Clock(Source::Manual(self.clone()))
    }

    /// Moves all three clocks on by `length` and wakes those whose time has come.
    pub fn advance(&self, length: Duration) {
        self.0.send_modify(|reading| {
            reading.now = reading.now.after(length);
            reading.wall += length;
        });
    }

    /// Moves only the calendar time, as an administrator or NTP would.
    pub fn set_wall(&self, wall: SystemTime) {
        self.0.send_modify(|reading| reading.wall = wall);
    }

    /// Moves only the boot clock on by `length`: the machine was suspended.
    pub fn suspend(&self, length: Duration) {
        self.0
            .send_modify(|reading| reading.now.boot = reading.now.boot + length);
    }
}

/// Runs on while the machine is suspended. Elsewhere than on Linux the monotonic clock stands in for it.
#[cfg(target_os = "linux")]
const BOOT: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const BOOT: ClockId = ClockId::Monotonic;

/// CPU time that this thread has had. Differences within one poll of a task are what the poll cost.
pub fn thread_cpu_time() -> Duration {
    read(ClockId::ThreadCPUTime)
}

/// CPU time that all threads of the process have had.
pub fn process_cpu_time() -> Duration {
    read(ClockId::ProcessCPUTime)
}

fn read(id: ClockId) -> Duration {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(id);
    Duration::new(
        u64::try_from(tv_sec).unwrap_or_default(),
        u32::try_from(tv_nsec).unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    #[test]
    fn system_clock_runs_forward() {
        let clock = Clock::system();

        let earlier = clock.now();
        let later = clock.now();

        assert!(later.mono >= earlier.mono && later.boot >= earlier.boot);
        assert!(earlier.mono.0 > Duration::ZERO);
    }

    #[tokio::test]
    async fn system_sleep_lasts_at_least_its_length() {
        let clock = Clock::system();
        let begin = clock.now();

        clock.sleep(Duration::from_millis(3)).await;

        assert!(clock.now().mono.since(begin.mono) >= Duration::from_millis(3));
    }

    #[tokio::test]
    async fn sleeper_on_a_manual_clock_wakes_only_when_its_time_has_come() {
        let manual = ManualClock::new(Now::default(), SystemTime::UNIX_EPOCH);
        let clock = manual.clock();
        let mut sleep = pin!(clock.sleep(Duration::from_secs(10)));
        assert!(futures_poll_once(sleep.as_mut()).await.is_none());

        manual.advance(Duration::from_secs(9));
        assert!(futures_poll_once(sleep.as_mut()).await.is_none());

        manual.advance(Duration::from_secs(1));
        assert!(futures_poll_once(sleep.as_mut()).await.is_some());
    }

    #[tokio::test]
    async fn without_a_deadline_the_sleep_never_ends() {
        let manual = ManualClock::new(Now::default(), SystemTime::UNIX_EPOCH);
        let clock = manual.clock();
        let mut sleep = pin!(clock.sleep_until_some(None));
        assert!(futures_poll_once(sleep.as_mut()).await.is_none());

        manual.advance(Duration::from_secs(1_000_000));

        assert!(futures_poll_once(sleep.as_mut()).await.is_none());
    }

    #[test]
    fn suspending_moves_the_boot_clock_alone() {
        let manual = ManualClock::new(Now::default(), SystemTime::UNIX_EPOCH);

        manual.suspend(Duration::from_secs(5));

        let now = manual.clock().now();
        assert_eq!(now.boot, BootTime(Duration::from_secs(5)));
        assert_eq!(now.mono, MonoTime(Duration::ZERO));
    }

    async fn futures_poll_once<F: Future>(mut future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        std::future::poll_fn(|cx| {
            std::task::Poll::Ready(match future.as_mut().poll(cx) {
                std::task::Poll::Ready(output) => Some(output),
                std::task::Poll::Pending => None,
            })
        })
        .await
    }
}
