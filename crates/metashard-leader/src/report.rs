//! The log lines of the leader machine.

use std::time::Duration;

use metashard_fleet::{
    leader::{Report, Snapshot},
    membership::State,
};
use tracing::{error, info, warn};

/// A shard without a live owner for so long is not just being handed over.
const UNOWNED_FOR: Duration = Duration::from_secs(5);

/// Logs what an operator would ask about.
pub(crate) fn log(report: &Report) {
    match report {
        // In Metacontroller's words, which people look for.
        Report::LeadGained { term } => info!(%term, "Successfully acquired lease"),
        Report::LeadLost { term } => warn!(%term, "leading no more; workers carry on"),
        Report::WorkerJoined {
            replica,
            incarnation,
        } => info!(%replica, %incarnation, "worker joined"),
        Report::WorkerLost {
            replica,
            incarnation,
            how: State::Released,
        } => info!(%replica, %incarnation, "worker left"),
        Report::WorkerLost {
            replica,
            incarnation,
            how,
        } => {
            warn!(%replica, %incarnation, how = how.as_str(), "worker lost");
        }
        Report::FencingPostponed { silent, workers } => {
            warn!(
                silent,
                workers, "most workers are silent at once: they get one more Lease duration"
            );
        }
        Report::EvictionBegun {
            replica,
            incarnation,
        } => {
            warn!(%replica, %incarnation, "worker evicted: it does not release its shards");
        }
        Report::ShardsAssigned {
            to,
            why,
            claims,
            took,
        } => {
            let millis = took.as_millis();
            info!(incarnation = %to, why = why.as_str(), shards = claims.len(), millis, "shards assigned");
        }
        Report::WarmTimedOut { target, shards } => {
            warn!(incarnation = %target, shards = shards.len(), "warm-up timed out");
        }
        Report::MapLost => {
            error!("ShardMap lost: every worker is evicted before it is made anew");
        }
    }
}

/// Warns, once each time, of shards that nobody serves for longer than a hand-over takes.
#[derive(Debug, Default)]
pub(crate) struct Audit {
    has_warned: bool,
}

impl Audit {
    /// Looks at how everything stands.
    pub(crate) fn look(&mut self, snapshot: &Snapshot) {
        let is_bad = snapshot.leads && snapshot.unowned_for >= UNOWNED_FOR;
        if is_bad && !self.has_warned {
            let seconds = snapshot.unowned_for.as_secs();
            warn!(
                shards = snapshot.n_unowned,
                seconds, "shards without a live owner"
            );
        } else if !is_bad && self.has_warned {
            info!("every shard has a live owner again");
        }
        self.has_warned = is_bad;
    }
}
