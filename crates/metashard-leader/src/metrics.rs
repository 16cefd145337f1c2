//! What the leader counts.

use metashard_fleet::leader::{Report, Snapshot};
use metashard_runtime::metrics::{counter_vec, gauge, gauge_vec};
use prometheus::{IntCounterVec, IntGauge, IntGaugeVec, Registry};

/// What the leader counts.
#[derive(Debug)]
pub(crate) struct Metrics {
    lease: String,
    /// The peer's.
    master: IntGaugeVec,
    members: IntGauge,
    shards: IntGauge,
    unowned: IntGauge,
    hand_overs: IntGauge,
    term: IntGauge,
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
                "Workers known to the leader.",
            )?,
            shards: gauge(registry, "metashard_leader_shards", "Shards of the map.")?,
            unowned: gauge(
                registry,
                "metashard_leader_unowned_shards",
                "Shards without a live owner. 0 on a replica that does not lead.",
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
            moves: counter_vec(
                registry,
                "metashard_leader_moves_total",
                "Shards that changed hands, by reason.",
                &["reason"],
            )?,
        })
    }

    /// Takes in what the machine reported.
    pub(crate) fn reported(&self, report: &Report) {
        if let Report::ShardsAssigned { why, claims, .. } = report {
            self.moves
                .with_label_values(&[why.as_str()])
                .inc_by(claims.len() as u64);
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
        self.members.set(count(snapshot.members.len()));
        self.shards.set(count(snapshot.n_shards));
        self.unowned.set(count(snapshot.n_unowned));
        self.hand_overs.set(count(snapshot.n_hand_overs));
        self.term
            .set(i64::try_from(snapshot.term.0).unwrap_or(i64::MAX));
    }
}
