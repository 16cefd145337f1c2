//! One controller as this worker runs it: its caches, its flow of keys, and what it remembers of each parent.

mod caches;
mod census;
mod keys;
mod resyncing;
mod telling;

use std::{collections::BTreeMap, sync::Arc};

use futures::future::join_all;
use metashard_api::{id::ShardId, names::reason};
use metashard_fleet::{
    message::{Claim, LastWritten},
    queue::{Cause, FlowId, Outcome, Popped},
    shard::Cut,
    time::MonoTime,
    worker::Freshness,
};
use metashard_kube::{
    gate::WriteGate,
    identity::Identity,
    informer::{View, ViewKey},
};
use metashard_reconcile::{controller::Controller, memory::Memory};
use metashard_runtime::task;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

pub(crate) use self::telling::logger;
use self::{
    caches::{of_parents, open_children, open_parents, reach, unless_failing},
    census::Census,
};
use crate::{
    conditions::Part,
    context::Context,
    feedback::Feedback,
    hooks::Hooks,
    key::ParentKey,
    meter::Meter,
    metrics::{Series, Timings},
    reconcile,
    related::RelatedObjects,
    trial::Trial,
    triggers::Keys,
    troubles::Troubles,
};

/// One controller that runs here, or is kept warm.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) controller: Arc<Controller>,
    pub(crate) shard: ShardId,
    /// Its part of the controller's parents.
    pub(crate) cut: Cut,
    pub(crate) identity: Identity,
    pub(crate) flow: FlowId,
    pub(crate) hooks: Hooks,
    /// One for each parent rule, in the order of the controller's rules.
    pub(crate) parents: Arc<[View]>,
    /// One for each child rule, in the order of the controller's rules.
    pub(crate) children: Vec<View>,
    /// The cache of ControllerRevisions, if the controller keeps any.
    pub(crate) revisions: Option<View>,
    /// What its hooks want to see beside them; `None` if the controller has no customize hook.
    pub(crate) related: Option<Arc<RelatedObjects>>,
    /// How long its keys wait and take.
    pub(crate) timings: Timings,
    /// What is counted of it.
    pub(crate) series: Arc<Series>,
    /// What it costs to serve it.
    pub(crate) meter: Meter,
    /// Where its writes go through; they may only be observed there.
    pub(crate) gate: WriteGate,
    pub(crate) feedback: Mutex<Feedback>,
    pub(crate) context: Arc<Context>,
    /// How the last hook call went.
    pub(crate) hook_health: Mutex<Part>,
    /// What stands in the way of its writes.
    pub(crate) troubles: Mutex<Troubles>,
    /// What its syncs did so far, while it is being moved from Metacontroller.
    pub(crate) trial: Option<Mutex<Trial>>,
    parents_seen: Mutex<BTreeMap<ParentKey, ParentState>>,
    census: Mutex<Census>,
    turn: Mutex<Option<Turn>>,
    fresh_for: Mutex<Option<FreshFor>>,
}

/// The newest ownership that the caches are made fresh for.
#[derive(Debug)]
struct FreshFor {
    claim: Claim,
    /// What they have to show, as far as it was known when it was last asked.
    freshness: Freshness,
    /// They do.
    is_reached: bool,
}

/// Whether caches are as new as an ownership asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CacheAge {
    /// Nobody waits for it yet. Whoever is told so does from now on.
    Unknown,
    /// It is waited for.
    Awaited,
    /// They are.
    Fresh,
}

/// The right to run syncs of one ownership, until it is cancelled.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    pub(crate) claim: Claim,
    pub(crate) cancel: CancellationToken,
}

/// What is remembered of one parent between its syncs. Losing it costs a sync that looks at everything.
#[derive(Debug, Default)]
pub(crate) struct ParentState {
    /// The sync machine's own memory.
    pub(crate) memory: Memory,
    /// Our own writes that the caches may not show yet.
    pub(crate) awaited: Vec<Awaited>,
    /// What the last sync that called the hook saw and got; `None` also if it made a child.
    pub(crate) last: Option<LastSync>,
    /// The next sync calls the hook whatever changed: a timer asked for it, or the last one failed.
    pub(crate) forced: bool,
    /// When the hook asked to be called again, or a child that is let be is to be looked at.
    pub(crate) due: Option<MonoTime>,
    /// It is the latter.
    pub(crate) due_for_fight: bool,
    /// When the customize hook gave the answer that is in the memory.
    pub(crate) customized_at: Option<MonoTime>,
}

/// A write of our own that a cache may not show yet.
#[derive(Debug)]
pub(crate) struct Awaited {
    pub(crate) cache: Cache,
    pub(crate) resource_version: Box<str>,
}

/// One of the caches of a controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cache {
    /// Of the parent rule of this index.
    Parents(usize),
    /// Of the child rule of this index.
    Children(usize),
    /// Of ControllerRevisions.
    Revisions,
}

/// What the last sync that called the hook saw and got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LastSync {
    /// The parent's resourceVersion that the hook was shown.
    pub(crate) parent: Box<str>,
    /// The resourceVersion that our own status write gave the parent, if there was one.
    pub(crate) status_written: Option<Box<str>>,
    /// Of the children that the hook was shown.
    pub(crate) children: u64,
    /// Of the related objects that it was shown.
    pub(crate) related: Option<u64>,
    /// Of the answer.
    pub(crate) answer: u64,
}

impl Instance {
    /// Opens the caches of a controller and starts to collect keys, in a flow that is held. With it comes whether parents
    /// that it does not select may carry its finalizer; and the shard, with the part of the parents that belongs to it.
    pub(crate) fn open(
        (controller, holds): (Controller, bool),
        hooks: Hooks,
        (gate, trial): (WriteGate, Option<Mutex<Trial>>),
        (shard, cut): (ShardId, Cut),
        context: &Arc<Context>,
    ) -> Arc<Self> {
        let controller = Arc::new(controller);
        let identity = Identity::process();
        let flow = context
            .dispatcher
            .add_flow(&context.tenant, context.config.workers);
        let keys = Keys {
            dispatcher: Arc::clone(&context.dispatcher),
            flow,
            cut,
        };
        let parents = open_parents((&controller, holds), &identity, &keys, context);
        let children = open_children(&controller, &identity, &keys, &parents, context);
        let revisions = controller.history.as_ref().map(|history| {
            let key = ViewKey::new(identity.clone(), Arc::clone(&history.resource));
            let interest = of_parents(&controller, &parents, cut);
            // Only we write them: no event of theirs starts a sync.
            context.informers.open_for(key, interest, None)
        });
        let own = parents.iter().chain(&children);
        let own = own.map(|view| view.key().clone()).collect();
        let related = RelatedObjects::new(&controller, &identity, flow, own, context);
        let families = &context.metrics.families;
        let series = families.series(controller.kind, &controller.name);
        let instance = Arc::new(Self {
            controller,
            shard,
            cut,
            identity,
            flow,
            hooks,
            parents,
            children,
            revisions,
            related,
            timings: Timings::default(),
            series,
            meter: Meter::default(),
            gate,
            feedback: Mutex::default(),
            troubles: Mutex::default(),
            trial,
            hook_health: Mutex::new(Part::unknown(
                reason::NOT_CALLED,
                "no hook has been called yet",
            )),
            parents_seen: Mutex::default(),
            census: Mutex::default(),
            turn: Mutex::default(),
            fresh_for: Mutex::default(),
            context: Arc::clone(context),
        });
        context.dispatcher.serve(flow, Arc::clone(&instance));
        instance
    }

    /// Runs one sync of a key that the queue handed out.
    pub(crate) async fn sync(&self, popped: &Popped<ParentKey>) -> Outcome {
        let Some(turn) = self.turn.lock().clone() else {
            return Outcome::Interrupted;
        };
        tokio::select! {
            biased;
            () = turn.cancel.cancelled() => Outcome::Interrupted,
            outcome = reconcile::sync(self, &turn, popped) => outcome,
        }
    }

    /// Starts to run syncs under `claim`.
    pub(crate) fn begin(self: &Arc<Self>, claim: Claim) {
        if let Some(related) = &self.related {
            related.renew();
        }
        let cancel = CancellationToken::new();
        task::spawn("resync", Arc::clone(self).resync(cancel.clone()));
        *self.turn.lock() = Some(Turn { claim, cancel });
        self.context.dispatcher.release(self.flow);
    }

    /// Takes no new keys; what runs goes on.
    pub(crate) fn hold(&self) {
        self.context.dispatcher.hold(self.flow);
    }

    /// Takes no new keys and cancels what runs; the keys are queued again.
    pub(crate) fn cancel(&self) {
        self.hold();
        if let Some(turn) = self.turn.lock().take() {
            turn.cancel.cancel();
        }
    }

    /// Whether it runs syncs.
    pub(crate) fn is_running(&self) -> bool {
        self.turn.lock().is_some()
    }

    /// Removes the flow, and with it what keeps this instance alive.
    pub(crate) fn close(&self) {
        self.cancel();
        self.context.dispatcher.remove(self.flow);
    }

    /// All caches, the parents' first.
    pub(crate) fn views(&self) -> impl Iterator<Item = &View> {
        self.parents
            .iter()
            .chain(&self.children)
            .chain(&self.revisions)
    }

    /// One cache; `None` if there is no such rule.
    pub(crate) fn view(&self, cache: Cache) -> Option<&View> {
        match cache {
            Cache::Parents(rule) => self.parents.get(rule),
            Cache::Children(rule) => self.children.get(rule),
            Cache::Revisions => self.revisions.as_ref(),
        }
    }

    /// Returns once each cache has been listed, or cannot be at the moment.
    pub(crate) async fn listed_or_failing(&self) {
        for view in self.views() {
            unless_failing(view, view.synced()).await;
        }
        for view in self.lacking() {
            unless_failing(view, view.refresh()).await;
        }
        self.secured_or_failing().await;
    }

    /// Returns once the certificates and credentials of the hooks have been read, or cannot be at the moment.
    async fn secured_or_failing(&self) {
        if let Some(security) = self.hooks.security() {
            for view in security.views() {
                unless_failing(view, view.synced()).await;
            }
        }
    }

    /// Whether the caches are as new as `freshness` asks for `claim`. `Unknown` makes the caller the one who calls
    /// [`Self::fresh`]; it comes again when something else is asked for the same claim: the first of the two counts.
    pub(crate) fn freshness_for(&self, claim: Claim, freshness: &Freshness) -> CacheAge {
        let mut fresh_for = self.fresh_for.lock();
        match &*fresh_for {
            Some(it) if it.claim == claim && it.is_reached => CacheAge::Fresh,
            Some(it) if it.claim == claim && it.freshness == *freshness => CacheAge::Awaited,
            Some(_) | None => {
                *fresh_for = Some(FreshFor {
                    claim,
                    freshness: freshness.clone(),
                    is_reached: false,
                });
                CacheAge::Unknown
            }
        }
    }

    /// Returns once the caches are as new as `freshness` asks for `claim`.
    pub(crate) async fn fresh(&self, claim: Claim, freshness: &Freshness) {
        for view in self.views() {
            view.synced().await;
        }
        self.secured_or_failing().await;
        match freshness {
            Freshness::Crash => {
                join_all(self.views().map(View::refresh)).await;
            }
            Freshness::Released(last_written) => {
                join_all(self.views().map(|view| reach(view, last_written))).await;
            }
        }
        // Last: a list that was made anyway has brought it back.
        for view in self.lacking() {
            view.refresh().await;
        }
        if let Some(fresh_for) = &mut *self.fresh_for.lock()
            && fresh_for.claim == claim
        {
            fresh_for.is_reached = true;
        }
    }

    /// How far each cache has come.
    pub(crate) fn reached(&self) -> Vec<LastWritten> {
        self.views()
            .filter_map(|view| {
                Some(LastWritten {
                    resource: view.key().resource().to_string(),
                    resource_version: view.reached_version()?.into(),
                })
            })
            .collect()
    }

    /// Takes in how a hook call went.
    pub(crate) fn set_hook_health(&self, health: Part) {
        *self.hook_health.lock() = health;
    }

    /// The parent wants to see nothing any more.
    pub(crate) fn unrelate(&self, key: &ParentKey) {
        if let Some(related) = &self.related {
            related.forget(key);
        }
    }

    /// Takes what is remembered of a parent. Put it back with [`Self::remember`].
    pub(crate) fn recall(&self, key: &ParentKey) -> ParentState {
        let (namespace, name) = key.parts();
        debug_assert!(self.cut.takes(namespace, name), "{key} is another's");
        self.parents_seen.lock().remove(key).unwrap_or_default()
    }

    /// Keeps what is remembered of a parent. A wish for a forced sync that came meanwhile stays.
    pub(crate) fn remember(&self, key: &ParentKey, mut state: ParentState) {
        // The next sync may be long in coming while many wait, and most writes are in the caches by now.
        state.memory.share(|child, own| {
            let cache = child.map_or_else(|| Cache::Parents(key.rule()), Cache::Children);
            self.view(cache)?.get(own.namespace(), own.name())
        });
        let mut seen = self.parents_seen.lock();
        if let Some(meanwhile) = seen.get(key) {
            state.forced |= meanwhile.forced;
        }
        seen.insert(key.clone(), state);
    }

    /// Syncs every parent, whatever changed.
    pub(crate) fn force_all(&self) {
        let keys = self.keys();
        {
            let mut seen = self.parents_seen.lock();
            for key in &keys {
                seen.entry(key.clone()).or_default().forced = true;
            }
        }
        let dispatcher = &self.context.dispatcher;
        dispatcher.push_all(self.flow, keys, Cause::Resync);
    }
}
