//! The drivers of candidates: what becomes of what an election wants, and what is fed to it.

use std::sync::Arc;

use metashard_api::id::{Incarnation, ReplicaId};

use super::{Candidate, Fault, Flight, Race, State};
use crate::{
    election::{self, Phase},
    invariants::{self, Invariant, World},
    lease,
    model::{
        clock::{Clock, DURATION, TICK, TIMEOUT},
        flight::Stage,
        process::{First, Run},
        server::Name,
    },
    record::{About, Holder, Record, Seen, Written},
    time::Now,
};

impl Race {
    pub(super) fn candidate(&self, n: usize) -> Candidate {
        let config = election::Config {
            replica: ReplicaId::new(format!("r{n}")),
            about: About::default(),
            lease_duration: DURATION,
            rules: self.rules,
        };
        Candidate {
            machine: election::Election::new(config),
            n_drawn: 0,
            clock: Clock::default(),
            run: Run::Running,
            lags: false,
            coordinates: false,
            has_led: false,
            renewing_since: Some(0),
        }
    }

    /// Who is inside its own acting deadline, by its own clock.
    pub(super) fn world(&self, state: &State) -> World<usize> {
        let leading = state
            .candidates
            .iter()
            .enumerate()
            .filter(|(_, candidate)| {
                let now = self.clocks(candidate, state.now);
                candidate
                    .machine
                    .coordinator_deadline()
                    .is_some_and(|deadline| now.boot < deadline)
            });
        World {
            leading: leading.map(|(n, _)| n).collect(),
            ..World::default()
        }
    }

    fn clocks(&self, candidate: &Candidate, tick: u8) -> Now {
        let mut now = candidate.clock.read(tick);
        if self.fault == Some(Fault::ClockThatStops) {
            now.boot.0 = now.mono.0;
        }
        now
    }

    pub(super) fn tick(&self, state: &mut State) {
        state.now += 1;
        if state.outage.is_none() {
            state.worked += 1;
            state.longest_worked = state.longest_worked.max(state.worked);
        }
        for n in 0..state.candidates.len() {
            match state.candidates[n].run {
                Run::Running => {
                    self.give_up_overdue(state, n);
                    self.tell_renewal(state, n);
                    self.wake(state, n);
                }
                Run::Suspended => state.candidate(n).clock.sleep(),
                Run::Paused => {}
            }
        }
    }

    pub(super) fn resume(&self, state: &mut State, n: usize, first: First) {
        state.candidate(n).run = Run::Running;
        // Its other Lease was not renewed meanwhile.
        state.candidate(n).renewing_since = None;
        match first {
            First::Answers => {
                self.take_answers(state, n);
                self.give_up_overdue(state, n);
                self.wake(state, n);
            }
            First::Timers => {
                self.give_up_overdue(state, n);
                self.wake(state, n);
                self.take_answers(state, n);
            }
        }
        self.tell_renewal(state, n);
        self.show(state, n);
    }

    fn take_answers(&self, state: &mut State, n: usize) {
        while let Some(flight) = state.flights.iter().position(|flight| {
            flight.from == n && matches!(flight.stage, Stage::Answered(_)) && !flight.abandoned
        }) {
            self.answer(state, flight);
        }
    }

    /// Tells the machine that there was no answer to what is overdue. During an outage there never is one.
    fn give_up_overdue(&self, state: &mut State, n: usize) {
        let mono = state.candidates[n].clock.mono(state.now);
        let outage = state.outage.is_some();
        while let Some(at) = state.flights.iter().position(|flight| {
            let is_overdue = mono >= flight.sent + TIMEOUT
                || outage && matches!(flight.stage, Stage::Prompt) && mono > flight.sent;
            flight.from == n && !flight.abandoned && is_overdue
        }) {
            let no_answer = match state.flights[at].request {
                lease::Request::Read => lease::Input::Read(None),
                lease::Request::Create(_) | lease::Request::Put(_) => {
                    lease::Input::Written(Written::Unknown)
                }
            };
            match state.flights[at].stage {
                Stage::Slow => Arc::make_mut(&mut state.flights[at]).abandoned = true,
                Stage::Prompt if !outage => Arc::make_mut(&mut state.flights[at]).abandoned = true,
                Stage::Prompt | Stage::Answered(_) => {
                    state.flights.remove(at);
                }
            }
            self.feed(state, n, election::Input::LeaseAnswered(no_answer));
        }
    }

    pub(super) fn serve(&self, state: &mut State, n: usize, answer_at_once: bool) {
        let flight = Arc::clone(&state.flights[n]);
        let before = state.server.lease(&Name::Leader);
        let answer = state.server.serve(&Name::Leader, &flight.request);
        if let lease::Input::Written(Written::Accepted(record)) = &answer {
            if self.budget.outages > 0
                && is_taken_over(&before, record)
                && !invariants::had_its_duration(TICK * u32::from(state.longest_worked), DURATION)
            {
                state.broken.insert(Invariant::OutageFencesNobody);
            }
            state.worked = 0;
            state.longest_worked = 0;
        }

        if flight.abandoned {
            state.flights.remove(n);
        } else {
            Arc::make_mut(&mut state.flights[n]).stage = Stage::Answered(answer);
            if answer_at_once && state.candidates[flight.from].run == Run::Running {
                self.answer(state, n);
            }
        }
        if state.server.lease(&Name::Leader) != before {
            self.show_all(state);
        }
    }

    pub(super) fn answer(&self, state: &mut State, n: usize) {
        let flight = state.flights.remove(n);
        if let Stage::Answered(answer) = &flight.stage {
            self.feed(
                state,
                flight.from,
                election::Input::LeaseAnswered(answer.clone()),
            );
        }
    }

    pub(super) fn show_all(&self, state: &mut State) {
        for n in 0..state.candidates.len() {
            self.show(state, n);
        }
    }

    /// The watch shows the Lease to a candidate.
    pub(super) fn show(&self, state: &mut State, n: usize) {
        let candidate = &state.candidates[n];
        if candidate.run != Run::Running || candidate.lags {
            return;
        }
        let seen = state.server.lease(&Name::Leader);
        if candidate.machine.seen() == Some(&seen) {
            return;
        }
        let mut now = self.clocks(candidate, state.now);
        if self.fault == Some(Fault::StampedAtSending) {
            now.mono.0 = now.mono.0.saturating_sub(TICK * u32::from(TIMEOUT));
        }
        self.feed_at(state, n, now, election::Input::LeaseSeen(seen));
    }

    pub(super) fn tell_renewal(&self, state: &mut State, n: usize) {
        let mono = state.candidates[n].clock.mono(state.now);
        let outage = state.outage.is_some();
        let candidate = state.candidate(n);
        candidate.renewing_since = if outage {
            None
        } else {
            candidate.renewing_since.or(Some(mono))
        };
        let since = candidate.renewing_since;
        let since = since.map(|since| Clock::default().read(since).mono);
        self.feed(state, n, election::Input::OwnRenewal(since));
    }

    /// Does what is due at this moment.
    pub(super) fn wake(&self, state: &mut State, n: usize) {
        let now = self.clocks(&state.candidates[n], state.now);
        let mut actions = Vec::new();
        state.candidate(n).machine.handle_timeout(now, &mut actions);
        self.carry_out(state, n, actions);
    }

    pub(super) fn feed(&self, state: &mut State, n: usize, input: election::Input) {
        let now = self.clocks(&state.candidates[n], state.now);
        self.feed_at(state, n, now, input);
    }

    fn feed_at(&self, state: &mut State, n: usize, now: Now, input: election::Input) {
        let mut actions = Vec::new();
        state.candidate(n).machine.handle(now, input, &mut actions);
        self.carry_out(state, n, actions);
    }

    fn carry_out(&self, state: &mut State, n: usize, actions: Vec<election::Action>) {
        for action in actions {
            match action {
                election::Action::DrawIncarnation => {
                    let candidate = state.candidate(n);
                    candidate.n_drawn += 1;
                    let drawn = Incarnation::new(format!("{n}-{}", candidate.n_drawn));
                    self.feed(state, n, election::Input::IncarnationDrawn(drawn));
                }
                election::Action::Lease(request) => {
                    let sent = state.candidates[n].clock.mono(state.now);
                    state.flights.push(Arc::new(Flight::new(n, sent, request)));
                }
            }
        }
        if state.candidates[n].machine.phase() == Phase::Leading && !state.candidates[n].coordinates
        {
            state.candidate(n).coordinates = true;
            state.candidate(n).has_led = true;
            for other in 0..state.candidates.len() {
                self.feed(state, other, election::Input::NobodyLedYet(false));
            }
        }
    }
}

/// Whether `next` was written over a claim that its holder had not given up.
fn is_taken_over(before: &Seen, next: &Record) -> bool {
    match before {
        Seen::Present(Record {
            holder: Holder::Member(_, before),
            ..
        }) => {
            matches!(&next.holder, Holder::Member(_, next) if next != before)
        }
        Seen::Present(_) | Seen::Absent => false,
    }
}
