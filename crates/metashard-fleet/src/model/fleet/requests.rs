//! Requests on their way: carried out, answered, slow, given up.

use std::sync::Arc;

use crate::{
    leader, lease,
    model::{
        clock::TIMEOUT,
        fleet::{
            Answer, Fleet, Flight, Request, State,
            history::worker_of,
            process::{Input, Machine, Process},
        },
        flight::Stage,
        server::Name,
    },
    record::{Seen, Written},
    worker,
};

impl Fleet {
    pub(super) fn take_answers(&self, state: &mut State, n: usize) {
        while let Some(flight) = state.flights.iter().position(|flight| {
            flight.from == n && matches!(flight.stage, Stage::Answered(_)) && !flight.abandoned
        }) {
            self.answer(state, flight);
        }
    }

    /// Tells a machine that there was no answer to what is overdue. During an outage there never is one.
    pub(super) fn give_up_overdue(&self, state: &mut State, n: usize) {
        let mono = state.processes[n].clock.mono(state.now);
        let outage = state.outage.is_some();
        while let Some(at) = state.flights.iter().position(|flight| {
            let is_refused = outage && flight.stage == Stage::Prompt && mono > flight.sent;
            let is_overdue = mono >= flight.sent + TIMEOUT || is_refused;
            let is_child = matches!(flight.request, Request::WriteChild(_));
            flight.from == n && !flight.abandoned && is_overdue && !is_child
        }) {
            let flight = Arc::clone(&state.flights[at]);
            let is_answered = matches!(flight.stage, Stage::Answered(_));
            if is_answered || (outage && flight.stage == Stage::Prompt) {
                state.flights.remove(at);
            } else {
                let flight = Arc::make_mut(&mut state.flights[at]);
                flight.abandoned = true;
                flight.stage = Stage::Slow;
            }
            if let Some(input) = no_answer(&state.processes[n], &flight.request) {
                self.feed(state, n, input);
            }
        }
    }

    /// Writes of a child are given up when the authority ends that they were sent under.
    pub(super) fn abandon_child_writes(&self, state: &mut State) {
        for at in 0..state.flights.len() {
            let flight = &state.flights[at];
            let now = self.clocks(&state.processes[flight.from], state.now);
            if let Request::WriteChild(write) = &flight.request
                && !flight.abandoned
                && now.boot >= write.until
            {
                let flight = Arc::make_mut(&mut state.flights[at]);
                flight.abandoned = true;
                if flight.stage == Stage::Prompt {
                    flight.stage = Stage::Slow;
                }
            }
        }
        state
            .flights
            .retain(|it| !it.abandoned || !matches!(it.stage, Stage::Answered(_)));
    }

    pub(super) fn serve(&self, state: &mut State, n: usize, answer_at_once: bool) {
        let flight = Arc::clone(&state.flights[n]);
        let answer = state.carry(&flight.request);
        if flight.abandoned {
            state.flights.remove(n);
            return;
        }
        Arc::make_mut(&mut state.flights[n]).stage = Stage::Answered(answer);
        if answer_at_once && state.processes[flight.from].is_running() {
            self.answer(state, n);
        }
    }

    pub(super) fn answer(&self, state: &mut State, n: usize) {
        let flight = state.flights.remove(n);
        let from = flight.from;
        let Stage::Answered(answer) = flight.stage.clone() else {
            return;
        };
        match (answer, &flight.request) {
            (Answer::Lease(answer), Request::Lease(name, _)) => {
                let input = lease_answer(&state.processes[from], name, answer);
                self.feed(state, from, input);
            }
            (Answer::Leases(records), _) => {
                for (incarnation, record) in records {
                    let seen = Seen::Present(record);
                    let input = leader::Input::WorkerLeaseSeen(incarnation, seen);
                    self.feed(state, from, Input::Leader(input));
                }
                let input = leader::Input::WorkerLeasesListed(true);
                self.feed(state, from, Input::Leader(input));
            }
            (Answer::Map(seen), _) => {
                let input = match state.processes[from].machine {
                    Machine::Leader(_) => Input::Leader(leader::Input::MapRead(Some(seen))),
                    Machine::Worker(_) => Input::Worker(worker::Input::MapRead(Some(seen))),
                };
                self.feed(state, from, input);
            }
            (Answer::MapWritten(written), _) => {
                self.feed(
                    state,
                    from,
                    Input::Leader(leader::Input::MapWritten(written)),
                );
            }
            (Answer::Child(Some(version)), _) => state.process(from).cached = version,
            (Answer::Child(None) | Answer::Lease(_), _) => {}
        }
    }
}

impl State {
    pub(super) fn send(&mut self, n: usize, request: Request) {
        let sent = self.processes[n].clock.mono(self.now);
        self.flights.push(Arc::new(Flight::new(n, sent, request)));
    }

    /// The API server carries a request out.
    fn carry(&mut self, request: &Request) -> Answer {
        let server = Arc::make_mut(&mut self.server);
        match request {
            Request::Lease(name, request) => {
                let before = server.lease(name);
                let answer = server.serve(name, request);
                if let lease::Input::Written(Written::Accepted(record)) = &answer
                    && let Some(worker) = worker_of(name)
                {
                    Arc::make_mut(&mut self.history).lease_written(worker, &before, record);
                }
                Answer::Lease(answer)
            }
            Request::ListLeases => {
                let names: Vec<Name> = server.leases().map(|(name, _)| name.clone()).collect();
                let records = names
                    .iter()
                    .filter_map(|name| match (name, server.lease(name)) {
                        (Name::Worker(it), Seen::Present(record)) => Some((it.clone(), record)),
                        (Name::Worker(_) | Name::Leader, Seen::Absent | Seen::Present(_)) => None,
                    });
                Answer::Leases(records.collect())
            }
            Request::ReadMap => Answer::Map(server.map()),
            Request::WriteMap(write) => {
                let before = server.map();
                let written = server.write_map(write);
                if let Written::Accepted(map) = &written {
                    Arc::make_mut(&mut self.history).map_written(&before, map);
                }
                Answer::MapWritten(written)
            }
            Request::WriteChild(write) => {
                let child = &mut server.child;
                if write.base.is_some_and(|base| base != child.version) {
                    return Answer::Child(None);
                }
                let epoch = write.claim.epoch;
                Arc::make_mut(&mut self.history).child_written(child.epoch, epoch);
                child.version += 1;
                child.epoch = epoch.max(child.epoch);
                Answer::Child(Some(child.version))
            }
        }
    }

    /// Drops abandoned requests that cannot change anything.
    pub(super) fn forget_moot(&mut self) {
        let server = &self.server;
        self.flights.retain(|flight| {
            !flight.abandoned
                || !match &flight.request {
                    Request::Lease(name, request) => server.is_moot(name, request),
                    Request::ListLeases | Request::ReadMap => true,
                    Request::WriteMap(write) => server.is_map_write_moot(write),
                    Request::WriteChild(write) => {
                        write.base.is_some_and(|base| base != server.child.version)
                    }
                }
        });
    }
}

/// What a driver says of a request without an answer.
fn no_answer(process: &Process, request: &Request) -> Option<Input> {
    match (request, &process.machine) {
        (Request::Lease(name, request), _) => {
            let answer = match request {
                lease::Request::Read => lease::Input::Read(None),
                lease::Request::Create(_) | lease::Request::Put(_) => {
                    lease::Input::Written(Written::Unknown)
                }
            };
            Some(lease_answer(process, name, answer))
        }
        (Request::ListLeases, _) => Some(Input::Leader(leader::Input::WorkerLeasesListed(false))),
        (Request::ReadMap, Machine::Leader(_)) => Some(Input::Leader(leader::Input::MapRead(None))),
        (Request::ReadMap, Machine::Worker(_)) => Some(Input::Worker(worker::Input::MapRead(None))),
        (Request::WriteMap(_), _) => {
            Some(Input::Leader(leader::Input::MapWritten(Written::Unknown)))
        }
        (Request::WriteChild(_), _) => None,
    }
}

fn lease_answer(process: &Process, name: &Name, answer: lease::Input) -> Input {
    match (&process.machine, name, answer) {
        (Machine::Leader(_), Name::Worker(incarnation), lease::Input::Read(seen)) => {
            Input::Leader(leader::Input::WorkerLeaseRead(incarnation.clone(), seen))
        }
        (Machine::Leader(_), Name::Worker(incarnation), lease::Input::Written(written)) => {
            Input::Leader(leader::Input::WorkerLeaseWritten(
                incarnation.clone(),
                written,
            ))
        }
        (Machine::Worker(_), Name::Worker(incarnation), answer) => {
            let incarnation = incarnation.clone();
            Input::Worker(worker::Input::LeaseAnswered {
                incarnation,
                answer,
            })
        }
        (Machine::Leader(_) | Machine::Worker(_), _, answer) => {
            Input::Leader(leader::Input::LeaderLeaseAnswered(answer))
        }
    }
}
