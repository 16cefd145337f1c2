//! A controller that is split over the workers and merged again, while its hook is called all the time.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    time::Duration,
};

use anyhow::{Context, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::ConfigMap};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use metashard_api::{
    id::ControllerUid,
    names::{LEADER_LEASE, SYSTEM_NAMESPACE},
    shard_map::{self, ShardMap, ShardMapSpec},
    v1alpha1::composite::CompositeController,
};
use metashard_fleet::shard::{Layout, slice_of};
use metashard_testkit::{
    Cluster, FakeHook, Replica,
    apply::apply,
    cluster, crds,
    history::{History, HookCall},
    hook::{Answer, Call},
    replica::{self, Options},
    shipped,
    wait::eventually,
};
use serde_json::{Value, json};
use tokio::{process::Command, time::Instant};

use crate::{history::ownership, turn};

/// Time for anything that is not measured.
const WITHIN: Duration = Duration::from_mins(1);

/// How long a hook takes.
const HOOK_TAKES: Duration = Duration::from_millis(100);

/// How long a hook takes that is always being called, and holds a drain up for all of its grace.
const OUTLASTS: Duration = Duration::from_secs(6);

/// Time between two syncs of a parent that nothing else asks for.
const RESYNC: u64 = 4;

/// Over how long workers are compared.
const COMPARED: Duration = Duration::from_secs(12);

/// The controller that is split.
pub(crate) const HOT: &str = "hot";

const NAMESPACE: &str = "parents";

/// Replicas, and controllers whose parents are synced again and again.
pub(crate) struct Stage {
    replicas: Vec<Replica>,
    client: Client,
    hook: FakeHook,
    cluster: Cluster,
    began: Instant,
}

impl Stage {
    /// Starts replicas of these names. Controllers by name, each with so many parents.
    pub(crate) async fn start(
        replicas: &[&str],
        controllers: &[(String, usize)],
    ) -> anyhow::Result<Self> {
        let cluster = Cluster::start(cluster::Options::default()).await?;
        let client = cluster.admin().await?;
        shipped::put_crds(&client).await?;
        shipped::put_system(&client, SYSTEM_NAMESPACE).await?;
        crds::install_one(&client, &crds::thing()).await?;
        let namespace =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
        apply(&client, &namespace).await?;
        let hook = FakeHook::start(|call| Answer::json(&answer(call)).after(HOOK_TAKES))?;
        let mut objects = Vec::new();
        for (name, n_parents) in controllers {
            objects.push(controller(name, &hook.url(&format!("/{name}"))));
            objects.extend((0..*n_parents).map(|number| parent(name, number)));
        }
        let applied = objects.iter().map(|object| apply(&client, object));
        let applied: Vec<_> = stream::iter(applied)
            .buffer_unordered(8)
            .try_collect()
            .await?;
        ensure!(applied.len() == objects.len(), "not all is applied");
        let mut started = Vec::new();
        for name in replicas {
            let options = Options::new(&cluster, name, SYSTEM_NAMESPACE)?
                .flags(["--role=all"])
                .faults("merge-after=20");
            started.push(Replica::start(cluster.group(), &options)?);
        }
        for replica in &mut started {
            replica.ready(WITHIN).await?;
        }
        Ok(Self {
            replicas: started,
            client,
            hook,
            cluster,
            began: Instant::now(),
        })
    }

    /// The spec of the hot controller asks for so many slices.
    pub(crate) async fn ask(&self, slices: Option<u16>) -> anyhow::Result<()> {
        let sharding = slices.map(|slices| json!({ "slices": slices }));
        self.edit(&json!({ "sharding": sharding })).await
    }

    /// All parents of the hot controller are synced again and again, each after so many seconds.
    async fn resync(&self, seconds: u64) -> anyhow::Result<()> {
        self.edit(&json!({ "resyncPeriodSeconds": seconds })).await
    }

    async fn edit(&self, spec: &Value) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({ "spec": spec }));
        self.controllers()
            .patch(HOT, &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }

    /// Gives a controller more parents.
    pub(crate) async fn add_parents(&self, of: &str, numbers: Range<usize>) -> anyhow::Result<()> {
        for number in numbers {
            apply(&self.client, &parent(of, number)).await?;
        }
        Ok(())
    }

    /// The uids of all controllers, by name.
    pub(crate) async fn uids(&self) -> anyhow::Result<BTreeMap<String, ControllerUid>> {
        let all = self.controllers().list(&ListParams::default()).await?;
        let named = all.into_iter().map(|it| {
            let uid = ControllerUid::new(it.uid().unwrap_or_default());
            (it.name_any(), uid)
        });
        Ok(named.collect())
    }

    /// The highest value of a gauge among the replicas: those that do not lead have 0.
    pub(crate) async fn metric(&self, name: &str) -> anyhow::Result<f64> {
        let mut highest = 0_f64;
        for replica in &self.replicas {
            highest = highest.max(replica.metric(name).await?);
        }
        Ok(highest)
    }

    /// Flags of `metashardctl` that name the replicas: they are no Pods.
    pub(crate) fn servers(&self) -> Vec<String> {
        let urls = self.replicas.iter().map(Replica::health_url);
        urls.map(|it| format!("--server={it}")).collect()
    }

    /// What `metashardctl` prints, run by an administrator.
    pub(crate) async fn ctl(&self, args: &[&str]) -> anyhow::Result<String> {
        let output = Command::new(replica::built("metashardctl")?)
            .args(args)
            .arg("--kubeconfig")
            .arg(self.cluster.kubeconfig(cluster::ADMIN)?)
            .kill_on_drop(true)
            .output()
            .await?;
        let (text, errors) = (output.stdout, String::from_utf8(output.stderr)?);
        ensure!(output.status.success(), "{args:?}: {errors}");
        Ok(String::from_utf8(text)?)
    }

    /// Waits until the map splits the hot controller as `wanted`.
    async fn is_split(
        &self,
        wanted: impl Fn(u16) -> bool,
        within: Duration,
    ) -> anyhow::Result<u16> {
        let uid = self.controllers().get(HOT).await?.uid();
        let uid = ControllerUid::new(uid.context("it has a uid")?);
        eventually(within, "the map to split it otherwise", async || {
            let slices = Layout::of(&self.map().await?).slices(&uid);
            ensure!(wanted(slices), "there are {slices} slices");
            Ok(slices)
        })
        .await
    }

    /// Waits until every parent of every controller was called from now on, under the ownership that the map gives.
    pub(crate) async fn is_served(&self, controllers: &[(String, usize)]) -> anyhow::Result<()> {
        let since = Instant::now().into_std();
        eventually(WITHIN, "every parent to be synced", async || {
            let mut synced: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
            let calls = self.hook.calls().into_iter();
            for call in calls.filter(|call| call.received > since) {
                let parent = parent_of(&call);
                synced.entry(call.path).or_default().insert(parent);
            }
            for (name, wanted) in controllers {
                let count = synced.get(&format!("/{name}")).map_or(0, BTreeSet::len);
                ensure!(count == *wanted, "{count} of {wanted} parents of {name}");
            }
            Ok(())
        })
        .await
    }

    pub(crate) async fn map(&self) -> anyhow::Result<ShardMapSpec> {
        let maps: Api<ShardMap> = Api::namespaced(self.client.clone(), SYSTEM_NAMESPACE);
        Ok(maps.get(shard_map::NAME).await?.spec)
    }

    /// Takes the lead away by hand, and waits until somebody leads in a new term.
    pub(crate) async fn change_leader(&self) -> anyhow::Result<()> {
        let before = self.map().await?.term;
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), SYSTEM_NAMESPACE);
        let taken = Patch::Merge(json!({ "spec": { "holderIdentity": "somebody else" } }));
        leases
            .patch(LEADER_LEASE, &PatchParams::default(), &taken)
            .await?;
        eventually(WITHIN, "the map of another term", async || {
            let term = self.map().await?.term;
            ensure!(term > before, "it is {term}");
            Ok(())
        })
        .await
    }

    fn controllers(&self) -> Api<CompositeController> {
        Api::all(self.client.clone())
    }

    /// From now on the hook takes `length`.
    fn take(&self, length: Duration) {
        self.hook
            .answer_with(move |call| Answer::json(&answer(call)).after(length));
    }

    /// Waits until the leader has begun to change splits, and has not come to the end of it. Returns who owns the hot controller.
    async fn is_in_mid_split(&self) -> anyhow::Result<String> {
        let uid = self.controllers().get(HOT).await?.uid();
        let uid = ControllerUid::new(uid.context("it has a uid")?);
        eventually(WITHIN, "a split under way", async || {
            let mut hand_overs = 0.0;
            for replica in &self.replicas {
                hand_overs += replica.metric("metashard_leader_hand_overs").await?;
            }
            ensure!(hand_overs > 0.0, "no shard is being drained");
            let map = self.map().await?;
            let layout = Layout::of(&map);
            ensure!(layout.slices(&uid) == 1, "it is over");
            let owner = map.owner(layout.home(&uid)).map(|it| it.0.replica.clone());
            owner.context("nobody owns it")
        })
        .await
    }

    /// Crashes a replica.
    fn kill(&mut self, name: &str) -> anyhow::Result<()> {
        let mut replicas = self.replicas.iter_mut();
        let replica = replicas.find(|it| it.name() == name);
        replica.context("there is no such replica")?.kill()
    }

    /// How much more than the mean the busiest worker had to do lately, by the calls that the hook saw.
    async fn hottest(&self) -> anyhow::Result<f64> {
        let map = self.map().await?;
        let mut counts: BTreeMap<String, u32> = BTreeMap::new();
        for call in self
            .hook
            .calls()
            .iter()
            .filter(|it| it.received.elapsed() < COMPARED)
        {
            let (shard, _) = ownership(call)?;
            let owner = map.owner(shard).map(|it| it.0.replica.clone());
            *counts.entry(owner.unwrap_or_default()).or_default() += 1;
        }
        let most = counts.values().max().copied().unwrap_or_default();
        let all: u32 = counts.values().sum();
        let workers = u32::try_from(self.replicas.len())?;
        Ok(f64::from(most * workers) / f64::from(all.max(1)))
    }

    /// Waits until each worker holds the children of its own parents, those that nobody controls, and no others.
    async fn keeps_only_its_own(&self, controllers: &[(String, usize)]) -> anyhow::Result<()> {
        let mut uids = BTreeMap::new();
        for (name, _) in controllers {
            let uid = self.controllers().get(name).await?.uid();
            uids.insert(name, ControllerUid::new(uid.context("it has a uid")?));
        }
        let maps: Api<ConfigMap> = Api::all(self.client.clone());
        let mut everybodys = maps.list(&ListParams::default()).await?.items;
        everybodys.retain(|it| it.owner_references().is_empty());
        eventually(WITHIN, "workers to let go what is others'", async || {
            let map = self.map().await?;
            let mut own: BTreeMap<&str, usize> = BTreeMap::new();
            for (name, n_parents) in controllers {
                let uid = &uids[name];
                let layout = Layout::of(&map);
                let slices = layout.slices(uid);
                for number in 0..*n_parents {
                    let slice = slice_of(Some(NAMESPACE), &format!("{name}-{number}"), slices);
                    let owner = map.owner(layout.shard(uid, slice));
                    let (owner, _) = owner.context("a shard without an owner")?;
                    *own.entry(&owner.replica).or_default() += 1;
                }
            }
            for replica in &self.replicas {
                let sample = r#"metashard_kube_cached_objects{resource="v1/configmaps"}"#;
                let name = replica.name();
                let wanted = own.get(name).map_or(0, |own| own + everybodys.len());
                let held = replica.metric(sample).await?.to_string();
                ensure!(held == wanted.to_string(), "{name}: {held} for {wanted}");
            }
            Ok(())
        })
        .await
    }

    /// Nothing was called that must not have been.
    pub(crate) fn assert_never_twice(&self) -> anyhow::Result<usize> {
        let began = self.began.into_std();
        let time = |at: std::time::Instant| at.saturating_duration_since(began);
        let calls = self.hook.calls();
        let calls: Vec<_> = calls
            .iter()
            .filter(|call| call.received > began)
            .map(|call| HookCall::of(call, &call.path, time))
            .collect::<Result<_, _>>()?;
        let history = History {
            calls,
            ..History::default()
        };
        // Without maps and writes, it judges what was called at once.
        let found = history.findings(None);
        ensure!(
            found.is_empty(),
            "{found:?}; {}",
            self.cluster.folder().display()
        );
        Ok(history.calls.len())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_is_split_as_it_asks_and_no_parent_is_served_twice_or_lost()
-> anyhow::Result<()> {
    let _turn = turn().await;
    let controllers = [(HOT.to_owned(), 40), ("quiet".to_owned(), 4)];
    let stage = Stage::start(&["alpha", "beta", "gamma"], &controllers).await?;
    stage.is_served(&controllers).await?;

    for slices in [4, 1, 8, 2, 1] {
        stage.ask(Some(slices)).await?;
        let asked = Instant::now();
        stage.is_split(|it| it == slices, WITHIN).await?;
        let split = asked.elapsed();
        stage.is_served(&controllers).await?;
        if slices == 8 {
            stage.keeps_only_its_own(&controllers).await?;
        }
        println!(
            "{slices} slices after {split:?}, all served after {:?}",
            asked.elapsed()
        );
    }
    stage.ask(None).await?;
    stage.is_served(&controllers).await?;

    let calls = stage.assert_never_twice()?;
    println!("{calls} calls, none at once with another one for the same parent");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_dies_in_mid_split_leaves_no_parent_unserved_and_none_served_twice()
-> anyhow::Result<()> {
    let _turn = turn().await;
    let controllers = [(HOT.to_owned(), 24)];
    let mut stage = Stage::start(&["alpha", "beta", "gamma"], &controllers).await?;
    stage.is_served(&controllers).await?;

    stage.take(OUTLASTS);
    stage.is_served(&controllers).await?;
    stage.ask(Some(4)).await?;
    let owner = stage.is_in_mid_split().await?;
    stage.kill(&owner)?;
    let killed = Instant::now();
    stage.take(HOOK_TAKES);
    stage.is_served(&controllers).await?;

    let slices = stage.is_split(|it| matches!(it, 1 | 4), WITHIN).await?;
    println!("{slices} slices, all served after {:?}", killed.elapsed());
    let calls = stage.assert_never_twice()?;
    println!("{calls} calls, none at once with another one for the same parent");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_with_half_of_all_load_is_split_until_workers_are_even_and_merged_when_it_goes()
-> anyhow::Result<()> {
    let _turn = turn().await;
    let mut controllers: Vec<_> = (0..40).map(|n| (format!("quiet-{n}"), 3)).collect();
    controllers.push((HOT.to_owned(), 120));
    let stage = Stage::start(&["alpha", "beta", "gamma", "delta"], &controllers).await?;
    let began = Instant::now();

    let slices = stage.is_split(|it| it > 1, Duration::from_mins(2)).await?;
    println!("{slices} slices after {:?}", began.elapsed());
    let left = Duration::from_mins(2).saturating_sub(began.elapsed());
    let hottest = eventually(left, "workers to be even", async || {
        let hottest = stage.hottest().await?;
        ensure!(hottest <= 1.10, "the busiest has {hottest:.2} of the mean");
        Ok(hottest)
    })
    .await?;
    println!("hottest/mean {hottest:.2} after {:?}", began.elapsed());
    stage.is_served(&controllers).await?;

    stage.resync(3600).await?;
    let gone = Instant::now();
    stage.is_split(|it| it == 1, Duration::from_mins(4)).await?;
    println!("merged {:?} after the load has gone", gone.elapsed());
    stage.resync(RESYNC).await?;
    stage.is_served(&controllers).await?;

    let calls = stage.assert_never_twice()?;
    println!("{calls} calls, none at once with another one for the same parent");
    Ok(())
}

fn parent_of(call: &Call) -> String {
    let request = call.json();
    let name = request["parent"]["metadata"]["name"].as_str();
    name.unwrap_or_default().to_owned()
}

fn answer(call: &Call) -> Value {
    let request = call.json();
    json!({
        "children": [{
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": request["parent"]["metadata"]["name"] },
        }],
    })
}

fn controller(name: &str, url: &str) -> Value {
    let mut controller = crds::controller_of_things(name, ("of", name), url);
    controller["spec"]["resyncPeriodSeconds"] = RESYNC.into();
    controller
}

fn parent(of: &str, number: usize) -> Value {
    json!({
        "apiVersion": crds::API_VERSION,
        "kind": "Thing",
        "metadata": {
            "name": format!("{of}-{number}"),
            "namespace": NAMESPACE,
            "labels": { "of": of },
        },
    })
}
