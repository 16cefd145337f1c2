//! What is to be placed, as the leader sees it, and what becomes of the answer.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use metashard_api::id::{Epoch, Incarnation, ReplicaId, ShardId};

use crate::{
    handover::{Begin, HandOvers, WARM_TIMEOUT},
    leader::{Why, world::World},
    membership::{State, Worker},
    message::Claim,
    placement::{
        self, Assignment, Level, Ordinal, Problem,
        wishes::{Denied, Wishes, place_as_wished},
    },
    rules::Rule,
    time::Now,
};

/// Least that a controller weighs, in microseconds for each second: one that costs less is quiet, and quiet ones are spread
/// by number. What they cost exactly is noise, and no reason to move anything.
const QUIET: u64 = 5_000;

/// How one shard stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Footing<'a> {
    /// It needs an owner, and may have one at once.
    Free,
    /// A worker has it that may keep it.
    Kept(&'a Incarnation),
    /// A worker has it that wants to leave, and can be told to stop.
    Leaving(&'a Incarnation),
    /// Its owner may keep it no longer, but it is not proven yet that it has stopped.
    Stuck,
}

/// A plan: for each shard that is not where it should be, where to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Plan {
    /// New owners of shards that are free or stuck.
    pub(crate) targets: BTreeMap<ShardId, Incarnation>,
    /// New targets of hand-overs that have lost theirs.
    pub(crate) retargets: BTreeMap<ShardId, Option<Incarnation>>,
    /// Hand-overs to begin.
    pub(crate) begins: Vec<Begin>,
    /// Pins that are not honoured.
    pub(crate) denied: BTreeMap<ShardId, Denied>,
    /// How hot the hottest member is before anything of this is done, in hundredths of the mean.
    pub(crate) hottest_percent: u32,
}

/// What a plan may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Terms<'a> {
    /// Most moves of shards that could stay.
    pub(crate) budget: usize,
    /// Most moves that people have asked for.
    pub(crate) asked: usize,
    /// The others are for members that joined.
    pub(crate) is_join: bool,
    /// How even members have to be.
    pub(crate) level: Level,
    /// A member that gets nothing.
    pub(crate) exclude: Option<&'a Incarnation>,
}

/// How `shard` stands at the moment.
pub(crate) fn footing<'a>(
    world: &World<'a>,
    hand_overs: &HandOvers,
    shard: ShardId,
) -> (Footing<'a>, Epoch) {
    let (owner, epoch) = world.owner(shard);
    let Some(owner) = owner else {
        return (Footing::Free, epoch);
    };
    let is_released = hand_overs.release(Claim { shard, epoch }, owner).is_some();
    let state = world.membership.worker(owner).map(Worker::state);
    let footing = match state {
        _ if is_released => Footing::Free,
        Some(State::Released | State::Fenced | State::Evicted | State::Gone) => Footing::Free,
        Some(State::Joined) if !world.is_leaving(owner) => Footing::Kept(owner),
        Some(State::Joined) if world.has_session(owner) => Footing::Leaving(owner),
        Some(State::Joined | State::Silent | State::Missing | State::Taken | State::Evicting)
        | None => Footing::Stuck,
    };
    (footing, epoch)
}

/// Plans within `terms`.
pub(crate) fn plan(now: Now, world: &World<'_>, hand_overs: &HandOvers, terms: &Terms<'_>) -> Plan {
    let may_own =
        |it: &&Incarnation| Some(*it) != terms.exclude && !world.held_back.contains_key(*it);
    let members: Vec<&Incarnation> = world.eligible().filter(may_own).collect();
    let retiring = world.retiring_members(now);
    let ordinals: BTreeMap<&Incarnation, Ordinal> = members
        .iter()
        .copied()
        .zip((0..=u16::MAX).map(Ordinal))
        .collect();
    let shards: Vec<ShardId> = world.shards().collect();
    let mut problem = Problem {
        members: members
            .iter()
            .map(|it| world.placement_member(it, retiring.contains(it)))
            .collect(),
        shards: Vec::with_capacity(shards.len()),
        budget: terms.budget,
        level: terms.level,
    };
    let mut current = Assignment::empty(shards.len());
    let typical = world.typical_cost();
    let wished = world.wished(&members, hand_overs);
    for (shard, place) in shards.iter().zip(&mut current.owners) {
        let (owner, is_pinned) = stand(now, world, hand_overs, &wished, *shard);
        *place = owner.and_then(|owner| ordinals.get(owner).copied());
        problem.shards.push(placement::Shard {
            weight: world.weight(*shard, typical),
            pinned: is_pinned && place.is_some(),
            bytes: world.peers.costs.bytes_of(*shard),
        });
    }

    let placed = place_as_wished(&problem, &wished, &current);
    let mut plan = Plan {
        hottest_percent: placed.hottest_percent,
        denied: placed.denied,
        ..Plan::default()
    };
    let why = |shard: ShardId, from: &Incarnation, to: &Incarnation| {
        if world.is_cordoned(from) {
            Why::Drain
        } else if wished.pins.get(&shard) == ordinals.get(to) {
            Why::Pin
        } else if retiring.contains(from) && !retiring.contains(to) {
            Why::RollOut
        } else if terms.is_join {
            Why::Join
        } else {
            Why::Balance
        }
    };
    for (shard, to) in shards.iter().zip(&placed.assignment.owners) {
        let to = to.and_then(|to| members.get(usize::from(to.0)).copied());
        plan.take(world, hand_overs, *shard, to, (terms.exclude, &why));
    }
    if world.rules.keep(Rule::AskedByShares) {
        plan.begin_no_more_than(terms.asked);
    }
    plan
}

/// Where `shard` counts for placement, and whether it must stay there.
fn stand<'a>(
    now: Now,
    world: &World<'a>,
    hand_overs: &'a HandOvers,
    wished: &Wishes,
    shard: ShardId,
) -> (Option<&'a Incarnation>, bool) {
    if let Some(hand_over) = hand_overs.get(shard) {
        return (hand_over.to.as_ref(), true);
    }
    match footing(world, hand_overs, shard).0 {
        Footing::Kept(owner) => {
            // What somebody has asked for rests for nobody.
            let is_asked = wished.pins.contains_key(&shard) || world.is_cordoned(owner);
            let is_at_rest = hand_overs.is_cooling(shard, now) || world.is_restless(now, shard);
            let is_pinned = (is_at_rest && !is_asked) || !world.has_session(owner);
            (Some(owner), is_pinned)
        }
        Footing::Free | Footing::Leaving(_) | Footing::Stuck => (None, false),
    }
}

/// Why a shard is moved from one member to another.
type Reason<'a> = &'a dyn Fn(ShardId, &Incarnation, &Incarnation) -> Why;

impl Plan {
    /// Leaves out what people ask for beyond `most` moves: pins come first, then what holds controllers.
    fn begin_no_more_than(&mut self, most: usize) {
        let rank = |it: &Begin| (it.why != Why::Pin, it.warm.is_none(), it.claim.shard);
        let asked = self.begins.iter().filter(|it| it.why.is_asked());
        let mut ranks: Vec<_> = asked.map(rank).collect();
        ranks.sort_unstable();
        if let Some(last) = ranks.get(most) {
            self.begins
                .retain(|it| !it.why.is_asked() || rank(it) < *last);
        }
    }

    fn take(
        &mut self,
        world: &World<'_>,
        hand_overs: &HandOvers,
        shard: ShardId,
        to: Option<&Incarnation>,
        (exclude, why): (Option<&Incarnation>, Reason<'_>),
    ) {
        if let Some(hand_over) = hand_overs.get(shard) {
            if hand_over.to.is_none() || hand_over.to.as_ref() == exclude {
                let to = to.filter(|it| world.may_get(it));
                self.retargets.insert(shard, to.cloned());
            }
            return;
        }
        let (footing, epoch) = footing(world, hand_overs, shard);
        let begin = |from: &Incarnation, why, warm| Begin {
            claim: Claim { shard, epoch },
            from: from.clone(),
            to: to.cloned(),
            why,
            warm,
        };
        match (footing, to) {
            (Footing::Free | Footing::Stuck, Some(to)) => {
                self.targets.insert(shard, to.clone());
            }
            (Footing::Leaving(from), _) => {
                let patience = world.leaving_grace(from) / 4;
                let warm = world.warm(shard, patience.min(WARM_TIMEOUT));
                self.begins.push(begin(from, Why::Leaving, warm));
            }
            (Footing::Kept(from), Some(to)) => {
                if from != to && world.has_session(from) && world.has_session(to) {
                    let warm = world.warm(shard, WARM_TIMEOUT);
                    self.begins.push(begin(from, why(shard, from, to), warm));
                }
            }
            (Footing::Free | Footing::Stuck | Footing::Kept(_), None) => {}
        }
    }
}

impl World<'_> {
    /// How long a target has to fill the caches of `shard`; `None` if there is nothing to fill.
    fn warm(&self, shard: ShardId, patience: Duration) -> Option<Duration> {
        (self.n_controllers(shard) > 0).then_some(patience)
    }

    /// What `shard` weighs; 0 if it holds no controller. `typical` is what a controller costs of which nothing is known.
    pub(crate) fn weight(&self, shard: ShardId, typical: u64) -> u64 {
        let expected = self.recutting.and_then(|it| it.shards.get(&shard));
        let n = expected.map_or_else(|| self.n_controllers(shard), |it| it.n_controllers);
        let n = u64::from(n);
        if n == 0 {
            return 0;
        }
        let known = expected.map_or_else(|| self.peers.costs.of_shard(shard), |it| it.cost);
        known.unwrap_or(n * typical).max(n * QUIET)
    }

    /// What all controllers cost together, as far as is known.
    pub(crate) fn total_cost(&self) -> u64 {
        let known = self.controllers.keys();
        let known = known.filter_map(|shard| self.peers.costs.of_shard(*shard));
        known.fold(0, u64::saturating_add)
    }

    /// What a controller costs in the mean, as far as is known.
    pub(crate) fn typical_cost(&self) -> u64 {
        let known = self.controllers.iter().filter_map(|(shard, n)| {
            let cost = self.peers.costs.of_shard(*shard)?;
            Some((u128::from(cost), u128::from(*n)))
        });
        let (cost, n) = known.fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
        u64::try_from(cost.checked_div(n).unwrap_or(0)).unwrap_or(u64::MAX)
    }

    /// Whether enough is known of costs to move anything for them: every worker that has controllers and a session has
    /// told of its part. One without a session keeps what it has anyway.
    pub(crate) fn knows_costs(&self) -> bool {
        let busy = self.controllers.iter().filter(|(_, n)| **n > 0);
        let owners: BTreeSet<_> = busy.filter_map(|(shard, _)| self.owner(*shard).0).collect();
        owners
            .into_iter()
            .filter(|owner| self.is_eligible(owner) && self.has_session(owner))
            .all(|owner| self.peers.costs.knows(owner))
    }

    /// Whether `shard` has changed hands so often that it is let be.
    fn is_restless(&self, now: Now, shard: ShardId) -> bool {
        self.rules.keep(Rule::RestlessStay) && self.turnover.is_restless(now, shard)
    }

    pub(crate) fn retiring_members(&self, now: Now) -> BTreeSet<&Incarnation> {
        if self.rules.keep(Rule::NewestFirst) {
            self.retiring(now)
        } else {
            BTreeSet::new()
        }
    }

    /// What its Lease says of `member` that placement wants to know.
    pub(crate) fn placement_member(
        &self,
        member: &Incarnation,
        retiring: bool,
    ) -> placement::Member {
        let worker = self.membership.worker(member);
        placement::Member {
            replica: worker
                .and_then(|worker| worker.replica())
                .cloned()
                .unwrap_or_else(|| ReplicaId::new(member.as_str())),
            capacity: worker
                .and_then(|worker| worker.about())
                .map_or(0, |about| about.capacity),
            retiring,
        }
    }
}
