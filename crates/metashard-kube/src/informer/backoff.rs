//! When a list or watch is tried again.

use std::time::Duration;

/// Longest wait between two attempts: a right that is granted, or an API server that is back, is noticed within it.
const LONGEST: Duration = Duration::from_secs(30);
/// First wait: spread over this, so that all watches of all replicas do not come back at once after a restart.
const FIRST: Duration = Duration::from_secs(1);
/// A watch that lasted so long was not a failure.
const HEALTHY: Duration = Duration::from_secs(10);

/// Counts failures in a row.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The wait after a watch that lasted `lived`, or after an attempt that brought none (`None`).
    ///
    /// `random` is drawn evenly from 0 to 1. `asked` is what the API server asked for.
    ///
    /// The first wait after a healthy time is 0 to 1 s, then they double from 1 s to 30 s, each between a half and the
    /// whole of that.
    pub(crate) fn wait(
        &mut self,
        lived: Option<Duration>,
        asked: Option<Duration>,
        random: f64,
    ) -> Duration {
        if lived.is_some_and(|lived| lived >= HEALTHY) {
            self.failures = 0;
        }
        let wait = match self.failures {
            0 => FIRST.mul_f64(random),
            n => {
                let whole = FIRST.saturating_mul(1 << (n - 1).min(5)).min(LONGEST);
                whole.mul_f64(0.5 + random / 2.0)
            }
        };
        self.failures = self.failures.saturating_add(1);
        wait.max(asked.unwrap_or_default()).min(LONGEST)
    }
}

/// A number drawn evenly from 0 to 1; not fit for secrets.
pub(crate) fn random() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    // Each `RandomState` has keys of its own, so the hash of anything is as good as a random number.
    let drawn = RandomState::new().hash_one(0_u8) >> 32;
    f64::from(u32::try_from(drawn).unwrap_or(0)) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(lived: Option<Duration>) -> Vec<u128> {
        let mut backoff = Backoff::default();
        (0..8)
            .map(|_| backoff.wait(lived, None, 1.0).as_millis())
            .collect()
    }

    #[test]
    fn waits_double_up_to_half_a_minute() {
        assert_eq!(
            waits(None),
            [1000, 1000, 2000, 4000, 8000, 16000, 30000, 30000]
        );
        assert_eq!(Backoff::default().wait(None, None, 0.0), Duration::ZERO);
    }

    #[test]
    fn a_watch_that_ends_at_once_again_and_again_is_a_failure() {
        assert_eq!(waits(Some(Duration::from_millis(5)))[6], 30000);
        assert_eq!(waits(Some(Duration::from_secs(60)))[6], 1000);
    }

    #[test]
    fn the_api_server_may_ask_for_more_but_not_for_ever() {
        let mut backoff = Backoff::default();
        assert_eq!(
            backoff.wait(None, Some(Duration::from_secs(5)), 0.5),
            Duration::from_secs(5)
        );
        assert_eq!(
            backoff.wait(None, Some(Duration::from_secs(600)), 0.5),
            Duration::from_secs(30)
        );
    }

    #[test]
    fn random_numbers_spread() {
        let drawn: Vec<_> = (0..100).map(|_| random()).collect();
        assert!(drawn.iter().all(|number| (0.0..=1.0).contains(number)));
        assert!(
            drawn.iter().any(|&number| number < 0.3) && drawn.iter().any(|&number| number > 0.7)
        );
    }
}
