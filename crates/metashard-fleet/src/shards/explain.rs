//! Why a shard is where it is, and who would be next.

use metashard_api::id::{ReplicaId, ShardId};
use serde::Serialize;

use super::{Shards, simulate::Question};
use crate::placement::{Assignment, Level, Ordinal, Problem, preferred, wishes::place_as_wished};

/// Why a shard is where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explained {
    /// Why its owner has it, or on its way the next one; absent: nobody has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The replicas that may have it, in the shard's order of preference.
    pub preference: Vec<ReplicaId>,
    /// Who would get it if its owner were lost now; absent: nobody is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<ReplicaId>,
}

/// Why an owner has a shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "because")]
pub enum Reason {
    /// A Placement pins it there.
    Pinned,
    /// Its owner is cordoned, and it has not gone yet.
    Cordoned,
    /// The shard prefers it to all others.
    Home,
    /// It came there once, and what has an owner stays: nothing is moved without a reason.
    Kept {
        /// Whom it prefers, and who could take it now.
        home: ReplicaId,
    },
    /// Whom it prefers would be above 1.05 of the mean with it, or has no room for its caches.
    Full {
        /// Whom it prefers.
        home: ReplicaId,
    },
}

impl Shards {
    /// Explains the place of one shard; `None`: there is no such shard.
    pub fn explain(&self, shard: ShardId) -> Option<Explained> {
        self.get(shard)?;
        let index = usize::from(shard.0);
        let question = self.question(Level::Rest);
        let open = preferred(&question.problem.members, shard).into_iter();
        let open: Vec<Ordinal> = open
            .filter(|it| !question.wishes.cordoned.contains(it))
            .collect();
        let owner = question.current.owners.get(index).copied().flatten();
        let mut others = self.clone();
        let lost = owner.and_then(|it| question.name(it));
        others.replicas.retain(|it| Some(&it.replica) != lost);
        let without = others.question(Level::Rest);
        let next = without.place_of(index, &without.current);
        Some(Explained {
            reason: owner.and_then(|owner| question.reason(shard, owner, &open)),
            preference: open
                .iter()
                .filter_map(|it| question.name(*it))
                .cloned()
                .collect(),
            next: next.and_then(|it| without.name(it)).cloned(),
        })
    }
}

impl Question<'_> {
    fn reason(&self, shard: ShardId, owner: Ordinal, open: &[Ordinal]) -> Option<Reason> {
        if self.wishes.pins.get(&shard) == Some(&owner) {
            return Some(Reason::Pinned);
        }
        if !open.contains(&owner) {
            return Some(Reason::Cordoned);
        }
        let home = *open.first()?;
        if home == owner {
            return Some(Reason::Home);
        }
        let index = usize::from(shard.0);
        let mut current = self.current.clone();
        if let Some(place) = current.owners.get_mut(index) {
            *place = None;
        }
        let can_take = self.place_of(index, &current) == Some(home);
        let home = self.name(home)?.clone();
        Some(if can_take {
            Reason::Kept { home }
        } else {
            Reason::Full { home }
        })
    }

    /// Where a shard is put if only those are placed that have no owner.
    fn place_of(&self, index: usize, current: &Assignment) -> Option<Ordinal> {
        let still = Problem {
            budget: 0,
            ..self.problem.clone()
        };
        let placed = place_as_wished(&still, &self.wishes, current);
        placed.assignment.owners.get(index).copied().flatten()
    }
}
