//! A fleet on one machine: leader machines, workers that do what they are told, and a server that answers at once.

mod loads;
mod looking;
mod watched;
pub(super) mod wishes;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use metashard_api::{
    id::{ControllerUid, Incarnation, ReplicaId, ShardId},
    shard_map::ShardMapSpec,
};

use crate::{
    invariants::Invariant,
    leader::{Action, Config, Input, Leader, Report, Snapshot},
    lease,
    map::{self, Map},
    message::{Claim, FromLeader, FromWorker, LastWritten, Order},
    monitor::LeaderMonitor,
    record::{About, Record, Seen, Written},
    recording::History,
    rules::Rules,
    testing::{Server, controllers, incarnation, member, record},
    time::{MonoTime, Now},
    wishes::{Told, Wishes},
};

pub(super) const LEADER_LEASE: &str = "metashard-leader";
pub(super) const DURATION: Duration = Duration::from_secs(4);
pub(super) const N_SHARDS: u16 = 30;

/// How the server treats writes of the map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MapWrites {
    /// Carried out and answered.
    Answered,
    /// Carried out, but the answer is lost.
    AnswerLost,
    /// Lost on the way.
    Lost,
}

pub(super) struct Fleet {
    pub(super) now: Now,
    pub(super) server: Server,
    pub(super) replicas: Vec<Replica>,
    pub(super) workers: BTreeMap<Incarnation, FakeWorker>,
    pub(super) map_writes: MapWrites,
    /// All maps that were written, in order.
    pub(super) maps: Vec<ShardMapSpec>,
    /// All that leaders told workers.
    pub(super) told: Vec<(Incarnation, FromLeader)>,
    pub(super) reports: Vec<Report>,
    /// What a test breaks itself, and every replica has to see.
    pub(super) broken_by_hand: BTreeSet<Invariant>,
    /// What people ask, as every candidate sees it.
    pub(super) wishes: Wishes,
    /// What they are told, oldest first.
    pub(super) answers: Vec<Told>,
    /// What each shard costs, as the worker tells that holds it; 0 if it is not named.
    pub(super) costs: BTreeMap<ShardId, u64>,
    /// A controller that loads name: into how many slices it is split, and what it costs as a whole.
    pub(super) hot: Option<(ControllerUid, u16, u64)>,
    loads_at: MonoTime,
    n_drawn: usize,
}

pub(super) struct Replica {
    pub(super) leader: Leader,
    pub(super) history: History<Leader>,
    monitor: LeaderMonitor,
    /// What it has seen broken.
    pub(super) broken: BTreeSet<Invariant>,
    pub(super) config: Config,
    pub(super) is_alive: bool,
    pub(super) has_finished: bool,
    /// What its own Lease says.
    pub(super) renewing_since: Option<MonoTime>,
}

/// A worker that renews its Lease each second and obeys orders at once.
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of a test")]
pub(super) struct FakeWorker {
    pub(super) renews: bool,
    pub(super) has_session: bool,
    pub(super) warms: bool,
    pub(super) drains: bool,
    pub(super) held: BTreeSet<Claim>,
    renewed: MonoTime,
}

impl Fleet {
    /// Candidates and an empty map.
    pub(super) fn new(n_replicas: usize, rules: Rules) -> Self {
        let now = Now::default().after(Duration::from_secs(100));
        let mut server = Server::default();
        server.put_map(None, ShardMapSpec::default());
        let mut fleet = Self {
            now,
            server,
            replicas: Vec::new(),
            workers: BTreeMap::new(),
            map_writes: MapWrites::Answered,
            maps: Vec::new(),
            told: Vec::new(),
            reports: Vec::new(),
            broken_by_hand: BTreeSet::new(),
            costs: BTreeMap::new(),
            hot: None,
            wishes: Wishes::default(),
            answers: Vec::new(),
            loads_at: now.mono,
            n_drawn: 0,
        };
        for n in 0..n_replicas {
            let config = Config {
                replica: ReplicaId::new(format!("r{n}")),
                about: About::default(),
                lease_duration: DURATION,
                shards: N_SHARDS,
                drain_hook_grace: Duration::from_secs(2),
                unix_time: Duration::from_secs(1_000_000),
                rules,
            };
            let leader = Leader::new(now, config.clone());
            fleet.replicas.push(Replica {
                history: History::new(&leader),
                monitor: LeaderMonitor::default(),
                broken: BTreeSet::new(),
                leader,
                config,
                is_alive: true,
                has_finished: false,
                renewing_since: Some(now.mono),
            });
            fleet.tell(n, Input::WorkerLeasesSynced);
            let map = fleet.server.map();
            fleet.tell(n, Input::MapSeen(map));
        }
        fleet
    }

    /// One leader and workers named so, each with its share.
    pub(super) fn running(workers: &[&str]) -> Self {
        let mut fleet = Self::new(1, Rules::default());
        for name in workers {
            fleet.join(name);
        }
        fleet.run(Duration::from_secs(3));
        let shares = N_SHARDS / u16::try_from(workers.len()).expect("a few");
        for name in workers {
            let n_owned = fleet.owned_by(name).len();
            assert!(n_owned >= usize::from(shares) - 1, "{name}: {n_owned}");
        }
        fleet.told.clear();
        fleet.reports.clear();
        fleet.maps.clear();
        fleet
    }

    pub(super) fn join(&mut self, name: &str) {
        self.join_as(name, name, "");
    }

    /// An incarnation of `replica`, of a version of the program.
    pub(super) fn join_as(&mut self, name: &str, replica: &str, version: &str) {
        let incarnation = incarnation(name);
        let worker = FakeWorker {
            renews: true,
            has_session: true,
            warms: true,
            drains: true,
            held: BTreeSet::new(),
            renewed: self.now.mono,
        };
        self.workers.insert(incarnation.clone(), worker);
        let mut lease = record(member(replica, &incarnation), DURATION, 1);
        version.clone_into(&mut lease.about.version);
        self.server.put(&lease_of(&incarnation), lease);
        self.show_worker(&incarnation);
    }

    pub(super) fn worker(&mut self, name: &str) -> &mut FakeWorker {
        let worker = self.workers.get_mut(&incarnation(name));
        worker.expect("it has joined")
    }

    /// Each shard's controllers: as many as the number says.
    pub(super) fn count(&mut self, n_controllers: u32) {
        let counts = (0..N_SHARDS).map(|it| (ShardId(it), n_controllers));
        self.count_each(&counts.collect());
    }

    /// Shards that are not named hold none.
    pub(super) fn count_each(&mut self, counts: &BTreeMap<ShardId, u32>) {
        let all = controllers(counts, N_SHARDS);
        for n in 0..self.replicas.len() {
            self.tell(n, Input::ControllersSeen(Arc::clone(&all)));
        }
    }

    pub(super) fn run(&mut self, length: Duration) {
        let end = self.now.after(length);
        while self.now.mono < end.mono {
            self.now = self.now.after(Duration::from_millis(100));
            self.renew_workers();
            self.tell_loads();
            for n in 0..self.replicas.len() {
                self.step(n);
            }
        }
    }

    /// Runs until `is_so`, for at most `patience`; returns how long it took.
    pub(super) fn run_until(
        &mut self,
        patience: Duration,
        is_so: impl Fn(&Self) -> bool,
    ) -> Duration {
        let begin = self.now;
        while !is_so(self) {
            assert!(
                self.now.mono.since(begin.mono) < patience,
                "not within {patience:?}; last reports {:?}",
                self.reports.iter().rev().take(5).collect::<Vec<_>>()
            );
            self.run(Duration::from_millis(100));
        }
        self.now.mono.since(begin.mono)
    }

    pub(super) fn tell(&mut self, n: usize, input: Input) {
        self.call(n, vec![input]);
    }

    /// A worker says this on its session with whoever leads.
    pub(super) fn say(&mut self, name: &str, message: impl Into<FromWorker>) {
        let message = message.into();
        for n in 0..self.replicas.len() {
            if self.replicas[n].leader.leads(self.now) {
                self.tell(n, Input::FromWorker(incarnation(name), message.clone()));
            }
        }
    }

    pub(super) fn disconnect(&mut self, name: &str) {
        self.worker(name).has_session = false;
        self.tell(0, Input::SessionClosed(incarnation(name)));
    }

    pub(super) fn leaders(&self) -> Vec<usize> {
        let replicas = self.replicas.iter().enumerate();
        replicas
            .filter(|(_, it)| it.is_alive && it.leader.leads(self.now))
            .map(|(n, _)| n)
            .collect()
    }

    pub(super) fn snapshot(&mut self) -> Snapshot {
        self.replicas[0].leader.snapshot(self.now)
    }

    /// Shows the Lease of a worker to every candidate.
    pub(super) fn show_worker(&mut self, incarnation: &Incarnation) {
        let seen = self.server.lease(&lease_of(incarnation));
        for n in 0..self.replicas.len() {
            self.tell(n, Input::WorkerLeaseSeen(incarnation.clone(), seen.clone()));
        }
    }

    fn show_map(&mut self) {
        let map = self.server.map();
        for n in 0..self.replicas.len() {
            self.tell(n, Input::MapSeen(map.clone()));
        }
    }

    fn renew_workers(&mut self) {
        let now = self.now.mono;
        let due: Vec<Incarnation> = self
            .workers
            .iter()
            .filter(|(_, it)| it.renews && now.since(it.renewed) >= DURATION / 4)
            .map(|(it, _)| it.clone())
            .collect();
        for incarnation in due {
            let name = lease_of(&incarnation);
            let Seen::Present(mut record) = self.server.lease(&name) else {
                continue;
            };
            if record.holder.is_incarnation(&incarnation) {
                record.attempt += 1;
                self.server.put(&name, record);
                self.show_worker(&incarnation);
            }
            if let Some(worker) = self.workers.get_mut(&incarnation) {
                worker.renewed = now;
            }
        }
    }

    fn step(&mut self, n: usize) {
        let since = self.replicas[n].renewing_since;
        self.tell(n, Input::OwnRenewal(since));
        let lease = self.server.lease(LEADER_LEASE);
        self.tell(n, Input::LeaderLeaseSeen(lease));
        self.open_sessions(n);
        self.call(n, Vec::new());
    }

    fn open_sessions(&mut self, n: usize) {
        if !self.replicas[n].leader.leads(self.now) {
            return;
        }
        let snapshot = self.replicas[n].leader.snapshot(self.now);
        for member in snapshot.members.iter().filter(|it| !it.has_session) {
            let worker = self.workers.get(&member.incarnation);
            let Some(worker) = worker.filter(|it| it.has_session && it.renews) else {
                continue;
            };
            let hello = FromWorker::Hello {
                replica: ReplicaId::new("any"),
                incarnation: member.incarnation.clone(),
                held: worker.held.iter().copied().collect(),
                released: Vec::new(),
            };
            self.tell(n, Input::FromWorker(member.incarnation.clone(), hello));
        }
    }

    fn carry_out(&mut self, n: usize, actions: Vec<Action>) {
        for action in actions {
            self.carry_out_one(n, action);
        }
    }

    fn carry_out_one(&mut self, n: usize, action: Action) {
        match action {
            Action::DrawIncarnation => {
                self.n_drawn += 1;
                let drawn = incarnation(&format!("lead{}", self.n_drawn));
                self.tell(n, Input::IncarnationDrawn(drawn));
            }
            Action::LeaderLease(request) => {
                let answer = self.server.answer(LEADER_LEASE, request);
                self.tell(n, Input::LeaderLeaseAnswered(answer));
            }
            Action::WorkerLease(incarnation, request) => {
                let answer = self.server.answer(&lease_of(&incarnation), request);
                let input = match answer {
                    lease::Input::Read(seen) => Input::WorkerLeaseRead(incarnation, seen),
                    lease::Input::Written(it) => Input::WorkerLeaseWritten(incarnation, it),
                    lease::Input::ReleaseAsked => return,
                };
                self.tell(n, input);
            }
            Action::ListWorkerLeases => self.tell(n, Input::WorkerLeasesListed(true)),
            Action::DeleteWorkerLease(incarnation, _) => {
                self.server.delete(&lease_of(&incarnation));
                self.show_worker(&incarnation);
            }
            Action::ReadMap => {
                let map = self.server.map();
                self.tell(n, Input::MapRead(Some(map)));
            }
            Action::WriteMap(write) => self.write_map(n, write),
            Action::Send(to, message) => self.deliver(n, to, message),
            Action::CloseSessions => {}
            Action::TellWishes(told) => self.take_told(n, told),
            Action::Report(report) => self.reports.push(report),
            Action::Finish => self.replicas[n].has_finished = true,
        }
    }

    fn write_map(&mut self, n: usize, write: map::Write) {
        let written: Written<Arc<Map>> = match self.map_writes {
            MapWrites::Lost => Written::Unknown,
            MapWrites::Answered | MapWrites::AnswerLost => {
                let spec = write.spec.clone();
                let written = self.server.write_map(write);
                if matches!(written, Written::Accepted(_)) {
                    self.maps.push(spec);
                }
                written
            }
        };
        let written = match self.map_writes {
            MapWrites::Answered => written,
            MapWrites::AnswerLost | MapWrites::Lost => Written::Unknown,
        };
        self.tell(n, Input::MapWritten(written));
        self.show_map();
    }

    fn deliver(&mut self, n: usize, to: Incarnation, message: FromLeader) {
        let order = message.order.clone();
        self.told.push((to.clone(), message));
        let Some(worker) = self.workers.get_mut(&to) else {
            return;
        };
        if !worker.has_session || !worker.renews {
            return;
        }
        let answer = match order {
            Order::Warm { shard } => worker.warms.then_some(FromWorker::WarmReady { shard }),
            Order::Assign { claim, .. } => {
                worker.held.insert(claim);
                None
            }
            Order::Drain { claim, .. } => worker.drains.then(|| {
                worker.held.remove(&claim);
                FromWorker::Released {
                    claim,
                    last_written: vec![last_written(claim)],
                }
            }),
        };
        if let Some(answer) = answer {
            self.tell(n, Input::FromWorker(to, answer));
        }
    }
}

/// Where a fake worker's writes of one ownership end.
pub(super) fn last_written(claim: Claim) -> LastWritten {
    LastWritten {
        resource: "v1/configmaps".to_owned(),
        resource_version: format!("{}", 1_000 + claim.epoch.0),
    }
}

pub(super) fn lease_of(incarnation: &Incarnation) -> String {
    format!("metashard-worker-{incarnation}")
}

/// How many shards have another owner in `after` than in `before`.
pub(super) fn n_moved(before: &ShardMapSpec, after: &ShardMapSpec) -> usize {
    let n_shards = u16::try_from(before.shards.len()).expect("a map of a test");
    (0..n_shards)
        .map(ShardId)
        .filter(|it| before.owner(*it).map(|it| it.0) != after.owner(*it).map(|it| it.0))
        .count()
}

/// The record under a name.
pub(super) fn present(seen: Seen) -> Record {
    match seen {
        Seen::Present(record) => record,
        Seen::Absent => panic!("it is absent"),
    }
}
