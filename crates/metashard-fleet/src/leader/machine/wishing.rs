//! What people ask: kept by every candidate, so that a new leader knows it at once.

use super::Leader;
use crate::{time::Now, wishes::Wishes};

impl Leader {
    /// Takes what people ask now.
    pub(super) fn wish(&mut self, now: Now, wishes: Wishes) {
        let before = std::mem::replace(&mut self.wishes, wishes);
        if before == self.wishes {
            return;
        }
        if let Some((coordinator, tools)) = self.coordinating() {
            coordinator.wishes_changed(now, &before, &tools);
        }
    }

    /// Takes whether the last status of the Placement was written.
    pub(super) fn wishes_told(&mut self, is_told: bool) {
        if let Some((coordinator, _)) = self.coordinating() {
            coordinator.wishes_told(is_told);
        }
    }
}
