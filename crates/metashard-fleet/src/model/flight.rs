//! Requests under way between a process and the API server.

/// One request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Flight<R, A> {
    /// The process that sent it.
    pub(super) from: usize,
    /// On that process's monotonic clock, in ticks.
    pub(super) sent: u8,
    pub(super) request: R,
    pub(super) stage: Stage<A>,
    /// Its sender has given up waiting.
    pub(super) abandoned: bool,
}

/// How far a request has come.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Stage<A> {
    /// It is carried out, and answered, before the next tick.
    Prompt,
    /// It is carried out at some time, or never.
    Slow,
    /// It is carried out; its answer arrives at some time, or never.
    Answered(A),
}

impl<R, A> Flight<R, A> {
    /// A request that `from` sends now.
    pub(super) fn new(from: usize, sent: u8, request: R) -> Self {
        Self {
            from,
            sent,
            request,
            stage: Stage::Prompt,
            abandoned: false,
        }
    }
}
