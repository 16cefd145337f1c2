//! The worker machine: its stages, and what each input means in each of them.

use std::{collections::BTreeSet, sync::Arc};

use metashard_api::id::{Incarnation, ShardId};
use serde::{Deserialize, Serialize};

use crate::{
    lease::{self, Hold, Status},
    map,
    message::FromWorker,
    rules::Rule,
    time::{BootTime, MonoTime, Now},
    worker::{
        Action, Config, Input, Loss, Phase, Standing,
        leave::Leaving,
        maps::{Maps, Verdict},
        shards::Shards,
        standing::Member,
    },
};

/// One worker: it joins under an incarnation, does what map and leader give it while its Lease is its own, and when
/// it has lost that, ends all it does and joins under the next.
///
/// Its Lease says whether it lives, the newest map what it owns, its own memory what is over. After each call, publish
/// [`Self::standing`], carry out the actions in order, and ask [`Self::poll_timeout`] again.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Worker {
    pub(super) config: Config,
    pub(super) stage: Stage,
    pub(super) maps: Maps,
    pub(super) shards: Shards,
    pub(super) session_is_open: bool,
    /// Shards whose warming was asked for and not answered yet.
    pub(super) warming: BTreeSet<ShardId>,
    /// The dispatcher was told to suspend and not to resume since.
    suspended: bool,
    dispatcher: Dispatcher,
    pub(super) leaving: Option<Leaving>,
    standing: Arc<Standing>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) enum Stage {
    /// Waits for a map.
    Reading,
    /// Waits for an incarnation.
    Drawing,
    /// Takes or keeps its Lease.
    Joined(Box<Membership>),
    /// Waits until nothing of the last incarnation runs.
    Ending,
    /// Has left.
    Left,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Membership {
    pub(super) hold: Hold,
    pub(super) member: Arc<Member>,
    /// Its Lease was confirmed at least once.
    pub(super) confirmed: bool,
}

/// Signs of life of the code that runs shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Dispatcher {
    next_ping: MonoTime,
    answered: Option<MonoTime>,
    /// A renewal is due and waits for an answer.
    holds_up: bool,
}

impl Worker {
    /// A worker that has done nothing yet. Call [`Self::handle_timeout`] for its first actions.
    pub fn new(now: Now, config: Config) -> Self {
        Self {
            stage: Stage::Reading,
            maps: Maps::new(now, config.rules),
            shards: Shards::new(config.rules),
            session_is_open: false,
            warming: BTreeSet::new(),
            suspended: false,
            dispatcher: Dispatcher {
                next_ping: now.mono,
                answered: None,
                holds_up: false,
            },
            leaving: None,
            standing: Arc::new(Standing::default()),
            config,
        }
    }

    /// What the worker may do now. The same `Arc` until something in it changes.
    pub fn standing(&self) -> &Arc<Standing> {
        &self.standing
    }

    /// The incarnation that it joins or is a member as, if any.
    pub fn incarnation(&self) -> Option<&Incarnation> {
        match &self.stage {
            Stage::Joined(membership) => Some(&membership.member.incarnation),
            Stage::Reading | Stage::Drawing | Stage::Ending | Stage::Left => None,
        }
    }

    /// Since when every renewal of its Lease succeeded: what [`Hold::renewing_since`] says of it. An observer of others
    /// in the same process is told after each answer to an [`Action::Lease`].
    pub fn renewing_since(&self, now: Now) -> Option<MonoTime> {
        match &self.stage {
            Stage::Joined(membership) => membership.hold.renewing_since(now),
            Stage::Reading | Stage::Drawing | Stage::Ending | Stage::Left => None,
        }
    }

    /// Takes one input at `now`; appends what to do to `out`.
    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Action>) {
        self.suspend_or_resume(now, out);
        match input {
            Input::MapSeen(seen) => self.map_seen(now, seen, out),
            Input::MapRead(answer) => {
                let verdict = self.maps.read(now, answer);
                self.follow(now, verdict, out);
            }
            Input::IncarnationDrawn(incarnation) => self.join(now, incarnation),
            Input::LeaseAnswered {
                incarnation,
                answer,
            } => self.lease_answered(now, &incarnation, answer, out),
            Input::SessionOpened => self.session_opened(now, out),
            Input::SessionClosed => self.session_closed(now),
            Input::OrderReceived(message) => self.order(now, message, out),
            Input::DispatcherAnswered => self.dispatcher.answered = Some(now.mono),
            Input::Warmed(shard) => {
                if self.warming.remove(&shard) {
                    self.send(FromWorker::WarmReady { shard }, out);
                }
            }
            Input::Fresh(claim) => self.shards.fresh(claim),
            Input::Drained {
                claim,
                last_written,
            } => {
                let release = self.shards.drained(claim, last_written);
                self.tell(release, out);
                self.settle(out);
            }
            Input::ShutdownAsked { grace } => self.leave(now, grace, out),
        }
        self.go_on(now, out);
    }

    /// When to call [`Self::handle_timeout`] next. Ask again after each call of `handle*`.
    pub fn poll_timeout(&self) -> Option<MonoTime> {
        let leaving = self.leaving.as_ref();
        let stage = match &self.stage {
            Stage::Left => return None,
            Stage::Reading => self.maps.first_read(),
            Stage::Drawing | Stage::Ending => None,
            Stage::Joined(membership) => {
                let hold = &membership.hold;
                let renewal = hold.poll_timeout().filter(|_| !self.dispatcher.holds_up);
                let deadline = hold.deadline_timer().filter(|_| !self.suspended);
                earliest([renewal, deadline, self.maps.doubt_ends()])
            }
        };
        earliest([
            stage,
            Some(self.dispatcher.next_ping),
            leaving.map(Leaving::next_timeout),
        ])
    }

    /// Acts on time alone. Early or repeated calls do nothing.
    pub fn handle_timeout(&mut self, now: Now, out: &mut Vec<Action>) {
        self.suspend_or_resume(now, out);
        self.go_on(now, out);
    }

    /// Whether it may take up what it is given.
    fn may_start(&self) -> bool {
        match &self.stage {
            Stage::Joined(membership) => {
                membership.confirmed && !self.suspended && self.leaving.is_none()
            }
            Stage::Reading | Stage::Drawing | Stage::Ending | Stage::Left => false,
        }
    }

    pub(super) fn settle(&mut self, out: &mut Vec<Action>) {
        self.shards.settle(self.may_start(), out);
    }

    /// At the deadline everything pauses, and goes on once the Lease is renewed: the compare-and-swap proves that
    /// nobody fenced us in between.
    fn suspend_or_resume(&mut self, now: Now, out: &mut Vec<Action>) {
        let Stage::Joined(membership) = &self.stage else {
            return;
        };
        let hold = &membership.hold;
        let (Some(deadline), Some(timer)) = (hold.deadline(), hold.deadline_timer()) else {
            return;
        };
        let is_alive = now.boot < deadline && now.mono < timer;
        if is_alive == self.suspended {
            self.suspended = !is_alive;
            if is_alive {
                out.push(Action::Resume);
                self.settle(out);
            } else {
                out.push(Action::Suspend);
            }
        }
    }

    fn map_seen(&mut self, now: Now, seen: map::Seen, out: &mut Vec<Action>) {
        match self.stage {
            Stage::Reading | Stage::Drawing | Stage::Joined(_) => {
                let verdict = self.maps.seen(now, seen);
                self.follow(now, verdict, out);
            }
            // The next incarnation stands on what it reads itself.
            Stage::Ending | Stage::Left => {}
        }
    }

    fn follow(&mut self, now: Now, verdict: Verdict, out: &mut Vec<Action>) {
        match verdict {
            Verdict::Nothing => {}
            Verdict::Newer(map) => {
                if let Stage::Joined(membership) = &self.stage {
                    self.shards.apply_map(&map, &membership.member.incarnation);
                    self.settle(out);
                }
            }
            Verdict::Lost(loss) => self.end(now, loss, out),
        }
    }

    fn join(&mut self, now: Now, incarnation: Incarnation) {
        match self.stage {
            Stage::Drawing => {}
            Stage::Reading | Stage::Joined(_) | Stage::Ending | Stage::Left => return,
        }
        let member = Arc::new(Member {
            replica: self.config.replica.clone(),
            incarnation: incarnation.clone(),
        });
        let config = lease::Config {
            replica: self.config.replica.clone(),
            incarnation,
            about: self.config.about.clone(),
            duration: self.config.lease_duration,
            rules: self.config.rules,
        };
        self.stage = Stage::Joined(Box::new(Membership {
            hold: Hold::create(now, config),
            member,
            confirmed: false,
        }));
    }

    fn lease_answered(
        &mut self,
        now: Now,
        incarnation: &Incarnation,
        answer: lease::Input,
        out: &mut Vec<Action>,
    ) {
        let Stage::Joined(membership) = &mut self.stage else {
            return;
        };
        if membership.member.incarnation != *incarnation {
            return;
        }
        membership.hold.handle(now, answer);
        match membership.hold.status() {
            Status::Taking => {}
            Status::Held => {
                if !membership.confirmed {
                    membership.confirmed = true;
                    out.push(Action::OpenSession(incarnation.clone()));
                    if let Some(map) = self.maps.newest() {
                        self.shards.apply_map(map, incarnation);
                    }
                    self.settle(out);
                }
                self.suspend_or_resume(now, out);
            }
            Status::Released => self.finish(out),
            Status::Lost(seen) => {
                let loss = Loss::Lease(seen.clone());
                self.end(now, loss, out);
            }
        }
    }

    /// The incarnation is over.
    fn end(&mut self, now: Now, loss: Loss, out: &mut Vec<Action>) {
        match &self.stage {
            Stage::Joined(membership) => {
                out.push(Action::ReportLoss(loss));
                if membership.confirmed {
                    out.push(Action::CloseSession);
                }
                self.stage = Stage::Ending;
            }
            Stage::Reading | Stage::Drawing => self.stage = Stage::Reading,
            Stage::Ending | Stage::Left => return,
        }
        self.session_is_open = false;
        self.warming.clear();
        self.maps.reset(now);
        self.shards.drop_all(out);
    }

    pub(super) fn finish(&mut self, out: &mut Vec<Action>) {
        self.stage = Stage::Left;
        self.session_is_open = false;
        let unfinished = self.shards.unfinished();
        self.shards.drop_all(out);
        out.push(Action::CloseSession);
        out.push(Action::Finish { unfinished });
    }

    /// Does all that is due at `now`.
    fn go_on(&mut self, now: Now, out: &mut Vec<Action>) {
        self.ping(now, out);
        self.go_on_leaving(now, out);
        if self.stage == Stage::Ending
            && (self.shards.is_idle() || !self.config.rules.keep(Rule::RejoinWhenDrained))
        {
            self.shards = Shards::new(self.config.rules);
            self.stage = Stage::Reading;
        }
        let read_due = match &self.stage {
            Stage::Reading if self.maps.newest().is_some() => {
                self.stage = Stage::Drawing;
                out.push(Action::DrawIncarnation);
                None
            }
            Stage::Reading => self.maps.first_read(),
            Stage::Joined(_) => {
                self.renew(now, out);
                self.maps.doubt_ends()
            }
            Stage::Drawing | Stage::Ending | Stage::Left => None,
        };
        if read_due.is_some_and(|due| now.mono >= due) {
            self.maps.begin_read();
            out.push(Action::ReadMap);
        }
        self.publish();
    }

    fn ping(&mut self, now: Now, out: &mut Vec<Action>) {
        if self.stage != Stage::Left && now.mono >= self.dispatcher.next_ping {
            self.dispatcher.next_ping = now.mono + self.config.lease_duration / 4;
            out.push(Action::PingDispatcher);
        }
    }

    /// Sends what is due for the Lease, if the dispatcher is alive: a wedged worker must not stay a member.
    fn renew(&mut self, now: Now, out: &mut Vec<Action>) {
        let Stage::Joined(membership) = &mut self.stage else {
            return;
        };
        let is_releasing = self.leaving.as_ref().is_some_and(Leaving::is_releasing);
        let is_answering = self
            .dispatcher
            .answered
            .is_some_and(|at| now.mono.since(at) <= self.config.lease_duration);
        self.dispatcher.holds_up = !is_answering && !is_releasing;
        if self.dispatcher.holds_up {
            return;
        }
        let mut requests = Vec::new();
        membership.hold.handle_timeout(now, &mut requests);
        let incarnation = &membership.member.incarnation;
        out.extend(requests.into_iter().map(|request| Action::Lease {
            incarnation: incarnation.clone(),
            request,
        }));
        if *membership.hold.status() == Status::Released {
            self.finish(out);
        }
    }

    fn publish(&mut self) {
        let standing = self.current_standing();
        if *self.standing != standing {
            self.standing = Arc::new(standing);
        }
    }

    fn current_standing(&self) -> Standing {
        let (member, deadline) = match &self.stage {
            Stage::Joined(membership) if membership.confirmed => (
                Some(Arc::clone(&membership.member)),
                membership.hold.deadline().unwrap_or_default(),
            ),
            Stage::Joined(_) | Stage::Reading | Stage::Drawing | Stage::Ending | Stage::Left => {
                (None, BootTime::default())
            }
        };
        // Nearly always it is as it was.
        let shards = if self.shards.held().eq(self.standing.shards()) {
            Arc::clone(&self.standing.shards)
        } else {
            Arc::new(self.shards.held().collect())
        };
        Standing {
            phase: self.phase(),
            member,
            deadline,
            shards,
            map: self.maps.newest().cloned(),
        }
    }

    fn phase(&self) -> Phase {
        match &self.stage {
            Stage::Left => Phase::Left,
            Stage::Reading | Stage::Drawing | Stage::Joined(_) | Stage::Ending
                if self.leaving.is_some() =>
            {
                Phase::Leaving
            }
            Stage::Reading => Phase::Starting,
            Stage::Drawing => Phase::Joining,
            Stage::Joined(membership) if !membership.confirmed => Phase::Joining,
            Stage::Joined(_) if self.suspended => Phase::Suspended,
            Stage::Joined(_) => Phase::Member,
            Stage::Ending => Phase::Ending,
        }
    }
}

/// The earliest of some times.
pub(super) fn earliest<const N: usize>(times: [Option<MonoTime>; N]) -> Option<MonoTime> {
    times.into_iter().flatten().min()
}
