//! Certificates and credentials of hooks: new ones are put into use, and people are told of trouble with them.

use metashard_api::names::event;
use tracing::warn;

use super::{Host, Seat};

impl Host {
    /// Puts what is new of a controller into use.
    pub(super) fn secure(&self, seat: &Seat) {
        let Some(instance) = self.open_instance(seat) else {
            return;
        };
        let Some(security) = instance.hooks.security() else {
            return;
        };
        security.settle(instance.hooks.endpoints());
        // Only the one who serves it tells.
        if self.tenures.acting(instance.shard).is_none() || !instance.cut.leads() {
            return;
        }
        let name = &seat.name;
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
        for (seat, instance) in self.open_seats() {
            let name = &seat.name;
            let Some(security) = instance.hooks.security() else {
                continue;
            };
            if self.tenures.acting(instance.shard).is_none() || !instance.cut.leads() {
                continue;
            }
            for message in security.expiries(instance.hooks.endpoints(), wall) {
                warn!(controller = %name.1, message, "a hook's certificate ends soon");
                self.tell_controller(name, true, event::CERTIFICATE_EXPIRES, message);
            }
        }
    }
}
