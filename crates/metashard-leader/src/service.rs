//! The driver of the leader machine. All decisions are `metashard_fleet::leader`'s.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use futures::FutureExt;
use metashard_api::{
    id::{Incarnation, ReplicaId},
    names::WORKER_LEASE_PREFIX,
};
use metashard_fleet::{
    invariants::Invariant,
    leader::{self, Action, Input, Leader, Snapshot},
    monitor::LeaderMonitor,
    record::{About, Seen},
    recording::{History, Machine},
    rules::Rules,
    time::{BootTime, MonoTime},
};
use metashard_kube::{
    events::{Event, Recorder},
    informer::{Informers, View},
    lease::{LeaseWatch, Leases},
    placement::Placements,
    shard_map::{MapWatch, ShardMaps},
};
use metashard_runtime::{clock::Clock, fault, metrics::Violations, pulse::Pulse, shutdown::Token};
use parking_lot::Mutex;
use prometheus::Registry;
use tokio::sync::{mpsc, watch};
use tracing::info;
use uuid::Uuid;

use crate::{
    controllers::Controllers,
    grpc::{GrpcServer, SessionEvent, Sessions},
    metrics::Metrics,
    report,
    requests::Requests,
    shards::{self, Answering, Asking, Question},
    wishes::Wished,
};

/// How long nothing may be seen of the leader's Lease before it is looked at although it is watched: more than the second
/// between two renewals, so that nobody asks while the watch brings them.
const POLL: Duration = Duration::from_millis(1500);

/// How often what the machine shows of itself is published, at least.
const PUBLISH: Duration = Duration::from_secs(1);

/// Longest wait for a list of the workers' Leases.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);

/// How a replica coordinates when it leads.
#[derive(Debug, Clone)]
pub struct Config {
    /// `--replica-name`.
    pub replica: ReplicaId,
    /// What it says of itself in the leader's Lease; its address is where workers find it.
    pub about: About,
    /// `--lease-duration`.
    pub lease_duration: Duration,
    /// `--shards`: of a new map.
    pub shards: u16,
    /// `--drain-hook-grace`.
    pub drain_hook_grace: Duration,
    /// `--leader-election-id`.
    pub leader_lease: String,
    /// Text of `--target-label-selector`: which controllers count.
    pub target_selector: String,
    /// All rules, except in a simulation of a mutant.
    pub rules: Rules,
}

/// What the coordinator works with.
#[derive(Debug)]
pub struct Parts {
    /// Time.
    pub clock: Clock,
    /// Shared watches.
    pub informers: Informers,
    /// Leases of the system namespace: the workers'.
    pub leases: Leases,
    /// Leases of the namespace of the leader's Lease.
    pub leader_leases: Leases,
    /// The ShardMap.
    pub maps: ShardMaps,
    /// What people ask; `None` where the API server has no Placements, or this process may not see them.
    pub placements: Option<Placements>,
    /// Listens already.
    pub grpc: GrpcServer,
    /// Since when all renewals of this replica's own Lease succeeded, if they do: who cannot renew may not judge others.
    pub renewals: watch::Receiver<Option<MonoTime>>,
    /// Where events go.
    pub recorder: Recorder,
    /// Where broken invariants are counted.
    pub violations: Violations,
}

/// What others see of it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Handle {
    /// The fleet as this replica sees it.
    pub snapshot: watch::Receiver<Arc<Snapshot>>,
    /// What its machine was told lately.
    pub history: Arc<Mutex<History<Leader>>>,
    /// Until when this replica may act as the leader (invariant L1), at each moment.
    pub leads_until: watch::Receiver<Option<BootTime>>,
    /// Where all shards are, while this replica leads.
    pub shards: Asking,
}

/// A candidate, and the coordinator when it leads.
#[derive(Debug)]
pub struct Coordinator {
    clock: Clock,
    machine: Leader,
    history: Arc<Mutex<History<Leader>>>,
    monitor: LeaderMonitor,
    lease_duration: Duration,
    violations: Violations,
    requests: Requests,
    worker_leases: LeaseWatch,
    /// Another hold on the same watch, for lists.
    worker_lease_view: Arc<View>,
    leader_leases: LeaseWatch,
    leader_lease: String,
    map_changes: MapWatch,
    controllers: Controllers,
    wished: Wished,
    grpc: Option<GrpcServer>,
    renewals: watch::Receiver<Option<MonoTime>>,
    /// Inputs that this driver answers by itself.
    inputs: VecDeque<Input>,
    leases_synced: bool,
    metrics: Metrics,
    audit: report::Audit,
    recorder: Recorder,
    snapshot: watch::Sender<Arc<Snapshot>>,
    leads_until: watch::Sender<Option<BootTime>>,
    answering: Answering,
    finished: bool,
}

impl Coordinator {
    /// Puts the parts together and begins to watch; is no candidate yet.
    ///
    /// # Errors
    ///
    /// When a name of its metrics is taken in `registry`.
    pub fn new(
        config: Config,
        parts: Parts,
        registry: &Registry,
    ) -> Result<(Self, Handle), prometheus::Error> {
        let Parts {
            clock,
            informers,
            leases,
            leader_leases,
            maps,
            placements,
            grpc,
            renewals,
            recorder,
            violations,
        } = parts;
        let mut machine = machine_of(&config, &clock);
        let metrics = Metrics::register(registry, &config.leader_lease)?;
        let (snapshot, seen) = watch::channel(Arc::new(machine.snapshot(clock.now())));
        let (leads_until, lead) = watch::channel(None);
        let history = Arc::new(Mutex::new(History::new(&machine)));
        let (asking, answering) = shards::channel();
        let handle = Handle {
            snapshot: seen,
            history: Arc::clone(&history),
            leads_until: lead,
            shards: asking,
        };
        let coordinator = Self {
            machine,
            history,
            monitor: LeaderMonitor::default(),
            lease_duration: config.lease_duration,
            violations,
            worker_leases: leases.watch(&informers),
            worker_lease_view: Arc::new(leases.view(&informers)),
            leader_leases: leader_leases.watch(&informers),
            leader_lease: config.leader_lease.clone(),
            map_changes: maps.watch(&informers),
            controllers: Controllers::open(&informers, &config.target_selector),
            wished: Wished::open(placements, &informers),
            requests: Requests::new(
                leases,
                leader_leases,
                config.leader_lease,
                maps,
                clock.clone(),
            ),
            grpc: Some(grpc),
            clock,
            renewals,
            inputs: VecDeque::new(),
            leases_synced: false,
            metrics,
            audit: report::Audit::default(),
            recorder,
            snapshot,
            leads_until,
            answering,
            finished: false,
        };
        Ok((coordinator, handle))
    }

    /// Stands for election, and coordinates when elected, until `shutdown` is asked for and the lead is given up.
    /// Ask for it when this replica's own worker has left. Sessions end with `stop_grpc`.
    pub async fn run(mut self, shutdown: Token, stop_grpc: Token) {
        let Some(grpc) = self.grpc.take() else {
            return;
        };
        let (sessions, mut said) = grpc.start(stop_grpc);
        let lease_view = Arc::clone(&self.worker_lease_view);
        let mut next_poll = self.clock.now().mono;
        let mut next_publish = next_poll;
        let mut is_leaving = false;
        info!(
            lock = self.leader_lease,
            "Attempting to acquire leader lease..."
        );
        let pulse = Pulse::of("coordinator", &self.clock);
        self.step(&sessions, Vec::new());
        while !self.finished {
            pulse.beat();
            let mut inputs = Vec::new();
            tokio::select! {
                () = self.clock.sleep_until(next_poll) => {
                    next_poll = self.clock.now().mono + POLL;
                    self.requests.poll_leader_lease();
                }
                () = self.clock.sleep_until(next_publish) => {
                    next_publish = self.clock.now().mono + PUBLISH;
                    self.publish();
                }
                input = next_input(&mut self.requests, &mut self.worker_leases, &mut self.leader_leases,
                    &self.leader_lease, &mut self.map_changes, &mut said) => {
                    match input {
                        // What the list showed comes before that it has come.
                        Input::WorkerLeasesListed(true) => inputs.extend(self.leases_told()),
                        Input::LeaderLeaseSeen(_) => next_poll = self.clock.now().mono + POLL,
                        _ => {}
                    }
                    inputs.push(input);
                }
                Ok(()) = self.renewals.changed() => {
                    inputs.push(Input::OwnRenewal(*self.renewals.borrow_and_update()));
                }
                () = self.controllers.changed() => inputs.extend(self.controllers_changed()),
                () = self.wished.changed() => inputs.push(self.wished.input(&self.controllers)),
                () = lease_view.synced(), if !self.leases_synced => {
                    self.leases_synced = true;
                    inputs.extend(self.leases_told());
                    inputs.push(Input::WorkerLeasesSynced);
                }
                () = shutdown.requested(), if !is_leaving => {
                    is_leaving = true;
                    inputs.push(Input::ShutdownAsked);
                }
                Some(question) = self.answering.next() => self.answer(question),
                () = self.clock.sleep_until_some(self.machine.poll_timeout()) => {}
            }
            while let Some(Some(event)) = said.recv().now_or_never() {
                inputs.push(input_of(event));
            }
            self.step(&sessions, inputs);
        }
        self.publish();
    }

    /// Hands inputs to the machine, or tells it that time has passed, and starts what it asks for.
    fn step(&mut self, sessions: &Sessions, inputs: Vec<Input>) {
        let mut inputs = inputs;
        loop {
            let now = self.clock.now();
            let mut actions = Vec::new();
            let own = self.machine.election().incarnation().cloned();
            let led = own.filter(|_| self.machine.leads(now));
            self.machine.step(now, inputs.clone(), &mut actions);
            let broken = self.monitor.look(now, led.as_ref(), &inputs, &actions);
            self.tell_of(broken);
            let mut history = self.history.lock();
            history.note(&self.machine, now, inputs, &actions);
            drop(history);
            sessions.set_leads(self.machine.leads(now));
            self.show_lead();
            for action in actions {
                self.carry_out(sessions, action);
            }
            inputs = self.inputs.drain(..).collect();
            if inputs.is_empty() {
                return;
            }
        }
    }

    fn answer(&mut self, question: Question) {
        let now = self.clock.now();
        self.answering.answer(now, &mut self.machine, question);
    }

    fn show_lead(&self) {
        let until = self.machine.election().coordinator_deadline();
        self.leads_until.send_if_modified(|last| {
            let changed = *last != until;
            *last = until;
            changed
        });
    }

    fn tell_of(&self, broken: BTreeSet<Invariant>) {
        for invariant in broken {
            self.violations.saw("leader", invariant.id(), &invariant);
        }
    }

    fn carry_out(&mut self, sessions: &Sessions, action: Action) {
        match action {
            Action::DrawIncarnation => {
                let incarnation = Incarnation::new(Uuid::new_v4().to_string());
                self.inputs.push_back(Input::IncarnationDrawn(incarnation));
            }
            Action::LeaderLease(request) => self.requests.leader_lease(request),
            Action::WorkerLease(incarnation, request) => {
                self.requests.worker_lease(incarnation, request);
            }
            Action::ListWorkerLeases => self.list_worker_leases(),
            Action::DeleteWorkerLease(incarnation, record) => {
                self.requests.delete_worker_lease(incarnation, record);
            }
            Action::ReadMap => self.requests.read_map(),
            Action::WriteMap(write) => self.requests.write_map(write),
            Action::Send(incarnation, order) => sessions.send(&incarnation, order),
            Action::TellWishes(told) => self.wished.tell(&mut self.requests, told),
            Action::CloseSessions => sessions.set_leads(false),
            Action::Report(report) => {
                report::log(&report);
                self.metrics.reported(&report);
                self.answering.reported(self.clock.now(), &report);
                if let Some(event) = report::event(&report) {
                    self.tell_of_map(&event);
                }
            }
            Action::Finish => self.finished = true,
        }
    }

    fn tell_of_map(&self, event: &Event) {
        let uid = &self.snapshot.borrow().map_uid;
        let about = self.requests.maps.about(uid);
        self.recorder.record(&Arc::new(about), event);
    }

    fn list_worker_leases(&mut self) {
        let (view, clock) = (Arc::clone(&self.worker_lease_view), self.clock.clone());
        self.requests.list_worker_leases(async move {
            tokio::select! {
                () = view.refresh() => true,
                () = clock.sleep(LIST_TIMEOUT) => false,
            }
        });
    }

    /// What the watch of the workers' Leases has told and nobody has taken yet.
    fn leases_told(&mut self) -> Vec<Input> {
        let mut told = Vec::new();
        while let Some((name, seen)) = self.worker_leases.next().now_or_never() {
            told.extend(worker_lease_seen(&name, seen));
        }
        told
    }

    fn controllers_changed(&self) -> impl Iterator<Item = Input> {
        let wishes = self.wished.input_for_others(&self.controllers);
        self.controllers_seen().into_iter().chain(wishes)
    }

    fn controllers_seen(&self) -> Option<Input> {
        let all = || Input::ControllersSeen(Arc::new(self.controllers.all()));
        self.controllers.are_known().then(all)
    }

    fn publish(&mut self) {
        let now = self.clock.now();
        let snapshot = self.machine.snapshot(now);
        let broken = self.monitor.look_at(now, &snapshot, self.lease_duration);
        self.tell_of(broken);
        self.metrics.show(&snapshot);
        if let Some(event) = self.audit.look(&snapshot) {
            self.tell_of_map(&event);
        }
        if let Some(event) = self.audit.look_at_names(&snapshot) {
            self.tell_of_map(&event);
        }
        if let Some(event) = self.audit.look_at_versions(&snapshot) {
            self.tell_of_map(&event);
        }
        self.snapshot.send_if_modified(|last| {
            let changed = **last != snapshot;
            if changed {
                *last = Arc::new(snapshot);
            }
            changed
        });
    }
}

fn machine_of(config: &Config, clock: &Clock) -> Leader {
    let since_1970 = clock.wall().duration_since(std::time::UNIX_EPOCH);
    let leader = Leader::new(
        clock.now(),
        leader::Config {
            replica: config.replica.clone(),
            about: config.about.clone(),
            lease_duration: config.lease_duration,
            shards: config.shards,
            drain_hook_grace: config.drain_hook_grace,
            unix_time: since_1970.unwrap_or_default(),
            rules: config.rules,
        },
    );
    match fault::number("merge-after") {
        Some(seconds) => leader.merging_after(Duration::from_secs(seconds)),
        None => leader,
    }
}

/// The next thing that was watched, answered or said. Dropping the future loses nothing.
async fn next_input(
    requests: &mut Requests,
    worker_leases: &mut LeaseWatch,
    leader_leases: &mut LeaseWatch,
    leader_lease: &str,
    map_changes: &mut MapWatch,
    said: &mut mpsc::Receiver<SessionEvent>,
) -> Input {
    loop {
        let input = tokio::select! {
            input = requests.next() => Some(input),
            (name, seen) = worker_leases.next() => worker_lease_seen(&name, seen),
            (name, seen) = leader_leases.next() => {
                (*name == *leader_lease).then_some(Input::LeaderLeaseSeen(seen))
            }
            seen = map_changes.next() => Some(Input::MapSeen(seen)),
            Some(event) = said.recv() => Some(input_of(event)),
        };
        if let Some(input) = input {
            return input;
        }
    }
}

fn worker_lease_seen(name: &str, seen: Seen) -> Option<Input> {
    let incarnation = name.strip_prefix(WORKER_LEASE_PREFIX)?;
    Some(Input::WorkerLeaseSeen(Incarnation::new(incarnation), seen))
}

fn input_of(event: SessionEvent) -> Input {
    match event {
        SessionEvent::Said(incarnation, message) => Input::FromWorker(incarnation, message),
        SessionEvent::Closed(incarnation) => Input::SessionClosed(incarnation),
    }
}
