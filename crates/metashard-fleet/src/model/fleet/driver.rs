//! The drivers: what becomes of what a machine wants, and what is fed to it.

use std::sync::Arc;

use crate::{
    leader,
    message::{Claim, FromWorker},
    model::{
        clock::{Clock, TICK, TIMEOUT},
        fleet::{
            ChildWrite, Fault, Fleet, Request, State,
            process::{Input, Machine, Process, Wish},
        },
        process::{First, Run},
        server::Name,
    },
    time::Now,
    worker,
};

/// More than this in one step is a machine that does not come to rest.
const MOST_IN_A_STEP: usize = 200;

/// How long a worker that is told to end may take.
const GRACE: std::time::Duration = std::time::Duration::from_secs(200);

impl Fleet {
    /// What the clocks of a process show.
    pub(super) fn clocks(&self, process: &Process, tick: u8) -> Now {
        let mut now = process.clock.read(tick);
        if self.fault == Some(Fault::ClockThatStops) && process.worker().is_some() {
            now.boot.0 = now.mono.0;
        }
        now
    }

    pub(super) fn tick(&self, state: &mut State) {
        state.now += 1;
        Arc::make_mut(&mut state.history).tick(state.outage.is_some());
        for n in 0..state.processes.len() {
            match state.processes[n].run {
                Run::Running => {
                    self.give_up_overdue(state, n);
                    self.tell_renewal(state, n);
                }
                Run::Suspended => state.process(n).clock.sleep(),
                Run::Paused => {}
            }
        }
        self.abandon_child_writes(state);
    }

    pub(super) fn resume(&self, state: &mut State, n: usize, first: First) {
        let process = state.process(n);
        process.run = Run::Running;
        process.renewing_since = None;
        // Its watches have to begin anew.
        process.lags = true;
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
    }

    pub(super) fn leave(&self, state: &mut State, n: usize) {
        self.feed(
            state,
            n,
            Input::Worker(worker::Input::ShutdownAsked { grace: GRACE }),
        );
    }

    pub(super) fn write_child(&self, state: &mut State, n: usize) {
        let Some(authority) = state.authority(n) else {
            return;
        };
        let is_fenced = self.fault != Some(Fault::ChildWithoutVersion);
        let write = ChildWrite {
            claim: authority.claim(),
            by: authority.incarnation().clone(),
            base: is_fenced.then_some(state.processes[n].cached),
            until: authority.deadline(),
        };
        state.send(n, Request::WriteChild(write));
    }

    /// Lets everything happen that happens of itself at this moment.
    pub(super) fn settle(&self, state: &mut State) {
        for _ in 0..MOST_IN_A_STEP {
            let mut any = self.talk(state);
            for n in 0..state.processes.len() {
                if state.processes[n].is_running() {
                    any |= self.wake(state, n) || self.show(state, n) || self.end(state, n);
                }
            }
            if !any {
                return;
            }
        }
        state.restless = true;
    }

    /// Tells a machine that time has come, if it has.
    fn wake(&self, state: &mut State, n: usize) -> bool {
        let now = self.clocks(&state.processes[n], state.now);
        let is_due = state.processes[n]
            .poll_timeout()
            .is_some_and(|due| due <= now.mono);
        if is_due {
            let wishes = state.process(n).handle_timeout(now);
            self.carry_out(state, n, wishes);
        }
        is_due
    }

    /// The watches show what is new.
    fn show(&self, state: &mut State, n: usize) -> bool {
        if state.processes[n].lags {
            return false;
        }
        let map = state.server.map();
        let process = &state.processes[n];
        if process.shown_map.as_ref() != Some(&map) {
            let input = match process.machine {
                Machine::Leader(_) => Input::Leader(leader::Input::MapSeen(map.clone())),
                Machine::Worker(_) => Input::Worker(worker::Input::MapSeen(map.clone())),
            };
            state.process(n).shown_map = Some(map);
            self.feed(state, n, input);
            return true;
        }
        if process.worker().is_some() {
            if process.cached != state.server.child.version {
                state.process(n).cached = state.server.child.version;
            }
            return false;
        }
        let news = state
            .server
            .leases()
            .find(|(name, at)| process.shown.get(*name) != Some(at));
        let Some((name, at)) = news else { return false };
        let (name, seen) = (name.clone(), state.server.lease(name));
        state.process(n).shown.insert(name.clone(), at);
        let mut now = self.clocks(&state.processes[n], state.now);
        if self.fault == Some(Fault::StampedAtSending) {
            now.mono.0 = now.mono.0.saturating_sub(TICK * u32::from(TIMEOUT));
        }
        let input = match name {
            Name::Leader => leader::Input::LeaderLeaseSeen(seen),
            Name::Worker(incarnation) => leader::Input::WorkerLeaseSeen(incarnation, seen),
        };
        self.feed_at(state, n, now, Input::Leader(input));
        true
    }

    /// A dispatcher ends what it is to end, once no write of it is in flight.
    fn end(&self, state: &mut State, n: usize) -> bool {
        let process = &state.processes[n];
        if process.wedged {
            return false;
        }
        let is_free = |claim| {
            !state.flights.iter().any(|flight| match &flight.request {
                Request::WriteChild(write) => {
                    flight.from == n && !flight.abandoned && write.claim == claim
                }
                Request::Lease(..)
                | Request::ListLeases
                | Request::ReadMap
                | Request::WriteMap(_) => false,
            })
        };
        let Some(claim) = process.ending.iter().copied().find(|claim| is_free(*claim)) else {
            return false;
        };
        state.process(n).ending.remove(&claim);
        let input = worker::Input::Drained {
            claim,
            last_written: Vec::new(),
        };
        self.feed(state, n, Input::Worker(input));
        true
    }

    /// A leader hears how its replica's other Lease goes: it is renewed whenever there is no outage.
    fn tell_renewal(&self, state: &mut State, n: usize) {
        let outage = state.outage.is_some();
        let mono = state.processes[n].clock.mono(state.now);
        if state.processes[n].leader().is_none() {
            return;
        }
        let process = state.process(n);
        process.renewing_since = if outage {
            None
        } else {
            process.renewing_since.or(Some(mono))
        };
        let since = process
            .renewing_since
            .map(|since| Clock::default().read(since).mono);
        self.feed(state, n, Input::Leader(leader::Input::OwnRenewal(since)));
    }

    pub(super) fn feed(&self, state: &mut State, n: usize, input: Input) {
        let now = self.clocks(&state.processes[n], state.now);
        self.feed_at(state, n, now, input);
    }

    fn feed_at(&self, state: &mut State, n: usize, now: Now, input: Input) {
        let wishes = state.process(n).handle(now, input);
        self.carry_out(state, n, wishes);
    }

    fn carry_out(&self, state: &mut State, n: usize, wishes: Vec<Wish>) {
        for wish in wishes {
            match wish {
                Wish::Leader(action) => self.carry_out_leader(state, n, action),
                Wish::Worker(action) => self.carry_out_worker(state, n, action),
            }
        }
    }

    fn carry_out_leader(&self, state: &mut State, n: usize, action: leader::Action) {
        match action {
            leader::Action::DrawIncarnation => {
                let drawn = state.process(n).draw(n);
                self.feed(
                    state,
                    n,
                    Input::Leader(leader::Input::IncarnationDrawn(drawn)),
                );
            }
            leader::Action::LeaderLease(request) => {
                state.send(n, Request::Lease(Name::Leader, request));
            }
            leader::Action::WorkerLease(incarnation, request) => {
                state.send(n, Request::Lease(Name::Worker(incarnation), request));
            }
            leader::Action::ListWorkerLeases => state.send(n, Request::ListLeases),
            leader::Action::ReadMap => state.send(n, Request::ReadMap),
            leader::Action::WriteMap(write) => state.send(n, Request::WriteMap(write)),
            leader::Action::Send(to, message) => {
                Arc::make_mut(&mut state.sessions).send_down(n, &to, message);
            }
            leader::Action::CloseSessions => Arc::make_mut(&mut state.sessions).close_all(n),
            leader::Action::Report(leader::Report::EvictionBegun { .. }) => {
                Arc::make_mut(&mut state.history).has_evicted = true;
            }
            leader::Action::DeleteWorkerLease(..)
            | leader::Action::TellWishes(_)
            | leader::Action::Report(_)
            | leader::Action::Finish => {}
        }
    }

    fn carry_out_worker(&self, state: &mut State, n: usize, action: worker::Action) {
        let input = match action {
            worker::Action::ReadMap => return state.send(n, Request::ReadMap),
            worker::Action::Lease {
                incarnation,
                request,
            } => {
                return state.send(n, Request::Lease(Name::Worker(incarnation), request));
            }
            worker::Action::OpenSession(incarnation) => {
                return Arc::make_mut(&mut state.sessions).open(n, incarnation);
            }
            worker::Action::CloseSession => return Arc::make_mut(&mut state.sessions).close(n),
            worker::Action::Send(message) => return state.send_up(n, message),
            worker::Action::Drain { claim, .. } => {
                state.process(n).ending.insert(claim);
                return;
            }
            worker::Action::Drop(claim) => {
                state.process(n).ending.insert(claim);
                return state.gave_up(n, claim);
            }
            worker::Action::ReportLoss(_) => return state.ended(n),
            worker::Action::Suspend | worker::Action::Resume | worker::Action::Finish { .. } => {
                return;
            }
            worker::Action::DrawIncarnation => {
                worker::Input::IncarnationDrawn(state.process(n).draw(n))
            }
            worker::Action::PingDispatcher => worker::Input::DispatcherAnswered,
            worker::Action::Warm(shard) => worker::Input::Warmed(shard),
            worker::Action::Start { claim, .. } => {
                state.process(n).cached = state.server.child.version;
                worker::Input::Fresh(claim)
            }
        };
        self.feed(state, n, Input::Worker(input));
    }
}

impl State {
    fn gave_up(&mut self, n: usize, claim: Claim) {
        if let Some(incarnation) = &self.processes[n].incarnation {
            Arc::make_mut(&mut self.history).gave_up(incarnation, claim);
        }
    }

    fn ended(&mut self, n: usize) {
        if let Some(incarnation) = &self.processes[n].incarnation {
            Arc::make_mut(&mut self.history).ended(incarnation);
        }
    }

    fn send_up(&mut self, n: usize, message: FromWorker) {
        if let FromWorker::Released { claim, .. } = &message
            && let Some(incarnation) = &self.processes[n].incarnation
        {
            Arc::make_mut(&mut self.history).released(incarnation, *claim);
        }
        Arc::make_mut(&mut self.sessions).send_up(n, message);
    }
}
