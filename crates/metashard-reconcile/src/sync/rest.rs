//! Parents that rest: nothing is done for them until they are deleted, or wake up.

use metashard_api::names::{ANNOTATION_PAUSED, event};

use super::{Step, SyncMachine};
use crate::{
    controller::Controller,
    object::Object,
    outcome::{Event, Verdict},
    requeue::Requeue,
};

/// Whether a parent rests, by its annotation. A deletion is honoured all the same: what holds it is the finalizer that we
/// put there.
pub(super) fn is_paused(controller: &Controller, parent: &Object) -> bool {
    let is_asked = parent
        .annotation(ANNOTATION_PAUSED)
        .is_some_and(|value| value == "true");
    let is_held = controller.finalize.is_some() || parent.has_finalizer(&controller.finalizer);
    is_asked && !(parent.is_deleting() && is_held)
}

impl SyncMachine {
    /// Ends a pass over a parent that rests, and says so the first time.
    pub(super) fn rest(&mut self) -> Step {
        if !std::mem::replace(&mut self.memory.paused, true) {
            let text = format!(
                "paused by annotation {ANNOTATION_PAUSED}: no hook is called and nothing is written until it is removed"
            );
            self.report.events.push(Event::note(event::PAUSED, text));
        }
        self.done(Verdict::Paused, Requeue::Await)
    }

    /// Says that a parent rests no longer, if it did.
    pub(super) fn wake(&mut self) {
        if std::mem::take(&mut self.memory.paused) {
            let text = format!("annotation {ANNOTATION_PAUSED} is removed: synced again");
            self.report.events.push(Event::note(event::RESUMED, text));
        }
    }
}
