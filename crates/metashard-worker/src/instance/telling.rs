//! What people are told of a controller's parents.

use std::sync::Arc;

use metashard_api::names::reason;
use metashard_kube::events;
use metashard_reconcile::{object::Object, sync::Event};
use tracing::error;

use super::Instance;
use crate::{conditions::Part, key::ParentKey};

impl Instance {
    /// A sync panicked: people are told, as the key is tried again with a growing delay.
    pub(crate) fn panicked(&self, key: &ParentKey) {
        error!(controller = %self.controller.name, %key, "sync panicked");
        self.context.metrics.panicked(self);
        let text = format!(
            "the sync of {key} panicked, and is tried again with a growing delay; this is an error of metashard, please report it with the log"
        );
        self.set_hook_health(Part::bad(reason::PANICKED, text));
    }

    /// Records an event on a parent, unless all that is written is only observed.
    pub(crate) fn tell(&self, parent: &Object, event: &Event) {
        if self.gate.observes() {
            return;
        }
        let event = events::Event {
            is_warning: event.is_warning,
            reason: event.reason.clone(),
            message: event.message.clone(),
        };
        let about = Arc::new(events::About::object(parent));
        self.context.recorder.record(&about, &event);
    }
}
