//! Placement as people wish it: members that get nothing more, and shards that have a place of their own.
//!
//! A pure function over [`place`]: it takes cordoned members out of the problem, puts what is pinned to where it is
//! wished, and places the rest.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use metashard_api::id::ShardId;
use serde::{Deserialize, Serialize};

use super::{
    Assignment, Member, Ordinal, Problem, hottest_percent, layer::BYTES_CAP, place, place_without,
};

/// What is wished of a placement, in the problem's own numbers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wishes {
    /// Members that get nothing, and whose shards go to others.
    pub cordoned: BTreeSet<Ordinal>,
    /// Where shards should be.
    pub pins: BTreeMap<ShardId, Ordinal>,
}

/// A placement, and what of the wishes is not in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Placed {
    /// The member of each shard.
    pub assignment: Assignment,
    /// Pins that are not honoured.
    pub denied: BTreeMap<ShardId, Denied>,
    /// How hot the hottest member that is not cordoned was before, in hundredths of their mean.
    pub hottest_percent: u32,
}

/// Why a pin is not honoured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Denied {
    /// The member is cordoned.
    Cordoned,
    /// What is pinned to the member already needs too many bytes in its caches.
    NoRoom,
    /// The shard must stay where it is for now.
    Held,
    /// There is no such shard or member.
    Unknown,
}

/// Computes the assignment that `problem` asks for under `wishes`, starting from `current`.
///
/// - A shard of a cordoned member goes to another, as if it had none; one that must stay ([`super::Shard::pinned`]) stays for
///   now, and counts nowhere. If all members are cordoned, nothing is taken from any of them.
/// - A pinned shard goes to its member and is left there. What is pinned to one member may need up to twice the mean of cached
///   bytes, in the order of shards; a shard that would need more on any member is honoured alone.
///
/// Placing again changes nothing, as with [`place`]. The moves that the wishes ask for take nothing of the problem's budget:
/// whoever carries them out does so at a pace of his own.
pub fn place_as_wished(problem: &Problem, wishes: &Wishes, current: &Assignment) -> Placed {
    if *wishes == Wishes::default() {
        return Placed {
            assignment: place(problem, current),
            denied: BTreeMap::new(),
            hottest_percent: hottest_percent(problem, current),
        };
    }
    let open = Open::of(problem, wishes);
    let (pins, denied) = grant(problem, wishes, current, &open.members);
    let (mut inner, mut begin) = (open.problem(problem), open.numbered(current));
    begin.owners.resize(inner.shards.len(), None);
    let hottest_percent = hottest_percent(&inner, &begin);
    for (shard, to) in &pins {
        let index = usize::from(shard.0);
        if let (Some(place), Some(owner)) =
            (inner.shards.get_mut(index), begin.owners.get_mut(index))
        {
            place.pinned = true;
            *owner = open.number(*to);
        }
    }
    let held = held_by_cordoned(problem, wishes, current, &open);

    let mut assignment = place_without(&inner, &begin, &held);
    for (shard, owner) in assignment.owners.iter_mut().enumerate() {
        *owner = if held.contains(&shard) {
            current.owners.get(shard).copied().flatten()
        } else {
            owner.and_then(|it| open.members.get(usize::from(it.0)).copied())
        };
    }
    Placed {
        assignment,
        denied,
        hottest_percent,
    }
}

/// The members that may get something.
struct Open {
    members: Vec<Ordinal>,
    /// All are cordoned: then all of them are open, and nothing is taken from any.
    is_closed: bool,
}

impl Open {
    fn of(problem: &Problem, wishes: &Wishes) -> Self {
        let all = (0..=u16::MAX).map(Ordinal).take(problem.members.len());
        let open: Vec<Ordinal> = all
            .clone()
            .filter(|it| !wishes.cordoned.contains(it))
            .collect();
        let is_closed = open.is_empty();
        Self {
            members: if is_closed { all.collect() } else { open },
            is_closed,
        }
    }

    /// The number of a member among those that are open.
    fn number(&self, member: Ordinal) -> Option<Ordinal> {
        let index = self.members.binary_search(&member).ok()?;
        u16::try_from(index).ok().map(Ordinal)
    }

    /// The problem without the others.
    fn problem(&self, problem: &Problem) -> Problem {
        let members = self.members.iter().filter_map(|it| member(problem, *it));
        Problem {
            members: members.cloned().collect(),
            shards: problem.shards.clone(),
            budget: if self.is_closed { 0 } else { problem.budget },
            level: problem.level,
        }
    }

    fn numbered(&self, assignment: &Assignment) -> Assignment {
        let owners = assignment.owners.iter();
        Assignment {
            owners: owners.map(|owner| self.number((*owner)?)).collect(),
        }
    }
}

/// Shards that must stay for now where nothing is to stay: nobody else counts with them until they go.
fn held_by_cordoned(
    problem: &Problem,
    wishes: &Wishes,
    current: &Assignment,
    open: &Open,
) -> BTreeSet<usize> {
    let shards = problem.shards.iter().zip(&current.owners).enumerate();
    let is_held = |owner: Ordinal| {
        wishes.cordoned.contains(&owner) && !open.is_closed && member(problem, owner).is_some()
    };
    shards
        .filter(|(_, (shard, owner))| shard.pinned && owner.is_some_and(is_held))
        .map(|(number, _)| number)
        .collect()
}

fn member(problem: &Problem, ordinal: Ordinal) -> Option<&Member> {
    problem.members.get(usize::from(ordinal.0))
}

/// The pins that are honoured, and why the others are not. It does not depend on where shards are, but for those that are
/// held: so what is honoured once is honoured as long as the same is asked.
fn grant(
    problem: &Problem,
    wishes: &Wishes,
    current: &Assignment,
    open: &[Ordinal],
) -> (BTreeMap<ShardId, Ordinal>, BTreeMap<ShardId, Denied>) {
    let total: u128 = problem.shards.iter().map(|it| u128::from(it.bytes)).sum();
    let n_open = open.len() as u128;
    let fits = |bytes: u128| bytes * 100 * n_open <= total * BYTES_CAP;
    let mut taken: BTreeMap<Ordinal, u128> = BTreeMap::new();
    let (mut pins, mut denied) = (BTreeMap::new(), BTreeMap::new());
    for (shard, to) in &wishes.pins {
        let index = usize::from(shard.0);
        let before = current.owners.get(index).copied().flatten();
        let before = before.filter(|it| member(problem, *it).is_some());
        let Some(place) = problem.shards.get(index) else {
            denied.insert(*shard, Denied::Unknown);
            continue;
        };
        let bytes = u128::from(place.bytes);
        let with_it = taken.get(to).copied().unwrap_or(0) + bytes;
        let why = if member(problem, *to).is_none() {
            Some(Denied::Unknown)
        } else if wishes.cordoned.contains(to) {
            Some(Denied::Cordoned)
        } else if !fits(with_it) && (fits(bytes) || with_it > bytes) {
            Some(Denied::NoRoom)
        } else if place.pinned && before.is_some() && before != Some(*to) {
            Some(Denied::Held)
        } else {
            None
        };
        if why.is_none_or(|it| it == Denied::Held) {
            taken.insert(*to, with_it);
        }
        match why {
            None => _ = pins.insert(*shard, *to),
            Some(why) => _ = denied.insert(*shard, why),
        }
    }
    (pins, denied)
}
