//! What a replica's leader machine shows of itself, for status, metrics and the board.

use std::{collections::BTreeSet, time::Duration};

use metashard_api::id::{Incarnation, ReplicaId, Seq, Term};

use crate::{election, membership::State, record::Holder};

/// The fleet as this replica sees it. Only the leader's counts of members and shards are complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Where this replica's candidacy stands.
    pub phase: election::Phase,
    /// Whether this replica leads now: it holds the Lease, before its deadline, and the map names it.
    pub leads: bool,
    /// Who holds the leader's Lease, as seen last.
    pub holder: Option<Holder>,
    /// gRPC address of the holder, as it says; empty if unknown.
    pub leader_address: String,
    /// uid of the newest map seen; empty if none was.
    pub map_uid: String,
    /// Term of the newest map seen.
    pub term: Term,
    /// Number of that map within its term.
    pub seq: Seq,
    /// The workers, in the order of their incarnations.
    pub members: Vec<MemberSnapshot>,
    /// Versions of the leader and of all workers that hold their Lease, as they say.
    pub versions: BTreeSet<String>,
    /// Number of shards.
    pub n_shards: usize,
    /// Shards without a live owner, or drained and not assigned yet.
    pub n_unowned: usize,
    /// How long the oldest of them has been so; zero if there is none.
    pub unowned_for: Duration,
    /// Hand-overs under way.
    pub n_hand_overs: usize,
    /// How hot the hottest worker was at the last plan, in hundredths of the mean of all.
    pub hottest_percent: u32,
    /// How many workers of mean capacity the measured work needs; 0 if that is not known.
    pub wanted_workers: usize,
}

/// One worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberSnapshot {
    /// Its replica, if that is known.
    pub replica: Option<ReplicaId>,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// What its Lease says.
    pub state: State,
    /// Whether it has asked to leave.
    pub leaving: bool,
    /// Whether it has a session with this replica.
    pub has_session: bool,
    /// How many shards the map gives it.
    pub n_shards: usize,
}
