//! The log lines of the leader machine.

mod versions;

use std::{collections::BTreeSet, time::Duration};

use metashard_api::{id::ReplicaId, names::event};
use metashard_fleet::{
    leader::{Report, Snapshot},
    membership::State,
};
use metashard_kube::events::Event;
use tracing::{error, info, warn};

/// A shard without a live owner for so long is not just being handed over.
const UNOWNED_FOR: Duration = Duration::from_secs(5);

/// What is said, in the log and as Events, of a map that somebody else has written.
const CONTESTED: &str = "another leader writes the ShardMap: two installations share a namespace, or somebody edited it";
const MAP_EDITED: &str = "ShardMap edited by hand: it is written as it was";
const MAP_UNREADABLE: &str = "ShardMap cannot be read: a newer version wrote it, or somebody edited it; this replica keeps what it serves, takes nothing new and does not stand for the lead";
const MAP_LOST: &str = "ShardMap lost: every worker is evicted before it is made anew";

/// What is told of the ShardMap too.
pub(crate) fn event(report: &Report) -> Option<Event> {
    let (reason, message) = match report {
        Report::Contested { by } => (event::LEAD_CONTESTED, format!("{CONTESTED}: {by}")),
        Report::MapEdited => (event::SHARD_MAP_EDITED, MAP_EDITED.to_owned()),
        Report::MapLost => (event::SHARD_MAP_LOST, MAP_LOST.to_owned()),
        Report::MapUnreadable => (event::SHARD_MAP_UNREADABLE, MAP_UNREADABLE.to_owned()),
        _ => return None,
    };
    Some(warning(reason, message))
}

fn warning(reason: &'static str, message: String) -> Event {
    Event {
        is_warning: true,
        reason: reason.into(),
        message,
    }
}

/// The name of two workers that both have a session: of one that has crashed and its successor, only one has.
fn name_twice(snapshot: &Snapshot) -> Option<&ReplicaId> {
    let mut names = BTreeSet::new();
    let present = snapshot
        .members
        .iter()
        .filter(|it| it.has_session && it.state == State::Joined);
    let mut present = present.filter_map(|it| it.replica.as_ref());
    present.find(|it| !names.insert(*it))
}

/// After so many looks, 250 ms apart, two of one name are told of: a session may outlive its process a little.
const LOOKS: u32 = 8;

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
            let millis = took.total.as_millis();
            info!(incarnation = %to, why = why.as_str(), shards = claims.len(), millis, "shards assigned");
        }
        Report::ControllerSplit {
            controller,
            before,
            after,
        } => {
            info!(uid = %controller, before, after, "controller split into another number of slices");
        }
        Report::WarmTimedOut { target, shards } => {
            warn!(incarnation = %target, shards = shards.len(), "warm-up timed out");
        }
        Report::Contested { by } => error!(by, "{CONTESTED}"),
        Report::MapEdited => error!("{MAP_EDITED}"),
        Report::MapLost => error!("{MAP_LOST}"),
        Report::MapUnreadable => error!("{MAP_UNREADABLE}"),
    }
}

/// Tells, once each time, of shards that nobody serves for longer than a hand-over takes.
#[derive(Debug, Default)]
pub(crate) struct Audit {
    has_warned: bool,
    /// For how many looks two workers have had one name.
    looks_at_twins: u32,
    /// The versions that were told of last.
    versions: BTreeSet<String>,
}

impl Audit {
    /// Looks at names; returns what to tell of the ShardMap.
    pub(crate) fn look_at_names(&mut self, snapshot: &Snapshot) -> Option<Event> {
        let Some(name) = name_twice(snapshot).filter(|_| snapshot.leads) else {
            self.looks_at_twins = 0;
            return None;
        };
        self.looks_at_twins = self.looks_at_twins.saturating_add(1);
        if self.looks_at_twins != LOOKS {
            return None;
        }
        warn!(replica = %name, "two workers have one name");
        let message = format!(
            "two replicas that run have the name {name}: both work, but people cannot tell them apart; give each a --replica-name of its own"
        );
        Some(warning(event::REPLICA_NAME_TWICE, message))
    }

    /// Looks at versions; returns what to tell of the ShardMap.
    pub(crate) fn look_at_versions(&mut self, snapshot: &Snapshot) -> Option<Event> {
        if !snapshot.leads {
            self.versions.clear();
            return None;
        }
        if snapshot.versions == self.versions {
            return None;
        }
        let before = std::mem::replace(&mut self.versions, snapshot.versions.clone());
        versions::tell(&before, &self.versions)
    }

    /// Looks at how everything stands; returns what to tell of the ShardMap.
    pub(crate) fn look(&mut self, snapshot: &Snapshot) -> Option<Event> {
        let is_bad = snapshot.leads && snapshot.unowned_for >= UNOWNED_FOR;
        if is_bad == std::mem::replace(&mut self.has_warned, is_bad) {
            return None;
        }
        if is_bad {
            let (shards, seconds) = (snapshot.n_unowned, snapshot.unowned_for.as_secs());
            error!(shards, seconds, "shards without a live owner");
            let workers = snapshot.members.iter();
            let n_workers = workers.filter(|it| it.state == State::Joined).count();
            return Some(Event {
                is_warning: true,
                reason: event::SHARDS_UNOWNED.into(),
                message: format!(
                    "{shards} of {} shards have had no live owner for {seconds} s; {n_workers} workers hold their Lease",
                    snapshot.n_shards
                ),
            });
        }
        if !snapshot.leads {
            return None;
        }
        info!("every shard has a live owner again");
        Some(Event {
            is_warning: false,
            reason: event::SHARDS_OWNED.into(),
            message: "every shard has a live owner again".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use metashard_fleet::{
        leader::{Config, Leader},
        record::About,
        rules::Rules,
        time::Now,
    };

    use super::*;

    /// A leader's snapshot with shards that have been unowned for so many seconds.
    fn unowned_for(seconds: u64) -> Snapshot {
        let config = Config {
            replica: ReplicaId::new("r"),
            about: About::default(),
            lease_duration: Duration::from_secs(4),
            shards: 8,
            drain_hook_grace: Duration::from_secs(2),
            unix_time: Duration::ZERO,
            rules: Rules::default(),
        };
        Snapshot {
            leads: true,
            n_shards: 8,
            n_unowned: 3,
            unowned_for: Duration::from_secs(seconds),
            ..Leader::new(Now::default(), config).snapshot(Now::default())
        }
    }

    #[test]
    fn shards_that_nobody_serves_are_told_of_once_and_so_is_their_end() {
        let mut audit = Audit::default();
        assert_eq!(audit.look(&unowned_for(4)), None);

        let told = audit.look(&unowned_for(5)).unwrap();
        assert!(told.is_warning);
        assert_eq!(told.reason, "ShardsUnowned");
        assert!(
            told.message.starts_with("3 of 8 shards"),
            "{}",
            told.message
        );
        assert_eq!(audit.look(&unowned_for(6)), None);

        let over = audit.look(&unowned_for(0)).unwrap();
        assert!(!over.is_warning);
        assert_eq!(audit.look(&unowned_for(0)), None);
    }

    #[test]
    fn a_leader_that_leads_no_more_says_nothing_of_shards() {
        let mut audit = Audit::default();
        audit.look(&unowned_for(5));

        let deposed = Snapshot {
            leads: false,
            ..unowned_for(9)
        };

        assert_eq!(audit.look(&deposed), None);
    }
}
