//! What the probes are told: whether the replica has started, and whether it is a member of the fleet.

use std::sync::Arc;

use metashard_fleet::worker::Phase;
use metashard_runtime::shutdown::Token;
use metashard_status::{
    check::{self, Check, Reporter},
    service::Parts,
    syncs::Answers,
};
use metashard_worker::{
    fleet::Handle,
    journal::{Asked, Journal},
};
use prometheus::Registry;

/// The checks that probes ask for.
pub(crate) struct Checks {
    started: Check,
    fleet: Check,
}

/// Where they are reported to.
pub(crate) struct Readiness {
    started: Reporter,
    fleet: Reporter,
}

/// Checks that fail until [`Readiness::follow`] reports.
pub(crate) fn new() -> (Readiness, Checks) {
    let (start_reporter, started) = check::new(
        "start",
        "waiting for the API server, or for a live Metacontroller to end",
    );
    let (fleet_reporter, fleet) = check::new("fleet", "not a member of the fleet yet");
    let readiness = Readiness {
        started: start_reporter,
        fleet: fleet_reporter,
    };
    (readiness, Checks { started, fleet })
}

impl Checks {
    /// What the status endpoints need. The process is alive as long as it answers: a wedged worker ends by itself.
    pub(crate) fn parts(self, registry: Registry, draining: Token, journal: Arc<Journal>) -> Parts {
        Parts {
            registry,
            live: Vec::new(),
            ready: vec![self.started, self.fleet],
            draining,
            syncs: Some(Answers::new(move |query| {
                journal.answer(&Asked::read(query))
            })),
        }
    }
}

impl Readiness {
    /// Reports until the worker is gone; a replica without one is ready once it has started.
    pub(crate) async fn follow(self, worker: Option<Handle>) {
        let Self { started, fleet } = self;
        started.ok();
        let Some(mut worker) = worker else {
            fleet.ok();
            return std::future::pending().await;
        };
        loop {
            match worker.standing.load().phase() {
                Phase::Member => fleet.ok(),
                phase => fleet.failed(format!("not a member of the fleet: {phase:?}")),
            }
            if worker.changed.changed().await.is_err() {
                return;
            }
        }
    }
}
