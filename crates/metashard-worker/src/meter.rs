//! What serving one controller costs here: the CPU time of its passes, the time of its hook calls, and what waits.
//!
//! CPU time is that of the thread, read before and after each poll of a pass: a poll runs on one thread, whatever the
//! runtime does in between, and what the machine gives to others meanwhile is not in it. Not in it either is what other
//! tasks do for the pass: connections, TLS, the feeding of caches. They are shared by controllers, and grow with the same
//! calls and events that passes grow with.

use std::{
    future::poll_fn,
    pin::pin,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use metashard_fleet::time::MonoTime;
use metashard_runtime::clock::{Clock, thread_cpu_time};
use parking_lot::Mutex;

/// In what time the work that waits should be done.
const BACKLOG_WITHIN: Duration = Duration::from_mins(1);

/// What one controller costs.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    cpu_nanos: AtomicU64,
    passes: AtomicU64,
    calls: Mutex<Calls>,
    /// What an average pass took when one ended last, in microseconds.
    pass_micros: AtomicU64,
}

/// The time of hook calls, counted while they run.
#[derive(Debug, Default)]
struct Calls {
    running: u32,
    /// Up to when `spent` counts.
    counted: MonoTime,
    spent: Duration,
}

/// One hook call, counted until it is dropped.
pub(crate) struct Calling<'a> {
    meter: &'a Meter,
    clock: &'a Clock,
}

/// What one controller has cost over a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Spent {
    /// Of passes.
    pub(crate) cpu: Duration,
    /// Of hook calls.
    pub(crate) calls: Duration,
    /// An average pass, both together.
    pub(crate) pass: Duration,
}

impl Meter {
    /// Runs one pass, counting the CPU time of its polls.
    pub(crate) async fn pass<F: Future>(&self, pass: F) -> F::Output {
        let mut pass = pin!(pass);
        let output = poll_fn(|context| {
            let began = thread_cpu_time();
            let polled = pass.as_mut().poll(context);
            let took = thread_cpu_time().saturating_sub(began);
            let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
            self.cpu_nanos.fetch_add(nanos, Ordering::Relaxed);
            polled
        })
        .await;
        self.passes.fetch_add(1, Ordering::Relaxed);
        output
    }

    /// A hook call begins; it ends when the value is dropped.
    pub(crate) fn call<'a>(&'a self, clock: &'a Clock) -> Calling<'a> {
        let mut calls = self.calls.lock();
        calls.count(clock.now().mono);
        calls.running += 1;
        Calling { meter: self, clock }
    }

    /// What was spent since the last time that it was asked for.
    pub(crate) fn take(&self, now: MonoTime) -> Spent {
        let cpu = Duration::from_nanos(self.cpu_nanos.swap(0, Ordering::Relaxed));
        let calls = {
            let mut calls = self.calls.lock();
            calls.count(now);
            std::mem::take(&mut calls.spent)
        };
        let passes = self.passes.swap(0, Ordering::Relaxed);
        if let Some(micros) = micros(cpu + calls).checked_div(passes) {
            self.pass_micros.store(micros, Ordering::Relaxed);
        }
        Spent {
            cpu,
            calls,
            pass: Duration::from_micros(self.pass_micros.load(Ordering::Relaxed)),
        }
    }
}

impl Calls {
    fn count(&mut self, now: MonoTime) {
        self.spent += now.since(self.counted) * self.running;
        self.counted = self.counted.max(now);
    }
}

impl Drop for Calling<'_> {
    fn drop(&mut self) {
        let mut calls = self.meter.calls.lock();
        calls.count(self.clock.now().mono);
        calls.running = calls.running.saturating_sub(1);
    }
}

impl Spent {
    /// The cost of a controller that spent this within `period` and has `queued` keys waiting: in microseconds for each
    /// second.
    pub(crate) fn cost(&self, period: Duration, queued: u32) -> u64 {
        let millis = u64::try_from(period.as_millis()).unwrap_or(u64::MAX).max(1);
        let spent = micros(self.cpu + self.calls).saturating_mul(1000) / millis;
        let waiting = micros(self.pass).saturating_mul(u64::from(queued));
        spent.saturating_add(waiting / BACKLOG_WITHIN.as_secs())
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use metashard_fleet::time::Now;
    use metashard_runtime::clock::ManualClock;

    use super::*;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[tokio::test]
    async fn a_pass_costs_the_cpu_time_of_its_polls_and_not_its_waiting() {
        let meter = Meter::default();

        meter
            .pass(async {
                let began = thread_cpu_time();
                while thread_cpu_time().saturating_sub(began) < Duration::from_millis(20) {}
                Clock::system().sleep(Duration::from_millis(200)).await;
            })
            .await;

        let cpu = meter.take(MonoTime::default()).cpu;
        assert!(cpu >= Duration::from_millis(20), "{cpu:?}");
        assert!(cpu < Duration::from_millis(120), "{cpu:?}");
        assert_eq!(meter.take(MonoTime::default()).cpu, Duration::ZERO);
    }

    #[test]
    fn calls_count_while_they_run_each_for_itself() {
        let manual = ManualClock::new(Now::default(), SystemTime::UNIX_EPOCH);
        let (clock, meter) = (manual.clock(), Meter::default());

        let first = meter.call(&clock);
        manual.advance(seconds(2));
        let second = meter.call(&clock);
        manual.advance(seconds(3));
        assert_eq!(meter.take(clock.now().mono).calls, seconds(2 + 3 + 3));

        drop(first);
        manual.advance(seconds(1));
        drop(second);
        manual.advance(seconds(9));
        assert_eq!(meter.take(clock.now().mono).calls, seconds(1));
    }

    #[test]
    fn cost_is_time_for_each_second_and_a_sixtieth_of_what_waits() {
        let spent = Spent {
            cpu: Duration::from_millis(100),
            calls: Duration::from_millis(400),
            pass: Duration::from_millis(6),
        };

        assert_eq!(spent.cost(seconds(5), 0), 100_000);
        assert_eq!(spent.cost(seconds(5), 1_000), 200_000);
    }
}
