//! What leader and worker say to each other on a session. Times are lengths from receipt, never stamps.

use std::time::Duration;

use metashard_api::id::{Epoch, Incarnation, ReplicaId, Seq, ShardId, Term};

/// One ownership of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Claim {
    /// The shard.
    pub shard: ShardId,
    /// Which ownership of it.
    pub epoch: Epoch,
}

/// How far the old owner's own writes had come when it released a shard: for each kind that it wrote,
/// the highest `resourceVersion` that a write of it was answered with. The new owner's caches wait for it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LastWritten {
    /// `<group>/<version>/<resource>` (`v1/configmaps` for the core group).
    pub resource: String,
    /// The resourceVersion, as text.
    pub resource_version: String,
}

/// From a worker to the leader.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
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
    /// What the shards that it holds cost since the last such message.
    Load {
        /// One entry for each shard that holds a controller.
        shards: Vec<ShardLoad>,
    },
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

/// Load of one shard.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ShardLoad {
    /// The shard.
    pub shard: ShardId,
    /// CPU and hook time spent, per second of wall time, in microseconds.
    pub cost_micros: u64,
    /// Keys waiting.
    pub queued: u32,
    /// Bytes cached for it.
    pub cached_bytes: u64,
}

/// From the leader to a worker. Every message carries the leader's term and the map it stands on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FromLeader {
    /// The leader's term; a worker refuses one lower than the highest in a map that it has read.
    pub term: Term,
    /// The map that this message stands on.
    pub seq: Seq,
    /// What to do.
    pub order: Order,
}

/// What the leader asks for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
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
    },
    /// Stop working on it; answer `Released`.
    Drain {
        /// The ownership.
        claim: Claim,
        /// For running hook calls, from receipt.
        grace: Duration,
    },
}
