//! What people ask, as the leader's world understands it: names of replicas and controllers become members and shards.

use std::collections::{BTreeMap, BTreeSet};

use metashard_api::id::{Incarnation, ReplicaId, ShardId};

use crate::{
    handover::HandOvers,
    leader::world::World,
    membership::Worker,
    placement::{self, Ordinal},
    rules::Rule,
    shard::Layout,
    wishes::Pinned,
};

impl<'a> World<'a> {
    /// Whether `member` is of a replica that is cordoned.
    pub(crate) fn is_cordoned(&self, member: &Incarnation) -> bool {
        !self.wishes.cordoned.is_empty()
            && self
                .replica(member)
                .is_some_and(|it| self.wishes.cordoned.contains(it))
    }

    /// Whether `member` may be given anything: not while it is cordoned, unless all are.
    pub(crate) fn may_get(&self, member: &Incarnation) -> bool {
        self.is_eligible(member) && (!self.is_cordoned(member) || self.is_closed())
    }

    /// All that might be given shards are cordoned.
    pub(crate) fn is_closed(&self) -> bool {
        self.eligible().all(|it| self.is_cordoned(it))
    }

    /// Name of the replica of `member`.
    pub(crate) fn replica(&self, member: &Incarnation) -> Option<&'a ReplicaId> {
        self.membership.worker(member).and_then(Worker::replica)
    }

    /// The shards that the pin of this index is about.
    pub(crate) fn shards_pinned_by(&self, index: usize) -> BTreeSet<ShardId> {
        let n_shards = self.map.spec.shards.len();
        match self.wishes.pins.get(index).map(|it| &it.what) {
            Some(Pinned::Shard(shard)) if usize::from(*shard) < n_shards => {
                BTreeSet::from([ShardId(*shard)])
            }
            Some(Pinned::Controller(_, uids)) if n_shards > 0 => {
                let layout = Layout::of(&self.map.spec);
                uids.iter().flat_map(|uid| layout.shards(uid)).collect()
            }
            Some(Pinned::Shard(_) | Pinned::Controller(..) | Pinned::Unclear) | None => {
                BTreeSet::new()
            }
        }
    }

    /// Each shard that is pinned, and the index of the first pin of it: of several that contradict each other that one counts.
    pub(crate) fn pinned(&self) -> BTreeMap<ShardId, usize> {
        let mut pinned = BTreeMap::new();
        for index in 0..self.wishes.pins.len() {
            for shard in self.shards_pinned_by(index) {
                pinned.entry(shard).or_insert(index);
            }
        }
        pinned
    }

    /// What is wished of a placement of `members`. What is being moved is no matter of it any more.
    pub(crate) fn wished(
        &self,
        members: &[&Incarnation],
        hand_overs: &HandOvers,
    ) -> placement::wishes::Wishes {
        let ordinals = || members.iter().copied().zip((0..=u16::MAX).map(Ordinal));
        let is_cordoned =
            |it: &Incarnation| self.rules.keep(Rule::CordonedGetNothing) && self.is_cordoned(it);
        let cordoned = ordinals().filter(|(it, _)| is_cordoned(it));
        let mut pins = BTreeMap::new();
        for (shard, index) in self.pinned() {
            let replica = self.wishes.pins.get(index).map(|it| &it.replica);
            let to = ordinals().find(|(it, _)| self.replica(it) == replica);
            if let Some((_, to)) = to
                && hand_overs.get(shard).is_none()
            {
                pins.insert(shard, to);
            }
        }
        placement::wishes::Wishes {
            cordoned: cordoned.map(|(_, it)| it).collect(),
            pins,
        }
    }
}
