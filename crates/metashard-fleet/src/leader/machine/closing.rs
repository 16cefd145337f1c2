//! The end of the process: a leader first gives away what has become free.

use std::time::Duration;

use super::{Lead, Leader};
use crate::{
    election,
    leader::{Action, coordinator::Tools},
    time::Now,
};

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
        let has_work = match &self.lead {
            Lead::Coordinating(coordinator) => !coordinator.is_at_rest(&Tools {
                config: &self.config,
                membership: &mut self.membership,
                table: &mut self.table,
                controllers: &self.controllers,
                asked: self.asked.as_deref(),
                merge_after: self.merge_after,
                turnover: &self.turnover,
                wishes: &self.wishes,
            }),
            Lead::Idle | Lead::Acquiring { .. } | Lead::Recovering(_) => false,
        };
        if !(may_go_on && has_work) {
            self.closing = None;
            self.elect(now, election::Input::ShutdownAsked, out);
        }
    }
}
