//! What a worker may do at this moment, published for the code that does it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use metashard_api::id::{Epoch, Incarnation, ReplicaId, ShardId};
use serde::{Deserialize, Serialize};

use crate::{
    map::Map,
    message::Claim,
    time::{BootTime, Now},
};

/// The right to write for one ownership of a shard, until a deadline. Every write needs one as an argument.
///
/// Only [`Standing::authority`] makes it. One that is kept across a renewal of the Lease has the earlier deadline, so
/// it is never too good; fetch a new one before each hook call and each write.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Authority {
    claim: Claim,
    member: Arc<Member>,
    deadline: BootTime,
}

/// A snapshot of what the worker may do. Cheap to clone and to replace at each renewal.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Standing {
    pub(super) phase: Phase,
    pub(super) member: Option<Arc<Member>>,
    pub(super) deadline: BootTime,
    pub(super) shards: Arc<BTreeMap<ShardId, Held>>,
    pub(super) map: Option<Arc<Map>>,
}

/// Where the worker's membership stands.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub enum Phase {
    /// Has not read a map yet, or its dispatcher has not answered yet.
    #[default]
    Starting,
    /// Has read a map; its Lease is not confirmed yet.
    Joining,
    /// Its Lease is confirmed.
    Member,
    /// A member whose acting deadline has passed: it does nothing until its Lease is renewed.
    Suspended,
    /// Lost its membership; waits for its last requests before it joins as a new incarnation.
    Ending,
    /// Shuts down: hands over what it holds.
    Leaving,
    /// Shut down.
    Left,
}

/// One shard that the worker holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Held {
    /// Which ownership.
    pub epoch: Epoch,
    /// How far it has come.
    pub state: HeldState,
}

/// How far one ownership has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum HeldState {
    /// Its caches are not known yet to be as new as the last owner's writes.
    Starting,
    /// At work.
    Acting,
    /// Takes no new keys; what runs may still write.
    Draining,
}

/// Replica and incarnation of a member.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Member {
    pub(super) replica: ReplicaId,
    pub(super) incarnation: Incarnation,
}

impl Authority {
    /// The ownership it is for.
    pub fn claim(&self) -> Claim {
        self.claim
    }

    /// The shard it is for.
    pub fn shard(&self) -> ShardId {
        self.claim.shard
    }

    /// The epoch it is for.
    pub fn epoch(&self) -> Epoch {
        self.claim.epoch
    }

    /// The replica that may act.
    pub fn replica(&self) -> &ReplicaId {
        &self.member.replica
    }

    /// Its membership.
    pub fn incarnation(&self) -> &Incarnation {
        &self.member.incarnation
    }

    /// Until when it may act.
    pub fn deadline(&self) -> BootTime {
        self.deadline
    }

    /// How long it is still good for; zero once it has ended.
    pub fn remaining(&self, now: Now) -> Duration {
        now.boot.until(self.deadline)
    }
}

impl Standing {
    /// The right to act for `shard` at `now`; `None` if the worker does not hold the shard, or is past its deadline.
    ///
    /// A draining shard still has it, for what runs already; see [`Self::may_begin`] for new work.
    pub fn authority(&self, shard: ShardId, now: Now) -> Option<Authority> {
        let held = self.shards.get(&shard)?;
        let member = self.member.as_ref()?;
        (now.boot < self.deadline).then(|| Authority {
            claim: Claim {
                shard,
                epoch: held.epoch,
            },
            member: Arc::clone(member),
            deadline: self.deadline,
        })
    }

    /// Whether a key of `claim` may be taken from the queue at `now`: held, at work, and before the deadline.
    pub fn may_begin(&self, claim: Claim, now: Now) -> bool {
        now.boot < self.deadline
            && self
                .shards
                .get(&claim.shard)
                .is_some_and(|held| held.epoch == claim.epoch && held.state == HeldState::Acting)
    }

    /// Where the membership stands.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The current incarnation, from its first confirmed Lease until it is lost.
    pub fn incarnation(&self) -> Option<&Incarnation> {
        self.member.as_ref().map(|member| &member.incarnation)
    }

    /// The acting deadline; zero while there is none.
    pub fn deadline(&self) -> BootTime {
        self.deadline
    }

    /// The shards held, in order.
    pub fn shards(&self) -> impl ExactSizeIterator<Item = (ShardId, Held)> + '_ {
        self.shards.iter().map(|(shard, held)| (*shard, *held))
    }

    /// The same, as one value: as long as it is the same one, nothing of it has changed.
    pub(crate) fn table(&self) -> &Arc<BTreeMap<ShardId, Held>> {
        &self.shards
    }

    /// What is held of `shard`.
    pub fn held(&self, shard: ShardId) -> Option<Held> {
        self.shards.get(&shard).copied()
    }

    /// The newest map seen: number of shards and slices of controllers are taken from here only.
    pub fn map(&self) -> Option<&Arc<Map>> {
        self.map.as_ref()
    }
}
