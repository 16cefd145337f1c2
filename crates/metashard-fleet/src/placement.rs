//! Which member each shard should have: sticky rendezvous under a soft cap.
//!
//! A pure function of the problem and of the assignment so far. Hashing gives the order of preference only; keeping what is,
//! a cap and the measured weight decide.

mod layer;
#[cfg(test)]
mod tests;
pub mod wishes;

use std::{cmp::Reverse, collections::BTreeSet};

use metashard_api::id::{ReplicaId, ShardId};
use serde::{Deserialize, Serialize};

use layer::{Layer, Plan};

/// What is to be placed, and where it may go.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Problem {
    /// The members that may own shards. An [`Ordinal`] is an index into it; keep one order (by incarnation), so that the
    /// same problem always looks the same.
    pub members: Vec<Member>,
    /// The shards, by number of shard.
    pub shards: Vec<Shard>,
    /// Most shards that may be taken from a member that could keep them. Shards without a member are placed regardless.
    pub budget: usize,
    /// How even the members have to be for nothing to be moved.
    pub level: Level,
}

/// How even the members have to be. Whatever begins, an improvement goes on until the hottest is at 1.05 of the mean.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub enum Level {
    /// Nothing is moved while all are from 0.90 to 1.10 of the mean.
    #[default]
    Rest,
    /// Nothing is moved while all are from 0.95 to 1.05: somebody has asked for a levelling.
    Fine,
}

/// Index into [`Problem::members`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ordinal(pub u16);

/// One that may own shards. Leave out those that leave or drain: their shards then count as without a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// What the order of preference is hashed from: the replica's name, so that a replica that was restarted prefers the
    /// shards that it had.
    pub replica: ReplicaId,
    /// Weight that it can carry relative to others, in hundredths; 0 stands for 100 (as in `record::About`).
    pub capacity: u32,
    /// It is about to be replaced: as long as others are not, it gets only what they cannot take, and they are filled
    /// from it first.
    pub retiring: bool,
}

/// One shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shard {
    /// What it costs, in any unit that is the same for all. **0: it holds no controller.** Those are spread evenly by number, apart
    /// from the others, so a shard that holds a controller must weigh something even while that controller is quiet.
    pub weight: u64,
    /// It must stay where it is: being moved (it then counts at its target) or in its cool-down.
    pub pinned: bool,
    /// Bytes in the caches that it needs. A member that would have more than twice the mean of them gets it only if there
    /// is no other.
    pub bytes: u64,
}

/// The member of each shard, by number of shard; `None`: it has no member, or one that may not own shards any more.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Assignment {
    /// One entry a shard.
    pub owners: Vec<Option<Ordinal>>,
}

/// A shard that two assignments place differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Move {
    /// The shard.
    pub shard: ShardId,
    /// Its member so far; `None`: it had none.
    pub from: Option<Ordinal>,
    /// Its new member.
    pub to: Ordinal,
}

impl Assignment {
    /// Nothing placed yet.
    pub fn empty(n_shards: usize) -> Self {
        Self {
            owners: vec![None; n_shards],
        }
    }

    /// The shards that have another member here than in `before`, in the order of their numbers.
    pub fn moves_from(&self, before: &Self) -> Vec<Move> {
        let mut moves = Vec::new();
        for (shard, to) in (0..=u16::MAX).zip(&self.owners) {
            let from = before.owners.get(usize::from(shard)).copied().flatten();
            if let Some(to) = *to
                && from != Some(to)
            {
                moves.push(Move {
                    shard: ShardId(shard),
                    from,
                    to,
                });
            }
        }
        moves
    }
}

/// Computes the assignment that `problem` asks for, starting from `current`.
///
/// 1. What has a member keeps it.
/// 2. Shards without one are placed, heaviest first, each on the member that it prefers among those that it keeps under
///    1.05 of the mean; if there is none, where it makes the least harm. With at least one member, every shard is placed.
/// 3. Only if the hottest member is above 1.10 of the mean, or one below 0.90: moves from the hottest to the coldest,
///    each time the heaviest shard of at most half the gap, until 1.05 is reached or the budget is spent.
///
/// While some members retire and others do not, only those others are given anything: in step 2 up to 2.5 of the mean, in
/// step 3 from those that retire first.
///
/// Shards that hold a controller go first, by weight; then those that hold none, by number, under the same rules and with
/// what is left of the budget.
///
/// Placing again changes nothing: `place(p, place(p, a)) == place(p, a)`, unless the budget cut step 3 short; then it
/// goes on from there. The caller spends its budget: it asks the next time with what is left.
pub fn place(problem: &Problem, current: &Assignment) -> Assignment {
    place_without(problem, current, &BTreeSet::new())
}

/// Computes the same for all shards but those that are left out: they count nowhere, and have no member unless they had
/// one.
fn place_without(
    problem: &Problem,
    current: &Assignment,
    left_out: &BTreeSet<usize>,
) -> Assignment {
    let n_members = problem.members.len();
    let owners: Vec<Option<usize>> = (0..problem.shards.len())
        .map(|shard| {
            let owner = current.owners.get(shard).copied().flatten()?;
            Some(usize::from(owner.0)).filter(|owner| *owner < n_members)
        })
        .collect();

    let mut plan = Plan::new(owners, problem.budget);
    if n_members > 0 {
        for layer in Layer::both_without(problem, left_out) {
            layer.place(&mut plan);
        }
    }

    let owners = plan
        .owners
        .into_iter()
        .map(|owner| owner.and_then(ordinal))
        .collect();
    Assignment { owners }
}

/// All members, in the order in which `shard` prefers them.
pub fn preferred(members: &[Member], shard: ShardId) -> Vec<Ordinal> {
    let score = |member: &Member| layer::score(usize::from(shard.0), layer::identity(member));
    let mut order: Vec<(Reverse<u64>, Ordinal)> = members
        .iter()
        .map(|member| Reverse(score(member)))
        .zip((0..=u16::MAX).map(Ordinal))
        .collect();
    order.sort_unstable();
    order.into_iter().map(|(_, member)| member).collect()
}

/// How hot the hottest member is, in hundredths of the mean of all, counting shards that hold a controller; 100 if none does.
pub fn hottest_percent(problem: &Problem, assignment: &Assignment) -> u32 {
    let n_members = problem.members.len();
    let known = |owner: Option<Ordinal>| {
        owner
            .map(|it| usize::from(it.0))
            .filter(|it| *it < n_members)
    };
    let owners: Vec<Option<usize>> = assignment.owners.iter().copied().map(known).collect();
    Layer::loaded(problem).hottest_percent(&owners)
}

/// Members are counted in 16 bits on the wire and in the map.
fn ordinal(member: usize) -> Option<Ordinal> {
    u16::try_from(member).ok().map(Ordinal)
}
