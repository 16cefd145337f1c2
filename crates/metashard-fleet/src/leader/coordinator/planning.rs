//! When the coordinator plans, and how it carries a plan out.

use std::{collections::BTreeMap, time::Duration};

use metashard_api::{
    id::{Incarnation, ShardId},
    shard_map::Member,
};

use super::{Coordinator, Tools, replica_of};
use crate::{
    leader::{
        Action, Report,
        demand::Part,
        plan::{self, Footing, Plan, Terms},
        spec,
        world::World,
    },
    membership::Worker,
    record::weight_of,
    rules::Rule,
    time::{MonoTime, Now},
};

/// A plan is made at each change, and at least this often.
pub(super) const PLAN_EVERY: Duration = Duration::from_secs(10);

/// Time for others to join too, before a plan gives a new member its share: replicas are often started together.
pub(super) const SETTLE: Duration = Duration::from_secs(1);

/// Most moves for balance within [`PLAN_EVERY`], but for those on a join.
const MOVES: usize = 4;

impl Coordinator {
    /// Lets go of hand-overs that have lost their target, or their owner's session before it was told.
    pub(super) fn settle(&mut self, now: Now, tools: &Tools<'_>) {
        if !self.is_dirty {
            return;
        }
        let mut hand_overs = std::mem::take(&mut self.hand_overs);
        let world = self.world(tools);
        let has_changed = hand_overs.settle(|it| world.may_get(it), |it| world.has_session(it));
        self.hand_overs = hand_overs;
        if has_changed {
            self.plan_at = now.mono;
        }
    }

    pub(super) fn plan_if_due(&mut self, now: Now, tools: &mut Tools<'_>, out: &mut Vec<Action>) {
        let shares = self.share_at.is_some_and(|share_at| now.mono >= share_at);
        if now.mono < self.plan_at && !shares {
            return;
        }
        if let Some(begin) = self.first_plan(tools)
            && now.mono < begin
        {
            self.plan_at = begin;
            self.share_at = None;
            return;
        }
        self.plan_at = now.mono + PLAN_EVERY;
        self.is_dirty = true;
        self.let_in(now, tools);
        let (budget, is_join) = self.budget(now, shares, tools);
        let is_recutting = self.recut_if_due(now, tools);
        let terms = Terms {
            budget: if is_recutting && !is_join { 0 } else { budget },
            is_join,
            asked: self.asked_budget(now, tools),
            level: self.level(tools),
            ..Terms::default()
        };
        let plan = plan::plan(now, &self.world(tools), &self.hand_overs, &terms);
        self.hottest_percent = plan.hottest_percent;
        let has_budget = budget > 0 && !is_join;
        self.judge_wishes(now, &plan, has_budget, tools);
        self.follow(now, plan, is_join);
        self.judge_demand(now, tools);
        if self.map.spec.members.is_empty() {
            // All who are there get their share as first owners.
            self.newcomers.clear();
        }

        let named = spec::named(&self.map.spec);
        let old = tools.membership.collect(now, &named).into_iter();
        out.extend(old.map(|(it, record)| Action::DeleteWorkerLease(it, record)));
    }

    /// Takes each hand-over a step further.
    pub(super) fn hand_over(&mut self, now: Now, tools: &mut Tools<'_>, out: &mut Vec<Action>) {
        let grace = tools.config.drain_hook_grace;
        let sessions = &self.peers.sessions;
        let mut due = self
            .hand_overs
            .advance(now, grace, |it| sessions.contains(it));
        if !due.unanswered.is_empty() {
            self.find_others(now, &due.unanswered, tools, out);
            let sessions = &self.peers.sessions;
            let more = self
                .hand_overs
                .advance(now, grace, |it| sessions.contains(it));
            due.orders.extend(more.orders);
        }
        for (to, order) in due.orders {
            out.push(self.send(to, order));
        }
        for incarnation in due.overdue {
            if tools.membership.evict(&incarnation) {
                let replica = replica_of(tools.membership, &incarnation);
                out.push(Action::Report(Report::EvictionBegun {
                    replica,
                    incarnation,
                }));
                // Its Lease is written at the next run.
                self.plan_at = now.mono;
            }
        }
    }

    /// The owners of all shards that are free and have a target.
    pub(super) fn new_owners(&self, tools: &Tools<'_>) -> BTreeMap<ShardId, Member> {
        let world = self.world(tools);
        let mut owners = BTreeMap::new();
        let mut is_short = false;
        let concerns = |shard| self.recutting.as_ref().is_some_and(|it| it.concerns(shard));
        for shard in world.shards() {
            match self.new_owner(&world, shard) {
                Some(owner) => {
                    owners.insert(shard, owner);
                }
                None => is_short |= concerns(shard),
            }
        }
        if is_short {
            // What is drained for a split waits for all of it.
            owners.retain(|shard, _| !concerns(*shard));
        }
        owners
    }

    /// The owner of `shard`, if it is free and has a target.
    fn new_owner(&self, world: &World<'_>, shard: ShardId) -> Option<Member> {
        let hand_over = self.hand_overs.get(shard);
        let target = hand_over.and_then(|it| it.to.as_ref());
        let target = target.or_else(|| self.targets.get(&shard))?;
        let is_free = match plan::footing(world, &self.hand_overs, shard).0 {
            Footing::Free => true,
            Footing::Kept(_) | Footing::Leaving(_) | Footing::Stuck => {
                !world.rules.keep(Rule::ProofBeforeOwner)
            }
        };
        (is_free && world.may_get(target)).then(|| {
            let replica = replica_of(world.membership, target);
            spec::member(&replica, target)
        })
    }

    /// When the first owners of all may be named: replicas that are started together share from the beginning.
    fn first_plan(&self, tools: &Tools<'_>) -> Option<MonoTime> {
        let world = self.world(tools);
        let workers = world
            .eligible()
            .filter_map(|it| tools.membership.worker(it));
        let first_seen = workers.map(Worker::first_seen).min()?;
        let nobody_owns = self.map.spec.members.is_empty();
        nobody_owns.then(|| first_seen + SETTLE)
    }

    /// Those whose time has come get shards like all others; so do all, if there is nobody else.
    fn let_in(&mut self, now: Now, tools: &Tools<'_>) {
        let is_joined = |it: &Incarnation| tools.membership.is_joined(it);
        self.held_back
            .retain(|it, until| now.mono < *until && is_joined(it));
        let world = self.world(tools);
        let is_nobody_else = world
            .eligible()
            .filter(|it| world.may_get(it))
            .all(|it| self.held_back.contains_key(it));
        if is_nobody_else {
            self.held_back.clear();
        }
    }

    /// How many workers the work needs, once all have told how busy they are.
    fn judge_demand(&mut self, now: Now, tools: &Tools<'_>) {
        let world = self.world(tools);
        if !world.knows_costs() {
            return;
        }
        let parts = world.eligible().filter_map(|it| {
            let about = tools.membership.worker(it)?.about();
            Some(Part {
                busy_permille: self.peers.costs.busy_permille(it)?,
                capacity: weight_of(about.map_or(0, |about| about.capacity)),
            })
        });
        let parts: Vec<Part> = parts.collect();
        self.demand.take(now, &parts);
    }

    /// How many shards may be moved for balance, and whether that is for a join.
    fn budget(&mut self, now: Now, shares: bool, tools: &Tools<'_>) -> (usize, bool) {
        if shares {
            self.share_at = None;
            let n_newcomers = self.newcomers.len();
            let (sessions, held_back) = (&self.peers.sessions, &self.held_back);
            self.newcomers
                .retain(|it| !sessions.contains(it) || held_back.contains_key(it));
            self.share_at = held_back.values().min().copied();
            let n_served = n_newcomers - self.newcomers.len();
            if n_served > 0 {
                let world = self.world(tools);
                return (world.share() * n_served, true);
            }
        }
        if self.share_at.is_some_and(|at| at <= now.mono + SETTLE) {
            // What is moved now to the first that joined could not be moved on to the next for a while.
            return (0, false);
        }
        if tools.config.rules.keep(Rule::CostsKnown) && !self.world(tools).knows_costs() {
            return (0, false);
        }
        let is_past = |moved: &MonoTime| now.mono.since(*moved) >= PLAN_EVERY;
        while self.moved.front().is_some_and(is_past) {
            self.moved.pop_front();
        }
        (MOVES.saturating_sub(self.moved.len()), false)
    }

    fn follow(&mut self, now: Now, plan: Plan, is_join: bool) {
        for shard in plan.targets.keys() {
            self.orphans.entry(*shard).or_insert(now.mono);
        }
        self.targets = plan.targets;
        for (shard, target) in plan.retargets {
            self.hand_overs.retarget(shard, target);
        }
        for begin in plan.begins {
            if begin.why.is_asked() {
                self.wished.moved(now);
            } else if begin.why.is_voluntary() && !is_join {
                self.moved.push_back(now.mono);
            }
            self.hand_overs.begin(now, begin);
        }
    }

    /// Targets that did not answer a Warm in time are passed over, once; after that it goes on without warming.
    fn find_others(
        &mut self,
        now: Now,
        shards: &[ShardId],
        tools: &Tools<'_>,
        out: &mut Vec<Action>,
    ) {
        let mut by_target: BTreeMap<Incarnation, Vec<ShardId>> = BTreeMap::new();
        for shard in shards {
            if let Some(target) = self.hand_overs.get(*shard).and_then(|it| it.to.clone()) {
                by_target.entry(target).or_default().push(*shard);
            }
        }
        for (target, shards) in by_target {
            let world = self.world(tools);
            let terms = Terms {
                exclude: Some(&target),
                ..Terms::default()
            };
            let plan = plan::plan(now, &world, &self.hand_overs, &terms);
            for shard in &shards {
                let from = self.hand_overs.get(*shard).map(|it| it.from.clone());
                let other = plan.retargets.get(shard).cloned().flatten();
                let other = other.filter(|it| Some(it) != from.as_ref());
                self.hand_overs.retarget(*shard, other);
            }
            out.push(Action::Report(Report::WarmTimedOut { target, shards }));
        }
    }
}
