//! What the leader counts.

use metashard_fleet::{
    leader::{Report, Snapshot, Took},
    membership::State,
};
use metashard_runtime::metrics::{counter_vec, float_gauge, gauge, gauge_vec, histogram_vec};
use prometheus::{Gauge, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Registry};

/// Upper bounds in seconds, from a hand-over without anything to wait for to one that needs an eviction.
const TOOK: &[f64] = &[
    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 100.0,
];

/// What the leader counts.
#[derive(Debug)]
pub(crate) struct Metrics {
    lease: String,
    /// The peer's.
    master: IntGaugeVec,
    members: IntGauge,
    shards: IntGauge,
    unowned: IntGauge,
    unowned_seconds: IntGauge,
    hand_overs: IntGauge,
    term: IntGauge,
    lost: IntCounterVec,
    placement: Placement,
}

/// What it counts of the work that it hands around.
#[derive(Debug)]
struct Placement {
    handover_seconds: HistogramVec,
    imbalance: Gauge,
    desired_workers: IntGauge,
    moves: IntCounterVec,
}

impl Metrics {
    /// Adds the leader's metrics to `registry`; `lease` is the name of the leader's Lease.
    ///
    /// # Errors
    ///
    /// When one of the names is taken there.
    pub(crate) fn register(registry: &Registry, lease: &str) -> Result<Self, prometheus::Error> {
        Ok(Self {
            lease: lease.to_owned(),
            master: gauge_vec(
                registry,
                "leader_election_master_status",
                "Whether this replica leads.",
                &["name"],
            )?,
            members: gauge(
                registry,
                "metashard_leader_workers",
                "Workers that hold their Lease. 0 on a replica that does not lead.",
            )?,
            shards: gauge(registry, "metashard_leader_shards", "Shards of the map.")?,
            unowned: gauge(
                registry,
                "metashard_leader_unowned_shards",
                "Shards without a live owner. 0 on a replica that does not lead.",
            )?,
            unowned_seconds: gauge(
                registry,
                "metashard_leader_unowned_seconds",
                "How long the oldest of the shards without a live owner has been so.",
            )?,
            hand_overs: gauge(
                registry,
                "metashard_leader_hand_overs",
                "Hand-overs under way.",
            )?,
            term: gauge(
                registry,
                "metashard_leader_term",
                "Term of the newest map seen.",
            )?,
            lost: counter_vec(
                registry,
                "metashard_leader_workers_lost_total",
                "Workers whose membership ended, by how: released, fenced, evicted, gone.",
                &["how"],
            )?,
            placement: Placement::register(registry)?,
        })
    }

    /// Takes in what the machine reported.
    pub(crate) fn reported(&self, report: &Report) {
        if let Report::ShardsAssigned {
            why, claims, took, ..
        } = report
        {
            let reason = [why.as_str()];
            let n_claims = claims.len() as u64;
            self.placement
                .moves
                .with_label_values(&reason)
                .inc_by(n_claims);
            self.took(*took);
        } else if let Report::WorkerLost { how, .. } = report {
            self.lost.with_label_values(&[how.as_str()]).inc();
        }
    }

    fn took(&self, took: Took) {
        let phases = [
            ("warm", took.warm),
            ("drain", took.drain),
            ("assign", Some(took.assign)),
            ("total", Some(took.total)),
        ];
        for (phase, took) in phases {
            if let Some(took) = took {
                let seconds = self.placement.handover_seconds.with_label_values(&[phase]);
                seconds.observe(took.as_secs_f64());
            }
        }
    }

    /// Shows a snapshot.
    pub(crate) fn show(&self, snapshot: &Snapshot) {
        let leads = snapshot.leads;
        let count = |n: usize| {
            if leads {
                i64::try_from(n).unwrap_or(i64::MAX)
            } else {
                0
            }
        };
        self.master
            .with_label_values(&[self.lease.as_str()])
            .set(leads.into());
        let members = snapshot.members.iter();
        let joined = members.filter(|member| member.state == State::Joined);
        self.members.set(count(joined.count()));
        self.shards.set(count(snapshot.n_shards));
        self.unowned.set(count(snapshot.n_unowned));
        let unowned_for = snapshot.unowned_for.as_secs();
        let unowned_for = usize::try_from(unowned_for).unwrap_or(usize::MAX);
        self.unowned_seconds.set(count(unowned_for));
        self.hand_overs.set(count(snapshot.n_hand_overs));
        self.placement
            .desired_workers
            .set(count(snapshot.wanted_workers));
        let percent = if leads { snapshot.hottest_percent } else { 0 };
        self.placement.imbalance.set(f64::from(percent) / 100.0);
        self.term
            .set(i64::try_from(snapshot.term.0).unwrap_or(i64::MAX));
    }
}

impl Placement {
    fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        Ok(Self {
            handover_seconds: histogram_vec(
                registry,
                "metashard_leader_handover_seconds",
                "How long the phases of hand-overs took: warm, drain, assign, and total; of each map the longest.",
                &["phase"],
                TOOK,
            )?,
            imbalance: float_gauge(
                registry,
                "metashard_leader_imbalance_ratio",
                "Load of the hottest worker over the mean of all, by capacity. 0 on a replica that does not lead.",
            )?,
            desired_workers: gauge(
                registry,
                "metashard_leader_desired_workers",
                "Workers of mean capacity that the measured work needs; 0: not known, or this replica does not lead.",
            )?,
            moves: counter_vec(
                registry,
                "metashard_leader_moves_total",
                "Shards that changed hands, by reason: first, orphaned, leaving, join, roll_out, balance, drain, pin.",
                &["reason"],
            )?,
        })
    }
}
