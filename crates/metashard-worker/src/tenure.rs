//! What this worker does about each shard, as the fleet driver told it. Pure.

use std::{collections::BTreeMap, time::Duration};

use metashard_api::id::ShardId;
use metashard_fleet::{message::Claim, time::MonoTime, worker::Freshness};

/// What this worker does about one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Tenure {
    /// Keeps its caches filled for a hand-over that may come.
    Warm {
        /// When that was asked for.
        since: MonoTime,
    },
    /// Serves it.
    Owned {
        /// Which ownership.
        claim: Claim,
        /// What its caches must have seen before the first sync.
        freshness: Freshness,
    },
    /// Gives it up.
    Draining {
        /// Which ownership.
        claim: Claim,
    },
}

/// What this worker does about all shards.
#[derive(Debug, Default)]
pub(crate) struct Tenures {
    shards: BTreeMap<ShardId, Tenure>,
    /// The acting deadline has passed and the Lease was not renewed since.
    suspended: bool,
}

impl Tenures {
    /// What is done about `shard`.
    pub(crate) fn get(&self, shard: ShardId) -> Option<&Tenure> {
        self.shards.get(&shard)
    }

    /// The ownership of `shard`, if it is served and not given up.
    pub(crate) fn owned(&self, shard: ShardId) -> Option<(Claim, &Freshness)> {
        match self.shards.get(&shard) {
            Some(Tenure::Owned { claim, freshness }) => Some((*claim, freshness)),
            _ => None,
        }
    }

    /// The ownership under which a controller of `shard` may act now.
    pub(crate) fn acting(&self, shard: ShardId) -> Option<Claim> {
        let (claim, _) = self.owned(shard)?;
        (!self.suspended).then_some(claim)
    }

    /// Keeps caches for `shard`. A shard that is served or given up stays so.
    pub(crate) fn warm(&mut self, shard: ShardId, now: MonoTime) {
        let tenure = self
            .shards
            .entry(shard)
            .or_insert(Tenure::Warm { since: now });
        if let Tenure::Warm { since } = tenure {
            *since = now;
        }
    }

    /// Lets go of shards that were warmed at least `limit` ago and never came here; returns them.
    pub(crate) fn cool(&mut self, now: MonoTime, limit: Duration) -> Vec<ShardId> {
        let is_old = |tenure: &Tenure| matches!(tenure, Tenure::Warm { since } if now.since(*since) >= limit);
        let old: Vec<_> = self
            .shards
            .iter()
            .filter(|(_, tenure)| is_old(tenure))
            .map(|(shard, _)| *shard)
            .collect();
        self.shards.retain(|_, tenure| !is_old(tenure));
        old
    }

    /// Serves `claim`.
    pub(crate) fn own(&mut self, claim: Claim, freshness: Freshness) {
        self.shards
            .insert(claim.shard, Tenure::Owned { claim, freshness });
    }

    /// Gives `claim` up; `false` if that is under way already or it was never served.
    pub(crate) fn give_up(&mut self, claim: Claim) -> bool {
        if self.owned(claim.shard).is_none_or(|(it, _)| it != claim) {
            return false;
        }
        self.shards.insert(claim.shard, Tenure::Draining { claim });
        true
    }

    /// `claim` is given up: nothing is left of it.
    pub(crate) fn gone(&mut self, claim: Claim) {
        if self.shards.get(&claim.shard) == Some(&Tenure::Draining { claim }) {
            self.shards.remove(&claim.shard);
        }
    }

    /// Stops acting for all shards, or goes on.
    pub(crate) fn set_suspended(&mut self, suspended: bool) {
        self.suspended = suspended;
    }
}

#[cfg(test)]
mod tests {
    use metashard_api::id::Epoch;

    use super::*;

    const SHARD: ShardId = ShardId(3);

    fn claim(epoch: u64) -> Claim {
        Claim {
            shard: SHARD,
            epoch: Epoch(epoch),
        }
    }

    #[test]
    fn a_warm_order_leaves_a_served_shard_alone() {
        let mut tenures = Tenures::default();
        tenures.own(claim(1), Freshness::Crash);

        tenures.warm(SHARD, MonoTime::default());

        assert_eq!(tenures.acting(SHARD), Some(claim(1)));
    }

    #[test]
    fn a_suspended_worker_owns_and_does_not_act() {
        let mut tenures = Tenures::default();
        tenures.own(claim(1), Freshness::Crash);

        tenures.set_suspended(true);
        assert_eq!(tenures.acting(SHARD), None);
        assert!(tenures.owned(SHARD).is_some());

        tenures.set_suspended(false);
        assert_eq!(tenures.acting(SHARD), Some(claim(1)));
    }

    #[test]
    fn a_shard_is_given_up_once() {
        let mut tenures = Tenures::default();
        tenures.own(claim(1), Freshness::Crash);

        assert!(tenures.give_up(claim(1)));
        assert!(!tenures.give_up(claim(1)));
        assert_eq!(tenures.acting(SHARD), None);
    }

    #[test]
    fn the_end_of_an_old_ownership_leaves_a_newer_one_alone() {
        let mut tenures = Tenures::default();
        tenures.own(claim(1), Freshness::Crash);
        tenures.give_up(claim(1));
        tenures.own(claim(2), Freshness::Crash);

        tenures.gone(claim(1));

        assert_eq!(tenures.acting(SHARD), Some(claim(2)));
    }

    #[test]
    fn a_warm_shard_that_never_comes_is_let_go_and_a_served_one_is_not() {
        let limit = Duration::from_mins(1);
        let mut tenures = Tenures::default();
        tenures.warm(SHARD, MonoTime::default());
        assert_eq!(tenures.cool(MonoTime(limit / 2), limit), []);

        tenures.own(claim(1), Freshness::Crash);
        assert_eq!(tenures.cool(MonoTime(limit), limit), []);

        tenures.warm(ShardId(4), MonoTime::default());
        assert_eq!(tenures.cool(MonoTime(limit), limit), [ShardId(4)]);
        assert_eq!(tenures.get(ShardId(4)), None);
    }
}
