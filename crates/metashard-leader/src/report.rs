//! The log lines of the leader machine.

use metashard_fleet::leader::Report;
use tracing::{error, info, warn};

/// Logs what an operator would ask about.
pub(crate) fn log(report: &Report) {
    match report {
        Report::LeadGained { term } => info!(%term, "leading"),
        Report::LeadLost { term } => warn!(%term, "leading no more; workers carry on"),
        Report::WorkerJoined {
            replica,
            incarnation,
        } => info!(%replica, %incarnation, "worker joined"),
        Report::WorkerLost {
            replica,
            incarnation,
            how,
        } => {
            warn!(%replica, %incarnation, ?how, "worker lost");
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
