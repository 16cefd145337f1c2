//! The model of election: candidates for one Lease.

mod driver;

use std::{collections::BTreeSet, sync::Arc};

use stateright::{Model, Property};

use crate::{
    election::{self, Phase},
    invariants::Invariant,
    lease,
    model::{
        budget::{Budget, spend},
        clock::Clock,
        flight::{self, Stage},
        process::{First, Run},
        server::{Name, Server},
    },
    record::Seen,
    rules::Rules,
};

type Flight = flight::Flight<lease::Request, lease::Input>;

/// What is explored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Race {
    pub(super) n_candidates: usize,
    /// Where histories end.
    pub(super) ticks: u8,
    pub(super) budget: Budget,
    pub(super) rules: Rules,
    /// A fault of the driver.
    pub(super) fault: Option<Fault>,
    /// The one invariant that is looked at; `None`: all.
    pub(super) looks_at: Option<Invariant>,
}

/// What a driver could do wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// It measures deadlines on a clock that stops while the machine is suspended.
    ClockThatStops,
    /// It takes the sending of a poll for the time at which its answer was seen.
    StampedAtSending,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct State {
    now: u8,
    server: Server,
    candidates: Vec<Arc<Candidate>>,
    flights: Vec<Arc<Flight>>,
    budget: Budget,
    /// Since which tick no request is carried out.
    outage: Option<u8>,
    /// Ticks without an outage since the Lease was written, and without a break among them.
    worked: u8,
    longest_worked: u8,
    /// What this history has broken.
    pub(super) broken: BTreeSet<Invariant>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Candidate {
    machine: election::Election,
    n_drawn: u8,
    clock: Clock,
    run: Run,
    /// Its watch shows nothing new.
    lags: bool,
    /// Its coordinator has not stopped.
    coordinates: bool,
    has_led: bool,
    /// Since when its other Lease is renewed, on its monotonic clock in ticks.
    renewing_since: Option<u8>,
}

/// A step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Time passes.
    Tick,
    /// A request is carried out, and answered unless its sender is stopped.
    Serve(usize),
    /// A request becomes slow.
    SlowRequest(usize),
    /// A request is carried out and its answer becomes slow.
    SlowAnswer(usize),
    /// A slow answer arrives.
    Answer(usize),
    /// The watch of a candidate stands still.
    Lag(usize),
    /// It goes on.
    CatchUp(usize),
    Pause(usize),
    Suspend(usize),
    /// A stopped process goes on: it takes the answers that have come first, or else what is overdue.
    Resume(usize, First),
    /// A coordinator that should stop has stopped.
    StopCoordinator(usize),
    /// A leader gives up the lead.
    GiveUp(usize),
    /// Somebody deletes the Lease.
    Delete,
    BeginOutage,
    EndOutage,
}

impl Model for Race {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let mut state = State {
            now: 0,
            server: Server::default(),
            candidates: (0..self.n_candidates)
                .map(|n| Arc::new(self.candidate(n)))
                .collect(),
            flights: Vec::new(),
            budget: self.budget,
            outage: None,
            worked: 0,
            longest_worked: 0,
            broken: BTreeSet::new(),
        };
        for n in 0..self.n_candidates {
            self.wake(&mut state, n);
            self.feed(&mut state, n, election::Input::NobodyLedYet(true));
            self.tell_renewal(&mut state, n);
            self.show(&mut state, n);
        }
        vec![state]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        if !state.broken.is_empty() {
            return;
        }
        let mut is_quiet = true;
        for (n, flight) in state.flights.iter().enumerate() {
            match flight.stage {
                Stage::Prompt if state.outage.is_some() => {}
                Stage::Prompt => {
                    is_quiet = false;
                    steps.push(Step::Serve(n));
                    if state.budget.slow > 0 {
                        steps.extend([Step::SlowRequest(n), Step::SlowAnswer(n)]);
                    }
                }
                Stage::Slow if state.outage.is_none() => steps.push(Step::Serve(n)),
                Stage::Slow => {}
                Stage::Answered(_) => {
                    if state.candidates[flight.from].run == Run::Running {
                        steps.push(Step::Answer(n));
                    }
                }
            }
        }
        for (n, candidate) in state.candidates.iter().enumerate() {
            is_quiet &= !candidate.must_stop_coordinating();
            candidate.steps(n, state.budget, steps);
        }
        match state.outage {
            // One that nobody could notice is none.
            Some(since) if since == state.now => {}
            Some(_) => steps.push(Step::EndOutage),
            None if state.budget.outages > 0 => steps.push(Step::BeginOutage),
            None => {}
        }
        if state.budget.deletions > 0 && state.may_be_deleted(state.budget.slow < self.budget.slow)
        {
            steps.push(Step::Delete);
        }
        if is_quiet && state.now < self.ticks {
            steps.push(Step::Tick);
        }
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        match step {
            Step::Tick => self.tick(&mut state),
            Step::Serve(n) => self.serve(&mut state, n, true),
            Step::SlowAnswer(n) => {
                spend(&mut state.budget.slow);
                self.serve(&mut state, n, false);
            }
            Step::SlowRequest(n) => {
                spend(&mut state.budget.slow);
                Arc::make_mut(&mut state.flights[n]).stage = Stage::Slow;
            }
            Step::Answer(n) => self.answer(&mut state, n),
            Step::Lag(n) => {
                spend(&mut state.budget.slow);
                state.candidate(n).lags = true;
            }
            Step::CatchUp(n) => {
                state.candidate(n).lags = false;
                self.show(&mut state, n);
            }
            Step::Pause(n) => {
                spend(&mut state.budget.pauses);
                state.candidate(n).run = Run::Paused;
            }
            Step::Suspend(n) => {
                spend(&mut state.budget.suspends);
                state.candidate(n).run = Run::Suspended;
            }
            Step::Resume(n, first) => self.resume(&mut state, n, first),
            Step::StopCoordinator(n) => {
                state.candidate(n).coordinates = false;
                self.feed(&mut state, n, election::Input::CoordinatorStopped);
            }
            Step::GiveUp(n) => {
                spend(&mut state.budget.step_downs);
                self.feed(&mut state, n, election::Input::StepDownAsked);
            }
            Step::Delete => {
                spend(&mut state.budget.deletions);
                state.server.delete(&Name::Leader);
                self.show_all(&mut state);
            }
            Step::BeginOutage => {
                spend(&mut state.budget.outages);
                state.outage = Some(state.now);
            }
            Step::EndOutage => {
                state.outage = None;
                state.worked = 0;
            }
        }
        state.forget_moot();
        let broken = self.world(&state).broken();
        state.broken.extend(broken);
        state
            .broken
            .retain(|it| self.looks_at.is_none_or(|looks_at| looks_at == *it));
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("invariants", |_, state: &State| state.broken.is_empty()),
            Property::sometimes("the lead changes hands", |_, state: &State| {
                state
                    .candidates
                    .iter()
                    .filter(|candidate| candidate.has_led)
                    .count()
                    > 1
            }),
        ]
    }
}

impl Candidate {
    fn must_stop_coordinating(&self) -> bool {
        self.coordinates && self.run == Run::Running && self.machine.phase() != Phase::Leading
    }

    fn steps(&self, n: usize, budget: Budget, steps: &mut Vec<Step>) {
        if self.run != Run::Running {
            steps.extend([
                Step::Resume(n, First::Answers),
                Step::Resume(n, First::Timers),
            ]);
            return;
        }
        if self.must_stop_coordinating() {
            steps.push(Step::StopCoordinator(n));
        }
        if self.lags {
            steps.push(Step::CatchUp(n));
        } else if budget.slow > 0 {
            steps.push(Step::Lag(n));
        }
        if budget.pauses > 0 {
            steps.push(Step::Pause(n));
        }
        if budget.suspends > 0 {
            steps.push(Step::Suspend(n));
        }
        if budget.step_downs > 0 && self.machine.phase() == Phase::Leading {
            steps.push(Step::GiveUp(n));
        }
    }
}

impl State {
    /// Drops abandoned requests that cannot change anything.
    fn forget_moot(&mut self) {
        let server = &self.server;
        self.flights
            .retain(|it| !it.abandoned || !server.is_moot(&Name::Leader, &it.request));
    }

    /// Not while a `POST` of it is on its way, nor while a candidate tries to take it after an answer was `late`: a `POST`
    /// has no precondition that could tell that there was a Lease meanwhile, and who does not get the answer cannot know.
    /// Two may then lead for a moment; the compare-and-swap of the map hides that.
    fn may_be_deleted(&self, late: bool) -> bool {
        let mut candidates = self.candidates.iter();
        let is_taken = candidates.any(|candidate| candidate.machine.phase() == Phase::Acquiring);
        let mut flights = self.flights.iter();
        let is_created = flights.any(|it| matches!(it.request, lease::Request::Create(_)));
        self.server.lease(&Name::Leader) != Seen::Absent && !is_created && !(late && is_taken)
    }

    fn candidate(&mut self, n: usize) -> &mut Candidate {
        Arc::make_mut(&mut self.candidates[n])
    }
}
