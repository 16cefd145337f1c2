//! Where shards would come to be: the planner's answer for other replicas, or for a levelling. Nothing is moved.

use std::{cmp::Reverse, collections::BTreeMap};

use metashard_api::id::{Incarnation, ReplicaId, ShardId};
use serde::Serialize;

use super::{Phase, Replica, Shard, Shards};
use crate::{
    placement::{
        self, Assignment, Level, Member, Ordinal, Problem,
        wishes::{Wishes, place_as_wished},
    },
    record::weight_of,
};

/// A placement that is not in force.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Simulated {
    /// What each replica carries and would carry, by name.
    pub replicas: Vec<Part>,
    /// Shards that would move, those that cost most first.
    pub moves: Vec<Move>,
    /// How hot the hottest replica is, in hundredths of the mean.
    pub hottest_percent: u32,
    /// How hot the hottest would be.
    pub hottest_percent_after: u32,
}

/// What one replica carries before and after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Part {
    /// Its name.
    pub replica: ReplicaId,
    /// Now; nothing for one that is not there yet.
    pub before: Carried,
    /// Then; nothing for one that would not be there any more.
    pub after: Carried,
}

/// What a replica carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Carried {
    /// Shards.
    pub shards: u32,
    /// Controllers, or slices of split ones.
    pub controllers: u32,
    /// Sum of what its shards count for placement.
    pub weight: u64,
    /// That, over its capacity, in hundredths of the mean of all. Where nothing weighs anything, shards count.
    pub percent: u32,
}

/// A shard that would change hands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Move {
    /// The shard.
    pub shard: ShardId,
    /// Its owner now; absent: it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<ReplicaId>,
    /// Its owner then.
    pub to: ReplicaId,
    /// How many controllers it holds.
    pub controllers: u32,
    /// What it counts for placement.
    pub weight: u64,
}

/// What the planner is asked.
pub(super) struct Question<'a> {
    pub(super) members: Vec<&'a Replica>,
    pub(super) problem: Problem,
    pub(super) wishes: Wishes,
    /// What is on its way counts at its target.
    pub(super) current: Assignment,
}

impl Shards {
    /// Where all shards would be once everything has come to rest at `level`: of these replicas, or of so many. Fewer are those
    /// that are called first; further ones have made-up names. Neither the pace of moves nor rests after them are in it.
    pub fn simulated(&self, n_replicas: Option<usize>, level: Level) -> Simulated {
        let others = n_replicas.map(|n| self.with_replicas(n));
        let then = others.as_ref().unwrap_or(self);
        let question = then.question(level);
        let placed = place_as_wished(&question.problem, &question.wishes, &question.current);
        let owners: Vec<Option<&ReplicaId>> = placed
            .assignment
            .owners
            .iter()
            .map(|it| question.name((*it)?))
            .collect();
        let (before, after) = (self.carried(), then.carried_by(owners.iter().copied()));
        let mut names: Vec<&ReplicaId> = before.keys().chain(after.keys()).copied().collect();
        names.sort_by_key(|it| natural(it));
        names.dedup();
        let part = |it: &ReplicaId| Part {
            replica: it.clone(),
            before: before.get(it).copied().unwrap_or_default(),
            after: after.get(it).copied().unwrap_or_default(),
        };
        Simulated {
            replicas: names.into_iter().map(part).collect(),
            moves: self.moves_to(&owners),
            hottest_percent: hottest(&before),
            hottest_percent_after: hottest(&after),
        }
    }

    /// What each replica carries now, by name.
    pub fn parts(&self) -> Vec<(ReplicaId, Carried)> {
        let carried = self.carried().into_iter();
        let mut parts: Vec<_> = carried.map(|(it, carried)| (it.clone(), carried)).collect();
        parts.sort_by_key(|(it, _)| natural(it));
        parts
    }

    fn with_replicas(&self, n: usize) -> Self {
        let mut replicas: Vec<Replica> = self.staying().cloned().collect();
        replicas.sort_by_key(|it| natural(&it.replica));
        replicas.truncate(n);
        replicas.sort_by(|left, right| left.incarnation.cmp(&right.incarnation));
        let mut number = 0_usize;
        while replicas.len() < n {
            number += 1;
            let name = format!("new-{number}");
            if self.replica(&name).is_none() {
                replicas.push(Replica {
                    replica: ReplicaId::new(name.as_str()),
                    // After all others, which are UUIDs.
                    incarnation: Incarnation::new(format!("~{number:05}")),
                    capacity: 0,
                    retiring: false,
                    cordoned: false,
                    leaving: false,
                });
            }
        }
        Self {
            replicas,
            ..self.clone()
        }
    }

    fn moves_to(&self, owners: &[Option<&ReplicaId>]) -> Vec<Move> {
        let mut moves = Vec::new();
        for (shard, to) in self.shards.iter().zip(owners) {
            if let Some(to) = *to
                && shard.owner.as_ref() != Some(to)
            {
                moves.push(Move {
                    shard: shard.shard,
                    from: shard.owner.clone(),
                    to: to.clone(),
                    controllers: shard.controllers,
                    weight: shard.weight,
                });
            }
        }
        moves.sort_by_key(|it| (Reverse(it.weight), it.shard));
        moves
    }

    fn carried(&self) -> BTreeMap<&ReplicaId, Carried> {
        self.carried_by(self.shards.iter().map(|it| it.owner.as_ref()))
    }

    /// What each replica carries if these are the owners. One that has nothing counts too.
    fn carried_by<'a>(
        &'a self,
        owners: impl Iterator<Item = Option<&'a ReplicaId>>,
    ) -> BTreeMap<&'a ReplicaId, Carried> {
        let live = self.replicas.iter();
        let mut carried: BTreeMap<&ReplicaId, Carried> =
            live.map(|it| (&it.replica, Carried::default())).collect();
        for (shard, owner) in self.shards.iter().zip(owners) {
            if let Some(owner) = owner {
                let it = carried.entry(owner).or_default();
                it.shards += 1;
                it.controllers += shard.controllers;
                it.weight += shard.weight;
            }
        }
        self.take_percents(&mut carried);
        carried
    }

    fn take_percents(&self, carried: &mut BTreeMap<&ReplicaId, Carried>) {
        let capacity = |name: &ReplicaId| {
            let known = self.replica(name.as_str());
            u128::from(weight_of(known.map_or(0, |it| it.capacity)))
        };
        let has_weight = carried.values().any(|it| it.weight > 0);
        let load = |it: &Carried| {
            let shards = u64::from(it.shards);
            u128::from(if has_weight { it.weight } else { shards })
        };
        let total: u128 = carried.values().map(load).sum();
        let capacities: u128 = carried.keys().map(|it| capacity(it)).sum();
        for (replica, it) in carried {
            let percent = (load(it) * capacities * 100).checked_div(capacity(replica) * total);
            it.percent = u32::try_from(percent.unwrap_or(0)).unwrap_or(u32::MAX);
        }
    }

    /// The replicas that may be given something.
    fn staying(&self) -> impl Iterator<Item = &Replica> {
        self.replicas.iter().filter(|it| !it.leaving)
    }

    /// The planner's problem, with nothing that keeps it from solving it at once.
    pub(super) fn question(&self, level: Level) -> Question<'_> {
        let members: Vec<&Replica> = self.staying().collect();
        let number = |name: Option<&ReplicaId>| {
            let found = members.iter().position(|it| Some(&it.replica) == name)?;
            u16::try_from(found).ok().map(Ordinal)
        };
        let ordinals = (0..=u16::MAX).map(Ordinal).zip(&members);
        let pins = self.shards.iter().filter_map(|it| {
            let to = number(Some(it.pinned_to.as_ref()?))?;
            Some((it.shard, to))
        });
        let wishes = Wishes {
            cordoned: ordinals
                .filter(|(_, it)| it.cordoned)
                .map(|(it, _)| it)
                .collect(),
            pins: pins.collect(),
        };
        let current = Assignment {
            owners: self.shards.iter().map(|it| number(it.place())).collect(),
        };
        let problem = Problem {
            members: members.iter().map(|it| it.member()).collect(),
            shards: self.shards.iter().map(Shard::placed).collect(),
            budget: self.shards.len(),
            level,
        };
        Question {
            members,
            problem,
            wishes,
            current,
        }
    }
}

impl<'a> Question<'a> {
    /// The name of a member.
    pub(super) fn name(&self, member: Ordinal) -> Option<&'a ReplicaId> {
        let member = self.members.get(usize::from(member.0));
        member.map(|it| &it.replica)
    }
}

impl Replica {
    fn member(&self) -> Member {
        Member {
            replica: self.replica.clone(),
            capacity: self.capacity,
            retiring: self.retiring,
        }
    }
}

impl Shard {
    /// Where it counts: on its way, at its target.
    fn place(&self) -> Option<&ReplicaId> {
        let served = self.phase.is_none_or(Phase::is_served);
        let owner = self.owner.as_ref().filter(|_| served);
        let target = self.hand_over.as_ref().and_then(|it| it.to.as_ref());
        target.or(owner)
    }

    fn placed(&self) -> placement::Shard {
        placement::Shard {
            weight: self.weight,
            pinned: false,
            bytes: self.cached_bytes,
        }
    }
}

fn hottest(carried: &BTreeMap<&ReplicaId, Carried>) -> u32 {
    carried.values().map(|it| it.percent).max().unwrap_or(0)
}

/// Orders names as people count: `metashard-9` before `metashard-10`.
fn natural(name: &ReplicaId) -> (String, u64, String) {
    let text = name.as_str();
    let digits = text.bytes().rev().take_while(u8::is_ascii_digit).count();
    let (stem, number) = text.split_at(text.len() - digits);
    (
        stem.to_owned(),
        number.parse().unwrap_or(0),
        text.to_owned(),
    )
}
