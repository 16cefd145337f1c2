//! What must hold of a fleet at all times, as predicates over plain facts: used by tests, by the models, by checkers of
//! recorded histories and in `debug_assert!`.
//!
//! Nothing here knows a machine, a clock or an API object; who uses it says what it has observed. `W` names a worker's
//! incarnation, or a candidate's.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use metashard_api::id::{Epoch, Seq, ShardId, Term};

use crate::message::Claim;

/// An invariant that can be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// I1: no two workers may act for one shard at once, nor for one parent.
    Exclusive,
    /// I2: no write of an older epoch is applied to an object after one of a newer epoch.
    WriteInEpoch,
    /// I3: epochs of a shard only grow, and each new owner has a new one.
    EpochMonotonic,
    /// I4: terms only grow, and each belongs to one leader; maps are ordered by (term, seq).
    OneTerm,
    /// I5: nobody acts on an epoch that no map has given it.
    TableFirst,
    /// I6: what an incarnation released or lost it never holds again at that epoch.
    NoResurrection,
    /// I7: with the API server and a worker up for a while, every shard has an owner that acts.
    Coverage,
    /// I8: the first sync of an epoch reads a cache at least as new as the predecessor's last write.
    FreshCache,
    /// I9: no shard is moved for balance twice within its cool-down, and a change of members moves few.
    BoundedMove,
    /// I11: without a coordinator no shard changes its owner.
    StaticStability,
    /// I13: what is released has nothing in flight.
    HonestRelease,
    /// L1: at most one candidate is inside its own acting deadline.
    OneLeader,
    /// O1: nobody is fenced who had not a whole duration in which writes worked.
    OutageFencesNobody,
}

/// A worker's hold on one ownership of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hold<W> {
    /// The ownership.
    pub claim: Claim,
    /// Who holds it.
    pub worker: W,
}

/// The fleet at one instant. What nobody has observed stays empty.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct World<W> {
    /// What workers may act for at this instant, by the rules that they follow themselves.
    pub acting: BTreeSet<Hold<W>>,
    /// Which parents that is: names that are unique among all controllers, each with who may act for it.
    pub parents: BTreeSet<(Box<str>, W)>,
    /// Writes that were sent and that the API server may still carry out.
    pub in_flight: BTreeSet<Hold<W>>,
    /// Every ownership that any map so far has shown.
    pub published: BTreeSet<Hold<W>>,
    /// Every release that was told so far.
    pub released: BTreeSet<Hold<W>>,
    /// The highest epoch of each shard that a worker has released or lost so far.
    pub given_up: BTreeMap<(W, ShardId), Epoch>,
    /// Candidates whose coordinator has not stopped and is inside its acting deadline.
    pub leading: BTreeSet<W>,
}

/// The ShardMap at one instant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Table<W> {
    /// Its term.
    pub term: Term,
    /// Its number within the term.
    pub seq: Seq,
    /// The leader that wrote it.
    pub leader: Option<W>,
    /// Owner and epoch of each shard.
    pub shards: Vec<(Option<W>, Epoch)>,
}

/// A write that the API server has carried out.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Applied<O> {
    /// The object; made anew under the same name it is the same one here.
    pub object: O,
    /// The epoch of the shard that it was made for.
    pub epoch: Epoch,
    /// What it did.
    pub verb: Verb,
}

/// What a write does, as far as the order of epochs is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// Makes an object that does not exist.
    Create,
    /// Changes it.
    Change,
    /// Deletes it.
    Delete,
}

impl Invariant {
    /// Its short name.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Exclusive => "I1",
            Self::WriteInEpoch => "I2",
            Self::EpochMonotonic => "I3",
            Self::OneTerm => "I4",
            Self::TableFirst => "I5",
            Self::NoResurrection => "I6",
            Self::Coverage => "I7",
            Self::FreshCache => "I8",
            Self::BoundedMove => "I9",
            Self::StaticStability => "I11",
            Self::HonestRelease => "I13",
            Self::OneLeader => "L1",
            Self::OutageFencesNobody => "O1",
        }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {self:?}", self.id())
    }
}

impl<W> Default for World<W> {
    fn default() -> Self {
        Self {
            acting: BTreeSet::new(),
            parents: BTreeSet::new(),
            in_flight: BTreeSet::new(),
            published: BTreeSet::new(),
            released: BTreeSet::new(),
            given_up: BTreeMap::new(),
            leading: BTreeSet::new(),
        }
    }
}

impl<W: Ord + Clone> World<W> {
    /// The invariants that this instant breaks.
    pub fn broken(&self) -> BTreeSet<Invariant> {
        let checks = [
            (Invariant::Exclusive, self.is_exclusive()),
            (Invariant::TableFirst, self.is_table_first()),
            (Invariant::NoResurrection, self.is_without_resurrection()),
            (Invariant::HonestRelease, self.is_honest_about_releases()),
            (Invariant::OneLeader, self.has_at_most_one_leader()),
        ];
        checks
            .into_iter()
            .filter(|(_, holds)| !holds)
            .map(|(invariant, _)| invariant)
            .collect()
    }

    /// I1.
    pub fn is_exclusive(&self) -> bool {
        // Sorted by shard first, so two of one shard are neighbours.
        let mut shards = self.acting.iter().zip(self.acting.iter().skip(1));
        let mut parents = self.parents.iter().zip(self.parents.iter().skip(1));
        shards.all(|(one, next)| one.claim.shard != next.claim.shard || one.worker == next.worker)
            && parents.all(|(one, next)| one.0 != next.0)
    }

    /// I5.
    pub fn is_table_first(&self) -> bool {
        self.acting.is_subset(&self.published)
    }

    /// I6.
    pub fn is_without_resurrection(&self) -> bool {
        self.acting.iter().all(|hold| {
            let given_up = self.given_up.get(&(hold.worker.clone(), hold.claim.shard));
            given_up.is_none_or(|epoch| *epoch < hold.claim.epoch)
        })
    }

    /// I13.
    pub fn is_honest_about_releases(&self) -> bool {
        self.released.is_disjoint(&self.in_flight)
    }

    /// L1.
    pub fn has_at_most_one_leader(&self) -> bool {
        self.leading.len() <= 1
    }
}

impl<W: Eq> Table<W> {
    /// The invariants that the step from `self` to `next` breaks.
    pub fn broken_by(&self, next: &Self, any_coordinator: bool) -> BTreeSet<Invariant> {
        let checks = [
            (Invariant::EpochMonotonic, self.epochs_grow(next)),
            (Invariant::OneTerm, self.terms_grow(next)),
            (
                Invariant::StaticStability,
                any_coordinator || self.has_same_owners(next),
            ),
        ];
        checks
            .into_iter()
            .filter(|(_, holds)| !holds)
            .map(|(invariant, _)| invariant)
            .collect()
    }

    /// I3.
    pub fn epochs_grow(&self, next: &Self) -> bool {
        let mut pairs = self.shards.iter().zip(&next.shards);
        self.shards.len() <= next.shards.len()
            && pairs.all(|((owner, epoch), (next_owner, next_epoch))| {
                epoch < next_epoch
                    || epoch == next_epoch && (next_owner.is_none() || owner == next_owner)
            })
    }

    /// I4.
    pub fn terms_grow(&self, next: &Self) -> bool {
        if self == next {
            return true;
        }
        (self.term, self.seq) < (next.term, next.seq)
            && (self.term < next.term || self.leader == next.leader)
    }

    /// I11, for a step while no coordinator runs.
    pub fn has_same_owners(&self, next: &Self) -> bool {
        self.shards == next.shards
    }
}

/// I2, of writes in the order in which the API server carried them out.
///
/// A create after a delete may be of an older epoch: it makes another object, and overwrites nothing.
pub fn are_in_epoch<O: Ord>(writes: impl IntoIterator<Item = Applied<O>>) -> bool {
    let mut newest: BTreeMap<O, Epoch> = BTreeMap::new();
    writes.into_iter().all(|write| {
        let is_late = newest
            .get(&write.object)
            .is_some_and(|epoch| write.epoch < *epoch);
        match write.verb {
            Verb::Delete if !is_late => {
                newest.remove(&write.object);
            }
            Verb::Create | Verb::Change if !is_late => {
                newest.insert(write.object, write.epoch);
            }
            Verb::Create | Verb::Change | Verb::Delete => {}
        }
        !is_late
    })
}

/// I7, once all has been well for long enough: each of `n_shards` shards has an owner that acts.
pub fn are_covered<W>(acting: &BTreeSet<Hold<W>>, n_shards: u16) -> bool {
    let shards: BTreeSet<ShardId> = acting.iter().map(|hold| hold.claim.shard).collect();
    (0..n_shards).all(|shard| shards.contains(&ShardId(shard)))
}

/// I8, of resourceVersions: what a cache shows, and the predecessor's last write.
pub fn is_fresh(cache: u64, last_write: u64) -> bool {
    cache >= last_write
}

/// O1: a claim of `duration` was ended when the API server had last worked for `worked` without a break.
pub fn had_its_duration(worked: Duration, duration: Duration) -> bool {
    worked >= duration
}
