//! Where all shards are, what they cost and how they stand, as one value that people are shown; and what can be found out from
//! it without a cluster.

mod explain;
mod simulate;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use metashard_api::{
    id::{Epoch, Incarnation, ReplicaId, Seq, ShardId, Term},
    shard_map::ShardMapSpec,
};
use serde::{Deserialize, Serialize};

pub use self::{
    explain::{Explained, Reason},
    simulate::{Carried, Move, Part, Simulated},
};

/// All shards at one moment, and the replicas that may have them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Shards {
    /// Term of the map.
    pub term: Term,
    /// Number of the map within its term.
    pub seq: Seq,
    /// The replicas that live, in the order of their incarnations.
    #[serde(default)]
    pub replicas: Vec<Replica>,
    /// By number.
    #[serde(default)]
    pub shards: Vec<Shard>,
}

/// One replica that works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Replica {
    /// Its name.
    pub replica: ReplicaId,
    /// Its membership.
    pub incarnation: Incarnation,
    /// Weight that it can carry relative to others, in hundredths; 0 stands for 100.
    #[serde(default)]
    pub capacity: u32,
    /// It is about to be replaced by others that are there already.
    #[serde(default)]
    pub retiring: bool,
    /// A Placement cordons it.
    #[serde(default)]
    pub cordoned: bool,
    /// It has asked to leave.
    #[serde(default)]
    pub leaving: bool,
}

/// One shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Shard {
    /// Its number.
    pub shard: ShardId,
    /// The owner as the map names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<ReplicaId>,
    /// Number of this ownership.
    pub epoch: Epoch,
    /// How it stands; `None`: that only a leader knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// The hand-over under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hand_over: Option<UnderWay>,
    /// How many controllers, or slices of split ones, it holds.
    #[serde(default)]
    pub controllers: u32,
    /// What its passes and hook calls take, in microseconds for each second; `None`: not known (yet).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_micros: Option<u64>,
    /// Bytes of the caches that its controllers look at.
    #[serde(default)]
    pub cached_bytes: u64,
    /// What it counts for placement, in the unit of the cost; 0: it holds no controller.
    #[serde(default)]
    pub weight: u64,
    /// The replica that a Placement pins it to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned_to: Option<ReplicaId>,
    /// It was moved so lately that it rests, for so long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rests_seconds: Option<u64>,
    /// How it changed hands last, as this leader has seen it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_hand_over: Option<LastHandOver>,
}

/// How a shard stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// Its owner serves it.
    Owned,
    /// Its owner serves it, and the next one fills its caches.
    Warming,
    /// Its owner is to stop.
    Draining,
    /// Its owner has stopped; the next map gives it away.
    Released,
    /// Its owner's Lease is not renewed, and it is not proven yet that it has stopped.
    Silent,
    /// Nobody has it.
    Unowned,
}

/// A hand-over that has begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnderWay {
    /// To whom; `None`: that is not decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<ReplicaId>,
    /// A reason of `metashard_leader_moves_total`.
    pub reason: String,
    /// How long ago it was decided.
    pub since_seconds: u64,
}

/// A hand-over that is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastHandOver {
    /// How long ago.
    pub ago_seconds: u64,
    /// A reason of `metashard_leader_moves_total`.
    pub reason: String,
    /// From the decision until the map said so; of shards that one map gave away together, the longest.
    pub took_millis: u64,
}

impl Phase {
    /// The word that people are shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Owned => "Owned",
            Self::Warming => "Warming",
            Self::Draining => "Draining",
            Self::Released => "Released",
            Self::Silent => "Silent",
            Self::Unowned => "Unowned",
        }
    }

    /// Whether somebody serves it, or is about to give it away in good order.
    pub const fn is_served(self) -> bool {
        matches!(
            self,
            Self::Owned | Self::Warming | Self::Draining | Self::Released
        )
    }
}

impl Shards {
    /// As much as a map alone tells: owners and epochs. `controllers`: how many each shard holds, as far as is known; what they
    /// cost is not, so each counts the same.
    pub fn of_map(map: &ShardMapSpec, controllers: &BTreeMap<ShardId, u32>) -> Self {
        let replicas = map.members.iter().map(|member| Replica {
            replica: ReplicaId::new(member.replica.as_str()),
            incarnation: Incarnation::new(member.incarnation.as_str()),
            capacity: 0,
            retiring: false,
            cordoned: false,
            leaving: false,
        });
        let shards = (0..=u16::MAX).map(ShardId).zip(&map.shards);
        let shards = shards.map(|(shard, entry)| {
            let owner = map.owner(shard).map(|(member, _)| member.replica.as_str());
            let n = controllers.get(&shard).copied().unwrap_or(0);
            Shard {
                owner: owner.map(ReplicaId::new),
                controllers: n,
                weight: u64::from(n),
                ..Shard::new(shard, entry.epoch)
            }
        });
        Self {
            term: map.term,
            seq: map.seq,
            replicas: replicas.collect(),
            shards: shards.collect(),
        }
    }

    /// One shard.
    pub fn get(&self, shard: ShardId) -> Option<&Shard> {
        self.shards.get(usize::from(shard.0))
    }

    /// The replica of this name.
    pub fn replica(&self, name: &str) -> Option<&Replica> {
        self.replicas.iter().find(|it| it.replica.as_str() == name)
    }
}

impl Shard {
    /// A shard of which nothing else is known.
    pub fn new(shard: ShardId, epoch: Epoch) -> Self {
        Self {
            shard,
            owner: None,
            epoch,
            phase: None,
            hand_over: None,
            controllers: 0,
            cost_micros: None,
            cached_bytes: 0,
            weight: 0,
            pinned_to: None,
            rests_seconds: None,
            last_hand_over: None,
        }
    }
}
