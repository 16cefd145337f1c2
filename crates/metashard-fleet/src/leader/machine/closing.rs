//! The end of the process: a leader first gives away what has become free.

use std::time::Duration;

use super::Leader;
use crate::{election, leader::Action, time::Now};

/// Longest time that a leader that ends goes on for the sake of shards that are about to become free: those that its
/// own worker has just released would otherwise wait for the next leader.
const CLOSING: Duration = Duration::from_millis(1_500);

impl Leader {
    /// Gives up the lead as soon as nothing is left undone.
    pub(super) fn begin_to_close(&mut self, now: Now) {
        self.closing.get_or_insert(now.mono + CLOSING);
    }

    /// Gives up the lead, or the candidacy, for good, if it is time to.
    pub(super) fn close(&mut self, now: Now, out: &mut Vec<Action>) {
        let Some(until) = self.closing else {
            return;
        };
        let may_go_on = self.election.may_lead(now) && now.mono < until;
        let has_work = self
            .coordinating()
            .is_some_and(|(coordinator, tools)| !coordinator.is_at_rest(&tools));
        if !(may_go_on && has_work) {
            self.closing = None;
            self.elect(now, election::Input::ShutdownAsked, out);
        }
    }
}
