//! `shards`, `drain`, `uncordon` and `rebalance`, against replicas of a stage's own.

use std::{fs, time::Duration};

use anyhow::{Context, ensure};
use metashard_api::placement;
use metashard_testkit::{Cluster, Replica, cluster, replica, shipped};
use serde_json::{Value, json};
use tokio::{process::Command, time::Instant};

use super::{Ran, User, mistakes::fails, ours, ran, start_replica};
use crate::{
    poor,
    support::{
        CONFIG_MAP, Kind, Objects, PLACEMENT, SHARD_MAP, Stage, THING, config_map, eventually,
    },
};

/// How long a move by hand may take.
const MOVED_WITHIN: Duration = Duration::from_secs(30);

/// Replicas in a system namespace of their own, which serve one controller with one parent.
struct Scene {
    stage: Stage,
    system: String,
    replicas: Vec<Replica>,
    admin: User,
}

impl Scene {
    async fn start(claim: &str, names: &[&str]) -> anyhow::Result<Self> {
        let stage = Stage::new(claim).await?;
        let system = stage.shared.cluster.namespace("shards-system").await?;
        shipped::put_system(&stage.client, &system).await?;
        let controller = stage.controller().child(CONFIG_MAP, "InPlace");
        controller.edit(ours(&stage)).apply().await?;
        let mut replicas = Vec::new();
        for name in names {
            let name = format!("{}-{name}", stage.namespace);
            replicas.push(start_replica(&stage, &name, &system).await?);
        }
        let spec = json!({ "children": [config_map("a", json!({ "k": "1" }))] });
        stage.parent(THING, "p", spec).await?;
        stage.settle(THING, "p").await?;
        Ok(Self {
            admin: User::admin(stage.shared)?,
            stage,
            system,
            replicas,
        })
    }

    /// Runs the tool for this fleet.
    async fn ctl(&self, args: &[&str]) -> anyhow::Result<Ran> {
        self.ctl_as(&self.admin, args).await
    }

    async fn ctl_as(&self, user: &User, args: &[&str]) -> anyhow::Result<Ran> {
        let system = ["--system-namespace", self.system.as_str()];
        user.runs(args.iter().copied().chain(system)).await
    }

    /// Runs it with the URLs of the replicas: they are no Pods.
    async fn ask(&self, args: &[&str]) -> anyhow::Result<Ran> {
        let servers = self.replicas.iter();
        let servers: Vec<_> = servers
            .map(|it| format!("--server={}", it.health_url()))
            .collect();
        let servers = servers.iter().map(String::as_str);
        let args: Vec<&str> = args.iter().copied().chain(servers).collect();
        self.ctl(&args).await
    }

    /// The shard of the controller, as the list shows it.
    async fn shard(&self) -> anyhow::Result<Value> {
        let listed = self.ask(&["shards", "-o", "json"]).await?;
        let mut shards = listed.json()?["shards"].take();
        let shards = shards.as_array_mut().context("there are shards")?;
        ensure!(shards.len() == 1, "{shards:#?}");
        shards.pop().context("its shard")
    }

    /// What each replica carries, once all of them do.
    async fn is_shared(&self) -> anyhow::Result<()> {
        eventually("all replicas to have shards", async || {
            let listed = self.ask(&["shards", "--by-replica", "-o", "json"]).await?;
            let listed = listed.json()?;
            let replicas = listed["replicas"].as_array().context("replicas")?;
            let has = |it: &Value| it["carried"]["shards"].as_u64() > Some(100);
            let n = replicas.iter().filter(|it| has(it)).count();
            ensure!(n == self.replicas.len(), "{replicas:#?}");
            Ok(())
        })
        .await
    }

    async fn placement(&self) -> anyhow::Result<Value> {
        let placements = Objects::new(&self.stage.client, PLACEMENT, &self.system);
        placements.get(placement::NAME).await
    }

    fn other_than(&self, name: &str) -> anyhow::Result<&str> {
        let mut others = self.replicas.iter().map(Replica::name);
        others.find(|it| *it != name).context("another replica")
    }
}

fn is_told(ran: &Ran, code: i32, text: &str) -> anyhow::Result<()> {
    ensure!(ran.code == code, "{ran:#?}");
    ensure!(ran.text.contains(text), "{text:?} is not told: {ran:#?}");
    ensure!(!ran.errors.contains("panicked"), "{ran:#?}");
    Ok(())
}

#[tokio::test]
async fn shards_are_shown_moved_drained_and_levelled_by_who_may() -> anyhow::Result<()> {
    let scene = Scene::start("shards", &["one", "two"]).await?;
    scene.is_shared().await?;
    let from = is_shown(&scene).await?;
    let to = scene.other_than(&from)?;
    is_moved(&scene, to).await?;
    is_drained(&scene, &from, to).await?;
    is_levelled(&scene).await
}

/// What is there; returns who owns it.
async fn is_shown(scene: &Scene) -> anyhow::Result<String> {
    let name = scene.stage.namespace.as_str();
    let table = scene.ask(&["shards"]).await?;
    is_told(&table, 0, "LAST HAND-OVER")?;
    ensure!(table.text.lines().count() == 2, "{table:#?}");
    is_told(&table, 0, name)?;
    let shard = scene.shard().await?;
    ensure!(shard["phase"] == "Owned", "{shard:#}");
    // Controllers of other tests may share it.
    let names = shard["names"].as_array().context("names")?;
    ensure!(names.contains(&name.into()), "{shard:#}");
    let explain = ["shards", "explain", "thing/p", "-n", name];
    let explained = scene.ask(&explain).await?;
    is_told(&explained, 0, "  because ")?;
    is_told(&explained, 0, "  next ")?;
    let explained = scene.ask(&[&explain[..], &["-o", "json"]].concat()).await?;
    let explained = explained.json()?["controllers"][0].take();
    ensure!(
        explained["shard"]["shard"] == shard["shard"],
        "{explained:#}"
    );
    ensure!(explained["explained"]["next"].is_string(), "{explained:#}");
    Ok(shard["owner"].as_str().context("an owner")?.to_owned())
}

/// A move, by hand.
async fn is_moved(scene: &Scene, to: &str) -> anyhow::Result<()> {
    let name = scene.stage.namespace.as_str();
    let dry = ["shards", "move", name, "--to", to, "--dry-run"];
    is_told(&scene.ctl(&dry).await?, 1, "(dry run)")?;
    let began = Instant::now();
    let moves = [
        "shards",
        "move",
        name,
        "--to",
        to,
        "--wait",
        "--timeout=30s",
    ];
    is_told(&scene.ctl(&moves).await?, 0, "pinned to replica")?;
    ensure!(began.elapsed() < MOVED_WITHIN, "{:?}", began.elapsed());
    let shard = scene.shard().await?;
    ensure!(shard["owner"] == to, "{shard:#}");
    ensure!(shard["pinnedTo"] == to, "{shard:#}");
    ensure!(shard["lastHandOver"]["reason"] == "pin", "{shard:#}");
    is_told(&scene.ctl(&moves).await?, 0, "already")?;
    is_told(&scene.ctl(&["shards", "unpin", name]).await?, 0, "unpinned")?;
    ensure!(scene.placement().await?["spec"]["pins"] == json!([]));
    Ok(())
}

/// A levelling: it takes longer than a test should, as shards rest after a move.
async fn is_levelled(scene: &Scene) -> anyhow::Result<()> {
    let level = ["rebalance", "--reason=monday", "--wait", "--timeout=0s"];
    let level = scene.ctl(&level).await?;
    is_told(&level, 1, "monday")?;
    ensure!(level.errors.contains("not done within"), "{level:#?}");
    ensure!(scene.placement().await?["spec"]["rebalance"] == "monday");
    Ok(())
}

/// A drain, and its end.
async fn is_drained(scene: &Scene, from: &str, to: &str) -> anyhow::Result<()> {
    let name = scene.stage.namespace.as_str();
    let level = scene.ask(&["rebalance", "--dry-run"]).await?;
    is_told(&level, 0, "0 shards would move")?;
    let drain = ["drain", to, "--wait", "--timeout=60s"];
    is_told(&scene.ctl(&drain).await?, 0, "cordoned")?;
    let drained = scene.shard().await?;
    ensure!(drained["owner"] == from, "{drained:#}");
    let by_replica = scene.ask(&["shards", "--by-replica"]).await?;
    is_told(&by_replica, 0, "Ready,Cordoned")?;
    fails(
        &scene.ctl(&["drain", from]).await?,
        "no replica would be left",
    )?;
    let onto = scene.ctl(&["shards", "move", name, "--to", to]).await?;
    fails(&onto, &format!("uncordon {to}"))?;
    is_told(&scene.ctl(&["uncordon", to]).await?, 0, "uncordoned")?;
    ensure!(scene.placement().await?["spec"]["cordoned"] == json!([]));
    Ok(())
}

#[tokio::test]
async fn placement_with_more_replicas_is_simulated_from_the_fleet_and_from_a_file()
-> anyhow::Result<()> {
    let scene = Scene::start("shards-simulated", &["one"]).await?;
    let before = scene.shard().await?;

    let live = scene
        .ask(&["shards", "simulate", "--replicas", "4", "-o", "json"])
        .await?;

    ensure!(live.code == 1, "{live:#?}");
    let live = live.json()?;
    let moves = live["moves"].as_array().context("moves")?;
    ensure!(moves.len() > 700, "{} of 1024", moves.len());
    let is_new = |it: &&str| it.starts_with("new-");
    let targets = || moves.iter().filter_map(|it| it["to"].as_str());
    ensure!(targets().count() == moves.len() && targets().all(|it| is_new(&it)));
    ensure!(scene.shard().await?["epoch"] == before["epoch"]);
    // The same from what was printed, where there is no cluster.
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("shards.json");
    let all = scene.ask(&["shards", "--all", "-o", "json"]).await?;
    fs::write(&file, &all.text)?;
    let mut offline = Command::new(replica::built("metashardctl")?);
    offline
        .args(["shards", "simulate", "--replicas=4", "-o", "json", "-f"])
        .arg(&file)
        .env("KUBECONFIG", folder.path().join("none"));
    let offline = ran(offline).await?;
    ensure!(offline.code == 1, "{offline:#?}");
    ensure!(offline.json()?["moves"] == live["moves"]);
    Ok(())
}

#[tokio::test]
async fn mistakes_and_missing_rights_are_told_and_nothing_is_written() -> anyhow::Result<()> {
    let scene = Scene::start("shards-typos", &["one"]).await?;
    let name = scene.stage.namespace.as_str();
    let replica = scene.replicas[0].name();
    let typo = replica.replace("typos", "tpyos");
    let meant = format!("did you mean {replica}?");

    let to_typo = ["shards", "move", "7", "--to", &typo];
    fails(&scene.ctl(&to_typo).await?, &meant)?;
    fails(&scene.ctl(&["drain", &typo]).await?, &meant)?;
    fails(&scene.ctl(&["uncordon", &typo]).await?, &meant)?;
    let no_shard = ["shards", "move", "5000", "--to", replica];
    fails(&scene.ctl(&no_shard).await?, "there is no shard 5000")?;
    let wrong = name.replace("typos", "tpyos");
    let no_controller = ["shards", "move", &wrong, "--to", replica];
    let meant = format!("did you mean {name}?");
    fails(&scene.ctl(&no_controller).await?, &meant)?;
    fails(&scene.ctl(&["shards", "unpin", &wrong]).await?, &meant)?;
    fails(
        &scene.ctl(&["drain", replica]).await?,
        "no replica would be left",
    )?;
    let stranger = ["shards", "explain", "configmap/a", "-n", name];
    let stranger = scene.ask(&stranger).await?;
    fails(&stranger, "is no parent of a controller")?;

    // Whoever may read but not write, and may ask no replica.
    let user = User::named(scene.stage.shared, name)?;
    let read = json!([
        poor::rule("metacontroller.k8s.io", "*", &["get", "list"]),
        poor::rule("metashard.io", "*", &["get", "list"]),
        poor::rule("coordination.k8s.io", "leases", &["list"]),
    ]);
    poor::bind(&scene.stage.client, None, (name, "reader"), read).await?;
    let blind = eventually("rights to count", async || {
        let blind = scene.ctl_as(&user, &["shards"]).await?;
        is_told(&blind, 0, name)?;
        Ok(blind)
    })
    .await?;
    let left_out = "phases, costs and hand-overs are left out: ";
    ensure!(blind.errors.contains(left_out), "{blind:#?}");
    let moves = ["shards", "move", "7", "--to", replica];
    let refused = scene.ctl_as(&user, &moves).await?;
    fails(&refused, "cannot create resource \"placements\"")?;
    let placements = Objects::new(&scene.stage.client, PLACEMENT, &scene.system);
    ensure!(placements.find(placement::NAME).await?.is_none());
    Ok(())
}

#[tokio::test]
async fn cluster_without_placements_is_told_how_to_get_them() -> anyhow::Result<()> {
    let cluster = Cluster::start(cluster::Options::default()).await?;
    let client = cluster.admin().await?;
    shipped::put_crds(&client).await?;
    shipped::put_system(&client, "metashard-system").await?;
    let kind = |plural, kind| Kind {
        api_version: "apiextensions.k8s.io/v1",
        kind,
        plural,
        namespaced: false,
    };
    let crds = kind("customresourcedefinitions", "CustomResourceDefinition");
    let crds = Objects::new(&client, crds, "");
    crds.delete("placements.metashard.io").await?;
    let maps = Objects::new(&client, SHARD_MAP, "metashard-system");
    let entry = json!({ "owner": 0, "epoch": 1 });
    let member = json!({ "replica": "a", "incarnation": "i" });
    let spec =
        json!({ "term": 1, "seq": 1, "shardCount": 1, "members": [member], "shards": [entry] });
    maps.patch("metashard", json!({ "spec": spec })).await?;
    let user = User::with(cluster.kubeconfig(cluster::ADMIN)?);

    eventually("the CRD to be gone", async || {
        let ran = user.runs(["drain", "a"]).await?;
        fails(&ran, "deploy/crds/placements.yaml")
    })
    .await
}
