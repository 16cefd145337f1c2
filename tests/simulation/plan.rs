//! What happens in the history of one seed: who takes part, and what goes wrong when.

use std::time::Duration;

use metashard_fleet::rules::Rule;

use crate::{
    dice::Dice,
    network::{Host, STORE},
};

/// Of the leader's Lease and the workers': the shortest, so that much happens in little time.
pub(crate) const LEASE_DURATION: Duration = Duration::from_secs(2);

/// Until when the fleet forms undisturbed.
const CALM: u64 = 1_700;

/// When the last fault begins, and by when the last one ends.
const LAST_FAULT: u64 = 7_000;
const HEALED: u64 = 9_000;

/// Invariant I7: so long after the last fault every shard has an owner again, and some for connections to come back.
const RECOVERS: Duration = Duration::from_secs(9 + 3);

/// All hosts. Those of a seed are some of them.
const REPLICAS: [Host; 4] = ["r0", "r1", "r2", "r3"];
const LEADERS: [Host; 2] = ["l0", "l1"];

/// What services a replica runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    All,
    Leader,
    Worker,
}

/// A defect that is planted in the tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// The machines break a rule.
    Breaks(Rule),
    /// Clocks for deadlines stand still while a machine is suspended.
    ClockThatStops,
    /// Workers write without resourceVersion.
    WriteWithoutVersion,
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A process dies, and starts again at the end.
    Crash(Host),
    /// A process is told to end, and starts again at the end.
    Leave(Host),
    /// A process stands still.
    Stop(Host),
    /// A machine is suspended.
    Suspend(Host),
    /// What goes from one host to another arrives at the end.
    HoldUp(Host, Host),
    /// The same both ways.
    Part(Host, Host),
    /// All connections between two hosts break.
    Cut(Host, Host),
    /// Every coordinator dies.
    NoCoordinator,
    /// The API server dies, and starts again at the end.
    NoStore,
    /// The API server is in a mood.
    Weather(Weather),
    /// Somebody deletes the Lease of a worker.
    DeleteLease(Host),
    /// Somebody takes the leader's Lease.
    TakeLead,
    /// Somebody deletes the map.
    DeleteMap,
}

/// How the API server treats requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weather {
    /// It carries them out late.
    Slow,
    /// It carries them out, and answers late.
    SlowAnswers,
    /// It carries some out and never answers.
    LostAnswers,
    /// It has some tried again later.
    TooMany,
    /// It fails at some, after carrying them out or before.
    Errors,
    /// It breaks the connections of some, after carrying them out or before.
    Resets,
    /// Watches show what happens late.
    LateWatches,
    /// It ends watches.
    EndedWatches,
    /// It has forgotten what happened before, for all watches.
    Forgetful,
    /// It refuses all.
    Blackout,
}

const WEATHERS: [Weather; 10] = [
    Weather::Slow,
    Weather::SlowAnswers,
    Weather::LostAnswers,
    Weather::TooMany,
    Weather::Errors,
    Weather::Resets,
    Weather::LateWatches,
    Weather::EndedWatches,
    Weather::Forgetful,
    Weather::Blackout,
];

/// A fault in time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Event {
    pub(crate) begin: Duration,
    pub(crate) end: Duration,
    pub(crate) fault: Fault,
}

/// The history of one seed, before it happens.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) replicas: Vec<(Host, Role)>,
    pub(crate) n_shards: u16,
    /// Whether the API server serves streaming lists.
    pub(crate) streaming: bool,
    /// Most that a message takes, in milliseconds.
    pub(crate) latency: u64,
    /// When the faults are over.
    pub(crate) healed: Duration,
    /// When it ends at the latest.
    pub(crate) end: Duration,
    pub(crate) events: Vec<Event>,
    pub(crate) mutant: Option<Mutant>,
    /// Whether all is printed as it happens.
    pub(crate) talks: bool,
}

/// The host of this name.
pub(crate) fn host(name: &str) -> Host {
    let all = REPLICAS.into_iter().chain(LEADERS).chain([STORE]);
    let mut all = all.filter(|it| *it == name);
    all.next().expect("it is one of the hosts")
}

impl Plan {
    pub(crate) fn new(seed: u64, mutant: Option<Mutant>, talks: bool) -> Self {
        let mut dice = Dice::new(seed, "plan");
        let replicas = replicas(&mut dice);
        let mut plan = Self {
            seed,
            n_shards: u16::try_from(3 + dice.below(4)).expect("it is small"),
            streaming: dice.chance(75),
            latency: dice.pick(&[10, 30, 80]),
            healed: Duration::from_millis(CALM),
            end: Duration::ZERO,
            events: Vec::new(),
            replicas,
            mutant,
            talks,
        };
        for _ in 0..3 + dice.below(4) {
            plan.add_fault(&mut dice);
        }
        let ends = plan.events.iter().map(|event| event.end);
        plan.healed = ends.max().unwrap_or(plan.healed);
        plan.end = plan.healed + RECOVERS;
        plan.events.sort_by_key(|event| event.begin);
        plan
    }

    pub(crate) fn is_worker(&self, host: Host) -> bool {
        let mut replicas = self.replicas.iter();
        replicas.any(|(it, role)| *it == host && *role != Role::Leader)
    }

    pub(crate) fn is_leader(&self, host: Host) -> bool {
        let mut replicas = self.replicas.iter();
        replicas.any(|(it, role)| *it == host && *role != Role::Worker)
    }

    fn add_fault(&mut self, dice: &mut Dice) {
        let fault = self.fault(dice);
        let begin = dice.between(CALM, LAST_FAULT);
        let most = match fault {
            Fault::Weather(_) => 4_000,
            _ => 5_500,
        };
        let length = if dice.chance(40) {
            dice.between(100, 1_500)
        } else {
            dice.between(1_500, most)
        };
        self.add(fault, begin, length);
        // What comes right before or with a fault decides what is under way when it strikes.
        match fault {
            Fault::Part(host, STORE) | Fault::Stop(host) | Fault::Crash(host)
                if dice.chance(35) =>
            {
                let late = dice.between(300, 950);
                let before = dice.between(0, 120);
                let earlier = begin.saturating_sub(late + before);
                self.add(Fault::HoldUp(STORE, host), earlier, late);
            }
            Fault::Stop(host) if self.is_worker(host) && dice.chance(30) => {
                self.add(Fault::DeleteLease(host), begin, length);
            }
            _ => {}
        }
    }

    fn add(&mut self, fault: Fault, begin: Duration, length: Duration) {
        let healed = Duration::from_millis(HEALED);
        self.events.push(Event {
            begin,
            end: (begin + length).min(healed),
            fault,
        });
    }

    fn fault(&self, dice: &mut Dice) -> Fault {
        let hosts: Vec<Host> = self.replicas.iter().map(|(host, _)| *host).collect();
        let host = dice.pick(&hosts);
        let other = dice.pick(&hosts);
        let peer = if other == host || dice.chance(60) {
            STORE
        } else {
            other
        };
        match dice.below(100) {
            0..12 => Fault::Crash(host),
            12..20 => Fault::Leave(host),
            20..34 => Fault::Stop(host),
            34..40 => Fault::Suspend(host),
            40..46 => Fault::HoldUp(host, peer),
            46..52 => Fault::HoldUp(peer, host),
            52..64 => Fault::Part(host, peer),
            64..68 => Fault::Cut(host, peer),
            68..71 if self.has_own_leaders() => Fault::NoCoordinator,
            71..74 => Fault::NoStore,
            74..78 if self.is_worker(host) => Fault::DeleteLease(host),
            78..81 => Fault::TakeLead,
            81..84 => Fault::DeleteMap,
            _ => Fault::Weather(dice.pick(&WEATHERS)),
        }
    }

    /// Whether coordinators can die without the workers.
    pub(crate) fn has_own_leaders(&self) -> bool {
        let mut replicas = self.replicas.iter();
        replicas.any(|(_, role)| *role == Role::Leader)
    }
}

fn replicas(dice: &mut Dice) -> Vec<(Host, Role)> {
    let workers = 2 + dice.below(2);
    if dice.chance(25) {
        let leaders = LEADERS.into_iter().map(|host| (host, Role::Leader));
        let workers = REPLICAS.into_iter().take(workers);
        leaders
            .chain(workers.map(|host| (host, Role::Worker)))
            .collect()
    } else {
        let all = REPLICAS.into_iter().take(workers + 1);
        all.map(|host| (host, Role::All)).collect()
    }
}
