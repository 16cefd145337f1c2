//! A process that may stand still.

/// Whether a process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Run {
    Running,
    /// It stands still, its machine runs on.
    Paused,
    /// Its machine is suspended.
    Suspended,
}

/// What a process that goes on does first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum First {
    /// It takes the answers that have come.
    Answers,
    /// It does what is overdue.
    Timers,
}
