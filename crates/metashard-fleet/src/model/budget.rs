//! How many disturbances of each kind one history may have.

/// What may still go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Budget {
    /// Requests, answers and watches that are slow; one that is slow for ever is lost.
    pub(super) slow: u8,
    /// Processes that stop for a while, or for ever.
    pub(super) pauses: u8,
    /// Machines that are suspended for a while: their monotonic clocks stand still.
    pub(super) suspends: u8,
    /// Times in which no request is carried out.
    pub(super) outages: u8,
    /// Leases that somebody deletes.
    pub(super) deletions: u8,
    /// Leaders that give up the lead.
    pub(super) step_downs: u8,
    /// Workers that are told to end.
    pub(super) leaves: u8,
    /// Writes of a child.
    pub(super) writes: u8,
    /// Controllers that are to be split.
    pub(super) splits: u8,
}

/// Nothing goes wrong.
pub(super) const NONE: Budget = Budget {
    slow: 0,
    pauses: 0,
    suspends: 0,
    outages: 0,
    deletions: 0,
    step_downs: 0,
    leaves: 0,
    writes: 0,
    splits: 0,
};

/// Takes one from `count`, if there is one.
pub(super) fn spend(count: &mut u8) -> bool {
    let left = count.checked_sub(1);
    *count = left.unwrap_or(0);
    left.is_some()
}
