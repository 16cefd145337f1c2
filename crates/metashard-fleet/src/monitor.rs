//! The invariants, watched in every replica while its machines run: what one replica can see of them.
//!
//! A monitor believes nothing that the machine beside it believes. It looks at what that was told and at what it does, keeps
//! its own account, and says which invariant is broken at the moment when that begins. What is broken here is a bug, or
//! somebody's hand in the ShardMap or in a Lease.

mod leader;
mod maps;
#[cfg(test)]
mod tests;
mod worker;

use std::{collections::BTreeSet, time::Duration};

pub use self::{leader::LeaderMonitor, worker::WorkerMonitor};
use crate::invariants::Invariant;

/// What the two monitors can see.
pub const SEEN: [Invariant; 9] = [
    Invariant::Exclusive,
    Invariant::EpochMonotonic,
    Invariant::OneTerm,
    Invariant::TableFirst,
    Invariant::NoResurrection,
    Invariant::Coverage,
    Invariant::BoundedMove,
    Invariant::OneLeader,
    Invariant::OutageFencesNobody,
];

/// A shard may be without an owner for two durations of Leases, and so much more, while all is well.
const HAND_OVER: Duration = Duration::from_secs(5);

/// Says of what is broken what was not broken before.
#[derive(Debug, Default)]
struct Begun(BTreeSet<Invariant>);

impl Begun {
    fn of(&mut self, broken: BTreeSet<Invariant>) -> BTreeSet<Invariant> {
        let begun = broken.difference(&self.0).copied().collect();
        self.0 = broken;
        begun
    }
}
