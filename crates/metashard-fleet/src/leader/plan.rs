//! What is to be placed, as the leader sees it, and what becomes of the answer.

use std::{collections::BTreeMap, time::Duration};

use metashard_api::id::{Epoch, Incarnation, ReplicaId, ShardId};

use crate::{
    handover::{Begin, HandOvers, WARM_TIMEOUT},
    leader::{Why, world::World},
    membership::{State, Worker},
    message::Claim,
    placement::{self, Assignment, Ordinal, Problem},
    time::Now,
};

/// Weight of a controller of which nothing is known yet, and of a quiet one, in microseconds for each second.
const CONTROLLER_WEIGHT: u64 = 1_000;

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

/// Plans with at most `budget` moves for balance. `exclude` is a member that gets nothing.
pub(crate) fn plan(
    now: Now,
    world: &World<'_>,
    hand_overs: &HandOvers,
    budget: usize,
    exclude: Option<&Incarnation>,
) -> Plan {
    let members: Vec<&Incarnation> = world.eligible().filter(|it| Some(*it) != exclude).collect();
    let ordinals: BTreeMap<&Incarnation, Ordinal> = members
        .iter()
        .copied()
        .zip((0..=u16::MAX).map(Ordinal))
        .collect();
    let shards: Vec<ShardId> = world.shards().collect();
    let mut problem = Problem {
        members: members
            .iter()
            .map(|it| world.placement_member(it))
            .collect(),
        shards: Vec::with_capacity(shards.len()),
        budget,
    };
    let mut current = Assignment::empty(shards.len());
    for (shard, place) in shards.iter().zip(&mut current.owners) {
        let (owner, is_pinned) = stand(now, world, hand_overs, *shard);
        *place = owner.and_then(|owner| ordinals.get(owner).copied());
        problem.shards.push(placement::Shard {
            weight: world.weight(*shard),
            pinned: is_pinned && place.is_some(),
        });
    }

    let placed = placement::place(&problem, &current);
    let mut plan = Plan::default();
    for (shard, to) in shards.iter().zip(&placed.owners) {
        let to = to.and_then(|to| members.get(usize::from(to.0)).copied());
        plan.take(world, hand_overs, *shard, to, exclude);
    }
    plan
}

/// Where `shard` counts for placement, and whether it must stay there.
fn stand<'a>(
    now: Now,
    world: &World<'a>,
    hand_overs: &'a HandOvers,
    shard: ShardId,
) -> (Option<&'a Incarnation>, bool) {
    if let Some(hand_over) = hand_overs.get(shard) {
        return (hand_over.to.as_ref(), true);
    }
    match footing(world, hand_overs, shard).0 {
        Footing::Kept(owner) => {
            let is_pinned = hand_overs.is_cooling(shard, now) || !world.has_session(owner);
            (Some(owner), is_pinned)
        }
        Footing::Free | Footing::Leaving(_) | Footing::Stuck => (None, false),
    }
}

impl Plan {
    fn take(
        &mut self,
        world: &World<'_>,
        hand_overs: &HandOvers,
        shard: ShardId,
        to: Option<&Incarnation>,
        exclude: Option<&Incarnation>,
    ) {
        if let Some(hand_over) = hand_overs.get(shard) {
            if hand_over.to.is_none() || hand_over.to.as_ref() == exclude {
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
                    self.begins.push(begin(from, Why::Balance, warm));
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

    /// What `shard` weighs; 0 if it holds no controller.
    fn weight(&self, shard: ShardId) -> u64 {
        match u64::from(self.n_controllers(shard)) {
            0 => 0,
            n => n * CONTROLLER_WEIGHT + self.cost(shard),
        }
    }

    /// What its Lease says of `member` that placement wants to know.
    fn placement_member(&self, member: &Incarnation) -> placement::Member {
        let worker = self.membership.worker(member);
        placement::Member {
            replica: worker
                .and_then(|worker| worker.replica())
                .cloned()
                .unwrap_or_else(|| ReplicaId::new(member.as_str())),
            capacity: worker
                .and_then(|worker| worker.about())
                .map_or(0, |about| about.capacity),
        }
    }
}
