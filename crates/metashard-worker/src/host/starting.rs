//! Opening and starting instances.

use std::sync::Arc;

use bytes::Bytes;
use metashard_api::{
    id::{ControllerKind, ShardId},
    names::{event, reason},
    v1alpha1::composite::CompositeController,
};
use metashard_fleet::{message::Claim, shard::Cut, worker::Freshness};
use metashard_kube::identity::Identity;
use metashard_reconcile::{
    controller::{Controller, Edition},
    object::Object,
};
use serde::de::DeserializeOwned;
use tracing::{error, info, warn};

use super::{Ended, Host, Seat, SeatState, WARM_FOR, mode::Mode, recording::Recording};
use crate::{
    catalog::ControllerName,
    conditions::Part,
    hooks::Hooks,
    instance::{CacheAge, Instance, logger},
    shards::ShardEvent,
    trial::{self, Trial},
};

impl Host {
    /// Fills the caches of a shard that may come here.
    pub(super) fn warm(&mut self, shard: ShardId) {
        self.tenures.warm(shard, self.context.clock.now().mono);
        self.settle_shard(shard);
        let instances = self.in_shard(shard);
        self.tasks.spawn("warm", async move {
            for instance in instances {
                instance.listed_or_failing().await;
            }
            Ended::Warmed(shard)
        });
    }

    /// Lets go of caches for hand-overs that did not come, and of those that no rule asks for any more.
    pub(super) fn cool(&mut self) {
        let now = self.context.clock.now().mono;
        for shard in self.tenures.cool(now, WARM_FOR) {
            self.settle_shard(shard);
        }
        for related in self.open_instances().filter_map(|it| it.related.as_ref()) {
            related.cool(now);
        }
    }

    /// Serves an ownership.
    ///
    /// It counts as fresh at once: each controller waits for its own caches before its first sync, so that one whose
    /// kind is slow to list, or cannot be listed, holds up no other.
    pub(super) async fn start(&mut self, claim: Claim, freshness: Freshness) {
        if let Freshness::Released(last_written) = &freshness {
            self.inherited.insert(claim, last_written.clone());
        }
        self.tenures.own(claim, freshness);
        self.context.gate.open(claim);
        self.settle_shard(claim.shard);
        self.tell(ShardEvent::Fresh { claim }).await;
    }

    /// Opens the caches of a controller, or says why it cannot run.
    pub(super) fn open(&mut self, seat: &Seat, object: &Arc<Object>, cut: Cut) {
        let name = &seat.name;
        let began = self.context.clock.now().mono;
        let mode = self.mode(object);
        let compiled = match mode {
            Mode::Rest => Err(Part::bad(reason::HELD, trial::held())),
            Mode::Act | Mode::Observe => self.compile(name, object),
        };
        let took = self.context.clock.now().mono.since(began);
        let metrics = &self.context.metrics.controllers;
        metrics.taken_in(name.0, compiled.is_ok(), took.as_secs_f64());
        match compiled {
            Ok((controller, mut hooks)) => {
                hooks.follow(&Identity::process(), &self.catalog.marker(name));
                let gate = match mode {
                    Mode::Act => self.context.gate.clone(),
                    Mode::Observe | Mode::Rest => self.context.gate.observing(),
                };
                // What once held parents may hold some that it does not select any more.
                let holds = controller.finalizes() || self.ledger.get(&controller.uid).is_some();
                let (controller, served) = ((controller, holds), (gate, Trial::for_(object)));
                let place = (seat.shard, cut);
                let instance = Instance::open(controller, hooks, served, place, &self.context);
                self.set_state(seat, SeatState::Open(instance));
                self.freshen(seat);
            }
            Err(why) => {
                log_refusal(name, &why);
                if self.speaks(seat) {
                    self.tell_refusal(name, object, &why);
                }
                let edition = Edition::of(object.bytes());
                self.set_state(seat, SeatState::Refused { edition, why });
                self.report(name);
            }
        }
    }

    /// What was refused for a resource may run by now.
    pub(super) fn reconsider_refused(&mut self) {
        let mut outdated = Vec::new();
        for (name, slot) in &self.slots {
            let refused = slot.seats.iter().filter_map(|(shard, state)| match state {
                SeatState::Refused { why, .. } if why.reason != reason::HELD => Some((shard, why)),
                SeatState::Refused { .. } | SeatState::Open(_) | SeatState::Closing => None,
            });
            for (shard, why) in refused {
                let Some(object) = self.catalog.get(name) else {
                    continue;
                };
                if self.compile(name, &object).err().as_ref() != Some(why) {
                    let (name, shard) = (name.clone(), *shard);
                    outdated.push(Seat { name, shard });
                }
            }
        }
        for seat in outdated {
            self.leave(&seat);
        }
    }

    /// Whether the kinds that an open controller does not find are others by now.
    pub(super) fn finds_other_kinds(&self, name: &ControllerName, instance: &Instance) -> bool {
        let Some(object) = self.catalog.get(name) else {
            return false;
        };
        self.compile(name, &object)
            .is_ok_and(|(controller, _)| controller.missing != instance.controller.missing)
    }

    fn compile(&self, name: &ControllerName, object: &Object) -> Result<(Controller, Hooks), Part> {
        let discovery = &self.context.discovery;
        let lookup = |api_version: &str, plural: &str| discovery.lookup(api_version, plural);
        let known = |api_version: &str, plural: &str| discovery.lookup_lost(api_version, plural);
        let raw = object.bytes();
        let controller = match name.0 {
            ControllerKind::Composite => Controller::compile(&read(raw)?, raw, &lookup),
            ControllerKind::Decorator => Controller::compile_decorator(&read(raw)?, raw, &lookup),
        };
        let controller = controller
            .map_err(|error| Part::bad(error.reason(), error.to_string()))?
            .applying(self.context.config.apply.clone())
            .showing(&known);
        if controller.paused {
            let text = "spec.paused is set: no hook is called, nothing is written, and parents that are deleted wait for their finalizer";
            return Err(Part::bad(reason::PAUSED, text));
        }
        let hooks = Hooks::new(&controller, &self.context)
            .map_err(|error| Part::bad(reason::INVALID_SPEC, error.to_string()))?;
        Ok((controller, hooks))
    }

    /// Starts a controller once its caches are as new as its ownership asks, unless it runs already.
    pub(super) fn freshen(&mut self, seat: &Seat) {
        let Some(slot) = self.slots.get(&seat.name) else {
            return;
        };
        let Some(SeatState::Open(instance)) = slot.seats.get(&seat.shard) else {
            return;
        };
        let Some((claim, freshness)) = self.tenures.owned(instance.shard) else {
            return;
        };
        let age = instance.freshness_for(claim, freshness);
        if age == CacheAge::Awaited || (age == CacheAge::Fresh && instance.is_running()) {
            return;
        }
        if age == CacheAge::Fresh && self.ledger.is_kept(&instance.controller) {
            self.begin(seat, claim);
            return;
        }
        let (instance, freshness) = (Arc::clone(instance), freshness.clone());
        let recording = Recording {
            context: Arc::clone(&self.context),
            ledger: Arc::clone(&self.ledger),
            object: Arc::clone(&slot.object),
        };
        let seat = seat.clone();
        self.tasks.spawn("freshen", async move {
            recording.keep(&instance, claim).await;
            if age == CacheAge::Unknown {
                instance.fresh(claim, &freshness).await;
            }
            Ended::Fresh(seat, claim)
        });
    }

    /// The caches of a controller are fresh: it starts to work, if the ownership still holds.
    pub(super) fn begin(&mut self, seat: &Seat, claim: Claim) {
        let Some(instance) = self.open_instance(seat) else {
            return;
        };
        if self.tenures.acting(instance.shard) != Some(claim) || instance.is_running() {
            return;
        }
        if !self.is_of(&instance, claim) {
            return;
        }
        self.secure(seat);
        if !instance.hooks.are_ready() {
            return;
        }
        // Whoever follows us needs to have seen what we have seen, also of kinds that we never write.
        let seen = self.inherited.entry(claim).or_default();
        for written in instance.reached() {
            if !seen.iter().any(|it| it.resource == written.resource) {
                seen.push(written);
            }
        }
        let name = &seat.name;
        let slices = instance.cut.slices();
        info!(logger = logger(name.0, &name.1), controller = %name.1, shard = %claim.shard, epoch = %claim.epoch, slices, "controller started");
        let tell = |reason| {
            if !instance.cut.leads() {
                return;
            }
            self.tell_controller(
                name,
                false,
                reason,
                format!("{reason} controller: {}", name.1),
            );
        };
        tell(event::STARTING);
        instance.begin(claim);
        tell(event::STARTED);
    }

    /// Whether an instance is of just those parents that `claim` is of: by the map that gives the claim, or a newer one under
    /// which it is held still.
    fn is_of(&mut self, instance: &Instance, claim: Claim) -> bool {
        let standing = self.context.standing.load();
        let is_held = standing
            .held(claim.shard)
            .is_some_and(|held| held.epoch == claim.epoch);
        self.layout.look(&standing);
        let cut = self.layout.cut(&instance.controller.uid, claim.shard);
        is_held && cut == Some(instance.cut)
    }

    /// Records an event about a controller that is refused.
    fn tell_refusal(&self, name: &ControllerName, object: &Object, why: &Part) {
        if why.reason == reason::PAUSED {
            self.tell_controller(name, false, event::PAUSED, why.message.clone());
        } else if why.reason != reason::HELD {
            let (reason, message) = self.told(name, object, why);
            self.tell_controller(name, true, reason, message);
        }
    }

    /// The event about a controller that is refused: Metacontroller's reasons and words.
    fn told(&self, name: &ControllerName, object: &Object, why: &Part) -> (&'static str, String) {
        if why.reason == reason::NO_STATUS_SUBRESOURCE {
            let message = format!(
                "[{}] Sync error - ignoring, CRD [{}] does not have subresource 'Status' enabled",
                name.1,
                self.kind_of_parents(object)
            );
            return (event::SYNC_ERROR, message);
        }
        let message = format!("Cannot create new controller: {}", why.message);
        (event::CREATE_ERROR, message)
    }

    /// The kind of a CompositeController's parents, as Go writes it: `ex.io/v1, Kind=Foo`.
    fn kind_of_parents(&self, object: &Object) -> String {
        let Ok(composite) = serde_json::from_slice::<CompositeController>(object.bytes()) else {
            return String::new();
        };
        let parent = composite.spec.parent_resource;
        let resource = self
            .context
            .discovery
            .lookup(&parent.api_version, &parent.resource);
        let kind = resource.map_or(parent.resource, |resource| resource.kind.clone());
        format!("{}, Kind={kind}", parent.api_version)
    }
}

/// Logs why a controller is refused; what people look for, in Metacontroller's words.
fn log_refusal(name: &ControllerName, why: &Part) {
    let (kind, name) = (name.0, &*name.1);
    let logger = logger(kind, name);
    warn!(
        logger,
        controller = name,
        reason = why.reason,
        why = why.message,
        "controller refused"
    );
    for hook in ["sync", "finalize", "customize"] {
        let fault = format!("spec.hooks.{hook}.webhook: invalid webhook config");
        if why.message.contains(&fault) {
            error!(
                logger,
                controller = name,
                hookType = hook,
                error = why.message,
                "invalid webhook configuration"
            );
        }
    }
    if why.reason == reason::NO_STATUS_SUBRESOURCE {
        info!(logger, controller = name, "Ignoring CompositeController");
    }
}

/// Reads a controller object of one kind.
fn read<T: DeserializeOwned>(raw: &Bytes) -> Result<T, Part> {
    serde_json::from_slice(raw).map_err(|error| Part::bad(reason::UNREADABLE, error.to_string()))
}
