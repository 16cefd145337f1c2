//! How long a failing key waits: exponential, with jitter from a seeded generator.

use std::time::Duration;

use super::{MAX_BACKOFF, MIN_BACKOFF};

/// A SplitMix64 generator: small, and good enough to spread retries.
#[derive(Debug, Clone)]
pub(super) struct Jitter {
    state: u64,
}

impl Jitter {
    pub(super) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The delay after `failures` earlier failures in a row: between half and all of the peer's, so that keys
    /// which failed together do not come again together, and none comes later than the peer's would.
    pub(super) fn delay(&mut self, failures: u32) -> Duration {
        let full = 2_u32
            .checked_pow(failures)
            .and_then(|factor| MIN_BACKOFF.checked_mul(factor))
            .map_or(MAX_BACKOFF, |delay| delay.min(MAX_BACKOFF));
        let half = full / 2;
        let nanos = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX);
        half + Duration::from_nanos(self.next() % nanos.max(1))
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_doubles_from_five_milliseconds_to_the_cap() {
        let mut jitter = Jitter::new(1);

        for (failures, full_millis) in [
            (0, 5),
            (1, 10),
            (2, 20),
            (17, 655_360),
            (18, 1_000_000),
            (500, 1_000_000),
        ] {
            for _ in 0..100 {
                let delay = jitter.delay(failures);
                let full = Duration::from_millis(full_millis);
                assert!(delay >= full / 2 && delay <= full, "{failures}: {delay:?}");
            }
        }
    }

    #[test]
    fn delay_is_spread_and_the_same_for_the_same_seed() {
        let delays = |seed| {
            let mut jitter = Jitter::new(seed);
            (0..100).map(|_| jitter.delay(8)).collect::<Vec<_>>()
        };

        let mut distinct = delays(7);
        assert_eq!(delays(7), distinct);
        assert_ne!(delays(8), distinct);
        distinct.sort_unstable();
        distinct.dedup();
        assert!(distinct.len() > 90);
    }
}
