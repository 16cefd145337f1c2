//! Pulses: proof that the loops of the process still turn.
//!
//! A loop that is stuck for good holds the process up without ending it. So each main loop says at every turn when that
//! was, and wakes up for it now and then; who asks is told of those that have not for too long.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use metashard_fleet::time::MonoTime;
use parking_lot::Mutex;

use crate::clock::Clock;

/// How often a loop that has nothing to do turns for its pulse.
pub const INTERVAL: Duration = Duration::from_secs(5);

/// Loops that live. One list for the process, as it is about the process.
static LOOPS: Mutex<Vec<Known>> = Mutex::new(Vec::new());

struct Known {
    name: &'static str,
    /// Milliseconds of the monotonic clock.
    last: Weak<AtomicU64>,
}

/// The pulse of one loop. A loop that ends drops it, and is asked after no more.
#[derive(Debug)]
pub struct Pulse {
    last: Arc<AtomicU64>,
    clock: Clock,
}

impl Pulse {
    /// The pulse of a loop that begins now, and whose name is shown to people.
    pub fn of(name: &'static str, clock: &Clock) -> Self {
        let last = Arc::new(AtomicU64::new(millis(clock.now().mono)));
        let mut loops = LOOPS.lock();
        loops.retain(|it| it.last.strong_count() > 0);
        loops.push(Known {
            name,
            last: Arc::downgrade(&last),
        });
        Self {
            last,
            clock: clock.clone(),
        }
    }

    /// The loop turns.
    pub fn beat(&self) {
        let now = millis(self.clock.now().mono);
        self.last.store(now, Ordering::Relaxed);
    }

    /// Beats, and returns when the next beat is due: one more thing for the loop to wait for.
    pub async fn next(&self) {
        self.beat();
        self.clock.sleep(INTERVAL).await;
    }
}

/// The loops that have not turned for `limit` or longer, by name.
pub fn stopped(now: MonoTime, limit: Duration) -> Vec<&'static str> {
    let now = millis(now);
    let limit = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
    let is_stopped = |known: &&Known| {
        let last = known.last.upgrade();
        last.is_some_and(|last| now.saturating_sub(last.load(Ordering::Relaxed)) >= limit)
    };
    let loops = LOOPS.lock();
    loops
        .iter()
        .filter(is_stopped)
        .map(|known| known.name)
        .collect()
}

fn millis(time: MonoTime) -> u64 {
    u64::try_from(time.0.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::{task::Poll, time::SystemTime};

    use metashard_fleet::time::Now;

    use super::*;
    use crate::clock::ManualClock;

    const LIMIT: Duration = Duration::from_secs(30);

    #[test]
    fn a_loop_that_does_not_turn_is_named_until_it_turns_again_or_ends() {
        let manual = ManualClock::new(Now::default(), SystemTime::UNIX_EPOCH);
        let clock = manual.clock();
        let is_stopped = || stopped(clock.now().mono, LIMIT).contains(&"stuck");
        let pulse = Pulse::of("stuck", &clock);
        assert!(!is_stopped());

        manual.advance(LIMIT);
        assert!(is_stopped());
        pulse.beat();
        assert!(!is_stopped());

        manual.advance(LIMIT);
        drop(pulse);
        assert!(!is_stopped());
    }

    #[tokio::test]
    async fn a_loop_that_waits_for_nothing_else_turns_in_time() {
        let manual = ManualClock::new(Now::default(), SystemTime::UNIX_EPOCH);
        let clock = manual.clock();
        let pulse = Pulse::of("idle", &clock);

        for _ in 0..10 {
            let turn = pulse.next();
            tokio::pin!(turn);
            let is_waiting =
                std::future::poll_fn(|cx| Poll::Ready(turn.as_mut().poll(cx).is_pending()));
            assert!(is_waiting.await);
            manual.advance(INTERVAL);
            turn.await;
        }

        assert!(!stopped(clock.now().mono, LIMIT).contains(&"idle"));
    }
}
