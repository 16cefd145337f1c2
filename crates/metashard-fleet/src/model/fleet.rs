//! The model of hand-over: leaders and workers, one shard, and an object that its owner writes.
//!
//! Beyond what [`super`] says: requests that are not disturbed are carried out in the order of their sending, messages on
//! a session arrive at once, and what was disturbed goes on only when all else of the tick is done.

mod driver;
mod history;
mod process;
mod requests;
mod session;
mod split;
mod start;

use std::sync::Arc;

use metashard_api::id::Incarnation;
use stateright::{Model, Property};

use crate::{
    invariants::Invariant,
    lease,
    map::{self, Map},
    message::Claim,
    model::{
        budget::{Budget, spend},
        fleet::{history::History, process::Process, session::Sessions},
        flight::{self, Stage},
        process::{First, Run},
        server::{Name, Server},
    },
    record::{Record, Seen, Written},
    rules::Rules,
    time::BootTime,
};

pub(super) use start::Scene;

/// What is explored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fleet {
    pub(super) n_leaders: usize,
    pub(super) n_workers: usize,
    pub(super) n_shards: u16,
    /// How the fleet stands when the disturbances begin.
    pub(super) scene: Scene,
    /// How many ticks histories last from there.
    pub(super) ticks: u8,
    pub(super) budget: Budget,
    pub(super) rules: Rules,
    /// A fault of a driver.
    pub(super) fault: Option<Fault>,
    /// The one invariant that is looked at; `None`: all.
    pub(super) looks_at: Option<Invariant>,
}

/// What a driver could do wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// A worker measures deadlines on a clock that stops while its machine is suspended.
    ClockThatStops,
    /// A leader takes the sending of a poll for the time at which its answer was seen.
    StampedAtSending,
    /// Writes of a child carry no resourceVersion.
    ChildWithoutVersion,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct State {
    now: u8,
    end: u8,
    server: Arc<Server>,
    /// Leaders first.
    processes: Vec<Arc<Process>>,
    flights: Vec<Arc<Flight>>,
    sessions: Arc<Sessions>,
    /// Since which tick no request is carried out.
    outage: Option<u8>,
    budget: Budget,
    pub(super) history: Arc<History>,
    /// A machine was due again at once, again and again.
    pub(super) restless: bool,
}

type Flight = flight::Flight<Request, Answer>;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Request {
    Lease(Name, lease::Request),
    ListLeases,
    ReadMap,
    WriteMap(map::Write),
    WriteChild(ChildWrite),
}

/// A write of the child as the write gate lets it pass.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ChildWrite {
    claim: Claim,
    by: Incarnation,
    /// The version that it replaces; `None`: any.
    base: Option<u64>,
    /// Its time-out: the end of the authority that it was sent under.
    until: BootTime,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Answer {
    Lease(lease::Input),
    Leases(Vec<(Incarnation, Record)>),
    Map(map::Seen),
    MapWritten(Written<Arc<Map>>),
    /// The child's new version, if the write was accepted.
    Child(Option<u64>),
}

/// A step. Numbers are of flights or of processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Time passes.
    Tick,
    /// A request is carried out, and answered unless its sender stands still.
    Serve(usize),
    /// A request becomes slow.
    SlowRequest(usize),
    /// A request is carried out and its answer becomes slow.
    SlowAnswer(usize),
    /// A slow answer arrives.
    Answer(usize),
    /// The watches of a process stand still.
    Lag(usize),
    /// They go on.
    CatchUp(usize),
    /// Messages on the session of a worker are kept back.
    Stall(usize),
    /// They arrive.
    Unstall(usize),
    Pause(usize),
    Suspend(usize),
    /// A process that stood still goes on.
    Resume(usize, First),
    /// A worker is told to end.
    Leave(usize),
    /// A worker writes the child.
    Write(usize),
    /// The spec of the controller asks for two slices.
    Split,
    /// Somebody deletes the Lease of a worker.
    Delete(Incarnation),
    BeginOutage,
    EndOutage,
}

impl Model for Fleet {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![self.start()]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        if !state.history.broken.is_empty() || state.restless {
            return;
        }
        if let Some(n) = state.first_prompt() {
            steps.push(Step::Serve(n));
            if state.budget.slow > 0 {
                steps.extend([Step::SlowRequest(n), Step::SlowAnswer(n)]);
            }
            let from = state.flights[n].from;
            if state.processes[from].is_running() {
                state.stops(from, steps);
            }
            return;
        }
        for (n, flight) in state.flights.iter().enumerate() {
            let is_heard = state.processes[flight.from].is_running();
            match flight.stage {
                Stage::Slow if state.outage.is_none() => steps.push(Step::Serve(n)),
                Stage::Answered(_) if is_heard => steps.push(Step::Answer(n)),
                Stage::Slow | Stage::Prompt | Stage::Answered(_) => {}
            }
        }
        for n in 0..state.processes.len() {
            state.process_steps(n, steps);
        }
        match state.outage {
            // One that nobody could notice is none.
            Some(since) if since == state.now => {}
            Some(_) => steps.push(Step::EndOutage),
            None if state.budget.outages > 0 => steps.push(Step::BeginOutage),
            None => {}
        }
        if state.budget.splits > 0 {
            steps.push(Step::Split);
        }
        if state.now < state.end {
            steps.push(Step::Tick);
        }
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        self.take(&mut state, step);
        self.settle(&mut state);
        state.forget_moot();
        self.judge(&mut state);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("invariants", |_, state: &State| {
                state.history.broken.is_empty()
            }),
            Property::sometimes("a shard changes hands", |_, state: &State| {
                (0..state.processes.len()).any(|n| state.has_taken_over(n))
            }),
            Property::sometimes("a controller is split", |_, state: &State| {
                state.serves_split()
            }),
            Property::always("machines come to rest", |_, state: &State| !state.restless),
        ]
    }
}

impl State {
    /// The request that comes next.
    fn first_prompt(&self) -> Option<usize> {
        let is_prompt = |flight: &Arc<Flight>| flight.stage == Stage::Prompt;
        self.flights
            .iter()
            .position(is_prompt)
            .filter(|_| self.outage.is_none())
    }

    fn process(&mut self, n: usize) -> &mut Process {
        Arc::make_mut(&mut self.processes[n])
    }

    fn stops(&self, n: usize, steps: &mut Vec<Step>) {
        if self.budget.pauses > 0 {
            steps.push(Step::Pause(n));
        }
        if self.budget.suspends > 0 {
            steps.push(Step::Suspend(n));
        }
    }

    fn process_steps(&self, n: usize, steps: &mut Vec<Step>) {
        let process = &self.processes[n];
        if !process.is_running() {
            steps.extend([
                Step::Resume(n, First::Answers),
                Step::Resume(n, First::Timers),
            ]);
            return;
        }
        self.stops(n, steps);
        if process.lags {
            steps.push(Step::CatchUp(n));
        } else if self.budget.slow > 0 {
            steps.push(Step::Lag(n));
        }
        if process.worker().is_none() {
            return;
        }
        match self.sessions.is_stalled(n) {
            Some(true) => steps.push(Step::Unstall(n)),
            Some(false) if self.budget.slow > 0 => steps.push(Step::Stall(n)),
            Some(false) | None => {}
        }
        if self.budget.leaves > 0 {
            steps.push(Step::Leave(n));
        }
        if let Some(incarnation) = &process.incarnation
            && self.budget.deletions > 0
            && self.server.lease(&Name::Worker(incarnation.clone())) != Seen::Absent
        {
            steps.push(Step::Delete(incarnation.clone()));
        }
        let has_begun = self.flights.iter().any(|flight| {
            flight.from == n
                && !flight.abandoned
                && matches!(flight.request, Request::WriteChild(_))
        });
        if self.budget.writes > 0 && !has_begun && self.authority(n).is_some() {
            steps.push(Step::Write(n));
        }
    }
}

impl Fleet {
    fn take(&self, state: &mut State, step: Step) {
        match step {
            Step::Tick => self.tick(state),
            Step::Serve(n) => self.serve(state, n, true),
            Step::SlowAnswer(n) => {
                spend(&mut state.budget.slow);
                self.serve(state, n, false);
            }
            Step::SlowRequest(n) => {
                spend(&mut state.budget.slow);
                Arc::make_mut(&mut state.flights[n]).stage = Stage::Slow;
            }
            Step::Answer(n) => self.answer(state, n),
            Step::Lag(n) => {
                spend(&mut state.budget.slow);
                state.process(n).lags = true;
            }
            Step::CatchUp(n) => state.process(n).lags = false,
            Step::Stall(n) => {
                spend(&mut state.budget.slow);
                Arc::make_mut(&mut state.sessions).stall(n, true);
            }
            Step::Unstall(n) => Arc::make_mut(&mut state.sessions).stall(n, false),
            Step::Pause(n) => {
                spend(&mut state.budget.pauses);
                state.process(n).run = Run::Paused;
            }
            Step::Suspend(n) => {
                spend(&mut state.budget.suspends);
                state.process(n).run = Run::Suspended;
            }
            Step::Resume(n, first) => self.resume(state, n, first),
            Step::Leave(n) => {
                spend(&mut state.budget.leaves);
                self.leave(state, n);
            }
            Step::Write(n) => {
                spend(&mut state.budget.writes);
                self.write_child(state, n);
            }
            Step::Split => {
                spend(&mut state.budget.splits);
                self.split(state);
            }
            Step::Delete(incarnation) => {
                spend(&mut state.budget.deletions);
                Arc::make_mut(&mut state.server).delete(&Name::Worker(incarnation));
            }
            Step::BeginOutage => {
                spend(&mut state.budget.outages);
                state.outage = Some(state.now);
            }
            Step::EndOutage => {
                state.outage = None;
                Arc::make_mut(&mut state.history).outage_ended();
            }
        }
    }
}
