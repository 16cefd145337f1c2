//! The leader machine: what each input means, and what follows from it.

mod closing;
mod showing;
mod wishing;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use metashard_api::{
    id::{ShardId, Slice, Term},
    shard_map::Member,
};
use serde::{Deserialize, Serialize};

use crate::{
    election::{self, Election, Phase},
    leader::{
        Action, Config, Input, Report,
        coordinator::{Coordinator, Tools},
        recovery::Recovery,
        spec,
        splitting::{Asked, MERGE_AFTER},
        table::Table,
        turnover::Turnover,
    },
    map::Map,
    membership::{Membership, earliest},
    rules::Rule,
    shard::Layout,
    time::{MonoTime, Now},
    wishes::Wishes,
};

/// One replica's part in leading the fleet.
///
/// As a candidate it only watches, so that a new leader knows all that it needs. As the leader it first makes the
/// term its own, by a compare-and-swap of the map, and then gives every shard a live owner. It tells nobody of an epoch
/// that is not in the map, and gives no shard away before it is proven that the old owner has stopped. Losing the
/// lead ends only this: workers carry on with the map as it is.
///
/// After each call carry out the actions, and ask [`Self::poll_timeout`] again.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Leader {
    config: Config,
    started: MonoTime,
    election: Election,
    membership: Membership,
    table: Table,
    controllers: BTreeMap<ShardId, u32>,
    /// All controllers, once they are known.
    asked: Option<Arc<Asked>>,
    merge_after: Duration,
    turnover: Turnover,
    wishes: Wishes,
    lead: Lead,
    nobody_led_yet: bool,
    /// The map cannot be read: this replica does not stand for election.
    stands_aside: bool,
    /// Since when each shard has been without a live owner.
    unowned: BTreeMap<ShardId, MonoTime>,
    /// The process ends: until when a coordinator may go on to give away what has become free.
    closing: Option<MonoTime>,
    has_finished: bool,
    wake: Option<MonoTime>,
}

/// How far this replica's lead has come.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Lead {
    /// It has none.
    Idle,
    /// Makes the term its own. `attempted`: the last one that it wrote.
    Acquiring { attempted: Option<Term> },
    /// The map is lost.
    Recovering(Recovery),
    /// The term is its own.
    Coordinating(Box<Coordinator>),
}

/// What a step of the lead found.
enum Verdict {
    GoOn,
    /// The map belongs to another leader.
    Deposed,
}

impl Leader {
    /// A candidate that knows nothing yet. Call [`Self::handle_timeout`] for its first actions.
    pub fn new(now: Now, config: Config) -> Self {
        let election = Election::new(election::Config {
            replica: config.replica.clone(),
            about: config.about.clone(),
            lease_duration: config.lease_duration,
            rules: config.rules,
        });
        Self {
            started: now.mono,
            election,
            membership: Membership::new(config.lease_duration, config.rules),
            table: Table::default(),
            controllers: BTreeMap::new(),
            asked: None,
            merge_after: MERGE_AFTER,
            turnover: Turnover::default(),
            wishes: Wishes::default(),
            lead: Lead::Idle,
            nobody_led_yet: false,
            stands_aside: false,
            unowned: BTreeMap::new(),
            closing: None,
            has_finished: false,
            wake: Some(now.mono),
            config,
        }
    }

    /// Takes one input at `now`; appends what to do to `out`.
    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Action>) {
        self.handle_all(now, [input], out);
    }

    /// Takes several inputs that came at once, and decides once for all: what a burst of messages should cost.
    pub fn handle_all(
        &mut self,
        now: Now,
        inputs: impl IntoIterator<Item = Input>,
        out: &mut Vec<Action>,
    ) {
        let mut has_news = false;
        for input in inputs {
            self.take(now, input, out);
            has_news |= self.membership.refresh(now);
        }
        self.advance(now, has_news, out);
    }

    /// When to call [`Self::handle_timeout`] next. Ask again after each call of `handle*`.
    pub fn poll_timeout(&self) -> Option<MonoTime> {
        self.wake
    }

    /// Acts on time alone. Early or repeated calls do nothing.
    pub fn handle_timeout(&mut self, now: Now, out: &mut Vec<Action>) {
        self.advance(now, false, out);
    }

    /// Merges split controllers that have been cold for `length`, instead of half an hour.
    #[must_use]
    pub fn merging_after(mut self, length: Duration) -> Self {
        self.merge_after = length;
        self
    }

    /// The election within.
    pub fn election(&self) -> &Election {
        &self.election
    }

    /// The workers' Leases as seen here.
    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    /// Whether it coordinates at `now`: it holds the Lease, before its deadline, and the map names it.
    pub fn leads(&self, now: Now) -> bool {
        matches!(self.lead, Lead::Coordinating(_)) && self.election.may_lead(now)
    }

    fn take(&mut self, now: Now, input: Input, out: &mut Vec<Action>) {
        match input {
            Input::IncarnationDrawn(incarnation) => {
                self.elect(now, election::Input::IncarnationDrawn(incarnation), out);
            }
            Input::LeaderLeaseSeen(seen) => {
                self.elect(now, election::Input::LeaseSeen(seen), out);
            }
            Input::LeaderLeaseAnswered(answer) => {
                self.elect(now, election::Input::LeaseAnswered(answer), out);
            }
            Input::OwnRenewal(since) => {
                self.membership.own_renewal(now, since);
                self.elect(now, election::Input::OwnRenewal(since), out);
            }
            Input::ShutdownAsked => self.begin_to_close(now),
            Input::WorkerLeasesSynced => self.membership.listed(),
            Input::WorkerLeasesListed(has_come) => {
                if has_come {
                    self.membership.listed();
                }
                if let Lead::Recovering(recovery) = &mut self.lead {
                    recovery.listed(now, has_come, &self.membership);
                }
            }
            Input::WorkerLeaseSeen(incarnation, seen) => {
                self.membership.see(now, &incarnation, seen);
            }
            Input::WorkerLeaseRead(incarnation, seen) => {
                self.membership.read(now, &incarnation, seen);
            }
            Input::WorkerLeaseWritten(incarnation, written) => {
                self.membership.written(now, &incarnation, written);
            }
            Input::MapSeen(seen) => self.take_map(now, |table| table.see(seen)),
            Input::MapRead(seen) => self.take_map(now, |table| table.read(now, seen)),
            Input::MapWritten(written) => self.take_map(now, |table| table.written(now, written)),
            Input::ControllersSeen(asked) => {
                self.asked = Some(asked);
                self.count_anew(now);
            }
            Input::WishesSeen(wishes) => self.wish(now, wishes),
            Input::WishesTold(is_told) => self.wishes_told(is_told),
            Input::FromWorker(..) | Input::SessionClosed(_) => self.hear(now, input, out),
        }
    }

    fn take_map(&mut self, now: Now, take: impl FnOnce(&mut Table)) {
        let before = self.table.map().cloned();
        take(&mut self.table);
        if let (Some(before), Some(after)) = (&before, self.table.map())
            && before.version() != after.version()
        {
            self.turnover.see(now, &before.spec, &after.spec);
        }
        let layout = |map: &Arc<Map>| Layout::of(&map.spec);
        if before.as_ref().map(layout) != self.table.map().map(layout) {
            self.count_anew(now);
        }
    }

    /// Counts the controllers of each shard by the newest map, if they are known.
    fn count_anew(&mut self, now: Now) {
        let (Some(asked), Some(map)) = (&self.asked, self.table.map()) else {
            return;
        };
        let layout = Layout::of(&map.spec);
        let mut counts = BTreeMap::new();
        for controller in asked.keys() {
            for slice in (0..layout.slices(controller)).map(Slice) {
                let shard = layout.shard(controller, slice);
                *counts.entry(shard).or_default() += 1;
            }
        }
        self.controllers = counts;
        if let Lead::Coordinating(coordinator) = &mut self.lead {
            coordinator.want_plan(now);
        }
    }

    /// What concerns the coordinator alone.
    fn hear(&mut self, now: Now, input: Input, out: &mut Vec<Action>) {
        let may_lead = self.election.may_lead(now);
        let Lead::Coordinating(coordinator) = &mut self.lead else {
            return;
        };
        if let Input::FromWorker(from, message) = input {
            let mut answers = Vec::new();
            coordinator.hear(now, &from, message, &mut answers);
            // Past the deadline it still learns, but says nothing.
            if may_lead {
                out.append(&mut answers);
            }
        } else if let Input::SessionClosed(incarnation) = input {
            coordinator.closed(now, &incarnation);
        }
    }

    fn elect(&mut self, now: Now, input: election::Input, out: &mut Vec<Action>) {
        let mut actions = Vec::new();
        self.election.handle(now, input, &mut actions);
        out.extend(actions.into_iter().map(Action::from));
    }

    fn advance(&mut self, now: Now, has_news: bool, out: &mut Vec<Action>) {
        let nobody = self.table.nobody_led_yet();
        if nobody != self.nobody_led_yet {
            self.nobody_led_yet = nobody;
            self.elect(now, election::Input::NobodyLedYet(nobody), out);
        }
        let is_unreadable = self.table.is_unreadable();
        if is_unreadable != std::mem::replace(&mut self.stands_aside, is_unreadable) {
            if is_unreadable {
                out.push(Action::Report(Report::MapUnreadable));
            }
            self.elect(now, election::Input::StandAside(is_unreadable), out);
        }
        let mut actions = Vec::new();
        self.election.handle_timeout(now, &mut actions);
        out.extend(actions.into_iter().map(Action::from));

        let has_news = self.membership.refresh(now) || has_news;
        if self.wants_map() && self.election.phase() != Phase::Stopped {
            out.extend(self.table.advance(now));
        }
        if self.election.may_lead(now)
            && let Verdict::Deposed = self.lead(now, has_news, out)
        {
            let leader = self.table.map().and_then(|map| map.spec.leader.clone());
            let by = leader.map_or_else(String::new, |leader| leader.replica);
            out.push(Action::Report(Report::Contested { by }));
            self.elect(now, election::Input::StepDownAsked, out);
        }
        self.close(now, out);
        if self.election.phase() != Phase::Leading {
            self.stop(now, out);
        }
        if self.election.phase() == Phase::Stopped && !self.has_finished {
            self.has_finished = true;
            out.push(Action::Finish);
        }
        self.wake = self.next_wake(now);
    }

    fn lead(&mut self, now: Now, has_news: bool, out: &mut Vec<Action>) -> Verdict {
        if matches!(self.lead, Lead::Idle) {
            self.lead = Lead::Acquiring { attempted: None };
            if self.table.is_lost() {
                self.table.doubt();
            }
        }
        out.extend(self.table.advance(now));
        let attempted = match &self.lead {
            Lead::Acquiring { attempted } => *attempted,
            Lead::Coordinating(coordinator) => Some(coordinator.term()),
            Lead::Idle | Lead::Recovering(_) => None,
        };
        let is_settled = self.table.is_settled();
        let is_lost = is_settled && self.table.is_lost();
        let is_ours = self
            .table
            .map()
            .is_some_and(|map| self.is_ours(map, attempted));
        match &mut self.lead {
            Lead::Idle => {}
            Lead::Acquiring { .. } if is_lost => self.recover(now, out),
            Lead::Acquiring { .. } if is_settled && is_ours => self.coordinate(now, out),
            Lead::Acquiring { .. } => {
                self.acquire(out);
                // The proof that a worker is over does not depend on the term.
                self.pursue(now, out);
            }
            Lead::Recovering(_) if is_settled && !is_lost && is_ours => self.coordinate(now, out),
            Lead::Recovering(_) => self.recover_on(now, out),
            Lead::Coordinating(_) if is_lost => {
                out.push(Action::CloseSessions);
                self.recover(now, out);
            }
            Lead::Coordinating(_) if is_settled && !is_ours => return Verdict::Deposed,
            Lead::Coordinating(_) => {
                if let Some((coordinator, mut tools)) = self.coordinating() {
                    coordinator.run(now, has_news, &mut tools, out);
                }
            }
        }
        Verdict::GoOn
    }

    /// Whether the term of `map` is our own: only if it names our incarnation, for another may have written the same
    /// number.
    fn is_ours(&self, map: &Map, attempted: Option<Term>) -> bool {
        let names_us = map.spec.leader.is_some() && map.spec.leader == self.member();
        let mutant = !self.config.rules.keep(Rule::TermNamesLeader);
        names_us || (mutant && attempted == Some(map.spec.term))
    }

    /// The coordinator, and what it works with, if there is one.
    fn coordinating(&mut self) -> Option<(&mut Coordinator, Tools<'_>)> {
        let Lead::Coordinating(coordinator) = &mut self.lead else {
            return None;
        };
        let tools = Tools {
            config: &self.config,
            membership: &mut self.membership,
            table: &mut self.table,
            controllers: &self.controllers,
            asked: self.asked.as_deref(),
            merge_after: self.merge_after,
            turnover: &self.turnover,
            wishes: &self.wishes,
        };
        Some((coordinator, tools))
    }

    fn member(&self) -> Option<Member> {
        let incarnation = self.election.incarnation()?;
        Some(spec::member(&self.config.replica, incarnation))
    }

    /// The first act of a new leader.
    fn acquire(&mut self, out: &mut Vec<Action>) {
        let (Some(leader), Some(map)) = (self.member(), self.table.map().cloned()) else {
            return;
        };
        if !self.table.is_settled() {
            return;
        }
        let content = spec::with_new_term(&map.spec, &self.table, leader, self.config.shards);
        self.lead = Lead::Acquiring {
            attempted: Some(content.term),
        };
        out.push(self.table.write(Some(map), content));
    }

    fn coordinate(&mut self, now: Now, out: &mut Vec<Action>) {
        let Some(map) = self.table.map().cloned() else {
            return;
        };
        let term = map.spec.term;
        out.push(Action::Report(Report::LeadGained { term }));
        self.lead = Lead::Coordinating(Box::new(Coordinator::begin(now, map)));
        if let Some((coordinator, mut tools)) = self.coordinating() {
            coordinator.run(now, true, &mut tools, out);
        }
    }

    fn recover(&mut self, now: Now, out: &mut Vec<Action>) {
        out.push(Action::Report(Report::MapLost));
        self.lead = Lead::Recovering(Recovery::begin(now));
        self.recover_on(now, out);
    }

    fn recover_on(&mut self, now: Now, out: &mut Vec<Action>) {
        let Lead::Recovering(recovery) = &mut self.lead else {
            return;
        };
        if recovery.wants_list(now) {
            out.push(Action::ListWorkerLeases);
        }
        let is_over = recovery.advance(now, &mut self.membership);
        self.pursue(now, out);
        if is_over
            && self.table.is_settled()
            && let Some(leader) = self.member()
        {
            let age = now.mono.since(self.started);
            let unix_seconds = (self.config.unix_time + age).as_secs();
            let content = spec::made_anew(&self.table, leader, self.config.shards, unix_seconds);
            let base = self.table.map().cloned();
            out.push(self.table.write(base, content));
        }
    }

    fn pursue(&mut self, now: Now, out: &mut Vec<Action>) {
        let mut requests = Vec::new();
        self.membership.pursue(now, &mut requests);
        let requests = requests.into_iter();
        out.extend(requests.map(|(it, request)| Action::WorkerLease(it, request)));
    }

    /// Stops the coordinator: nothing new from now on. It has stopped when what it sent is answered.
    fn stop(&mut self, now: Now, out: &mut Vec<Action>) {
        if let Lead::Coordinating(coordinator) = &self.lead {
            let term = coordinator.term();
            out.push(Action::CloseSessions);
            out.push(Action::Report(Report::LeadLost { term }));
        }
        self.lead = Lead::Idle;
        let is_quiet = self.table.is_quiet() && !self.membership.is_writing();
        if self.election.phase() == Phase::SteppingDown && is_quiet {
            self.elect(now, election::Input::CoordinatorStopped, out);
        }
    }

    /// Whether a candidate reads the map. A watch shows what there is; that there is none, or that it can be read again,
    /// only a read tells for sure.
    fn wants_map(&self) -> bool {
        self.table.is_unknown() || self.table.is_unreadable()
    }

    fn next_wake(&self, now: Now) -> Option<MonoTime> {
        let wake = earliest(self.election.poll_timeout(), self.membership.poll_timeout());
        let wake = earliest(wake, self.closing);
        if !self.election.may_lead(now) {
            let table = self.table.poll_timeout();
            return earliest(wake, table.filter(|_| self.wants_map()));
        }
        let lead = match &self.lead {
            Lead::Idle | Lead::Acquiring { .. } => None,
            Lead::Recovering(recovery) => recovery.poll_timeout(now, &self.membership),
            Lead::Coordinating(coordinator) => coordinator.poll_timeout(now, &self.config),
        };
        earliest(wake, earliest(lead, self.table.poll_timeout()))
    }
}

impl From<election::Action> for Action {
    fn from(action: election::Action) -> Self {
        match action {
            election::Action::DrawIncarnation => Self::DrawIncarnation,
            election::Action::Lease(request) => Self::LeaderLease(request),
        }
    }
}
