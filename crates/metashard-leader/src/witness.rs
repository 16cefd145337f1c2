//! The proof that this replica can write, without which it may not judge others.
//!
//! While its worker has a Lease, the renewals of that one are the proof. While it has none (a replica that only leads, or
//! one whose worker waits for a map), a candidate's Lease takes its place.

use std::{fmt, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use metashard_api::{
    id::{Incarnation, ReplicaId},
    names::CANDIDATE_LEASE_PREFIX,
};
use metashard_fleet::{
    lease::{self, Hold, Input, Status},
    record::{About, Record, Written},
    rules::Rules,
    time::{MonoTime, Now},
    worker::Standing,
};
use metashard_kube::lease::Leases;
use metashard_runtime::{
    clock::Clock,
    shutdown::Token,
    task::{Ended, Tasks},
};
use tokio::sync::watch;
use tracing::{debug, info};
use uuid::Uuid;

/// Least time between two candidate's Leases.
const PAUSE: Duration = Duration::from_secs(1);

/// Whose power to write is to be proved.
#[derive(Debug, Clone)]
pub struct Config {
    /// `--replica-name`.
    pub replica: ReplicaId,
    /// What it says of itself.
    pub about: About,
    /// `--lease-duration`.
    pub lease_duration: Duration,
    /// All rules, except in a simulation of a mutant.
    pub rules: Rules,
}

/// What the worker of the same process shows of its Lease.
#[derive(Clone)]
pub struct WorkerLease {
    /// Names an incarnation while it holds a Lease.
    pub standing: Arc<ArcSwap<Standing>>,
    /// After each answer about its Lease: since when all its renewals succeeded, if they do.
    pub renewals: watch::Receiver<Option<MonoTime>>,
}

/// Gives the proof, from one Lease or the other.
#[derive(Debug)]
pub struct Witness {
    config: Config,
    clock: Clock,
    leases: Leases,
    worker: Option<WorkerLease>,
    own: Option<Own>,
    /// No candidate's Lease before: a worker usually joins at once.
    not_before: MonoTime,
    requests: Tasks<Input>,
    renewals: watch::Sender<Option<MonoTime>>,
}

/// A candidate's Lease.
#[derive(Debug)]
struct Own {
    name: String,
    hold: Hold,
    /// The last state of it that was confirmed.
    written: Option<Record>,
    /// It was asked to let go.
    is_released: bool,
}

impl Witness {
    /// A witness that has nothing to say yet, and the receiver that is told after each answer about either Lease:
    /// since when all its renewals succeeded, if they do. Without a worker it takes a candidate's Lease at once.
    pub fn new(
        config: Config,
        clock: Clock,
        leases: Leases,
        worker: Option<WorkerLease>,
    ) -> (Self, watch::Receiver<Option<MonoTime>>) {
        let (renewals, told) = watch::channel(None);
        let wait = match worker {
            Some(_) => config.lease_duration / 2,
            None => Duration::ZERO,
        };
        let witness = Self {
            not_before: clock.now().mono + wait,
            config,
            clock,
            leases,
            worker,
            own: None,
            requests: Tasks::new(),
            renewals,
        };
        (witness, told)
    }

    /// Runs until `stop`, and then gives the candidate's Lease up, if that works soon.
    pub async fn run(mut self, stop: Token) {
        let mut worker_told = self.worker.as_ref().map(|worker| worker.renewals.clone());
        let mut end = None;
        loop {
            let now = self.clock.now();
            self.advance(now, end.is_some());
            let is_done = self.own.is_none() && self.requests.is_empty();
            if end.is_some_and(|end| is_done || now.mono >= end) {
                return;
            }
            let due = earliest(self.due(end.is_some()), end);
            tokio::select! {
                told = next(&mut worker_told) => self.pass_on(told),
                Some(ended) = self.requests.join_next() => self.answered(ended),
                () = self.clock.sleep_until_some(due) => {}
                () = stop.requested(), if end.is_none() => {
                    end = Some(self.clock.now().mono + PAUSE);
                }
            }
        }
    }

    fn worker_has_lease(&self) -> bool {
        let standing = self.worker.as_ref().map(|worker| worker.standing.load());
        standing.is_some_and(|standing| standing.incarnation().is_some())
    }

    /// What the worker said, as long as it is the worker that counts.
    fn pass_on(&self, told: Option<MonoTime>) {
        if self.own.as_ref().is_none_or(|own| own.is_released) {
            self.renewals.send_replace(told);
        }
    }

    fn advance(&mut self, now: Now, is_ending: bool) {
        let worker_has_lease = self.worker_has_lease();
        if worker_has_lease {
            // When it loses that, it usually joins anew at once, or the process ends.
            self.not_before = now.mono + self.config.lease_duration / 2;
        }
        let is_needed = !is_ending && !worker_has_lease;
        match &mut self.own {
            None if is_needed && now.mono >= self.not_before => self.own = Some(self.take(now)),
            Some(own) if !is_needed && !own.is_released => {
                own.is_released = true;
                own.hold.handle(now, Input::ReleaseAsked);
            }
            None | Some(_) => {}
        }
        let Some(own) = &mut self.own else {
            return;
        };
        let mut due = Vec::new();
        own.hold.handle_timeout(now, &mut due);
        for request in due {
            let (leases, name) = (self.leases.clone(), own.name.clone());
            self.requests.spawn("candidate-lease", async move {
                leases.carry_out(&name, &request).await
            });
        }
        match own.hold.status() {
            Status::Taking | Status::Held => {}
            Status::Released | Status::Lost(_) => self.give_up(now),
        }
    }

    fn take(&self, now: Now) -> Own {
        let incarnation = Incarnation::new(Uuid::new_v4().to_string());
        info!(%incarnation, "taking a candidate's Lease: the worker has none");
        let name = format!("{CANDIDATE_LEASE_PREFIX}{incarnation}");
        let config = lease::Config {
            replica: self.config.replica.clone(),
            incarnation,
            about: self.config.about.clone(),
            duration: self.config.lease_duration,
            rules: self.config.rules,
        };
        Own {
            name,
            hold: Hold::create(now, config),
            written: None,
            is_released: false,
        }
    }

    /// Nobody needs the Lease any more.
    fn give_up(&mut self, now: Now) {
        self.not_before = now.mono + PAUSE;
        let Some(own) = self.own.take() else {
            return;
        };
        if let Some(record) = own.written {
            let leases = self.leases.clone();
            self.requests.spawn("candidate-lease-deletion", async move {
                let deleted = leases.delete(&own.name, &record).await;
                debug!(lease = own.name, ?deleted, "candidate's Lease given up");
                // An answer that no Lease waits for.
                Input::ReleaseAsked
            });
        }
    }

    fn answered(&mut self, ended: Ended<Input>) {
        let now = self.clock.now();
        let answer = match ended.result {
            Ok(Input::ReleaseAsked) => return,
            Ok(answer) => answer,
            // The request's task has panicked: it is not known how it ended.
            Err(_) => Input::Written(Written::Unknown),
        };
        let Some(own) = &mut self.own else {
            return;
        };
        if let Input::Written(Written::Accepted(record)) = &answer {
            own.written = Some(record.clone());
        }
        own.hold.handle(now, answer);
        if !own.is_released {
            self.renewals.send_replace(own.hold.renewing_since(now));
        }
    }

    fn due(&self, is_ending: bool) -> Option<MonoTime> {
        match &self.own {
            Some(own) => own.hold.poll_timeout(),
            None if is_ending || self.worker_has_lease() => None,
            None => Some(self.not_before),
        }
    }
}

impl fmt::Debug for WorkerLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerLease").finish_non_exhaustive()
    }
}

/// What the worker says next; never, if there is none, or no more.
async fn next(told: &mut Option<watch::Receiver<Option<MonoTime>>>) -> Option<MonoTime> {
    if let Some(told) = told
        && told.changed().await.is_ok()
    {
        return *told.borrow_and_update();
    }
    std::future::pending().await
}

fn earliest(one: Option<MonoTime>, other: Option<MonoTime>) -> Option<MonoTime> {
    one.into_iter().chain(other).min()
}
