//! What a worker does for its shards, in the place of the reconciler: it calls a hook, which takes a while, and then
//! writes an object, by the same rights and through the same gate.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use bytes::Bytes;
use metashard_api::{
    endpoint::SourceKind,
    id::{Incarnation, ShardId},
};
use metashard_fleet::{
    message::{Claim, LastWritten},
    worker::{Authority, Freshness, Standing},
};
use metashard_kube::{
    gate::WriteGate,
    identity::Identity,
    informer::{Informers, View, ViewKey},
};
use metashard_reconcile::{
    object::{Object, compare_versions},
    write::{Op, Purpose, Write},
};
use metashard_runtime::{clock::Clock, task::Tasks};
use metashard_worker::shards::{ShardCommand, ShardEvent};
use serde_json::json;
use tokio::sync::{mpsc, watch};

use crate::{
    dice::Dice, facts::object_of, network::Host, plan::Mutant, replica::Shared, store::NAMESPACE,
};

/// Of each object.
const RESOURCE: &str = "v1/configmaps";

/// The shards of one worker.
pub(crate) struct Shards {
    acts: Acts,
    held: BTreeMap<ShardId, Held>,
    suspended: bool,
    ended: Tasks<Ended>,
    events: mpsc::Sender<ShardEvent>,
}

/// What acting needs.
#[derive(Clone)]
struct Acts {
    shared: Shared,
    host: Host,
    clock: Clock,
    dice: Dice,
    gate: WriteGate,
    view: Arc<View>,
    standing: Arc<ArcSwap<Standing>>,
}

struct Held {
    claim: Claim,
    worker: Incarnation,
    /// The version that the caches had reached when they were fresh.
    fresh: Option<u64>,
    is_draining: bool,
    /// No new call.
    hold: watch::Sender<bool>,
    acting: Option<Tasks<()>>,
}

enum Ended {
    Warmed(ShardId),
    Fresh(Claim),
    Drained(Claim, Vec<LastWritten>),
}

impl Shards {
    pub(crate) fn new(
        shared: &Shared,
        host: Host,
        (clock, dice): (Clock, Dice),
        (gate, informers): (WriteGate, Informers),
        (standing, events): (Arc<ArcSwap<Standing>>, mpsc::Sender<ShardEvent>),
    ) -> Self {
        let key = ViewKey::new(
            Identity::process(),
            Arc::new(SourceKind::ConfigMap.resource()),
        )
        .in_namespace(NAMESPACE);
        Self {
            acts: Acts {
                shared: shared.clone(),
                host,
                clock,
                dice,
                gate,
                view: Arc::new(informers.open(key, None)),
                standing,
            },
            held: BTreeMap::new(),
            suspended: false,
            ended: Tasks::new(),
            events,
        }
    }

    /// Obeys until the fleet driver is gone.
    pub(crate) async fn run(mut self, mut commands: mpsc::Receiver<ShardCommand>) {
        loop {
            tokio::select! {
                command = commands.recv() => match command {
                    Some(command) => self.obey(command).await,
                    None => return,
                },
                Some(ended) = self.ended.join_next() => {
                    if let Ok(ended) = ended.result {
                        self.take(ended).await;
                    }
                }
            }
        }
    }

    async fn tell(&self, event: ShardEvent) {
        drop(self.events.send(event).await);
    }

    async fn obey(&mut self, command: ShardCommand) {
        match command {
            ShardCommand::Ping => self.tell(ShardEvent::DispatcherAlive).await,
            ShardCommand::Warm(shard) => {
                let view = Arc::clone(&self.acts.view);
                self.ended.spawn("warm", async move {
                    view.synced().await;
                    Ended::Warmed(shard)
                });
            }
            ShardCommand::Start { claim, freshness } => self.start(claim, freshness),
            ShardCommand::Drain { claim, grace } => self.drain(claim, grace),
            ShardCommand::Drop { claim } => self.drain(claim, Duration::ZERO),
            ShardCommand::Suspend => {
                self.suspended = true;
                for held in self.held.values_mut() {
                    held.acting = None;
                }
            }
            ShardCommand::Resume => {
                self.suspended = false;
                for held in self.held.values_mut() {
                    held.act(&self.acts);
                }
            }
        }
    }

    fn start(&mut self, claim: Claim, freshness: Freshness) {
        let known = self.held.get(&claim.shard);
        if known.is_none_or(|held| held.claim != claim) {
            let standing = self.acts.standing.load();
            let worker = standing.incarnation().cloned();
            let held = Held {
                claim,
                worker: worker.unwrap_or_else(|| Incarnation::new("nobody")),
                fresh: None,
                is_draining: false,
                hold: watch::Sender::new(false),
                acting: None,
            };
            self.held.insert(claim.shard, held);
        }
        let view = Arc::clone(&self.acts.view);
        self.ended.spawn("freshen", async move {
            let written = match freshness {
                Freshness::Released(written) => written,
                Freshness::Crash => Vec::new(),
            };
            let ours = written.iter().filter(|it| it.resource == RESOURCE);
            let mut is_known = false;
            for last in ours {
                view.reach(&last.resource_version).await;
                is_known = true;
            }
            if !is_known {
                view.refresh().await;
            }
            Ended::Fresh(claim)
        });
    }

    fn drain(&mut self, claim: Claim, grace: Duration) {
        let held = self.held.get_mut(&claim.shard);
        let Some(held) = held.filter(|held| held.claim == claim) else {
            return;
        };
        held.hold.send_replace(true);
        if grace.is_zero() {
            held.acting = None;
        }
        if std::mem::replace(&mut held.is_draining, true) {
            return;
        }
        let mut acting = held.acting.take();
        let inherited = held.fresh;
        let acts = self.acts.clone();
        self.ended.spawn("drain", async move {
            if let Some(acting) = &mut acting {
                tokio::select! {
                    _ = acting.join_next() => {}
                    () = acts.clock.sleep(grace) => {}
                }
            }
            drop(acting);
            let mut written = acts.gate.drained(claim).await;
            if let (Some(version), true) = (inherited, written.is_empty()) {
                written.push(LastWritten {
                    resource: RESOURCE.to_owned(),
                    resource_version: version.to_string(),
                });
            }
            Ended::Drained(claim, written)
        });
    }

    async fn take(&mut self, ended: Ended) {
        match ended {
            Ended::Warmed(shard) => self.tell(ShardEvent::Warmed(shard)).await,
            Ended::Fresh(claim) => self.fresh(claim).await,
            Ended::Drained(claim, last_written) => {
                if let Some(held) = self.held.remove(&claim.shard) {
                    let mut facts = self.acts.shared.facts.lock();
                    facts.drained(&held.worker, claim);
                }
                self.tell(ShardEvent::Drained {
                    claim,
                    last_written,
                })
                .await;
            }
        }
    }

    async fn fresh(&mut self, claim: Claim) {
        let held = self.held.get_mut(&claim.shard);
        let held = held.filter(|it| it.claim == claim && !it.is_draining && it.fresh.is_none());
        let Some(held) = held else { return };
        let version = self.acts.view.reached_version();
        let version = version.and_then(|it| it.parse().ok()).unwrap_or(0);
        held.fresh = Some(version);
        self.acts
            .shared
            .facts
            .lock()
            .fresh(&held.worker, claim, version);
        self.acts.gate.open(claim);
        if !self.suspended {
            held.act(&self.acts);
        }
        self.tell(ShardEvent::Fresh { claim }).await;
    }
}

impl Held {
    fn act(&mut self, acts: &Acts) {
        if self.fresh.is_none() || self.is_draining {
            return;
        }
        let mut acting = Tasks::new();
        let hold = self.hold.subscribe();
        acting.spawn("act", acts.clone().act(self.claim, hold));
        self.acting = Some(acting);
    }
}

impl Acts {
    async fn act(mut self, claim: Claim, hold: watch::Receiver<bool>) {
        let purpose = format!("{} {claim:?}", self.host);
        self.dice = Dice::new(self.shared.plan.seed, &purpose);
        let mut known: Option<Arc<Object>> = None;
        loop {
            let pause = self.dice.between(200, 900);
            self.clock.sleep(pause).await;
            if *hold.borrow() {
                return;
            }
            let now = self.clock.now();
            if !self.standing.load().may_begin(claim, now) {
                continue;
            }
            self.shared.facts.lock().called(self.host, claim);
            let takes = if self.dice.chance(10) {
                self.dice.between(300, 900)
            } else {
                self.dice.between(5, 60)
            };
            self.clock.sleep(takes).await;
            let Some(authority) = self.authority(claim) else {
                continue;
            };
            let cached = self.view.get(Some(NAMESPACE), &object_of(claim.shard));
            let object = newer(cached, known.take());
            let write = self.write(claim, object.as_deref());
            let written = self
                .gate
                .write(&Identity::process(), &authority, &write)
                .await;
            known = written.ok().flatten();
        }
    }

    fn authority(&self, claim: Claim) -> Option<Authority> {
        let now = self.clock.now();
        let authority = self.standing.load().authority(claim.shard, now);
        authority.filter(|it| it.claim() == claim)
    }

    fn write(&self, claim: Claim, object: Option<&Object>) -> Write {
        let name = object_of(claim.shard);
        let mut metadata = json!({ "namespace": NAMESPACE, "name": name });
        let count = object.map_or(0, count);
        let is_fenced = self.shared.plan.mutant != Some(Mutant::WriteWithoutVersion);
        if let Some(object) = object {
            metadata["uid"] = object.uid().into();
            if is_fenced {
                metadata["resourceVersion"] = object.resource_version().into();
            }
        }
        let body = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata,
            "data": {
                "count": (count + 1).to_string(),
                "by": format!("{} {claim:?}", self.host),
            },
        });
        let body = Bytes::from(body.to_string());
        Write {
            resource: Arc::new(SourceKind::ConfigMap.resource()),
            namespace: Some(NAMESPACE.into()),
            name: name.into(),
            op: match object {
                Some(_) => Op::Update { body },
                None => Op::Create { body },
            },
            purpose: Purpose::UpdateChild,
            why: "".into(),
        }
    }
}

fn count(object: &Object) -> u64 {
    let body: serde_json::Value = serde_json::from_slice(object.bytes()).unwrap_or_default();
    let count = body["data"]["count"].as_str();
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}

fn newer(one: Option<Arc<Object>>, other: Option<Arc<Object>>) -> Option<Arc<Object>> {
    match (one, other) {
        (Some(one), Some(other)) => {
            let order = compare_versions(one.resource_version(), other.resource_version());
            Some(if order.is_some_and(std::cmp::Ordering::is_lt) {
                other
            } else {
                one
            })
        }
        (one, other) => one.or(other),
    }
}
