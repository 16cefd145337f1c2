//! What the API server and the hooks say at one moment, as plain data.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// The fleet and its work.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Snapshot {
    /// Replica that holds the leader's Lease; `None` while nobody of ours does.
    pub(super) leader: Option<String>,
    /// Number of the leadership, from the ShardMap.
    pub(super) term: u64,
    /// By replica name.
    pub(super) workers: BTreeMap<String, Worker>,
    /// In the order of their names.
    pub(super) controllers: Vec<Controller>,
    /// Uids of all children.
    pub(super) children: BTreeSet<String>,
}

/// What a worker's Lease says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    /// The worker gave it up itself.
    Released,
    /// The leader took it from a live worker.
    Evicted,
    /// The leader closed it, after it had run out.
    Fenced,
    /// The worker holds it.
    #[default]
    Holds,
}

/// One replica's membership, the newest if it has had several.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Worker {
    pub(super) standing: Standing,
    /// Time since we saw its Lease change.
    pub(super) silent: Duration,
    /// Shards that the map gives it.
    pub(super) shards: usize,
}

/// One controller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Controller {
    pub(super) name: String,
    /// The shard that it hashes to.
    pub(super) shard: u16,
    /// Number of the shard's present ownership.
    pub(super) epoch: u64,
    /// Replica that the map gives the shard to.
    pub(super) worker: Option<String>,
    /// `Ready`, or the reason why it is not.
    pub(super) state: String,
    /// Parents that exist.
    pub(super) parents: usize,
    /// Parents whose status has caught up with their spec.
    pub(super) settled: usize,
    /// Children that exist.
    pub(super) children: usize,
    /// Calls of its hook, as the hook counts them.
    pub(super) calls: u64,
    /// By parent: the generation that its status speaks of.
    pub(super) observed: BTreeMap<String, i64>,
}

impl Snapshot {
    /// Names of the controllers that `replica` serves.
    pub(super) fn served_by(&self, replica: &str) -> Vec<&str> {
        self.controllers
            .iter()
            .filter(|it| it.worker.as_deref() == Some(replica))
            .map(|it| it.name.as_str())
            .collect()
    }

    /// Calls of all hooks.
    pub(super) fn calls(&self) -> u64 {
        self.controllers.iter().map(|it| it.calls).sum()
    }

    /// Parents of all controllers.
    pub(super) fn parents(&self) -> usize {
        self.controllers.iter().map(|it| it.parents).sum()
    }
}
