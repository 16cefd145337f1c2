//! When a list or watch is tried again.

use std::time::Duration;

use http::StatusCode;

/// Longest wait after a refusal.
const LONGEST: Duration = Duration::from_secs(30);
/// Longest wait for a right, or for a kind that is not there: what was waiting for it goes on within 10 s, also on a machine
/// that is busy.
const LONGEST_ABSENT: Duration = Duration::from_secs(5);
/// Longest wait while there is no connection: trying costs nobody much, and work goes on soon after the API server is back.
const LONGEST_UNREACHABLE: Duration = Duration::from_millis(1500);
/// First wait: spread over this, so that all watches of all replicas do not come back at once after a restart.
const FIRST: Duration = Duration::from_secs(1);
/// A watch that lasted so long was not a failure.
const HEALTHY: Duration = Duration::from_secs(10);

/// What an attempt ended with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// A watch that lasted so long.
    Ended(Duration),
    /// No answer.
    Unreachable,
    /// This answer.
    Refused(StatusCode),
}

/// Counts failures of one kind in a row.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Backoff {
    failures: u32,
    last: Option<Failure>,
}

impl Backoff {
    /// The wait after `failure`. `asked` is what the API server asked for. `random` is drawn evenly from 0 to 1.
    ///
    /// The first wait of one kind of failure is 0 to 1 s, then they double from 1 s, each between a half and the whole
    /// of that. A new kind of failure is progress: an API server that starts refuses before it serves.
    pub(crate) fn wait(
        &mut self,
        failure: Failure,
        asked: Option<Duration>,
        random: f64,
    ) -> Duration {
        if !self.goes_on(failure) {
            self.failures = 0;
        }
        self.last = Some(failure);
        let longest = match failure {
            Failure::Unreachable => LONGEST_UNREACHABLE,
            Failure::Refused(StatusCode::FORBIDDEN | StatusCode::NOT_FOUND) => LONGEST_ABSENT,
            Failure::Refused(_) | Failure::Ended(_) => LONGEST,
        };
        let wait = match self.failures {
            0 => FIRST.mul_f64(random),
            n => {
                let whole = FIRST.saturating_mul(1 << (n - 1).min(5)).min(longest);
                whole.mul_f64(0.5 + random / 2.0)
            }
        };
        self.failures = self.failures.saturating_add(1);
        wait.max(asked.unwrap_or_default()).min(LONGEST)
    }

    /// Whether `failure` is one more of the last kind.
    fn goes_on(&self, failure: Failure) -> bool {
        match (self.last, failure) {
            (Some(Failure::Ended(_)), Failure::Ended(lived)) => lived < HEALTHY,
            (last, failure) => last == Some(failure),
        }
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

    const FORBIDDEN: Failure = Failure::Refused(StatusCode::FORBIDDEN);

    fn waits(failure: Failure) -> Vec<u128> {
        let mut backoff = Backoff::default();
        (0..8)
            .map(|_| backoff.wait(failure, None, 1.0).as_millis())
            .collect()
    }

    #[test]
    fn waits_for_a_right_double_up_to_less_than_ten_seconds() {
        assert_eq!(
            waits(FORBIDDEN),
            [1000, 1000, 2000, 4000, 5000, 5000, 5000, 5000]
        );
        assert_eq!(
            Backoff::default().wait(FORBIDDEN, None, 0.0),
            Duration::ZERO
        );
    }

    #[test]
    fn an_api_server_that_is_away_is_tried_every_other_second() {
        assert_eq!(waits(Failure::Unreachable)[2..], [1500; 6]);
    }

    #[test]
    fn an_api_server_that_comes_back_step_by_step_is_not_waited_for_long() {
        let mut backoff = Backoff::default();
        for _ in 0..20 {
            backoff.wait(Failure::Unreachable, None, 1.0);
        }
        assert_eq!(
            backoff.wait(FORBIDDEN, None, 0.5),
            Duration::from_millis(500)
        );
        let not_found = Failure::Refused(StatusCode::NOT_FOUND);
        assert_eq!(
            backoff.wait(not_found, None, 0.5),
            Duration::from_millis(500)
        );
    }

    #[test]
    fn a_watch_that_ends_at_once_again_and_again_is_a_failure() {
        assert_eq!(waits(Failure::Ended(Duration::from_millis(5)))[6], 30000);
        assert_eq!(waits(Failure::Ended(Duration::from_mins(1)))[6], 1000);
    }

    #[test]
    fn the_api_server_may_ask_for_more_but_not_for_ever() {
        let mut backoff = Backoff::default();
        assert_eq!(
            backoff.wait(FORBIDDEN, Some(Duration::from_secs(5)), 0.5),
            Duration::from_secs(5)
        );
        assert_eq!(
            backoff.wait(FORBIDDEN, Some(Duration::from_mins(10)), 0.5),
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
