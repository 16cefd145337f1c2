//! How often each shard has changed hands lately, as every candidate sees it in the maps.
//!
//! A shard that is handed from one to the next again and again is let be: that is what bounds a roll-out, where each
//! replica that leaves and each that joins is a reason to move.

use std::collections::BTreeMap;

use metashard_api::{id::ShardId, shard_map::ShardMapSpec};
use serde::{Deserialize, Serialize};

use crate::{leader::recent::Recent, time::Now};

/// After so many moves a shard is moved no more of our own accord.
const MOST: u32 = 2;

/// Moves of shards.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub(crate) struct Turnover {
    shards: BTreeMap<ShardId, Recent>,
}

impl Turnover {
    /// Takes notice of what `new` changes in `old`.
    pub(crate) fn see(&mut self, now: Now, old: &ShardMapSpec, new: &ShardMapSpec) {
        self.shards.retain(|_, it| it.is_remembered(now));
        let n_shards = u16::try_from(new.shards.len()).unwrap_or(u16::MAX);
        for shard in (0..n_shards).map(ShardId) {
            if let (Some((before, _)), Some((after, _))) = (old.owner(shard), new.owner(shard))
                && before != after
            {
                self.shards.entry(shard).or_default().count(now);
            }
        }
    }

    /// Whether `shard` has been moved often enough.
    pub(crate) fn is_restless(&self, now: Now, shard: ShardId) -> bool {
        let moves = self.shards.get(&shard);
        moves.is_some_and(|moves| moves.n(now) >= MOST)
    }
}

#[cfg(test)]
mod tests {
    use metashard_api::shard_map::{Member, ShardEntry};

    use super::*;
    use crate::leader::recent::REMEMBERED;

    const SHARD: ShardId = ShardId(0);

    fn owned_by(owner: Option<&str>) -> ShardMapSpec {
        let member = |name: &str| Member {
            replica: name.to_owned(),
            incarnation: name.to_owned(),
        };
        let entry = ShardEntry {
            owner: owner.map(|_| 0),
            ..ShardEntry::default()
        };
        ShardMapSpec {
            members: owner.into_iter().map(member).collect(),
            shards: vec![entry],
            ..ShardMapSpec::default()
        }
    }

    fn seen(owners: &[Option<&str>]) -> Turnover {
        let mut turnover = Turnover::default();
        for pair in owners.windows(2) {
            turnover.see(Now::default(), &owned_by(pair[0]), &owned_by(pair[1]));
        }
        turnover
    }

    #[test]
    fn shard_is_let_be_after_two_moves_for_ten_minutes() {
        let once = seen(&[Some("a"), Some("b"), Some("b")]);
        let twice = seen(&[Some("a"), Some("b"), Some("c")]);

        assert!(!once.is_restless(Now::default(), SHARD));
        assert!(twice.is_restless(Now::default(), SHARD));
        assert!(!twice.is_restless(Now::default().after(REMEMBERED), SHARD));
    }

    #[test]
    fn first_owner_of_a_shard_is_no_move() {
        let turnover = seen(&[None, Some("a"), None, Some("b"), None, Some("c")]);

        assert!(!turnover.is_restless(Now::default(), SHARD));
    }
}
