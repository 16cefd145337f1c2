//! Whether a controller acts, only observes, or rests.

use metashard_api::names::{ANNOTATION_MIGRATION, ANNOTATION_OBSERVE};
use metashard_reconcile::object::Object;

use super::{Host, Seat};
use crate::instance::Instance;

/// How a controller is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// What its hooks ask for is written.
    Act,
    /// Its hooks are called, and nothing is written.
    Observe,
    /// Not at all: a Metacontroller may act, and nobody asked for it to be observed.
    Rest,
}

impl Host {
    /// How a controller is to be served: as all that this process serves, by its annotations, or by the move that it is
    /// part of.
    pub(super) fn mode(&self, object: &Object) -> Mode {
        let annotation = object.annotation(ANNOTATION_OBSERVE);
        if self.context.gate.observes() || annotation.is_some_and(|value| value == "true") {
            Mode::Observe
        } else if !*self.context.hold.borrow() {
            Mode::Act
        } else if object.annotation(ANNOTATION_MIGRATION).is_some() {
            Mode::Observe
        } else {
            Mode::Rest
        }
    }

    /// Whether an open controller has to be opened anew to be served as it is to be.
    pub(super) fn is_in_another_mode(&self, instance: &Instance, object: &Object) -> bool {
        let is = if instance.gate.observes() {
            Mode::Observe
        } else {
            Mode::Act
        };
        let begins_trial =
            instance.trial.is_none() && object.annotation(ANNOTATION_MIGRATION).is_some();
        is != self.mode(object) || begins_trial
    }

    /// Ends an instance so that none of its writes is under way any more when the next one begins: that one may say that
    /// it only observes.
    pub(super) fn close_quietly(&mut self, seat: &Seat) {
        let Some(instance) = self.open_instance(seat) else {
            return;
        };
        let claim = self.tenures.acting(instance.shard);
        let acted = claim.filter(|_| !instance.gate.observes());
        let gate = self.context.gate.clone();
        self.close_then(seat, true, async move {
            if let Some(claim) = acted {
                gate.quiet(claim).await;
            }
        });
    }
}
