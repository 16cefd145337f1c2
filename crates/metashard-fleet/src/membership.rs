//! Who is a worker and who was: derived from the workers' Leases, never from their sessions.

/// What a worker's Lease says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// It holds its Lease.
    Joined,
    /// Its claim has ended as far as we have seen; it is not fenced yet.
    Silent,
    /// It wrote an empty holder: it has released all that it held.
    Released,
    /// A leader wrote `fenced`.
    Fenced,
    /// A leader wrote `evicted`, and its duration has not passed yet.
    Evicting,
    /// A leader wrote `evicted`, and its duration has passed.
    Evicted,
    /// Its Lease is missing, and the wait for it is not over.
    Missing,
    /// Its Lease was still missing after the wait, in a quorum read.
    Gone,
    /// Somebody else has written another holder into its Lease.
    Taken,
}
