//! The optional limit on requests per second: a token bucket whose tokens may be taken in advance.

use std::time::Duration;

use metashard_fleet::time::MonoTime;
use metashard_runtime::clock::Clock;
use parking_lot::Mutex;

/// The peer's default of `--client-go-burst`.
const DEFAULT_BURST: u32 = 10;

/// Lets requests through at a rate, or all of them.
#[derive(Debug)]
pub(crate) struct Limit(Option<Bucket>);

#[derive(Debug)]
struct Bucket {
    /// Tokens per second; above 0.
    rate: f64,
    burst: f64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Below 0: so many requests wait already.
    tokens: f64,
    at: MonoTime,
}

impl Limit {
    /// `qps` absent, zero or negative: no limit.
    pub(crate) fn new(qps: Option<f64>, burst: Option<u32>) -> Self {
        let burst = f64::from(burst.unwrap_or(DEFAULT_BURST).max(1));
        Self(qps.filter(|qps| *qps > 0.0).map(|rate| Bucket {
            rate,
            burst,
            state: Mutex::new(State {
                tokens: burst,
                at: MonoTime::default(),
            }),
        }))
    }

    /// Returns when the request may be sent.
    pub(crate) async fn admit(&self, clock: &Clock) {
        if let Some(bucket) = &self.0 {
            let wait = bucket.take(clock.now().mono);
            if !wait.is_zero() {
                clock.sleep(wait).await;
            }
        }
    }
}

impl Bucket {
    /// Takes one token; returns how long to wait until it is there.
    fn take(&self, now: MonoTime) -> Duration {
        let mut state = self.state.lock();
        let grown = now.since(state.at).as_secs_f64() * self.rate;
        state.tokens = (state.tokens + grown).min(self.burst) - 1.0;
        state.at = now;
        // The rate is above 0 and tokens are finite, so this is a finite length; a tiny rate is cut at an hour.
        let missing = (-state.tokens / self.rate).clamp(0.0, 3600.0);
        Duration::from_secs_f64(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_what_follows_waits_its_turn() {
        let bucket = Limit::new(Some(10.0), Some(2)).0.unwrap();
        let now = MonoTime(Duration::from_secs(100));

        let waits: Vec<_> = (0..4).map(|_| bucket.take(now).as_millis()).collect();

        assert_eq!(waits, [0, 0, 100, 200]);
    }

    #[test]
    fn an_idle_bucket_holds_no_more_than_its_burst() {
        let bucket = Limit::new(Some(10.0), Some(2)).0.unwrap();
        bucket.take(MonoTime(Duration::from_secs(100)));

        let later = MonoTime(Duration::from_secs(200));
        let waits: Vec<_> = (0..3).map(|_| bucket.take(later).as_millis()).collect();

        assert_eq!(waits, [0, 0, 100]);
    }

    #[test]
    fn no_rate_is_no_limit() {
        assert!(Limit::new(None, Some(5)).0.is_none());
        assert!(Limit::new(Some(-1.0), None).0.is_none());
        assert!(Limit::new(Some(f64::NAN), None).0.is_none());
    }
}
