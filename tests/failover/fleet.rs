//! A cluster, replicas, and controllers with one parent each that is edited ten times a second.

mod meddling;

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    time::{Duration, SystemTime},
};

use anyhow::{Context, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use metashard_api::{
    names::SYSTEM_NAMESPACE,
    shard_map::{self, ShardMap, ShardMapSpec},
};
use metashard_runtime::clock::Clock;
use metashard_testkit::{
    Cluster, FakeHook, Replica,
    apply::apply,
    cluster, crds,
    history::HookCall,
    hook::{Answer, Call},
    replica::Options,
    shipped,
    wait::{eventually, throughout},
};
use parking_lot::Mutex;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::history::{History, ownership};

/// Time for anything that is not measured.
const WITHIN: Duration = Duration::from_secs(40);

const CONTROLLERS: usize = 8;

/// Time between two edits of a parent.
const EDIT_EVERY: Duration = Duration::from_millis(100);

/// Calls of a controller that show that it is served again.
const SERVED: usize = 8;

/// Time between two questions to the API server, which has other things to do.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// How long a hook takes.
const HOOK_TAKES: Duration = Duration::from_millis(5);

/// Where the parents are.
const NAMESPACE: &str = "parents";

/// How long the map is looked at before it counts as at rest.
const REST: Duration = Duration::from_secs(1);

/// Replicas that share controllers.
pub(crate) struct Fleet {
    replicas: BTreeMap<&'static str, Replica>,
    leader_namespace: &'static str,
    client: Client,
    hook: FakeHook,
    /// Calls that are forgotten otherwise.
    past: Mutex<Vec<Call>>,
    cluster: Cluster,
}

impl Fleet {
    /// Starts replicas by name, each with a role, on a cluster of their own, and makes the controllers.
    /// `leader_namespace`: of the leader's Lease.
    pub(crate) async fn start(
        replicas: &[(&'static str, &str)],
        leader_namespace: &'static str,
    ) -> anyhow::Result<Self> {
        let cluster = Cluster::start(cluster::Options {
            audit_bodies: true,
            ..cluster::Options::default()
        })
        .await?;
        let client = cluster.admin().await?;
        shipped::put_crds(&client).await?;
        shipped::put_system(&client, SYSTEM_NAMESPACE).await?;
        crds::install_one(&client, &crds::thing()).await?;
        let mut fleet = Self {
            replicas: BTreeMap::new(),
            leader_namespace,
            client,
            hook: FakeHook::start(|call| Answer::json(&answer(call)).after(HOOK_TAKES))?,
            past: Mutex::default(),
            cluster,
        };
        for (name, role) in replicas {
            fleet.add(&[], name, role)?;
        }
        for replica in fleet.replicas.values_mut() {
            replica.ready(WITHIN).await?;
        }
        fleet.add_controllers().await?;
        Ok(fleet)
    }

    /// Starts a replica in the place of one of the same name, and waits until it is ready.
    pub(crate) async fn replace(&mut self, name: &'static str, role: &str) -> anyhow::Result<()> {
        self.replace_in(&[], name, role).await
    }

    /// The same with further variables of its environment.
    pub(crate) async fn replace_in(
        &mut self,
        environment: &[(String, String)],
        name: &'static str,
        role: &str,
    ) -> anyhow::Result<()> {
        self.add(environment, name, role)?;
        let replica = self.replicas.get_mut(name).context("it was added")?;
        replica.ready(WITHIN).await
    }

    fn add(
        &mut self,
        environment: &[(String, String)],
        name: &'static str,
        role: &str,
    ) -> anyhow::Result<()> {
        let namespace = format!("--leader-election-namespace={}", self.leader_namespace);
        let options =
            Options::new(&self.cluster, name, SYSTEM_NAMESPACE)?.flags([role, &namespace]);
        let options = options.environment(environment);
        // The old one ends before.
        drop(self.replicas.remove(name));
        let replica = Replica::start(self.cluster.group(), &options)?;
        self.replicas.insert(name, replica);
        Ok(())
    }

    /// Sends a signal to a replica.
    pub(crate) fn signal(&self, name: &str, signal: Signal) -> anyhow::Result<()> {
        let replica = self.replicas.get(name);
        replica
            .with_context(|| format!("no replica {name}"))?
            .signal(signal)
    }

    /// Waits until a replica has ended by itself, in good order.
    pub(crate) async fn has_ended(&mut self, name: &str) -> anyhow::Result<()> {
        let replica = self.replicas.get_mut(name);
        let replica = replica.with_context(|| format!("no replica {name}"))?;
        let status = replica.ended(WITHIN).await?;
        ensure!(status.success(), "replica {name} ended with {status}");
        Ok(())
    }

    async fn add_controllers(&self) -> anyhow::Result<()> {
        let namespace = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": { "name": NAMESPACE },
        });
        apply(&self.client, &namespace).await?;
        for number in 0..CONTROLLERS {
            let url = self.hook.url(&path(number));
            apply(&self.client, &controller(number, &url)).await?;
            apply(&self.client, &parent(number)).await?;
        }
        Ok(())
    }

    /// Edits all parents for ever.
    pub(crate) fn edit(&self) -> impl Future<Output = anyhow::Result<Infallible>> + use<> {
        let gvk = GroupVersionKind::gvk(crds::GROUP, "v1", "Thing");
        let resource = ApiResource::from_gvk_with_plural(&gvk, "things");
        let parents = Api::namespaced_with(self.client.clone(), NAMESPACE, &resource);
        let edits: Vec<_> = (0..CONTROLLERS)
            .map(|number| edit(parents.clone(), number))
            .collect();
        async {
            let ends = try_join_all(edits).await?;
            ends.into_iter().next().context("there are no parents")
        }
    }

    /// From now on the hook takes `length` for calls of `path`.
    pub(crate) fn slow_down(&self, path: &str, length: Duration) {
        let slow = path.to_owned();
        self.hook.answer_with(move |call| {
            let takes = if call.path == slow {
                length
            } else {
                HOOK_TAKES
            };
            Answer::json(&answer(call)).after(takes)
        });
    }

    /// Waits until there are `wanted` calls of `path`.
    pub(crate) async fn is_called(&self, path: &str, wanted: usize) -> anyhow::Result<()> {
        self.eventually("a call", async || {
            let count = self.hook.calls_to(path).len();
            ensure!(count >= wanted, "there are {count} of {path}");
            Ok(())
        })
        .await
    }

    /// Forgets what was called so far, but for [`Self::is_sound`].
    pub(crate) fn forget(&self) {
        self.past.lock().append(&mut self.hook.take_calls());
    }

    /// Checks all that happened so far: every call that the hook saw and every write that the API server carried out.
    pub(crate) fn is_sound(&self) -> anyhow::Result<()> {
        // One reading of both clocks, for all calls.
        let (instant, wall) = (Instant::now().into_std(), Clock::system().wall());
        let now = wall.duration_since(SystemTime::UNIX_EPOCH)?;
        let mut calls = self.past.lock().clone();
        calls.append(&mut self.hook.calls());
        let calls = calls.iter().map(|call| {
            HookCall::of(call, &call.path, |it| {
                now.saturating_sub(instant.saturating_duration_since(it))
            })
        });
        let mut history = metashard_testkit::history::History {
            calls: calls.collect::<anyhow::Result<_>>()?,
            ..Default::default()
        };
        history.take_audit(&self.cluster.audit_events()?);
        ensure!(!history.maps.is_empty(), "the audit log shows no map");
        ensure!(
            history.writes.iter().any(|write| write.writer.is_some()),
            "the audit log shows no write of a worker"
        );
        let found = history.findings(None);
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        ensure!(found.is_empty(), "{found:#?}");
        Ok(())
    }

    /// What was called since [`Self::forget`].
    pub(crate) fn history(&self) -> History {
        History::new(self.hook.calls())
    }

    /// Waits until each controller has been called several times from now on.
    pub(crate) async fn is_served(&self) -> anyhow::Result<()> {
        let before = self.counts();
        self.eventually("every controller to be called", async || {
            let now = self.counts();
            let rose = |path: &str| {
                now.get(path).copied().unwrap_or_default()
                    - before.get(path).copied().unwrap_or_default()
            };
            for path in (0..CONTROLLERS).map(path) {
                ensure!(rose(&path) >= SERVED, "{path} was not");
            }
            Ok(())
        })
        .await
    }

    /// Waits until each of `replicas` owns the shard of at least one controller, and nobody else does.
    pub(crate) async fn is_shared_by(&self, replicas: &[&str]) -> anyhow::Result<()> {
        self.eventually("all replicas to have a share", async || {
            let owners = self.owners().await?;
            let now: BTreeSet<&str> = owners.values().map(String::as_str).collect();
            let wanted = replicas.iter().copied().collect();
            ensure!(
                owners.len() == CONTROLLERS && now == wanted,
                "the owners are {owners:?}"
            );
            Ok(())
        })
        .await
    }

    /// Waits until a replica owns the shard of no controller any more.
    pub(crate) async fn is_left_by(&self, replica: &str) -> anyhow::Result<()> {
        self.eventually("others to take over", async || {
            let owners = self.owners().await?;
            let is_owner = owners.values().any(|owner| owner == replica);
            ensure!(!is_owner, "the owners are {owners:?}");
            Ok(())
        })
        .await
    }

    /// The replica that the map names for each controller, by the path of its hook.
    pub(crate) async fn owners(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let map = self.map().await?;
        let mut owners = BTreeMap::new();
        for call in self.hook.calls() {
            let (shard, _) = ownership(&call)?;
            let owner = map.owner(shard);
            owners.insert(
                call.path,
                owner.map_or_else(String::new, |it| it.0.replica.clone()),
            );
        }
        Ok(owners)
    }

    /// Waits until no shard has changed hands for a while.
    pub(crate) async fn is_at_rest(&self) -> anyhow::Result<()> {
        self.eventually("the map to rest", async || {
            let before = self.map().await?.shards;
            throughout(REST, "the same owners", async || {
                let now = self.map().await?.shards;
                ensure!(now == before, "a shard has changed hands");
                Ok(())
            })
            .await
        })
        .await
    }

    /// The map.
    pub(crate) async fn map(&self) -> anyhow::Result<ShardMapSpec> {
        let maps: Api<ShardMap> = Api::namespaced(self.client.clone(), SYSTEM_NAMESPACE);
        Ok(maps.get(shard_map::NAME).await?.spec)
    }

    async fn leader(&self) -> anyhow::Result<&'static str> {
        let lease = self.leader_lease().await?;
        let holder = lease.spec.and_then(|spec| spec.holder_identity);
        let holder = holder.unwrap_or_default();
        let found = self.replicas.keys().find(|it| {
            let rest = holder.strip_prefix(**it);
            rest.is_some_and(|rest| rest.starts_with('_'))
        });
        found.copied().with_context(|| format!("{holder:?} leads"))
    }

    /// A replica that does not lead.
    pub(crate) async fn follower(&self) -> anyhow::Result<&'static str> {
        let leader = self.is_led("").await?;
        let follower = self.replicas.keys().find(|it| **it != leader);
        follower.copied().context("there is only one replica")
    }

    /// Waits until a replica other than `before` leads, as Lease and map say, and returns it.
    pub(crate) async fn is_led(&self, before: &str) -> anyhow::Result<&'static str> {
        self.eventually("a leader", async || {
            let leader = self.leader().await?;
            let map = self.map().await?.leader;
            let is_named = map.as_ref().is_some_and(|it| it.replica == leader);
            ensure!(
                leader != before && is_named,
                "{leader} holds the Lease, and the map names {map:?}"
            );
            Ok(leader)
        })
        .await
    }

    /// Takes the leader's Lease away, as somebody with other plans for it might.
    pub(crate) async fn take_lead_away(&self) -> anyhow::Result<()> {
        self.eventually("the leader's Lease to be taken", async || {
            let mut lease = self.leader_lease().await?;
            if let Some(spec) = &mut lease.spec {
                spec.holder_identity = Some("somebody else".to_owned());
            }
            let name = lease.metadata.name.clone().unwrap_or_default();
            let leases = self.leases();
            leases
                .replace(&name, &PostParams::default(), &lease)
                .await?;
            Ok(())
        })
        .await
    }

    async fn leader_lease(&self) -> anyhow::Result<Lease> {
        let name = metashard_api::names::LEADER_LEASE;
        self.leases()
            .get(name)
            .await
            .context("read the leader's Lease")
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), self.leader_namespace)
    }

    fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for call in self.hook.calls() {
            *counts.entry(call.path).or_default() += 1;
        }
        counts
    }

    async fn eventually<T>(
        &self,
        what: &str,
        mut probe: impl AsyncFnMut() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let mut ticks = interval(ASK_EVERY);
        eventually(WITHIN, what, async || {
            ticks.tick().await;
            probe().await
        })
        .await
    }
}

async fn edit(parents: Api<DynamicObject>, number: usize) -> anyhow::Result<Infallible> {
    let name = name(number);
    let mut ticks = interval(EDIT_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut value = 0_u64;
    loop {
        ticks.tick().await;
        value += 1;
        let patch = Patch::Merge(json!({ "spec": { "value": value.to_string() } }));
        parents
            .patch(&name, &PatchParams::default(), &patch)
            .await
            .context("edit a parent")?;
    }
}

fn name(number: usize) -> String {
    format!("thing-{number}")
}

fn path(number: usize) -> String {
    format!("/{number}")
}

fn controller(number: usize, url: &str) -> Value {
    crds::controller_of_things(&name(number), ("number", &number.to_string()), url)
}

fn parent(number: usize) -> Value {
    json!({
        "apiVersion": crds::API_VERSION,
        "kind": "Thing",
        "metadata": {
            "name": name(number),
            "namespace": NAMESPACE,
            "labels": { "number": number.to_string() },
        },
        "spec": { "value": "none" },
    })
}

/// One child that shows the parent's value.
fn answer(call: &Call) -> Value {
    let request = call.json();
    let parent = &request["parent"];
    json!({
        "children": [{
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": parent["metadata"]["name"] },
            "data": { "value": parent["spec"]["value"] },
        }],
        "status": { "value": parent["spec"]["value"] },
    })
}
