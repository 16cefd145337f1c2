//! How an observer's own renewals go: who cannot write may not judge others who cannot either.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::{MonoTime, Now};

/// What the replica's own Lease says of its power to write.
///
/// It is told at each answer to a renewal. Renewals go out every quarter of the duration, so after half of one without
/// a word the last renewal is overdue, and nothing is known any more.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Witness {
    renewing_since: Option<MonoTime>,
    overdue: MonoTime,
    patience: Duration,
}

impl Witness {
    /// Nothing is known yet of an own Lease that lasts for `own_duration`.
    pub(crate) fn new(own_duration: Duration) -> Self {
        Self {
            renewing_since: None,
            overdue: MonoTime::default(),
            patience: own_duration / 2,
        }
    }

    /// Takes what [`crate::lease::Hold::renewing_since`] said at `now`.
    pub(crate) fn told(&mut self, now: Now, renewing_since: Option<MonoTime>) {
        self.renewing_since = renewing_since;
        self.overdue = now.mono + self.patience;
    }

    /// Forgets what is overdue. Call it before [`Self::renewing_since`].
    pub(crate) fn expire(&mut self, now: Now) {
        if now.mono >= self.overdue {
            self.renewing_since = None;
        }
    }

    /// Since when every own renewal succeeded; `None`: not now.
    pub(crate) fn renewing_since(&self) -> Option<MonoTime> {
        self.renewing_since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Now {
        Now::default().after(Duration::from_millis(millis))
    }

    #[test]
    fn a_witness_without_a_word_for_half_a_duration_says_nothing_more() {
        let mut witness = Witness::new(Duration::from_secs(4));
        witness.told(at(1_000), Some(at(500).mono));

        witness.expire(at(2_999));
        assert_eq!(witness.renewing_since(), Some(at(500).mono));

        witness.expire(at(3_000));
        assert_eq!(witness.renewing_since(), None);
    }

    #[test]
    fn a_failed_renewal_silences_the_witness_at_once() {
        let mut witness = Witness::new(Duration::from_secs(4));
        witness.told(at(1_000), Some(at(500).mono));

        witness.told(at(1_500), None);
        witness.expire(at(1_500));

        assert_eq!(witness.renewing_since(), None);
    }
}
