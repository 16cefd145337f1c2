//! Certificates and credentials of hooks: new ones are put into use, and people are told of trouble with them.

use metashard_api::names::event;
use tracing::warn;

use super::{Host, SlotState};
use crate::catalog::ControllerName;

impl Host {
    /// Puts what is new of a controller into use.
    pub(super) fn secure(&self, name: &ControllerName) {
        let Some(instance) = self.open_instance(name) else {
            return;
        };
        let Some(security) = instance.hooks.security() else {
            return;
        };
        security.settle(instance.hooks.endpoints());
        // Only the one who serves it tells.
        if self.tenures.acting(instance.shard).is_none() {
            return;
        }
        let Some(trouble) = security.news() else {
            return;
        };
        warn!(controller = %name.1, why = trouble.message, "certificates or credentials of a hook cannot be used");
        if trouble.is_ready {
            let message = trouble.in_use();
            self.tell_controller(name, true, event::ENDPOINT_NOT_RESOLVED, message);
        } else {
            let message = format!("Cannot create new controller: {}", trouble.message);
            self.tell_controller(name, true, event::CREATE_ERROR, message);
            self.report(name);
        }
    }

    /// Tells of certificates that end soon.
    pub(super) fn look_at_certificates(&self) {
        let wall = self.context.clock.wall();
        for name in self.secured() {
            let Some(instance) = self.open_instance(&name) else {
                continue;
            };
            let Some(security) = instance.hooks.security() else {
                continue;
            };
            if self.tenures.acting(instance.shard).is_none() {
                continue;
            }
            for message in security.expiries(instance.hooks.endpoints(), wall) {
                warn!(controller = %name.1, message, "a hook's certificate ends soon");
                self.tell_controller(&name, true, event::CERTIFICATE_EXPIRES, message);
            }
        }
    }

    /// The open controllers whose hooks have certificates or credentials of their own.
    fn secured(&self) -> Vec<ControllerName> {
        self.slots
            .iter()
            .filter(|(_, slot)| {
                matches!(&slot.state, SlotState::Open(instance) if instance.hooks.security().is_some())
            })
            .map(|(name, _)| name.clone())
            .collect()
    }
}
