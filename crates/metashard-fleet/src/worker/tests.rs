//! Tests of the worker machine: a scene with one worker, the Lease and the map it sees, and a clock moved by hand.

mod joining;
mod lease;
mod leaving;
mod maps;
mod monitored;
mod orders;
mod shards;
mod splits;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use metashard_api::{
    id::{Epoch, Incarnation, ReplicaId, Seq, ShardId, Term},
    shard_map::{Member, ShardEntry, ShardMapSpec},
};

use super::*;
use crate::{
    invariants::Invariant,
    lease::Request,
    map::{Map, Seen as MapSeen},
    message::Order,
    monitor::WorkerMonitor,
    record::{Holder, Record, Written},
    recording::{History, Machine, testing::check},
    rules::Rule,
    time::Now,
};

const OTHER: &str = "99999999-9999-4999-8999-999999999999";
const GRACE: Duration = Duration::from_secs(2);

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The UUID drawn for the `n`th membership.
fn incarnation(n: u64) -> Incarnation {
    Incarnation::new(format!("{n:08}-0000-4000-8000-000000000000"))
}

fn claim(shard: u16, epoch: u64) -> Claim {
    Claim {
        shard: ShardId(shard),
        epoch: Epoch(epoch),
    }
}

fn written(resource: &str, version: &str) -> LastWritten {
    LastWritten {
        resource: resource.to_owned(),
        resource_version: version.to_owned(),
    }
}

/// Who owns one shard of a test's map: `Me(epoch)`, `Other(epoch)` or `Nobody(epoch)`.
#[derive(Clone, Copy)]
enum Owner {
    Me(u64),
    Other(u64),
    Nobody(u64),
}
use Owner::{Me, Nobody, Other};

struct Scene {
    worker: Worker,
    history: History<Worker>,
    monitor: WorkerMonitor,
    /// What it has seen broken.
    broken: BTreeSet<Invariant>,
    keeps_all_rules: bool,
    now: Now,
    out: Vec<Action>,
    /// How many incarnations were drawn.
    drawn: u64,
    lease_version: u64,
}

/// Whatever a test does with a worker, its decisions can be made again.
impl Drop for Scene {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            check(&self.history, &self.worker);
            // What the others do is made up in these tests.
            let own = [Invariant::TableFirst, Invariant::NoResurrection];
            let is_sound = own.iter().all(|it| !self.broken.contains(it));
            assert!(!self.keeps_all_rules || is_sound, "{:?}", self.broken);
        }
    }
}

impl Scene {
    fn new() -> Self {
        Self::breaking(Rules::default())
    }

    fn breaking(rules: Rules) -> Self {
        let now = Now::default().after(seconds(100));
        let config = Config {
            replica: ReplicaId::new("r1"),
            about: About::default(),
            lease_duration: seconds(4),
            drain_hook_grace: GRACE,
            rules,
        };
        let worker = Worker::new(now, config);
        let mut scene = Self {
            history: History::new(&worker),
            monitor: WorkerMonitor::default(),
            broken: BTreeSet::new(),
            keeps_all_rules: rules == Rules::default(),
            worker,
            now,
            out: Vec::new(),
            drawn: 0,
            lease_version: 0,
        };
        scene.call(Vec::new());
        scene
    }

    /// A member that has seen map (1, 1) with these shards, and has an open session.
    fn member(owners: &[Owner]) -> Self {
        Self::member_breaking(Rules::default(), owners)
    }

    fn member_breaking(rules: Rules, owners: &[Owner]) -> Self {
        let mut scene = Self::breaking(rules);
        scene.join();
        scene.see_map(1, 1, owners);
        scene.tell(Input::SessionOpened);
        scene.out.clear();
        scene
    }

    /// From the first map, an empty one of term 0, to a confirmed Lease.
    fn join(&mut self) {
        self.tell(Input::DispatcherAnswered);
        self.read_map(0, 0, &[]);
        self.draw();
        self.confirm();
        assert_eq!(self.worker.standing().phase(), Phase::Member);
    }

    fn tell(&mut self, input: Input) {
        self.call(vec![input]);
    }

    /// One call of the machine.
    fn call(&mut self, inputs: Vec<Input>) {
        let (before, n_before) = (Arc::clone(self.worker.standing()), self.out.len());
        self.worker.step(self.now, inputs.clone(), &mut self.out);
        let (after, actions) = (self.worker.standing(), &self.out[n_before..]);
        let broken = self
            .monitor
            .look(self.now, &inputs, &before, actions, after);
        self.broken.extend(broken);
        self.history.note(&self.worker, self.now, inputs, actions);
    }

    /// What was asked for since the last call.
    fn taken(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.out)
    }

    /// What was asked for since the last call, other than for the Lease and pings.
    fn steps(&mut self) -> Vec<Action> {
        let mut actions = self.taken();
        actions.retain(|action| !matches!(action, Action::Lease { .. } | Action::PingDispatcher));
        actions
    }

    /// Lets `length` pass, firing timers at their time.
    fn wait(&mut self, length: Duration) {
        let end = self.now.after(length);
        let mut fired = 0;
        while let Some(due) = self.worker.poll_timeout().filter(|due| *due <= end.mono) {
            self.now = self.now.after(self.now.mono.until(due));
            self.call(Vec::new());
            fired += 1;
            assert!(fired < 1000, "timers fire without end");
        }
        self.now = end;
    }

    fn read_map(&mut self, term: u64, seq: u64, owners: &[Owner]) {
        let map = self.map("uid-1", term, seq, owners);
        self.tell(Input::MapRead(Some(MapSeen::Present(map))));
    }

    fn see_map(&mut self, term: u64, seq: u64, owners: &[Owner]) {
        let map = self.map("uid-1", term, seq, owners);
        self.tell(Input::MapSeen(MapSeen::Present(map)));
    }

    fn map(&self, uid: &str, term: u64, seq: u64, owners: &[Owner]) -> Arc<Map> {
        let member = |incarnation: &str| Member {
            replica: "r".to_owned(),
            incarnation: incarnation.to_owned(),
        };
        let entry = |owner: &Owner| match *owner {
            Nobody(epoch) => (None, epoch),
            Me(epoch) => (Some(1), epoch),
            Other(epoch) => (Some(0), epoch),
        };
        let shards = owners.iter().map(entry).map(|(owner, epoch)| ShardEntry {
            owner,
            epoch: Epoch(epoch),
        });
        Arc::new(Map {
            uid: uid.to_owned(),
            resource_version: format!("{term}{seq}"),
            spec: ShardMapSpec {
                term: Term(term),
                seq: Seq(seq),
                format: 0,
                leader: None,
                // The same for all maps, however many of them a test names.
                shard_count: 2,
                splits: Vec::new(),
                members: vec![member(OTHER), member(incarnation(self.drawn).as_str())],
                shards: shards.collect(),
            },
        })
    }

    fn draw(&mut self) {
        self.drawn += 1;
        self.tell(Input::IncarnationDrawn(incarnation(self.drawn)));
    }

    /// The Lease request that is in flight: the last one asked for.
    fn lease_request(&self) -> Request {
        let request = self.out.iter().rev().find_map(|action| {
            if let Action::Lease { request, .. } = action {
                Some(request.clone())
            } else {
                None
            }
        });
        request.expect("a Lease request was asked for")
    }

    fn answer_lease(&mut self, answer: crate::lease::Input) {
        self.tell(Input::LeaseAnswered {
            incarnation: incarnation(self.drawn),
            answer,
        });
    }

    /// The record that the write in flight leaves.
    fn record(&mut self) -> Record {
        self.lease_version += 1;
        let (Request::Create(record) | Request::Put(record)) = self.lease_request() else {
            panic!("no write is in flight");
        };
        Record {
            uid: format!("lease-{}", self.drawn),
            resource_version: self.lease_version.to_string(),
            ..record
        }
    }

    /// The write in flight is accepted.
    fn confirm(&mut self) {
        let record = self.record();
        self.answer_lease(crate::lease::Input::Written(Written::Accepted(record)));
    }

    /// The write in flight conflicts, and a read shows `seen`.
    fn lose(&mut self, seen: Seen) {
        self.answer_lease(crate::lease::Input::Written(Written::Conflict));
        self.answer_lease(crate::lease::Input::Read(Some(seen)));
    }

    /// Waits for the next renewal, the dispatcher answering its pings, and lets it be confirmed.
    fn renew(&mut self) {
        self.wait(seconds(1));
        self.tell(Input::DispatcherAnswered);
        self.confirm();
    }

    fn fenced(&self) -> Seen {
        Seen::Present(Record {
            uid: format!("lease-{}", self.drawn),
            resource_version: "999".to_owned(),
            holder: Holder::Fenced,
            duration: seconds(4),
            attempt: 1,
            about: About::default(),
        })
    }

    fn order(&mut self, term: u64, seq: u64, order: Order) {
        self.tell(Input::OrderReceived(FromLeader {
            term: Term(term),
            seq: Seq(seq),
            order,
        }));
    }

    fn assign(&mut self, seq: u64, claim: Claim, last_written: Vec<LastWritten>) {
        let order = Order::Assign {
            claim,
            last_written,
            splits_as_of: (Term(0), Seq(0)),
        };
        self.order(1, seq, order);
    }

    fn drain(&mut self, claim: Claim) {
        self.order(
            1,
            1,
            Order::Drain {
                claim,
                grace: GRACE,
            },
        );
    }

    fn drained(&mut self, claim: Claim) {
        self.tell(Input::Drained {
            claim,
            last_written: vec![written("v1/configmaps", "70")],
        });
    }

    fn may_act(&self, claim: Claim) -> bool {
        let authority = self.worker.standing().authority(claim.shard, self.now);
        authority.is_some_and(|authority| authority.epoch() == claim.epoch)
    }
}

fn start(claim: Claim, freshness: Freshness) -> Action {
    Action::Start { claim, freshness }
}

fn released(claim: Claim, last_written: &[LastWritten]) -> Action {
    Action::Send(FromWorker::Released {
        claim,
        last_written: last_written.to_vec(),
    })
}
