//! Lets the history of one seed happen, and looks on.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, SystemTime},
};

use metashard_api::id::{Epoch, Incarnation, ShardId};
use metashard_fleet::{
    invariants::{self, Hold, Invariant},
    message::Claim,
    monitor,
    time::Now,
    worker::{HeldState, Standing},
};
use metashard_runtime::{
    metrics::Violations,
    task,
    tls::{Authority, DEFAULT_TRUST_DOMAIN},
};
use parking_lot::Mutex;
use prometheus::Registry;
use serde_json::json;
use turmoil::Sim;

use crate::{
    facts::{Facts, Writer},
    network::{Host, Network, STORE},
    plan::{Fault, LEASE_DURATION, Plan},
    replica::{self, Process, Seen, Shared},
    store::{self, Key, Store},
};

/// How long the hosts run before messages between them are looked at.
const TICK: Duration = Duration::from_millis(20);

/// Steps between two looks at what is under way.
const LOOK_INTO_GATES: u64 = 5;

/// How long a shard may have no owner while it changes hands.
const CHANGES_HANDS: Duration = Duration::from_secs(1);

/// For so long all shards have owners before a history ends: what goes wrong late shows.
const LAST_LOOK: Duration = Duration::from_millis(1_500);

/// What came of one history.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) hash: u64,
    pub(crate) steps: u64,
    pub(crate) facts: Facts,
    /// What the replicas' own monitors have seen broken, other than by hand.
    pub(crate) seen: BTreeSet<Invariant>,
}

/// Everything that the driver moves.
struct Driver<'a> {
    sim: Sim<'a>,
    plan: Arc<Plan>,
    shared: Shared,
    store: Store,
    /// How often each process was started.
    starts: Arc<Mutex<BTreeMap<Host, u64>>>,
    steps: u64,
}

/// Runs a plan from its beginning to its end.
pub(crate) fn run(plan: Plan) -> Outcome {
    let mut driver = Driver::new(Arc::new(plan));
    let mut changes = driver.changes();
    let end = driver.plan.end;
    let mut coverage = Coverage::default();
    while driver.sim.elapsed() < end {
        let now = driver.sim.elapsed();
        driver.shared.facts.lock().now = now;
        while changes
            .first_key_value()
            .is_some_and(|((at, _), _)| *at <= now)
        {
            if let Some((_, (fault, begins))) = changes.pop_first() {
                driver.change(fault, begins);
            }
        }
        if now >= driver.plan.healed {
            driver.revive();
        }
        driver.sim.step().expect("no host fails");
        driver.steps += 1;
        let working = driver.judge();
        if now >= driver.plan.healed && coverage.lasts(working, now, driver.plan.n_shards) {
            break;
        }
    }
    driver.finish(&coverage)
}

impl Driver<'_> {
    fn new(plan: Arc<Plan>) -> Self {
        let facts = Arc::new(Mutex::new(Facts::new(plan.talks)));
        let wall = SystemTime::UNIX_EPOCH + Duration::from_mins(5);
        let authority = Authority::generate(DEFAULT_TRUST_DOMAIN, wall);
        let shared = Shared {
            plan: Arc::clone(&plan),
            network: Network::default(),
            facts: Arc::clone(&facts),
            authority: Arc::new(authority.expect("an authority is made")),
            processes: Arc::default(),
            violations: Violations::register(&Registry::new(), []).expect("names are free"),
        };
        let sim = turmoil::Builder::new()
            .rng_seed(plan.seed)
            .tick_duration(TICK)
            .simulation_duration(plan.end * 2)
            .min_message_latency(Duration::from_millis(1))
            .max_message_latency(Duration::from_millis(plan.latency))
            .tcp_capacity(4_096)
            .enable_random_order()
            .build();
        let mut driver = Self {
            sim,
            plan,
            store: Store::new(facts),
            shared,
            starts: Arc::default(),
            steps: 0,
        };
        driver.add_hosts();
        driver
    }

    fn add_hosts(&mut self) {
        let map = json!({
            "apiVersion": "metashard.io/v1beta1", "kind": "ShardMap",
            "metadata": { "namespace": store::NAMESPACE, "name": "metashard" },
        });
        let made = self.store.create(
            &Key::new("shardmaps", "metashard"),
            &map,
            &Writer::default(),
        );
        made.expect("it is the first");
        let (store, shared) = (self.store.clone(), self.shared.clone());
        let starts = Arc::clone(&self.starts);
        self.sim.host(STORE, move || {
            let (store, shared) = (store.clone(), shared.clone());
            let start = count(&starts, STORE);
            async move {
                let plan = shared.plan.as_ref().clone();
                Ok(store::http::serve(store, shared.network, plan, start).await?)
            }
        });
        for (host, role) in self.plan.replicas.clone() {
            let (shared, starts) = (self.shared.clone(), Arc::clone(&self.starts));
            self.sim.host(host, move || {
                let shared = shared.clone();
                let start = count(&starts, host);
                async move { replica::run(shared, host, role, start).await }
            });
            if self.plan.is_leader(host) {
                self.shared.facts.lock().coordinator(host, true);
            }
        }
    }

    /// Beginnings and ends of faults, in order.
    fn changes(&self) -> BTreeMap<(Duration, usize), (Fault, bool)> {
        let events = self.plan.events.iter().enumerate();
        events
            .flat_map(|(number, event)| {
                [
                    ((event.begin, 2 * number), (event.fault, true)),
                    ((event.end, 2 * number + 1), (event.fault, false)),
                ]
            })
            .collect()
    }

    fn change(&mut self, fault: Fault, begins: bool) {
        let word = if begins { "begins" } else { "ends" };
        self.shared.facts.lock().note(&format!("{fault:?} {word}"));
        let network = self.shared.network.clone();
        match fault {
            Fault::Crash(host) => self.crash(&[host], begins),
            Fault::NoCoordinator => self.crash(&["l0", "l1"], begins),
            Fault::NoStore => {
                self.crash(&[STORE], begins);
                self.shared.facts.lock().outage(begins);
            }
            Fault::Leave(host) if begins => self.tell_to_end(host),
            Fault::Leave(host) => self.crash(&[host], false),
            Fault::Stop(host) => self.stop(host, begins, false),
            Fault::Suspend(host) => self.stop(host, begins, true),
            Fault::HoldUp(from, to) if begins => network.hold_up(from, to),
            Fault::HoldUp(from, to) => network.let_through(from, to),
            Fault::Part(one, other) => {
                for (from, to) in [(one, other), (other, one)] {
                    if begins {
                        network.hold_up(from, to);
                    } else {
                        network.let_through(from, to);
                    }
                }
            }
            Fault::Weather(weather) if begins => self.store.begin_weather(weather),
            Fault::Weather(weather) => self.store.end_weather(weather),
            _ if !begins => {}
            Fault::Cut(one, other) => network.cut(one, other),
            Fault::DeleteLease(host) => self.delete_lease(host),
            Fault::TakeLead => {
                let key = Key::new("leases", "metashard-leader");
                self.store.by_hand(&key, |lease| {
                    lease["spec"]["holderIdentity"] = "somebody else".into();
                    lease["spec"]["leaseDurationSeconds"] = LEASE_DURATION.as_secs().into();
                });
            }
            Fault::DeleteMap => {
                let key = Key::new("shardmaps", "metashard");
                // It may be gone already.
                _ = self.store.delete(&key, &json!({}));
            }
        }
    }

    /// Kills processes, or starts them again if they do not run.
    fn crash(&mut self, hosts: &[Host], begins: bool) {
        for &host in hosts {
            let is_running = self.sim.is_host_running(host);
            if begins && is_running {
                self.sim.crash(host);
                self.shared.processes.lock().remove(host);
            } else if !begins && !is_running {
                self.shared.network.set_stopped(host, false);
                self.sim.bounce(host);
            }
            if self.plan.is_leader(host) {
                let lives = self.sim.is_host_running(host);
                self.shared.facts.lock().coordinator(host, lives);
            }
        }
    }

    /// Starts whatever has ended.
    fn revive(&mut self) {
        let replicas = self.plan.replicas.iter();
        let hosts: Vec<Host> = replicas.map(|(host, _)| *host).collect();
        self.crash(&hosts, false);
    }

    fn tell_to_end(&self, host: Host) {
        if let Some(process) = self.shared.processes.lock().get(host) {
            process.shutdown.request();
        }
    }

    fn stop(&self, host: Host, begins: bool, suspended: bool) {
        let now = self.sim.elapsed();
        let processes = self.shared.processes.lock();
        let Some(process) = processes.get(host) else {
            return;
        };
        let at = now.saturating_sub(process.begun);
        match (begins, process.clocks.is_stopped()) {
            (true, false) => process.clocks.stop(at),
            (false, true) => process.clocks.go_on(at, suspended),
            _ => return,
        }
        self.shared.network.set_stopped(host, begins);
    }

    fn delete_lease(&self, host: Host) {
        let incarnation = {
            let processes = self.shared.processes.lock();
            let standing = processes.get(host).and_then(|it| it.standing.clone());
            standing.and_then(|it| it.load().incarnation().cloned())
        };
        if let Some(incarnation) = incarnation {
            let key = Key::new("leases", &format!("metashard-worker-{incarnation}"));
            // It may be gone already.
            _ = self.store.delete(&key, &json!({}));
        }
    }

    /// Looks at this instant; returns who is at work.
    fn judge(&self) -> BTreeSet<Hold<Incarnation>> {
        let now = self.sim.elapsed();
        let mut facts = self.shared.facts.lock();
        facts.now = now;
        let mut sight = Sight::default();
        for (host, process) in &mut *self.shared.processes.lock() {
            let now = process.now(now);
            let until = process.leads_until.as_ref().and_then(|it| *it.borrow());
            if until.is_some_and(|until| now.boot < until) {
                sight.leading.insert(Incarnation::new(*host));
            }
            let Some(standing) = &process.standing else {
                continue;
            };
            let standing = standing.load();
            process.seen.follow(&standing, &mut facts);
            sight.look(&standing, now);
            if self.steps.is_multiple_of(LOOK_INTO_GATES) {
                sight.look_into_gate(process, &facts);
            }
        }
        let Sight {
            acting,
            working,
            in_flight,
            leading,
        } = sight;
        facts.judge(acting, in_flight, leading);
        working
    }

    /// What has to hold once all has been well for a while.
    fn finish(self, coverage: &Coverage) -> Outcome {
        // The hosts end first, and with them all that they would still say.
        drop(self.sim);
        let mut facts = std::mem::take(&mut *self.shared.facts.lock());
        if coverage.since.is_none() {
            let how = format!("at the end act {:?}", coverage.recent);
            facts.breaks(Invariant::Coverage, &how);
        }
        if !facts.are_in_epoch() {
            facts.breaks(Invariant::WriteInEpoch, "as the order of all writes shows");
        }
        assert_eq!(task::panics(), 0, "a task has panicked");
        let mut seen: BTreeSet<Invariant> = monitor::SEEN.into();
        seen.retain(|it| self.shared.violations.count(it.id()) > 0);
        let faults = self.plan.events.iter().map(|it| it.fault);
        if faults.into_iter().any(|it| matches!(it, Fault::TakeLead)) {
            seen.remove(&Invariant::OneLeader);
        }
        Outcome {
            seen,
            hash: facts.hash(),
            steps: self.steps,
            facts,
        }
    }
}

/// Who was at work lately, once all is well.
#[derive(Debug, Default)]
struct Coverage {
    /// When each was seen last. A shard that changes hands is seen with one owner or the other.
    recent: BTreeMap<Hold<Incarnation>, Duration>,
    /// Since when each shard has an owner.
    since: Option<Duration>,
}

impl Coverage {
    /// Whether each shard has had an owner for long enough.
    fn lasts(&mut self, working: BTreeSet<Hold<Incarnation>>, now: Duration, n: u16) -> bool {
        self.recent.extend(working.into_iter().map(|it| (it, now)));
        self.recent.retain(|_, last| now < *last + CHANGES_HANDS);
        let all = self.recent.keys().cloned().collect();
        let is_covered = invariants::are_covered(&all, n);
        self.since = is_covered.then(|| self.since.unwrap_or(now));
        self.since.is_some_and(|since| now >= since + LAST_LOOK)
    }
}

/// What an instant shows.
#[derive(Debug, Default)]
struct Sight {
    acting: BTreeSet<Hold<Incarnation>>,
    /// Those whose caches are fresh, and that do not end.
    working: BTreeSet<Hold<Incarnation>>,
    in_flight: BTreeSet<Hold<Incarnation>>,
    leading: BTreeSet<Incarnation>,
}

impl Sight {
    /// What a worker may act for, by the check that its write gate makes, but by the true time.
    fn look(&mut self, standing: &Standing, now: Now) {
        for (shard, held) in standing.shards() {
            let Some(authority) = standing.authority(shard, now) else {
                continue;
            };
            let hold = Hold {
                claim: authority.claim(),
                worker: authority.incarnation().clone(),
            };
            if held.state == HeldState::Acting {
                self.working.insert(hold.clone());
            }
            self.acting.insert(hold);
        }
    }

    /// What of that which a process has released is under way.
    fn look_into_gate(&mut self, process: &Process, facts: &Facts) {
        let Some(gate) = &process.gate else {
            return;
        };
        let seen = &process.seen;
        let is_its = |worker: &Incarnation| {
            seen.incarnation.as_ref() == Some(worker) || seen.past.contains(worker)
        };
        let its = facts.released.iter().filter(|it| is_its(&it.worker));
        self.in_flight
            .extend(its.filter(|it| gate.in_flight(it.claim) > 0).cloned());
    }
}

impl Seen {
    /// What is held no more has been given up.
    fn follow(&mut self, standing: &Standing, facts: &mut Facts) {
        let incarnation = standing.incarnation();
        if self.incarnation.as_ref() != incarnation {
            if let Some(last) = self.incarnation.take() {
                facts.ended(&last);
                self.past.insert(last);
                self.held.clear();
            }
            if incarnation.is_some() {
                self.past.iter().for_each(|past| facts.replaced(past));
            }
            self.incarnation = incarnation.cloned();
        }
        let Some(worker) = &self.incarnation else {
            return;
        };
        let mut held: BTreeMap<ShardId, Epoch> = BTreeMap::new();
        held.extend(standing.shards().map(|(shard, held)| (shard, held.epoch)));
        for (&shard, &epoch) in &self.held {
            if held.get(&shard) != Some(&epoch) {
                facts.gave_up(worker, Claim { shard, epoch });
            }
        }
        self.held = held;
    }
}

fn count(starts: &Mutex<BTreeMap<Host, u64>>, host: Host) -> u64 {
    let mut starts = starts.lock();
    let start = starts.entry(host).or_default();
    *start += 1;
    *start
}
