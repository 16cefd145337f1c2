//! What people ask: kept by every candidate, so that a new leader knows it at once.

use super::{Lead, Leader};
use crate::{leader::coordinator::Tools, time::Now, wishes::Wishes};

impl Leader {
    /// Takes what people ask now.
    pub(super) fn wish(&mut self, now: Now, wishes: Wishes) {
        let before = std::mem::replace(&mut self.wishes, wishes);
        if before == self.wishes {
            return;
        }
        if let Lead::Coordinating(coordinator) = &mut self.lead {
            let tools = Tools {
                config: &self.config,
                membership: &mut self.membership,
                table: &mut self.table,
                controllers: &self.controllers,
                asked: self.asked.as_deref(),
                merge_after: self.merge_after,
                turnover: &self.turnover,
                wishes: &self.wishes,
            };
            coordinator.wishes_changed(now, &before, &tools);
        }
    }

    /// Takes whether the last status of the Placement was written.
    pub(super) fn wishes_told(&mut self, is_told: bool) {
        if let Lead::Coordinating(coordinator) = &mut self.lead {
            coordinator.wishes_told(is_told);
        }
    }
}
