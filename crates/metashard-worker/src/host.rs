//! Hosts the controllers of this worker's shards: opens, starts, stops and closes their instances.
//!
//! Level-based: [`Host::settle`] looks at one controller object and at what is done about its shard, and does what is
//! missing between that and what runs. What takes time runs as a task whose end comes back as an [`Ended`].

mod departing;
mod draining;
mod layout;
mod loading;
mod mode;
mod recording;
mod securing;
mod starting;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use metashard_api::{
    id::{ControllerUid, ShardId},
    names::reason,
};
use metashard_fleet::message::{Claim, LastWritten};
use metashard_reconcile::{controller::Edition, object::Object};
use metashard_runtime::{fault, pulse::Pulse, shutdown::Token, task::Tasks};
use tokio::sync::mpsc;

use self::{departing::Again, layout::Layout, loading::Gauge, mode::Mode};
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
const REPORT_PERIOD: Duration = Duration::from_secs(1);

/// The controllers of this worker's shards.
#[derive(Debug)]
pub(crate) struct Host {
    context: Arc<Context>,
    catalog: Catalog,
    slots: BTreeMap<ControllerName, Slot>,
    /// Where controllers belong, by the newest map.
    layout: Layout,
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
    /// What this object asks for.
    edition: Edition,
    /// What is done about each shard of it: one, unless it is split. One that is not named is not here.
    seats: BTreeMap<ShardId, SeatState>,
}

/// One controller in one of its shards.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seat {
    name: ControllerName,
    shard: ShardId,
}

/// What is done about one controller in one of its shards, which is here.
#[derive(Debug)]
enum SeatState {
    /// It cannot run: its spec in this edition is refused, or a resource is missing.
    Refused { edition: Edition, why: Part },
    /// It runs, or is kept warm.
    Open(Arc<Instance>),
    /// Its last syncs end; then it is settled anew.
    Closing,
}

/// What a task of the host came to.
#[derive(Debug)]
enum Ended {
    /// The caches of this controller are as new as `claim` asks.
    Fresh(Seat, Claim),
    /// The caches of every controller of this shard are filled, or cannot be.
    Warmed(ShardId),
    /// No sync of this controller's closed instance runs any more.
    Closed(Seat),
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
            layout: Layout::default(),
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
            Ended::Fresh(seat, claim) => self.begin(&seat, claim),
            Ended::Warmed(shard) => self.tell(ShardEvent::Warmed(shard)).await,
            Ended::Closed(seat) => {
                if let Some(slot) = self.slots.get_mut(&seat.name) {
                    slot.seats.remove(&seat.shard);
                }
                self.settle(&seat.name);
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

    /// Does what is missing for one controller.
    fn settle(&mut self, name: &ControllerName) {
        self.layout.look(&self.context.standing.load());
        let object = self.catalog.get(name);
        if let (Some(object), false) = (&object, self.slots.contains_key(name)) {
            let slot = Slot {
                uid: ControllerUid::new(object.uid()),
                object: Arc::clone(object),
                edition: Edition::of(object.bytes()),
                seats: BTreeMap::new(),
            };
            self.slots.insert(name.clone(), slot);
        }
        let Some(slot) = self.slots.get_mut(name) else {
            return;
        };
        match object.filter(|object| object.uid() == slot.uid.as_str()) {
            Some(object) => {
                let old = std::mem::replace(&mut slot.object, Arc::clone(&object));
                if old.generation() != object.generation() {
                    slot.edition = Edition::of(object.bytes());
                }
                if asks_for_sync(&old, &object) {
                    for instance in slot.instances() {
                        instance.force_all();
                    }
                }
                let mut shards: BTreeSet<ShardId> = slot.seats.keys().copied().collect();
                shards.extend(self.layout.shards(&slot.uid));
                for shard in shards {
                    let name = name.clone();
                    self.settle_present(&Seat { name, shard }, &object);
                }
            }
            None => self.settle_gone(name),
        }
    }

    fn settle_gone(&mut self, name: &ControllerName) {
        let Some(slot) = self.slots.get(name) else {
            return;
        };
        let open = slot.instances().map(|instance| instance.shard);
        let open: Vec<ShardId> = open.collect();
        for shard in &open {
            let (name, shard) = (name.clone(), *shard);
            self.close(&Seat { name, shard }, true);
        }
        let states = self.slots.get(name).map(|slot| slot.seats.values());
        let mut states = states.into_iter().flatten();
        if !open.is_empty() || states.any(|state| matches!(state, SeatState::Closing)) {
            return;
        }
        if let Some(slot) = self.slots.remove(name) {
            self.reporter.forget(name);
            self.see_off(name, &slot.uid);
            // Deleted and made anew under the same name.
            if self.catalog.get(name).is_some() {
                self.settle(name);
            }
        }
    }

    fn settle_present(&mut self, seat: &Seat, object: &Arc<Object>) {
        let Some(slot) = self.slots.get(&seat.name) else {
            return;
        };
        let cut = self.layout.cut(&slot.uid, seat.shard);
        let tenure = self.tenures.get(seat.shard).filter(|_| cut.is_some());
        let tenure = tenure.cloned();
        match slot.seats.get(&seat.shard) {
            Some(SeatState::Open(instance)) => match tenure {
                None => self.close(seat, false),
                // Which parents it is of never changes: that is another one.
                Some(_) if Some(instance.cut) != cut => self.close(seat, false),
                Some(_) if instance.controller.edition != slot.edition => {
                    self.close(seat, true);
                }
                Some(_) if self.is_in_another_mode(instance, object) => self.close_quietly(seat),
                Some(Tenure::Owned { .. }) => {
                    self.secure(seat);
                    self.freshen(seat);
                }
                Some(Tenure::Warm { .. } | Tenure::Draining { .. }) => self.secure(seat),
            },
            Some(SeatState::Refused { edition, why })
                if *edition == slot.edition
                    && (why.reason != reason::HELD || self.mode(object) == Mode::Rest) =>
            {
                if tenure.is_none() {
                    self.leave(seat);
                }
            }
            None | Some(SeatState::Refused { .. }) => {
                if let (Some(cut), Some(Tenure::Warm { .. } | Tenure::Owned { .. })) = (cut, tenure)
                {
                    self.open(seat, object, cut);
                } else {
                    self.leave(seat);
                }
            }
            Some(SeatState::Closing) => {}
        }
    }

    /// Does what is missing for the controllers of one shard: most shards hold none.
    fn settle_shard(&mut self, shard: ShardId) {
        self.layout.look(&self.context.standing.load());
        let belongs = |slot: &Slot| {
            slot.seats.contains_key(&shard) || self.layout.cut(&slot.uid, shard).is_some()
        };
        let names: Vec<_> = self
            .slots
            .iter()
            .filter(|(_, slot)| belongs(slot))
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

    fn set_state(&mut self, seat: &Seat, state: SeatState) {
        if let Some(slot) = self.slots.get_mut(&seat.name) {
            slot.seats.insert(seat.shard, state);
        }
        self.reporter.mark(&seat.name);
    }

    /// Nothing is done about it any more.
    fn leave(&mut self, seat: &Seat) {
        let slot = self.slots.get_mut(&seat.name);
        if slot.and_then(|it| it.seats.remove(&seat.shard)).is_some() {
            self.reporter.mark(&seat.name);
        }
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
        self.slots.values().flat_map(Slot::instances)
    }

    /// The instance of a controller in one shard, if it is open.
    fn open_instance(&self, seat: &Seat) -> Option<Arc<Instance>> {
        match self.slots.get(&seat.name)?.seats.get(&seat.shard)? {
            SeatState::Open(instance) => Some(Arc::clone(instance)),
            SeatState::Refused { .. } | SeatState::Closing => None,
        }
    }

    /// Where controllers are open.
    fn open_seats(&self) -> impl Iterator<Item = (Seat, &Arc<Instance>)> {
        self.slots.iter().flat_map(|(name, slot)| {
            slot.instances().map(|instance| {
                let (name, shard) = (name.clone(), instance.shard);
                (Seat { name, shard }, instance)
            })
        })
    }

    /// The instances of the controllers of `shard`.
    fn in_shard(&self, shard: ShardId) -> Vec<Arc<Instance>> {
        self.open_instances()
            .filter(|instance| instance.shard == shard)
            .cloned()
            .collect()
    }

    /// Writes the conditions of the controllers that this worker serves, where they changed.
    fn write_reports(&self) {
        for name in self.slots.keys() {
            self.report(name);
        }
    }

    /// Writes the conditions of one controller, if this worker serves it (of a split one, its first slice) and they changed.
    /// Most wait for the next round of reports; that it cannot run is written at once.
    fn report(&self, name: &ControllerName) {
        let Some(slot) = self.slots.get(name) else {
            return;
        };
        let Some(shard) = self.layout.home(&slot.uid) else {
            return;
        };
        let claim = self.tenures.acting(shard);
        let (Some(claim), Some(object)) = (claim, self.catalog.get(name)) else {
            return;
        };
        match slot.seats.get(&shard) {
            Some(SeatState::Refused { why, .. }) => {
                let slices = self.layout.slices(&slot.uid);
                let place = self.reporter.place(claim, slices);
                self.reporter.refused(name, &object, place, why);
            }
            Some(SeatState::Open(instance)) => self.reporter.open(name, &object, claim, instance),
            None | Some(SeatState::Closing) => {}
        }
    }

    /// Whether what is told of a controller as a whole is told by this seat of it.
    fn speaks(&self, seat: &Seat) -> bool {
        let slot = self.slots.get(&seat.name);
        slot.is_some_and(|slot| self.layout.home(&slot.uid) == Some(seat.shard))
    }
}

impl Slot {
    fn instances(&self) -> impl Iterator<Item = &Arc<Instance>> {
        self.seats.values().filter_map(|state| match state {
            SeatState::Open(instance) => Some(instance),
            SeatState::Refused { .. } | SeatState::Closing => None,
        })
    }
}
