//! Records of controllers with a finalize hook, before their first sync: people are told what stands in the way of one, and
//! it is tried again while the controller is served without it.

use std::{sync::Arc, time::Duration};

use metashard_api::names::event;
use metashard_fleet::message::Claim;
use metashard_kube::events;
use metashard_reconcile::{object::Object, sync::Refused};
use metashard_runtime::task;

use crate::{context::Context, instance::Instance, ledger::Ledger};

/// Between two attempts at a record that was refused: a right that is granted is noticed within 10 s.
const RETRY: Duration = Duration::from_secs(5);

/// The record of one controller.
pub(super) struct Recording {
    pub(super) context: Arc<Context>,
    pub(super) ledger: Arc<Ledger>,
    /// The controller object, for events.
    pub(super) object: Arc<Object>,
}

impl Recording {
    /// Sees to it that there is a record, or tells that there is none and goes on trying. It comes back in either case.
    pub(super) async fn keep(self, instance: &Arc<Instance>, claim: Claim) {
        let refused = self
            .ledger
            .keep(&self.context, &instance.controller, claim)
            .await;
        let Some(refused) = refused else {
            instance.troubles.lock().set_record(None);
            return;
        };
        self.tell(&refused);
        instance.troubles.lock().set_record(Some(refused));
        let weak = Arc::downgrade(instance);
        task::spawn("record", async move {
            loop {
                self.context.clock.sleep(RETRY).await;
                // Who gets the right to act back, or another, begins anew.
                let may_act = self.context.authority(claim).is_some();
                let Some(instance) = weak.upgrade().filter(|_| may_act) else {
                    return;
                };
                let controller = &instance.controller;
                let refused = self.ledger.keep(&self.context, controller, claim).await;
                let is_kept = refused.is_none();
                instance.troubles.lock().set_record(refused);
                if is_kept {
                    return;
                }
            }
        });
    }

    fn tell(&self, refused: &Refused) {
        let told = events::Event {
            is_warning: true,
            reason: event::SYNC_ERROR.into(),
            message: format!(
                "Sync error: {}: {}; without this record, if the controller is deleted while no replica runs, its finalizer stays on parents",
                refused.write, refused.error
            ),
        };
        let about = Arc::new(events::About::object(&self.object));
        self.context.recorder.record(&about, &told);
    }
}
