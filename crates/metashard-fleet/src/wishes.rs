//! What people ask of placement, as one state of the Placement object says it, and what they are told of it.

use std::borrow::Cow;

use metashard_api::id::{ControllerUid, ReplicaId};
use serde::{Deserialize, Serialize};

/// One state of the Placement. Nothing is asked by default: there is none.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Wishes {
    /// `metadata.generation`; 0: there is no Placement.
    pub generation: i64,
    /// `spec.cordoned`, in its order.
    pub cordoned: Vec<ReplicaId>,
    /// `spec.pins`, in its order.
    pub pins: Vec<Pin>,
    /// `spec.rebalance`; empty: nothing was ever asked.
    pub rebalance: String,
    /// `status.observedRebalance`.
    pub observed_rebalance: String,
}

/// Where one shard, or that of one controller, should be.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pin {
    /// What should be there.
    pub what: Pinned,
    /// Name of the replica.
    pub replica: ReplicaId,
}

/// What a pin is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Pinned {
    /// The shard of this number.
    Shard(u16),
    /// Those of the controllers that have this name or uid.
    Controller(String, Vec<ControllerUid>),
    /// It names both or neither.
    Unclear,
}

/// What people are told: the status of the Placement.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Told {
    /// The generation that it is about.
    pub generation: i64,
    /// `status.observedRebalance`; empty: none.
    pub observed_rebalance: String,
    /// The conditions.
    pub findings: Vec<Finding>,
}

/// One condition, without its time.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Finding {
    /// One of `metashard_api::names::condition`.
    pub condition: Cow<'static, str>,
    /// Whether it holds.
    pub holds: bool,
    /// One of `metashard_api::names::reason`.
    pub reason: Cow<'static, str>,
    /// For people: names the field.
    pub message: String,
}
