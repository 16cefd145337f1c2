//! The leader: election, membership, placement and hand-over composed into one machine. See [`Leader`].

mod asked;
mod coordinator;
mod cost;
mod demand;
mod flaps;
mod generation;
mod machine;
mod plan;
mod recent;
mod recovery;
mod recutting;
mod report;
mod snapshot;
mod spec;
mod splitting;
mod table;
mod turnover;
mod world;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use metashard_api::id::{ControllerUid, Incarnation, ReplicaId};

pub use self::{
    machine::Leader,
    report::{Report, Took, Why},
    snapshot::{MemberSnapshot, Snapshot},
};
use serde::{Deserialize, Serialize};

use crate::{
    lease,
    map::{self, Map},
    message::{FromLeader, FromWorker},
    record::{About, Record, Seen, Written},
    rules::Rules,
    time::MonoTime,
    wishes::{Told, Wishes},
};

/// What a replica's leader machine is told at its start.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Config {
    /// Name of the replica.
    pub replica: ReplicaId,
    /// What it says of itself in the leader's Lease; workers find the leader by its address.
    pub about: About,
    /// `--lease-duration`: whole seconds, at least 2; default 4 s.
    pub lease_duration: Duration,
    /// `--shards`: how many shards a new map gets; one that has shards keeps its number.
    pub shards: u16,
    /// `--drain-hook-grace`: how long running hook calls may go on after a Drain; default 2 s.
    pub drain_hook_grace: Duration,
    /// What the wall clock showed at the machine's start, since 1970. Only a lower bound for the numbers of a map that
    /// is made anew.
    pub unix_time: Duration,
    /// All rules, except in a model.
    pub rules: Rules,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Input {
    /// A UUID for the next candidacy, as [`Action::DrawIncarnation`] asked.
    IncarnationDrawn(Incarnation),
    /// A watch event or the answer to a poll showed the leader's Lease.
    LeaderLeaseSeen(Seen),
    /// How an [`Action::LeaderLease`] ended.
    LeaderLeaseAnswered(lease::Input),
    /// The replica's own Lease (of its worker; of its candidate while its worker has none) was renewed, or not: what
    /// [`lease::Hold::renewing_since`] says then. Told at each answer.
    OwnRenewal(Option<MonoTime>),
    /// All Leases of workers that exist have been shown, by the watch's first list.
    WorkerLeasesSynced,
    /// All Leases of workers that exist have been shown, by a list that began after the last
    /// [`Action::ListWorkerLeases`]. `false`: there was no answer.
    WorkerLeasesListed(bool),
    /// A watch event showed the Lease of a worker.
    WorkerLeaseSeen(Incarnation, Seen),
    /// What a [`lease::Request::Read`] in an [`Action::WorkerLease`] showed; `None` if there was no answer.
    WorkerLeaseRead(Incarnation, Option<Seen>),
    /// How a [`lease::Request::Put`] in an [`Action::WorkerLease`] ended.
    WorkerLeaseWritten(Incarnation, Written<Record>),
    /// A watch event showed the map.
    MapSeen(map::Seen),
    /// What [`Action::ReadMap`] showed; `None` if there was no answer.
    MapRead(Option<map::Seen>),
    /// How [`Action::WriteMap`] ended.
    MapWritten(Written<Arc<Map>>),
    /// All controllers that there are, and into how many slices the spec of each asks it to be split.
    ControllersSeen(Arc<BTreeMap<ControllerUid, Option<u16>>>),
    /// A watch event showed what people ask, or that they ask nothing any more.
    WishesSeen(Wishes),
    /// How an [`Action::TellWishes`] ended: whether it is told.
    WishesTold(bool),
    /// A session said this. One that is not open yet opens with its Hello; a newer Hello of the same incarnation
    /// replaces the older session.
    FromWorker(Incarnation, FromWorker),
    /// The session of this incarnation has ended, and no newer one has replaced it.
    SessionClosed(Incarnation),
    /// The process ends: give up the lead. The replica's own worker should have left before.
    ShutdownAsked,
}

/// What to do. Requests run concurrently, each as a task of its own that nothing cancels.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Action {
    /// Draw a UUID; answer `IncarnationDrawn`.
    DrawIncarnation,
    /// Send this for the leader's Lease; answer `LeaderLeaseAnswered` in every case, within a second.
    LeaderLease(lease::Request),
    /// Send this for the Lease of a worker; answer `WorkerLeaseRead` or `WorkerLeaseWritten` in every case, within a second.
    WorkerLease(Incarnation, lease::Request),
    /// List the Leases of the workers with a quorum, show them, and answer `WorkerLeasesListed` in every case.
    ListWorkerLeases,
    /// Delete the Lease of a worker, if it is still exactly this. No answer.
    DeleteWorkerLease(Incarnation, Record),
    /// Read the map with a quorum; answer `MapRead` in every case.
    ReadMap,
    /// Write the map; answer `MapWritten` in every case, within a few seconds.
    WriteMap(map::Write),
    /// Send this on the session of this incarnation; without one, drop it.
    Send(Incarnation, FromLeader),
    /// Write this into the status of the Placement, if that is still as it was seen last; answer `WishesTold` in every case,
    /// within a few seconds.
    TellWishes(Told),
    /// End all sessions: this replica leads no more.
    CloseSessions,
    /// Something for logs, metrics and events.
    Report(Report),
    /// The lead is released, or was never held; nothing more will come.
    Finish,
}

#[cfg(test)]
mod tests;
