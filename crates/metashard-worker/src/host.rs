//! Hosts the controllers of this worker's shards: opens, starts, stops and closes their instances.
//!
//! Level-based: [`Host::settle`] looks at one controller object and at what is done about its shard, and does what is
//! missing between that and what runs. What takes time runs as a task whose end comes back as an [`Ended`].

mod departing;
mod draining;
mod loading;
mod mode;
mod recording;
mod securing;
mod starting;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use metashard_api::{
    id::{ControllerUid, ShardId, Slice},
    names::reason,
};
use metashard_fleet::{
    message::{Claim, LastWritten},
    shard::shard_of,
};
use metashard_reconcile::object::Object;
use metashard_runtime::{fault, pulse::Pulse, shutdown::Token, task::Tasks};
use tokio::sync::mpsc;

use self::{departing::Again, loading::Gauge, mode::Mode};
use crate::{
    catalog::{Catalog, ControllerName},
    conditions::Part,
    context::Context,
    departed::Departed,
    instance::Instance,
    ledger::Ledger,
    report::Reporter,
    shards::{ShardCommand, ShardEvent},
    tenure::{Tenure, Tenures},
    triggers::asks_for_sync,
};

/// How often load is told to the leader and the parents' periodic resync is looked at.
const LOAD_PERIOD: Duration = Duration::from_secs(5);

/// How long caches are kept filled for a hand-over that does not come.
const WARM_FOR: Duration = Duration::from_mins(1);

/// How often conditions that changed are written.
const REPORT_PERIOD: Duration = Duration::from_millis(500);

/// The controllers of this worker's shards.
#[derive(Debug)]
pub(crate) struct Host {
    context: Arc<Context>,
    catalog: Catalog,
    slots: BTreeMap<ControllerName, Slot>,
    tenures: Tenures,
    /// For each ownership: how far its predecessor had come, so that whoever follows us knows it too.
    inherited: BTreeMap<Claim, Vec<LastWritten>>,
    ledger: Arc<Ledger>,
    /// Controllers that are gone and may have left something behind. One with a record is looked at again and again.
    departing: BTreeMap<ControllerUid, Again>,
    tasks: Tasks<Ended>,
    events: mpsc::Sender<ShardEvent>,
    reporter: Reporter,
    /// What the process uses.
    gauge: Gauge,
}

/// One controller object that this worker knows of.
#[derive(Debug)]
struct Slot {
    uid: ControllerUid,
    /// As last seen: events are told of it also when it is gone, or no longer selected.
    object: Arc<Object>,
    state: SlotState,
}

/// What is done about one controller.
#[derive(Debug)]
enum SlotState {
    /// Its shard is not here.
    Elsewhere,
    /// Its shard is here, and it cannot run: its spec at this generation is refused, or a resource is missing.
    Refused { generation: i64, why: Part },
    /// It runs, or is kept warm.
    Open(Arc<Instance>),
    /// Its last syncs end; then it is settled anew.
    Closing,
}

/// What a task of the host came to.
#[derive(Debug)]
enum Ended {
    /// The caches of this controller are as new as `claim` asks.
    Fresh(ControllerName, Claim),
    /// The caches of every controller of this shard are filled, or cannot be.
    Warmed(ShardId),
    /// No sync of this controller's closed instance runs any more.
    Closed(ControllerName),
    /// Nothing of this ownership is under way any more.
    Drained(Claim, Vec<LastWritten>),
    /// A controller that is gone was looked at.
    SeenOff(ControllerUid, Departed),
}

impl Host {
    /// Follows the controller objects; serves none yet.
    pub(crate) fn new(context: Arc<Context>, events: mpsc::Sender<ShardEvent>) -> Self {
        let catalog = Catalog::open(&context.informers, &context.config.target_selector);
        let ledger = Ledger::open(&context.informers, &context.config.system_namespace);
        Self {
            gauge: Gauge::new(context.clock.now().mono, context.config.max_syncs),
            reporter: Reporter::new(Arc::clone(&context)),
            ledger: Arc::new(ledger),
            departing: BTreeMap::new(),
            context,
            catalog,
            slots: BTreeMap::new(),
            tenures: Tenures::default(),
            inherited: BTreeMap::new(),
            tasks: Tasks::new(),
            events,
        }
    }

    /// Runs until `stop`, or until the fleet driver is gone.
    pub(crate) async fn run(mut self, mut commands: mpsc::Receiver<ShardCommand>, stop: Token) {
        let clock = self.context.clock.clone();
        let mut discovery = self.context.discovery.changed();
        let mut load_at = clock.now().mono + LOAD_PERIOD;
        let mut report_at = clock.now().mono + REPORT_PERIOD;
        let mut hold = self.context.hold.clone();
        let pulse = Pulse::of("host", &clock);
        loop {
            pulse.beat();
            fault::stand_still_at("host").await;
            tokio::select! {
                command = commands.recv() => match command {
                    Some(command) => self.obey(command).await,
                    None => return,
                },
                names = self.catalog.changed() => {
                    for name in names {
                        self.settle(&name);
                    }
                }
                Some(ended) = self.tasks.join_next() => {
                    if let Ok(ended) = ended.result {
                        self.take_end(ended).await;
                    }
                }
                Ok(()) = discovery.changed() => self.resources_changed(),
                Ok(()) = hold.changed() => self.settle_all(),
                () = clock.sleep_until(load_at) => {
                    load_at = clock.now().mono + LOAD_PERIOD;
                    self.cool();
                    self.look_at_certificates();
                    self.see_off_all();
                    self.tell_load().await;
                }
                () = clock.sleep_until(report_at) => {
                    report_at = clock.now().mono + REPORT_PERIOD;
                    self.write_reports();
                }
                () = stop.requested() => return,
            }
        }
    }

    async fn obey(&mut self, command: ShardCommand) {
        match command {
            ShardCommand::Ping => {
                if self.context.dispatcher.is_alive() {
                    self.tell(ShardEvent::DispatcherAlive).await;
                }
            }
            ShardCommand::Warm(shard) => self.warm(shard),
            ShardCommand::Start { claim, freshness } => self.start(claim, freshness).await,
            ShardCommand::Drain { claim, grace } => self.drain(claim, grace),
            ShardCommand::Drop { claim } => self.drain(claim, Duration::ZERO),
            ShardCommand::Suspend => {
                self.tenures.set_suspended(true);
                for instance in self.open_instances() {
                    instance.cancel();
                }
            }
            ShardCommand::Resume => {
                self.tenures.set_suspended(false);
                self.settle_all();
            }
        }
    }

    async fn take_end(&mut self, ended: Ended) {
        match ended {
            Ended::Fresh(name, claim) => self.begin(&name, claim),
            Ended::Warmed(shard) => self.tell(ShardEvent::Warmed(shard)).await,
            Ended::Closed(name) => {
                if let Some(slot) = self.slots.get_mut(&name) {
                    slot.state = SlotState::Elsewhere;
                }
                self.settle(&name);
            }
            Ended::Drained(claim, last_written) => self.drained(claim, last_written).await,
            Ended::SeenOff(uid, departed) => self.seen_off(uid, departed),
        }
    }

    async fn tell(&self, event: ShardEvent) {
        // The driver is gone only at the end of the process.
        drop(self.events.send(event).await);
    }

    /// Records an event on a controller object.
    fn tell_controller(
        &self,
        name: &ControllerName,
        is_warning: bool,
        reason: &'static str,
        message: String,
    ) {
        if let Some(slot) = self.slots.get(name) {
            self.reporter
                .tell(&slot.object, is_warning, reason, message);
        }
    }

    /// The shard of a controller, by the newest map; `None` before there is one.
    fn shard_of(&self, uid: &ControllerUid) -> Option<ShardId> {
        let standing = self.context.standing.load();
        let count = standing.map()?.shard_count();
        Some(shard_of(uid, Slice::default(), count))
    }

    /// Does what is missing for one controller.
    fn settle(&mut self, name: &ControllerName) {
        let object = self.catalog.get(name);
        if let (Some(object), false) = (&object, self.slots.contains_key(name)) {
            let slot = Slot {
                uid: ControllerUid::new(object.uid()),
                object: Arc::clone(object),
                state: SlotState::Elsewhere,
            };
            self.slots.insert(name.clone(), slot);
        }
        let Some(slot) = self.slots.get_mut(name) else {
            return;
        };
        match object.filter(|object| object.uid() == slot.uid.as_str()) {
            Some(object) => {
                let old = std::mem::replace(&mut slot.object, Arc::clone(&object));
                if let SlotState::Open(instance) = &slot.state
                    && asks_for_sync(&old, &object)
                {
                    instance.force_all();
                }
                self.settle_present(name, &object);
            }
            None => self.settle_gone(name),
        }
    }

    fn settle_gone(&mut self, name: &ControllerName) {
        let Some(slot) = self.slots.get(name) else {
            return;
        };
        match &slot.state {
            SlotState::Open(_) => self.close(name, true),
            SlotState::Closing => {}
            SlotState::Elsewhere | SlotState::Refused { .. } => {
                let uid = slot.uid.clone();
                self.slots.remove(name);
                self.reporter.forget(name);
                self.see_off(name, &uid);
                // Deleted and made anew under the same name.
                if self.catalog.get(name).is_some() {
                    self.settle(name);
                }
            }
        }
    }

    fn settle_present(&mut self, name: &ControllerName, object: &Arc<Object>) {
        let Some(slot) = self.slots.get(name) else {
            return;
        };
        let shard = self.shard_of(&slot.uid);
        let tenure = shard.and_then(|shard| self.tenures.get(shard)).cloned();
        match &slot.state {
            SlotState::Open(instance) => match tenure {
                None => self.close(name, false),
                Some(_) if instance.controller.generation != object.generation() => {
                    self.close(name, true);
                }
                Some(_) if self.is_in_another_mode(instance, object) => self.close_quietly(name),
                Some(Tenure::Owned { .. }) => {
                    self.secure(name);
                    self.freshen(name);
                }
                Some(Tenure::Warm { .. } | Tenure::Draining { .. }) => self.secure(name),
            },
            SlotState::Refused { generation, why }
                if *generation == object.generation()
                    && (why.reason != reason::HELD || self.mode(object) == Mode::Rest) =>
            {
                if tenure.is_none() {
                    self.set_state(name, SlotState::Elsewhere);
                }
            }
            SlotState::Elsewhere | SlotState::Refused { .. } => {
                if let (Some(shard), Some(Tenure::Warm { .. } | Tenure::Owned { .. })) =
                    (shard, tenure)
                {
                    self.open(name, object, shard);
                }
            }
            SlotState::Closing => {}
        }
    }

    /// Does what is missing for the controllers of one shard: most shards hold none.
    fn settle_shard(&mut self, shard: ShardId) {
        let names: Vec<_> = self
            .slots
            .iter()
            .filter(|(_, slot)| self.shard_of(&slot.uid) == Some(shard))
            .map(|(name, _)| name.clone())
            .collect();
        for name in names {
            self.settle(&name);
        }
    }

    fn settle_all(&mut self) {
        let names: Vec<_> = self.slots.keys().cloned().collect();
        for name in names {
            self.settle(&name);
        }
    }

    fn set_state(&mut self, name: &ControllerName, state: SlotState) {
        if let Some(slot) = self.slots.get_mut(name) {
            slot.state = state;
        }
        self.reporter.mark(name);
    }

    /// Looks again at everything that a served resource may have been missing for.
    fn resources_changed(&mut self) {
        self.context.informers.retry_failing();
        for related in self.open_instances().filter_map(|it| it.related.as_ref()) {
            related.reconsider();
        }
        self.reconsider_refused();
        self.close_outdated();
        self.settle_all();
    }

    fn open_instances(&self) -> impl Iterator<Item = &Arc<Instance>> {
        self.slots.values().filter_map(|slot| match &slot.state {
            SlotState::Open(instance) => Some(instance),
            SlotState::Elsewhere | SlotState::Refused { .. } | SlotState::Closing => None,
        })
    }

    /// The instance of a controller, if it is open.
    fn open_instance(&self, name: &ControllerName) -> Option<Arc<Instance>> {
        match &self.slots.get(name)?.state {
            SlotState::Open(instance) => Some(Arc::clone(instance)),
            SlotState::Elsewhere | SlotState::Refused { .. } | SlotState::Closing => None,
        }
    }

    /// The controllers of `shard`, with their instances.
    fn in_shard(&self, shard: ShardId) -> Vec<(ControllerName, Arc<Instance>)> {
        self.slots
            .iter()
            .filter_map(|(name, slot)| match &slot.state {
                SlotState::Open(instance) if instance.shard == shard => {
                    Some((name.clone(), Arc::clone(instance)))
                }
                _ => None,
            })
            .collect()
    }

    /// Writes the conditions of the controllers that this worker serves, where they changed.
    fn write_reports(&self) {
        for name in self.slots.keys() {
            self.report(name);
        }
    }

    /// Writes the conditions of one controller, if this worker serves it and they changed. Most wait for the next round of
    /// reports; that it cannot run is written at once.
    fn report(&self, name: &ControllerName) {
        let Some(slot) = self.slots.get(name) else {
            return;
        };
        let shard = self.shard_of(&slot.uid);
        let claim = shard.and_then(|shard| self.tenures.acting(shard));
        let (Some(claim), Some(object)) = (claim, self.catalog.get(name)) else {
            return;
        };
        match &slot.state {
            SlotState::Refused { why, .. } => {
                self.reporter.refused(name, &object, claim, why);
            }
            SlotState::Open(instance) => self.reporter.open(name, &object, claim, instance),
            SlotState::Elsewhere | SlotState::Closing => {}
        }
    }
}
