//! What the leader machine has to tell people: each is one log line, and most are a count.

use std::time::Duration;

use metashard_api::id::{Incarnation, ReplicaId, ShardId, Term};

use crate::{membership::State, message::Claim};

/// Something that an operator would ask about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Report {
    /// This replica leads: the map names its incarnation.
    LeadGained {
        /// The new term.
        term: Term,
    },
    /// It leads no more; workers carry on with the map as it is.
    LeadLost {
        /// The term it led.
        term: Term,
    },
    /// A worker joined, and may be given shards.
    WorkerJoined {
        /// Its replica.
        replica: ReplicaId,
        /// Its incarnation.
        incarnation: Incarnation,
    },
    /// A worker acts for no shard any more.
    WorkerLost {
        /// Its replica.
        replica: ReplicaId,
        /// Its incarnation.
        incarnation: Incarnation,
        /// How that is known: released, fenced, evicted or gone.
        how: State,
    },
    /// More than half of the workers are silent at once: they get one more duration before they are fenced.
    FencingPostponed {
        /// How many are silent.
        silent: usize,
        /// Of how many.
        workers: usize,
    },
    /// A worker did not release a shard in time and is evicted.
    EvictionBegun {
        /// Its replica.
        replica: ReplicaId,
        /// Its incarnation.
        incarnation: Incarnation,
    },
    /// Shards have a new owner, and the map says so.
    ShardsAssigned {
        /// The new owner.
        to: Incarnation,
        /// Why they changed hands.
        why: Why,
        /// The ownerships that begin.
        claims: Vec<Claim>,
        /// The longest time from a decision to the map's answer.
        took: Duration,
    },
    /// A target did not answer a Warm in time.
    WarmTimedOut {
        /// The target.
        target: Incarnation,
        /// The shards.
        shards: Vec<ShardId>,
    },
    /// The map was deleted, replaced or set back: every worker is evicted before it is made anew.
    MapLost,
}

/// Why a shard changes hands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// It had no owner, or its owner is gone.
    Orphaned,
    /// Its owner wants to leave.
    Leaving,
    /// To balance the load, also for a worker that joined.
    Balance,
}

impl Why {
    /// The value of the metric label `reason`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Orphaned => "orphaned",
            Self::Leaving => "leaving",
            Self::Balance => "balance",
        }
    }
}
