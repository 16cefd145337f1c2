//! The rules of safety as switches, so that a model can show that each of them is needed.

use serde::{Deserialize, Serialize};

/// A rule that a mutant of the machines breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Rule {
    /// A holder's deadline counts from the sending of the confirmed write, not from its answer's receipt.
    DeadlineFromSending,
    /// A holder's deadline lies before the end of the duration that it wrote.
    DeadlineWithinDuration,
    /// A renewal replaces exactly the record that it names by resourceVersion.
    RenewByVersion,
    /// A renewal names the uid too, so that it cannot make a deleted Lease anew.
    RenewByUid,
    /// Only who could write all the while may judge that another's claim has ended.
    JudgeWhileRenewing,
    /// What was released or lost is never held again at that epoch.
    Tombstones,
    /// A release is told only when the gate is closed and nothing is in flight.
    ReleaseWhenDrained,
    /// A new ownership starts only when the older one of the same shard is over.
    StartWhenDrained,
    /// A map with a lower (term, seq) changes nothing.
    NewestMap,
    /// An order of a lower term than the map's is refused.
    NewestTerm,
    /// The next incarnation joins only when nothing of the last one is in flight.
    RejoinWhenDrained,
    /// The lead is released only when the coordinator has stopped.
    ReleaseWhenStopped,
    /// A term is a leader's own only if the map names its incarnation.
    TermNamesLeader,
    /// Nobody is told of an epoch that is not in the map.
    TableFirst,
    /// A shard gets a new owner only when the old one released it, or is fenced, evicted or gone.
    ProofBeforeOwner,
    /// `fenced` is written over exactly the record whose claim has ended.
    FenceByVersion,
    /// `evicted` proves nothing before its duration has passed.
    EvictionWaits,
    /// A map is written over exactly the state that it was made from.
    MapByVersion,
    /// A map splits a controller otherwise only when all shards concerned are released, and gives each a new epoch.
    SplitWhenReleased,
    /// An ownership starts only when a map was seen that says which parents belong to it.
    CutOfItsMap,
    /// Nothing is moved for its cost before every worker has told of costs.
    CostsKnown,
    /// A replica that was lost several times waits for its share.
    FlapsWait,
    /// A shard that was moved twice within ten minutes is let be.
    RestlessStay,
    /// What a roll-out replaces gets nothing that the new ones can take.
    NewestFirst,
    /// A replica that is cordoned gets nothing, and hands over what it has.
    CordonedGetNothing,
    /// What people ask to be moved is moved by a share at a time.
    AskedByShares,
}

/// Which rules a machine keeps: all of them, except in a model of a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Rules {
    broken: Option<Rule>,
}

impl Rules {
    /// All rules but one: a mutant.
    #[cfg(any(test, feature = "mutants"))]
    pub const fn breaking(rule: Rule) -> Self {
        Self { broken: Some(rule) }
    }

    /// Whether `rule` holds.
    pub fn keep(self, rule: Rule) -> bool {
        self.broken != Some(rule)
    }
}
