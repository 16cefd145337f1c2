//! Who leads: one candidate's way to the leader's Lease, and back. See [`Election`].

use std::time::Duration;

use metashard_api::id::{Incarnation, ReplicaId};
use serde::{Deserialize, Serialize};

use crate::{
    lease::{self, Hold, Observation, Status},
    record::{About, Seen},
    rules::{Rule, Rules},
    time::{BootTime, MonoTime, Now},
    witness::Witness,
};

/// What a candidate is told at its start.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Config {
    /// Name of the replica.
    pub replica: ReplicaId,
    /// What it says of itself in the Lease; workers find the leader by its address.
    pub about: About,
    /// `--lease-duration`: whole seconds, at least 2; default 4 s.
    pub lease_duration: Duration,
    /// All rules, except in a model.
    pub rules: Rules,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Input {
    /// A UUID for the next candidacy, as [`Action::DrawIncarnation`] asked.
    IncarnationDrawn(Incarnation),
    /// A watch event or the answer to a poll showed the leader's Lease.
    LeaseSeen(Seen),
    /// How an [`Action::Lease`] ended.
    LeaseAnswered(lease::Input),
    /// The replica's own Lease (of its worker, or its candidate's) was renewed, or not: since when all renewals
    /// succeeded. Told at each answer.
    OwnRenewal(Option<MonoTime>),
    /// Whether the map says that nobody has led yet (there is none, or its term is 0). Until told: no.
    NobodyLedYet(bool),
    /// Whether the lead is for others: what a leader writes cannot be read here. Until told: no.
    StandAside(bool),
    /// The coordinator has stopped: it does nothing more and nothing of it is in flight.
    CoordinatorStopped,
    /// The lead is not wanted any more: the map belongs to a higher term.
    StepDownAsked,
    /// The process ends.
    ShutdownAsked,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Action {
    /// Draw a UUID; answer `IncarnationDrawn`.
    DrawIncarnation,
    /// Send this for the leader's Lease; answer `LeaseAnswered` in every case, within a second.
    Lease(lease::Request),
}

/// Where a candidate stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// Has no incarnation yet.
    Drawing,
    /// Watches the Lease and waits for the end of the claim on it.
    Candidate,
    /// Has tried to take it; no write is confirmed yet.
    Acquiring,
    /// Holds it: the coordinator may act while [`Election::may_lead`].
    Leading,
    /// Has lost it or gives it up, and waits for the coordinator to stop and for the release to be written.
    SteppingDown,
    /// Shut down: never a candidate again.
    Stopped,
}

/// One candidate for the lead.
///
/// It takes the Lease only when the claim on it has ended, and never acts on it beyond its own deadline. Past the
/// deadline it only pauses: if a renewal succeeds later, the compare-and-swap proves that nobody led in between.
/// When its claim ends it goes on as a new incarnation, and it writes the release only when the coordinator has
/// stopped. Losing the lead ends neither the process nor any worker.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Election {
    config: Config,
    state: State,
    observation: Option<Observation>,
    witness: Witness,
    nobody_led_yet: bool,
    stands_aside: bool,
    shutting_down: bool,
    /// Until when the coordinator may act, as far as it has not said that it has stopped.
    deadline: Option<BootTime>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum State {
    Drawing {
        asked: bool,
    },
    Candidate(Incarnation),
    Holding(Box<Hold>, Stage),
    /// The claim is over; the coordinator has not stopped yet.
    Stopping(Incarnation),
    Stopped,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Stage {
    Acquiring,
    Leading,
    /// To be released as soon as the coordinator has stopped.
    Stopping,
    Releasing,
}

impl Election {
    /// A candidate that knows nothing yet. It begins by asking for an incarnation.
    ///
    /// Call [`Self::handle_timeout`] for the first action.
    pub fn new(config: Config) -> Self {
        Self {
            witness: Witness::new(config.lease_duration),
            config,
            state: State::Drawing { asked: false },
            observation: None,
            nobody_led_yet: false,
            stands_aside: false,
            shutting_down: false,
            deadline: None,
        }
    }

    /// Where it stands.
    pub fn phase(&self) -> Phase {
        match &self.state {
            State::Drawing { .. } => Phase::Drawing,
            State::Candidate(_) => Phase::Candidate,
            State::Holding(_, Stage::Acquiring) => Phase::Acquiring,
            State::Holding(_, Stage::Leading) => Phase::Leading,
            State::Holding(_, Stage::Stopping | Stage::Releasing) | State::Stopping(_) => {
                Phase::SteppingDown
            }
            State::Stopped => Phase::Stopped,
        }
    }

    /// The incarnation of the candidacy or lead.
    pub fn incarnation(&self) -> Option<&Incarnation> {
        match &self.state {
            State::Candidate(incarnation) | State::Stopping(incarnation) => Some(incarnation),
            State::Holding(hold, _) => Some(&hold.config().incarnation),
            State::Drawing { .. } | State::Stopped => None,
        }
    }

    /// Whether the coordinator may decide something at `now`.
    pub fn may_lead(&self, now: Now) -> bool {
        self.phase() == Phase::Leading && self.deadline.is_some_and(|deadline| now.boot < deadline)
    }

    /// Until when a coordinator that has not stopped yet believes that nobody else leads (invariant L1).
    pub fn coordinator_deadline(&self) -> Option<BootTime> {
        self.deadline
    }

    /// The Lease as it was seen last.
    pub fn seen(&self) -> Option<&Seen> {
        self.observation.as_ref().map(Observation::seen)
    }

    /// Takes one input at `now`; appends what to do to `out`.
    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Action>) {
        match input {
            Input::IncarnationDrawn(incarnation) => {
                if matches!(self.state, State::Drawing { .. }) {
                    self.state = State::Candidate(incarnation);
                }
            }
            Input::LeaseSeen(seen) => self.see(now, seen),
            Input::LeaseAnswered(answer) => {
                if let State::Holding(hold, _) = &mut self.state {
                    hold.handle(now, answer);
                }
            }
            Input::OwnRenewal(since) => self.witness.told(now, since),
            Input::NobodyLedYet(nobody) => self.nobody_led_yet = nobody,
            Input::StandAside(stands_aside) => {
                self.stands_aside = stands_aside;
                if stands_aside {
                    self.step_down(now);
                }
            }
            Input::CoordinatorStopped => self.coordinator_stopped(now),
            Input::StepDownAsked => self.step_down(now),
            Input::ShutdownAsked => {
                self.shutting_down = true;
                self.step_down(now);
            }
        }
        self.advance(now, out);
    }

    /// When to call [`Self::handle_timeout`] next.
    pub fn poll_timeout(&self) -> Option<MonoTime> {
        match &self.state {
            State::Candidate(_) => self
                .observation
                .as_ref()
                .and_then(|it| it.ends_at(self.witness.renewing_since())),
            State::Holding(hold, _) => hold.poll_timeout(),
            State::Drawing { .. } | State::Stopping(_) | State::Stopped => None,
        }
    }

    /// Acts on time alone. Early or repeated calls do nothing.
    pub fn handle_timeout(&mut self, now: Now, out: &mut Vec<Action>) {
        self.advance(now, out);
    }

    fn see(&mut self, now: Now, seen: Seen) {
        if let Some(observation) = &mut self.observation {
            observation.see(now, seen);
        } else {
            let own_duration = self.config.lease_duration;
            let rules = self.config.rules;
            self.observation = Some(Observation::new(now, seen, own_duration, rules));
        }
    }

    fn step_down(&mut self, now: Now) {
        if let State::Holding(_, stage @ (Stage::Acquiring | Stage::Leading)) = &mut self.state {
            let coordinates = *stage == Stage::Leading;
            *stage = Stage::Stopping;
            if !coordinates || !self.config.rules.keep(Rule::ReleaseWhenStopped) {
                self.release(now);
            }
        }
    }

    fn coordinator_stopped(&mut self, now: Now) {
        if self.phase() == Phase::Leading {
            return;
        }
        self.deadline = None;
        if matches!(self.state, State::Stopping(_)) {
            self.state = State::Drawing { asked: false };
        } else if matches!(self.state, State::Holding(_, Stage::Stopping)) {
            self.release(now);
        }
    }

    fn release(&mut self, now: Now) {
        if let State::Holding(hold, stage) = &mut self.state {
            *stage = Stage::Releasing;
            hold.handle(now, lease::Input::ReleaseAsked);
        }
    }

    fn advance(&mut self, now: Now, out: &mut Vec<Action>) {
        self.witness.expire(now);
        if let State::Candidate(incarnation) = &self.state
            && !self.shutting_down
            && !self.stands_aside
            && let Some(hold) = self.take(now, incarnation.clone())
        {
            self.state = State::Holding(Box::new(hold), Stage::Acquiring);
        }
        self.advance_hold(now, out);
        if self.shutting_down && matches!(self.state, State::Drawing { .. } | State::Candidate(_)) {
            self.state = State::Stopped;
        }
        if let State::Drawing { asked } = &mut self.state
            && !*asked
        {
            *asked = true;
            out.push(Action::DrawIncarnation);
        }
    }

    /// The claim on the Lease, once the last one has ended.
    fn take(&self, now: Now, incarnation: Incarnation) -> Option<Hold> {
        let observation = self.observation.as_ref()?;
        let config = || lease::Config {
            replica: self.config.replica.clone(),
            incarnation,
            about: self.config.about.clone(),
            duration: self.config.lease_duration,
            rules: self.config.rules,
        };
        let has_ended = observation.has_ended(now, self.witness.renewing_since());
        let is_first = self.nobody_led_yet && observation.was_never_present();
        match observation.seen() {
            Seen::Absent if has_ended || is_first => Some(Hold::create(now, config())),
            Seen::Present(record) if has_ended => {
                Some(Hold::take_over(now, config(), record.clone()))
            }
            Seen::Absent | Seen::Present(_) => None,
        }
    }

    fn advance_hold(&mut self, now: Now, out: &mut Vec<Action>) {
        let State::Holding(hold, stage) = &mut self.state else {
            return;
        };
        let mut requests = Vec::new();
        hold.handle_timeout(now, &mut requests);
        out.extend(requests.into_iter().map(Action::Lease));
        match hold.status() {
            Status::Taking => {}
            Status::Held => {
                if *stage == Stage::Acquiring {
                    *stage = Stage::Leading;
                }
                if let Some(deadline) = hold.deadline() {
                    self.deadline = Some(deadline);
                }
            }
            Status::Released => self.end(None, now),
            Status::Lost(seen) => {
                let seen = seen.clone();
                self.end(Some(seen), now);
            }
        }
    }

    /// The claim is over: go on as a new incarnation, once the coordinator has stopped.
    fn end(&mut self, shown: Option<Seen>, now: Now) {
        let State::Holding(hold, stage) = &self.state else {
            return;
        };
        self.state = match stage {
            Stage::Leading | Stage::Stopping => State::Stopping(hold.config().incarnation.clone()),
            Stage::Acquiring | Stage::Releasing => State::Drawing { asked: false },
        };
        if let Some(seen) = shown {
            self.see(now, seen);
        }
    }
}

#[cfg(test)]
mod tests;
