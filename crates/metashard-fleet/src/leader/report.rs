//! What the leader machine has to tell people: each is one log line, and most are a count.

use std::time::Duration;

use metashard_api::id::{ControllerUid, Incarnation, ReplicaId, ShardId, Term};
use serde::{Deserialize, Serialize};

use crate::{membership::State, message::Claim};

/// Something that an operator would ask about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
        /// How long it took.
        took: Took,
    },
    /// A controller is split into another number of slices, and the map says so.
    ControllerSplit {
        /// The controller.
        controller: ControllerUid,
        /// Slices before.
        before: u16,
        /// Slices after.
        after: u16,
    },
    /// A target did not answer a Warm in time.
    WarmTimedOut {
        /// The target.
        target: Incarnation,
        /// The shards.
        shards: Vec<ShardId>,
    },
    /// While this replica leads, another has written the map as its leader: two installations share a namespace, or
    /// somebody edited the map.
    Contested {
        /// The other replica.
        by: String,
    },
    /// Somebody changed the map by hand, under its own numbers: it is written as it was.
    MapEdited,
    /// The map was deleted, replaced, set back, or changed by hand under numbers that workers go by: every worker is
    /// evicted before it is made anew.
    MapLost,
    /// The map is there, and this version cannot read it: this replica does not stand for the lead until it can.
    MapUnreadable,
}

/// Why a shard changes hands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Why {
    /// It had no owner before.
    First,
    /// Its owner is gone.
    Orphaned,
    /// Its owner wants to leave.
    Leaving,
    /// For the share of a worker that joined.
    Join,
    /// From a replica that is about to be replaced to one that is not.
    RollOut,
    /// To balance the load.
    Balance,
    /// A controller of it is split otherwise.
    Split,
    /// Its owner is cordoned.
    Drain,
    /// It is pinned to another replica.
    Pin,
}

/// How long the phases of hand-overs took; of several, the longest of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Took {
    /// From the decision until the owner was told to stop: the target filled its caches. `None`: it was not waited for.
    pub warm: Option<Duration>,
    /// From then until the owner had released. `None`: nobody was told to stop.
    pub drain: Option<Duration>,
    /// From then, or from the decision where there was nothing to wait for, until the map said so.
    pub assign: Duration,
    /// From the decision until the map said so.
    pub total: Duration,
}

impl Took {
    /// The longest of each phase.
    #[must_use]
    pub fn longest(self, other: Self) -> Self {
        Self {
            warm: self.warm.max(other.warm),
            drain: self.drain.max(other.drain),
            assign: self.assign.max(other.assign),
            total: self.total.max(other.total),
        }
    }
}

impl Why {
    /// The value of the metric label `reason`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Orphaned => "orphaned",
            Self::Leaving => "leaving",
            Self::Join => "join",
            Self::RollOut => "roll_out",
            Self::Balance => "balance",
            Self::Split => "split",
            Self::Drain => "drain",
            Self::Pin => "pin",
        }
    }

    /// Whether the owner could have kept it.
    pub const fn is_voluntary(self) -> bool {
        match self {
            Self::First | Self::Orphaned | Self::Leaving => false,
            Self::Join | Self::RollOut | Self::Balance | Self::Split | Self::Drain | Self::Pin => {
                true
            }
        }
    }

    /// Whether people have asked for just this.
    pub const fn is_asked(self) -> bool {
        matches!(self, Self::Drain | Self::Pin)
    }
}
