//! The processes of a fleet: machines, and the drivers around them.

use std::collections::{BTreeMap, BTreeSet};

use metashard_api::id::Incarnation;

use crate::{
    leader::{self, Leader},
    map,
    message::Claim,
    model::{clock::Clock, process::Run, server::Name},
    time::{MonoTime, Now},
    worker::{self, Worker},
};

/// One process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Process {
    pub(super) machine: Machine,
    pub(super) clock: Clock,
    pub(super) run: Run,
    /// Its watches show nothing new.
    pub(super) lags: bool,
    pub(super) n_drawn: u8,
    /// The last incarnation drawn.
    pub(super) incarnation: Option<Incarnation>,
    /// Its dispatcher does not end what it is to end.
    pub(super) wedged: bool,
    /// What its watches have shown.
    pub(super) shown: BTreeMap<Name, (u64, bool)>,
    pub(super) shown_map: Option<map::Seen>,
    /// Ownerships whose end the machine waits for.
    pub(super) ending: BTreeSet<Claim>,
    /// Version of the child in its cache.
    pub(super) cached: u64,
    /// A leader's own Lease: since when it is renewed, on the monotonic clock in ticks.
    pub(super) renewing_since: Option<u8>,
}

/// What it runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Machine {
    Leader(Box<Leader>),
    Worker(Box<Worker>),
}

/// What is fed to a machine.
#[derive(Debug, Clone)]
pub(super) enum Input {
    Leader(leader::Input),
    Worker(worker::Input),
}

/// What a machine wants.
#[derive(Debug, Clone)]
pub(super) enum Wish {
    Leader(leader::Action),
    Worker(worker::Action),
}

impl Process {
    pub(super) fn new(machine: Machine) -> Self {
        Self {
            machine,
            clock: Clock::default(),
            run: Run::Running,
            lags: false,
            n_drawn: 0,
            incarnation: None,
            wedged: false,
            shown: BTreeMap::new(),
            shown_map: None,
            ending: BTreeSet::new(),
            cached: 0,
            renewing_since: None,
        }
    }

    pub(super) fn is_running(&self) -> bool {
        self.run == Run::Running
    }

    pub(super) fn worker(&self) -> Option<&Worker> {
        match &self.machine {
            Machine::Worker(worker) => Some(worker),
            Machine::Leader(_) => None,
        }
    }

    pub(super) fn leader(&self) -> Option<&Leader> {
        match &self.machine {
            Machine::Leader(leader) => Some(leader),
            Machine::Worker(_) => None,
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<MonoTime> {
        match &self.machine {
            Machine::Leader(leader) => leader.poll_timeout(),
            Machine::Worker(worker) => worker.poll_timeout(),
        }
    }

    pub(super) fn handle(&mut self, now: Now, input: Input) -> Vec<Wish> {
        match (&mut self.machine, input) {
            (Machine::Leader(leader), Input::Leader(input)) => {
                let mut out = Vec::new();
                leader.handle(now, input, &mut out);
                out.into_iter().map(Wish::Leader).collect()
            }
            (Machine::Worker(worker), Input::Worker(input)) => {
                let mut out = Vec::new();
                worker.handle(now, input, &mut out);
                out.into_iter().map(Wish::Worker).collect()
            }
            (Machine::Leader(_), Input::Worker(_)) | (Machine::Worker(_), Input::Leader(_)) => {
                Vec::new()
            }
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Now) -> Vec<Wish> {
        match &mut self.machine {
            Machine::Leader(leader) => {
                let mut out = Vec::new();
                leader.handle_timeout(now, &mut out);
                out.into_iter().map(Wish::Leader).collect()
            }
            Machine::Worker(worker) => {
                let mut out = Vec::new();
                worker.handle_timeout(now, &mut out);
                out.into_iter().map(Wish::Worker).collect()
            }
        }
    }

    /// A UUID, readable.
    pub(super) fn draw(&mut self, process: usize) -> Incarnation {
        self.n_drawn += 1;
        let drawn = Incarnation::new(format!("{process}-{}", self.n_drawn));
        self.incarnation = Some(drawn.clone());
        drawn
    }
}
