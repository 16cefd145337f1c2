//! What leader and worker say to each other on a session. Times are lengths from receipt, never stamps.

use serde::{Deserialize, Serialize};
use std::time::Duration;

use metashard_api::id::{ControllerUid, Epoch, Incarnation, ReplicaId, Seq, ShardId, Slice, Term};

/// One ownership of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Claim {
    /// The shard.
    pub shard: ShardId,
    /// Which ownership of it.
    pub epoch: Epoch,
}

/// How far the old owner's own writes had come when it released a shard: for each kind that it wrote,
/// the highest `resourceVersion` that a write of it was answered with. The new owner's caches wait for it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LastWritten {
    /// `<group>/<version>/<resource>` (`v1/configmaps` for the core group).
    pub resource: String,
    /// The resourceVersion, as text.
    pub resource_version: String,
}

/// From a worker to the leader.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FromWorker {
    /// First message of a session.
    Hello {
        /// Name of the replica.
        replica: ReplicaId,
        /// Its membership.
        incarnation: Incarnation,
        /// What it holds.
        held: Vec<Claim>,
        /// What it released, while the map shows no newer epoch.
        released: Vec<Claim>,
    },
    /// What it cost to serve what it holds, since the last such message; every 5 s.
    Load(Load),
    /// The caches that `shard` needs are filled.
    WarmReady {
        /// The shard asked for.
        shard: ShardId,
    },
    /// Gate closed, nothing in flight: this ownership is over, for good.
    Released {
        /// The ownership.
        claim: Claim,
        /// Where its writes ended, for each kind of it. Empty: not known, as after a crash.
        last_written: Vec<LastWritten>,
    },
    /// The replica shuts down and wants to hand over all that it holds within `grace`.
    Leaving {
        /// Length from receipt.
        grace: Duration,
    },
}

/// Most controllers that one [`Load`] names: those that cost most.
pub const MAX_CONTROLLER_LOADS: usize = 128;

/// What a worker's work has cost lately.
///
/// A **cost** is in microseconds for each second of wall time: the CPU time of passes, the time of hook calls, and the
/// work that waits, as if it were to be done within a minute.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Load {
    /// One entry for each shard that holds a controller.
    pub shards: Vec<ShardLoad>,
    /// The controllers that cost most, heaviest first, at most [`MAX_CONTROLLER_LOADS`].
    pub controllers: Vec<ControllerLoad>,
    /// How much of what the process can do it does, in thousandths: of its CPUs, or of its slots for passes, whichever
    /// is nearer to its end.
    pub busy_permille: u32,
}

/// Load of one shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ShardLoad {
    /// The shard.
    pub shard: ShardId,
    /// What it costs.
    pub cost_micros: u64,
    /// Keys waiting.
    pub queued: u32,
    /// Bytes in the caches that its controllers look at. One that several look at counts for each of them.
    pub cached_bytes: u64,
}

/// Load of one controller, or of one slice of a controller that is split.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ControllerLoad {
    /// The controller.
    pub controller: ControllerUid,
    /// Which slice of it.
    pub slice: Slice,
    /// What it costs.
    pub cost_micros: u64,
}

/// From the leader to a worker. Every message carries the leader's term and the map it stands on.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FromLeader {
    /// The leader's term; a worker refuses one lower than the highest in a map that it has read.
    pub term: Term,
    /// The map that this message stands on.
    pub seq: Seq,
    /// What to do.
    pub order: Order,
}

/// What the leader asks for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Order {
    /// Fill the caches for `shard`; answer `WarmReady`.
    Warm {
        /// The shard.
        shard: ShardId,
    },
    /// The map of (term, seq) gives you this ownership.
    Assign {
        /// The ownership.
        claim: Claim,
        /// Where the old owner's writes ended, if it released. Empty: not known, as after a crash.
        last_written: Vec<LastWritten>,
        /// The map that may have changed last how controllers are split. Who has not seen one as new does not know which
        /// parents belong to the ownership.
        splits_as_of: (Term, Seq),
    },
    /// Stop working on it; answer `Released`.
    Drain {
        /// The ownership.
        claim: Claim,
        /// For running hook calls, from receipt.
        grace: Duration,
    },
}
