//! How long an answer of the customize hook counts.

use std::time::Duration;

use metashard_fleet::time::MonoTime;
use metashard_runtime::fault;

use crate::instance::ParentState;

/// How long an answer of the customize hook counts at most, as the peer has it: it may be about more than the parent.
const CUSTOMIZED_FOR: Duration = Duration::from_mins(20);

/// An answer of the customize hook that has counted for so long does not any more.
pub(super) fn forget_old(state: &mut ParentState, now: MonoTime) {
    let limit = fault::number("customized-for").map_or(CUSTOMIZED_FOR, Duration::from_secs);
    let is_old = |at: MonoTime| now.since(at) >= limit;
    if state.customized_at.is_some_and(is_old) {
        state.memory.forget_customized();
    }
}
