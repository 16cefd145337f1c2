//! What a leader knows at one moment, read-only: what plans are made from.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use metashard_api::id::{Epoch, Incarnation, ShardId};
use serde::{Deserialize, Serialize};

use crate::{
    leader::{cost::Costs, recutting::Recutting, turnover::Turnover},
    map::Map,
    membership::Membership,
    rules::Rules,
    time::MonoTime,
    wishes::Wishes,
};

/// What workers have told this leader on their sessions. Proves nothing of their life.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub(crate) struct Peers {
    /// Who has a session.
    pub(crate) sessions: BTreeSet<Incarnation>,
    /// Who wants to leave, and how long it is willing to work on. For good: a session that ends does not take it back.
    pub(crate) leaving: BTreeMap<Incarnation, Duration>,
    /// What their work costs.
    pub(crate) costs: Costs,
}

impl Peers {
    /// Forgets those that `is_known` does not know any more.
    pub(crate) fn retain(&mut self, is_known: impl Fn(&Incarnation) -> bool) {
        self.leaving.retain(|it, _| is_known(it));
        self.costs.retain(is_known);
    }
}

/// Read access to all that matters for a plan.
#[derive(Debug, Clone, Copy)]
pub(crate) struct World<'a> {
    /// The workers' Leases.
    pub(crate) membership: &'a Membership,
    /// The newest map.
    pub(crate) map: &'a Map,
    /// Its table of incarnations.
    pub(crate) members: &'a [Incarnation],
    /// What the workers said.
    pub(crate) peers: &'a Peers,
    /// How many controllers each shard holds.
    pub(crate) controllers: &'a BTreeMap<ShardId, u32>,
    /// How often shards have changed hands.
    pub(crate) turnover: &'a Turnover,
    /// Who joined and waits for a share, and until when.
    pub(crate) held_back: &'a BTreeMap<Incarnation, MonoTime>,
    /// The change of splits under way.
    pub(crate) recutting: Option<&'a Recutting>,
    /// What people ask.
    pub(crate) wishes: &'a Wishes,
    /// All rules, except in a test of one.
    pub(crate) rules: Rules,
}

impl<'a> World<'a> {
    /// All shards of the map.
    pub(crate) fn shards(&self) -> impl Iterator<Item = ShardId> + use<> {
        let n_shards = u16::try_from(self.map.spec.shards.len()).unwrap_or(u16::MAX);
        (0..n_shards).map(ShardId)
    }

    /// The owner of `shard` as the map names it, and the epoch.
    pub(crate) fn owner(&self, shard: ShardId) -> (Option<&'a Incarnation>, Epoch) {
        let Some(entry) = self.map.spec.shards.get(usize::from(shard.0)) else {
            return (None, Epoch::default());
        };
        let owner = entry.owner.and_then(|it| self.members.get(usize::from(it)));
        (owner, entry.epoch)
    }

    /// Who may be given shards.
    pub(crate) fn eligible(&self) -> impl Iterator<Item = &'a Incarnation> {
        let peers = self.peers;
        let membership = self.membership;
        membership
            .workers()
            .map(|(it, _)| it)
            .filter(move |it| membership.is_joined(it) && !peers.leaving.contains_key(*it))
    }

    /// Whether `member` may be given shards.
    pub(crate) fn is_eligible(&self, member: &Incarnation) -> bool {
        self.membership.is_joined(member) && !self.is_leaving(member)
    }

    /// Whether `member` has asked to leave.
    pub(crate) fn is_leaving(&self, member: &Incarnation) -> bool {
        self.peers.leaving.contains_key(member)
    }

    /// How long a leaving member is willing to work on.
    pub(crate) fn leaving_grace(&self, member: &Incarnation) -> Duration {
        self.peers.leaving.get(member).copied().unwrap_or_default()
    }

    /// Whether `member` can be told something.
    pub(crate) fn has_session(&self, member: &Incarnation) -> bool {
        self.peers.sessions.contains(member)
    }

    /// How many controllers `shard` holds.
    pub(crate) fn n_controllers(&self, shard: ShardId) -> u32 {
        self.controllers.get(&shard).copied().unwrap_or_default()
    }
}
