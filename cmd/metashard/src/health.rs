//! What the probes are told: whether the replica has started, whether it is a member of the fleet, and whether its loops
//! still turn.

use std::time::Duration;

use metashard_fleet::worker::Phase;
use metashard_kube::informer::Informers;
use metashard_runtime::{clock::Clock, fault, pulse, shutdown::Token};
use metashard_status::{
    answers::Answers,
    check::{self, Check, Reporter},
    service::Parts,
};
use metashard_worker::fleet::Handle;
use prometheus::Registry;

/// A loop that has not turned for so long is stuck. They turn every few seconds, and a write may hold one up for 10 s.
const STUCK: Duration = Duration::from_mins(1);

/// A watch that is said to be alive and has brought nothing for so long, not even a bookmark, has a feed that is stuck: one
/// whose connection is dead is replaced after half of it.
const SILENT: Duration = Duration::from_mins(3);

/// How often it is looked whether loops turn.
const LOOK: Duration = Duration::from_secs(1);

/// The checks that probes ask for.
pub(crate) struct Checks {
    loops: Check,
    started: Check,
    fleet: Check,
    watches: Check,
}

/// Where they are reported to.
pub(crate) struct Readiness {
    loops: Reporter,
    started: Reporter,
    fleet: Reporter,
    watches: Reporter,
}

/// Checks that fail until [`Readiness::follow`] reports.
pub(crate) fn new() -> (Readiness, Checks) {
    let (start_reporter, started) = check::new(
        "start",
        "waiting for the API server, or for a live Metacontroller to end",
    );
    let (fleet_reporter, fleet) = check::new("fleet", "not a member of the fleet yet");
    let (loop_reporter, loops) = check::new("loops", "not looked at yet");
    let (watch_reporter, watches) = check::new("watches", "not looked at yet");
    loop_reporter.ok();
    watch_reporter.ok();
    let readiness = Readiness {
        loops: loop_reporter,
        started: start_reporter,
        fleet: fleet_reporter,
        watches: watch_reporter,
    };
    let checks = Checks {
        loops,
        started,
        fleet,
        watches,
    };
    (readiness, checks)
}

impl Checks {
    /// What the status endpoints need. The process is alive as long as it answers and its loops turn.
    pub(crate) fn parts(self, registry: Registry, draining: Token, answers: Answers) -> Parts {
        Parts {
            registry,
            live: vec![self.loops],
            ready: vec![self.started, self.fleet, self.watches],
            draining,
            answers: Some(answers),
        }
    }
}

impl Readiness {
    /// Reports until the worker is gone; a replica without one is ready once it has started.
    pub(crate) async fn follow(self, worker: Option<Handle>, informers: Informers, clock: Clock) {
        let Self {
            loops,
            started,
            fleet,
            watches,
        } = self;
        started.ok();
        tokio::join!(
            watch_loops(loops, clock.clone()),
            look_at_watches(watches, informers, clock),
            follow_worker(fleet, worker)
        );
    }
}

/// Reports which loops are stuck.
async fn watch_loops(loops: Reporter, clock: Clock) {
    let limit = fault::number("loop-limit").map_or(STUCK, Duration::from_secs);
    loop {
        let stuck = pulse::stopped(clock.now().mono, limit);
        if stuck.is_empty() {
            loops.ok();
        } else {
            loops.failed(format!("stuck: {}", stuck.join(", ")));
        }
        clock.sleep(LOOK).await;
    }
}

/// Reports which watches are stuck.
async fn look_at_watches(watches: Reporter, informers: Informers, clock: Clock) {
    loop {
        let stuck: Vec<_> = informers.stuck(SILENT).into_iter().collect();
        if stuck.is_empty() {
            watches.ok();
        } else {
            watches.failed(format!("nothing comes of {}", stuck.join(", ")));
        }
        clock.sleep(LOOK).await;
    }
}

/// Reports whether the worker is a member of the fleet, until it is gone.
async fn follow_worker(fleet: Reporter, worker: Option<Handle>) {
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
