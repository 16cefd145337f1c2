//! Giving up shards and closing instances.

use std::{sync::Arc, time::Duration};

use metashard_api::names::event;
use metashard_fleet::message::{Claim, LastWritten};
use metashard_reconcile::object::compare_versions;
use tracing::{debug, info};

use super::{Ended, Host, Seat, SeatState};
use crate::{instance::Instance, shards::ShardEvent};

impl Host {
    /// Gives an ownership up: no new syncs, `grace` for those that run, then they are cancelled; then waits for what
    /// was sent. Told again with less grace, it hurries.
    pub(super) fn drain(&mut self, claim: Claim, grace: Duration) {
        let served = self.in_shard(claim.shard);
        for instance in &served {
            if grace.is_zero() {
                instance.cancel();
            } else {
                instance.hold();
            }
        }
        if !self.tenures.give_up(claim) {
            return;
        }
        let inherited = self.inherited.remove(&claim).unwrap_or_default();
        let context = Arc::clone(&self.context);
        self.tasks.spawn("drain", async move {
            let flows: Vec<_> = served.iter().map(|instance| instance.flow).collect();
            tokio::select! {
                () = context.dispatcher.idle(&flows) => {}
                () = context.clock.sleep(grace) => {}
            }
            for instance in &served {
                instance.cancel();
            }
            context.dispatcher.idle(&flows).await;
            let written = context.gate.drained(claim).await;
            Ended::Drained(claim, newest(inherited, written))
        });
    }

    /// Nothing of `claim` is under way any more.
    pub(super) async fn drained(&mut self, claim: Claim, last_written: Vec<LastWritten>) {
        debug!(shard = %claim.shard, epoch = %claim.epoch, "shard given up");
        self.tenures.gone(claim);
        self.settle_shard(claim.shard);
        self.tell(ShardEvent::Drained {
            claim,
            last_written,
        })
        .await;
    }

    /// Ends a controller's instance; when its last sync has ended, it is settled anew.
    pub(super) fn close(&mut self, seat: &Seat, changed: bool) {
        self.close_then(seat, changed, async {});
    }

    /// The same; before it is settled anew, `then` has to end too.
    pub(super) fn close_then(
        &mut self,
        seat: &Seat,
        changed: bool,
        then: impl Future<Output = ()> + Send + 'static,
    ) {
        let Some(instance) = self.open_instance(seat) else {
            return;
        };
        if changed && instance.is_running() {
            let name = &seat.name;
            info!(logger = instance.logger(), controller = %name.1, "controller stopped");
            let told = [event::STOPPING, event::STOPPED];
            for reason in told.into_iter().filter(|_| instance.cut.leads()) {
                let message = format!("{reason} controller: {}", name.1);
                self.tell_controller(name, false, reason, message);
            }
        }
        instance.close();
        self.set_state(seat, SeatState::Closing);
        let (context, seat) = (Arc::clone(&self.context), seat.clone());
        self.tasks.spawn("close", async move {
            context.dispatcher.idle(&[instance.flow]).await;
            then.await;
            Ended::Closed(seat)
        });
    }

    /// Closes instances whose resources are served in another way by now: another scope, kind or set of subresources.
    pub(super) fn close_outdated(&mut self) {
        let outdated: Vec<_> = self
            .open_seats()
            .filter(|(seat, instance)| {
                self.is_outdated(instance) || self.finds_other_kinds(&seat.name, instance)
            })
            .map(|(seat, _)| seat)
            .collect();
        for seat in outdated {
            self.close(&seat, true);
        }
    }

    /// A resource that is not served at all at the moment may come back as it was; its caches tell of it.
    fn is_outdated(&self, instance: &Instance) -> bool {
        instance.views().any(|view| {
            let resource = view.key().resource();
            self.context
                .discovery
                .lookup(&resource.api_version(), &resource.plural)
                .is_some_and(|served| served != *resource)
        })
    }
}

/// For each resource, the newest version of both.
fn newest(mut all: Vec<LastWritten>, more: Vec<LastWritten>) -> Vec<LastWritten> {
    for written in more {
        match all.iter_mut().find(|it| it.resource == written.resource) {
            Some(known) => {
                let order = compare_versions(&written.resource_version, &known.resource_version);
                if order.is_none_or(std::cmp::Ordering::is_gt) {
                    *known = written;
                }
            }
            None => all.push(written),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(resource: &str, version: &str) -> LastWritten {
        LastWritten {
            resource: resource.to_owned(),
            resource_version: version.to_owned(),
        }
    }

    #[test]
    fn the_newest_version_of_each_resource_is_handed_on() {
        let inherited = vec![written("v1/secrets", "90"), written("v1/configmaps", "100")];
        let ours = vec![written("v1/configmaps", "99"), written("v1/secrets", "101")];

        let newest = newest(inherited, ours);

        assert_eq!(
            newest,
            [
                written("v1/secrets", "101"),
                written("v1/configmaps", "100")
            ]
        );
    }
}
