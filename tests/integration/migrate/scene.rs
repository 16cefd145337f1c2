//! A cluster of its own with two controllers whose children Metacontroller made, one scene at a time.

use std::{
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::{Context, ensure};
use metashard_api::names::{ANNOTATION_LAST_APPLIED, MIGRATION_RECORD};
use metashard_testkit::{Cluster, FakeHook, Replica, cluster, hook::Answer, replica};
use serde_json::{Value, json};
use tokio::{
    process::{Child, Command},
    sync::{Mutex, MutexGuard, OnceCell},
};

use super::peer::{self, LEASE, Peer, STATEFUL_SET};
use crate::support::{
    CONFIG_MAP, CONTROLLER, Kind, Objects, POD, Parity, STAGE, Shared, Stage, THING, WITHIN,
    condition_of, config_map, data_of, eventually, install_crds, throughout,
};

/// The user that may do nothing.
const STRANGER: &str = "stranger";

/// How long a move may wait for one thing; far more than it takes.
const TIMEOUT: &str = "--timeout=60s";

/// One move.
pub(super) struct Scene {
    pub(super) stage: Stage,
    pub(super) peer: Peer,
    pub(super) replica: Option<Replica>,
    /// The hooks fail.
    pub(super) breaks: Arc<AtomicBool>,
    names: [String; 2],
    /// Length of the audit log at the beginning.
    audited: usize,
    _only: MutexGuard<'static, ()>,
}

/// What a command said.
#[derive(Debug)]
pub(super) struct Says {
    pub(super) code: i32,
    pub(super) out: String,
    pub(super) err: String,
}

/// A cluster whose controllers and workloads are ours alone.
async fn private() -> anyhow::Result<&'static Shared> {
    static PRIVATE: OnceCell<Shared> = OnceCell::const_new();
    PRIVATE
        .get_or_try_init(async || {
            let options = cluster::Options {
                audit: true,
                recorded: true,
                ..cluster::Options::default()
            };
            let cluster = Cluster::start(options).await?;
            install_crds(&cluster).await?;
            // A stage wants one; it serves nobody.
            let options = replica::Options::new(&cluster, "idle", "idle")?;
            let options = options.flags(["--target-label-selector=nobody=ever"]);
            let replica = Replica::start(cluster.group(), &options)?;
            Ok(Shared {
                cluster,
                replica,
                parity: Parity::default(),
            })
        })
        .await
}

/// A Metacontroller that runs, two controllers, and no metashard yet.
pub(super) async fn scene() -> anyhow::Result<Scene> {
    static ONLY: Mutex<()> = Mutex::const_new(());
    let only = ONLY.lock().await;
    let shared = private().await?;
    clean(&shared.cluster).await?;
    let breaks = Arc::<AtomicBool>::default();
    let broken = Arc::clone(&breaks);
    let hook = FakeHook::start(move |call| {
        if broken.load(Ordering::SeqCst) {
            return Answer::status(500, "broken");
        }
        let name = call.path.trim_start_matches('/');
        let child = config_map(name, json!({ "k": "v" }));
        Answer::json(&json!({ "children": [child], "resyncAfterSeconds": 0.3 }))
    })?;
    let stage = Stage::on(shared, "migrate", hook).await?;
    let peer = Peer::start(&stage.client, &stage.namespace).await?;
    let names = ["a", "b"].map(|it| format!("{}-{it}", stage.namespace));
    let audited = shared.cluster.audit_events()?.len();
    let scene = Scene {
        stage,
        peer,
        replica: None,
        breaks,
        names,
        audited,
        _only: only,
    };
    for name in ["a", "b"] {
        scene.left_by_metacontroller(name).await?;
        scene.controller(name, &format!("/{name}")).await?;
    }
    Ok(scene)
}

/// Takes away what the scene before left.
async fn clean(cluster: &Cluster) -> anyhow::Result<()> {
    let client = cluster.admin().await?;
    for kind in [CONTROLLER, STATEFUL_SET, POD] {
        let everywhere = Objects::everywhere(&client, kind);
        // A new API server may not be able to yet.
        let list = eventually("a list", async || everywhere.list().await).await?;
        for object in list {
            let metadata = &object["metadata"];
            let namespace = metadata["namespace"].as_str().unwrap_or_default();
            let name = metadata["name"].as_str().unwrap_or_default();
            let objects = Objects::new(&client, kind, namespace);
            objects.delete(name).await?;
            objects.goes(name).await?;
        }
    }
    Ok(())
}

impl Scene {
    /// Names of its controllers.
    pub(super) fn controllers(&self) -> [String; 2] {
        self.names.clone()
    }

    /// The namespace of the StatefulSet, of metashard's record, and of all parents.
    pub(super) fn ops(&self) -> &str {
        &self.stage.namespace
    }

    /// A parent and its child, as Metacontroller made it.
    async fn left_by_metacontroller(&self, name: &str) -> anyhow::Result<()> {
        let labels = json!({ STAGE: self.ops(), "of": name });
        let parent = json!({ "metadata": { "name": name, "labels": labels } });
        let parent = self.stage.objects(THING).create(parent).await?;
        let status = json!({ "observedGeneration": 1 });
        self.stage.objects(THING).patch_status(name, status).await?;
        let mut child = config_map(name, json!({ "k": "v" }));
        child["metadata"]["labels"] = json!({ "controller-uid": parent["metadata"]["uid"] });
        child["metadata"]["namespace"] = self.ops().into();
        let record = child.to_string();
        child["metadata"]["annotations"][ANNOTATION_LAST_APPLIED] = record.into();
        child["metadata"]["ownerReferences"] = json!([{
            "apiVersion": THING.api_version, "kind": "Thing", "name": name,
            "uid": parent["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
        }]);
        self.stage.objects(CONFIG_MAP).create(child).await?;
        Ok(())
    }

    /// A controller of the parents that are `of` its name.
    pub(super) async fn controller(&self, name: &str, path: &str) -> anyhow::Result<String> {
        let full = format!("{}-{name}", self.ops());
        let builder = self.stage.controller().child(CONFIG_MAP, "InPlace");
        builder
            .edit(|it| {
                it["metadata"]["name"] = full.as_str().into();
                it["spec"]["parentResource"]["labelSelector"]["matchLabels"]["of"] = name.into();
                it["spec"]["hooks"]["sync"]["webhook"]["url"] = self.stage.hook.url(path).into();
            })
            .apply()
            .await?;
        if path == "/late" {
            let labels = json!({ STAGE: self.ops(), "of": name });
            let parent = json!({ "metadata": { "name": name, "labels": labels } });
            self.stage.objects(THING).create(parent).await?;
        }
        Ok(full)
    }

    /// Starts metashard in the namespace of the record.
    pub(super) fn start(&mut self) -> anyhow::Result<()> {
        let cluster = &self.stage.shared.cluster;
        let name = format!("{}-{}", self.ops(), self.replica.is_some());
        let options = replica::Options::new(cluster, &name, self.ops())?;
        self.replica = Some(Replica::start(cluster.group(), &options)?);
        Ok(())
    }

    /// The same once a move has begun: of a Metacontroller that elects no leader nothing else tells.
    pub(super) async fn start_held(&mut self) -> anyhow::Result<()> {
        let says = self.apply(&["--timeout=1s"]).await?;
        ensure!(says.err.contains("no replica is live"), "{says:?}");
        self.start()
    }

    pub(super) async fn ctl(&self, args: &[&str]) -> anyhow::Result<Says> {
        ended(self.spawn(args)?).await
    }

    pub(super) async fn apply(&self, args: &[&str]) -> anyhow::Result<Says> {
        self.migrate("apply", args).await
    }

    pub(super) async fn rollback(&self, args: &[&str]) -> anyhow::Result<Says> {
        self.migrate("rollback", args).await
    }

    async fn migrate(&self, way: &str, args: &[&str]) -> anyhow::Result<Says> {
        let timeout = args.iter().any(|it| it.starts_with("--timeout"));
        let mut all = vec!["migrate", way, "--yes"];
        all.extend((!timeout).then_some(TIMEOUT));
        all.extend(args);
        self.ctl(&all).await
    }

    /// Starts the tool. The record is in this scene's namespace.
    pub(super) fn spawn(&self, args: &[&str]) -> anyhow::Result<Child> {
        self.spawn_as(cluster::ADMIN, args)
    }

    fn spawn_as(&self, user: &str, args: &[&str]) -> anyhow::Result<Child> {
        let cluster = &self.stage.shared.cluster;
        let mut command = Command::new(replica::built("metashardctl")?);
        command
            .args(args)
            .arg("--kubeconfig")
            .arg(cluster.kubeconfig(user)?);
        let is_way = args.contains(&"apply") || args.contains(&"rollback");
        if is_way && !args.contains(&"--system-namespace") {
            command.args(["--system-namespace", self.ops()]);
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("run metashardctl")
    }

    /// Somebody else wants to move.
    pub(super) async fn as_stranger(&self, args: &[&str]) -> anyhow::Result<Says> {
        let mut all = vec!["migrate", "apply", "--yes"];
        all.extend(args);
        ended(self.spawn_as(STRANGER, &all)?).await
    }

    /// Lets them see everything.
    pub(super) async fn stranger_may_read(&self) -> anyhow::Result<()> {
        let rules = json!([{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"] }]);
        let metadata = json!({ "name": STRANGER });
        let role = json!({ "metadata": metadata, "rules": rules });
        let kind = |kind, plural| Kind {
            api_version: "rbac.authorization.k8s.io/v1",
            kind,
            plural,
            namespaced: false,
        };
        let client = &self.stage.client;
        Objects::new(client, kind("ClusterRole", "clusterroles"), "")
            .create(role)
            .await?;
        let group = "rbac.authorization.k8s.io";
        let binding = json!({
            "metadata": metadata,
            "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": STRANGER },
            "subjects": [{ "apiGroup": group, "kind": "User", "name": STRANGER }],
        });
        let bindings = kind("ClusterRoleBinding", "clusterrolebindings");
        Objects::new(client, bindings, "").create(binding).await?;
        Ok(())
    }

    /// Starts a move, and kills it as soon as it has come to this stage.
    pub(super) async fn killed_in(&self, stage: &str) -> anyhow::Result<()> {
        let mut move_ = self.spawn(&["migrate", "apply", "--yes", "--accept-writes"])?;
        let comes = self.comes_to(stage).await;
        move_.kill().await?;
        if comes.is_err() {
            let says = ended(move_).await?;
            return comes.with_context(|| format!("{says:?}"));
        }
        comes
    }

    pub(super) async fn comes_to(&self, stage: &str) -> anyhow::Result<()> {
        eventually(&format!("the move to come to {stage}"), async || {
            let record = self.record().await?.context("no record")?;
            ensure!(record["data"]["stage"] == stage, "{record:#}");
            Ok(())
        })
        .await
    }

    pub(super) async fn record(&self) -> anyhow::Result<Option<Value>> {
        self.stage.objects(CONFIG_MAP).find(MIGRATION_RECORD).await
    }

    /// Replicas that the StatefulSet asks for.
    pub(super) async fn replicas(&self) -> anyhow::Result<i64> {
        let set = self.stage.objects(STATEFUL_SET).get("mc").await?;
        set["spec"]["replicas"].as_i64().context("no replicas")
    }

    pub(super) async fn workload(&self, patch: Value) -> anyhow::Result<()> {
        self.stage.objects(STATEFUL_SET).patch("mc", patch).await?;
        Ok(())
    }

    pub(super) async fn pod(&self, name: &str, labels: Value) -> anyhow::Result<Stray<'_>> {
        let pods = self.stage.objects(POD);
        pods.create(peer::pod(name, &labels)).await?;
        Ok(Stray {
            scene: self,
            name: name.to_owned(),
        })
    }

    /// For each controller: whether it is observed, and the round it is marked with.
    pub(super) async fn marks(&self) -> anyhow::Result<Vec<(bool, Option<String>)>> {
        let mut marks = Vec::new();
        for name in &self.names {
            let controller = self.stage.objects(CONTROLLER).get(name).await?;
            let annotations = &controller["metadata"]["annotations"];
            let round = annotations["metashard.io/migration"].as_str();
            marks.push((
                annotations["metashard.io/observe"] == "true",
                round.map(str::to_owned),
            ));
        }
        Ok(marks)
    }

    /// The condition Ready of the first controller.
    pub(super) async fn condition_of_first(&self) -> anyhow::Result<Value> {
        let controller = self.stage.objects(CONTROLLER).get(&self.names[0]).await?;
        condition_of(&controller, "Ready").context("not told")
    }

    /// Changes the first child by hand; empty: back to what is desired.
    pub(super) async fn drift(&self, to: &str) -> anyhow::Result<()> {
        let value = if to.is_empty() { "v" } else { to };
        let patch = json!({ "data": { "k": value } });
        self.stage.objects(CONFIG_MAP).patch("a", patch).await?;
        Ok(())
    }

    /// A change of a child is put right: metashard acts.
    pub(super) async fn is_put_right_by_metashard(&self, drift: &str) -> anyhow::Result<()> {
        self.drift(drift).await?;
        let maps = self.stage.objects(CONFIG_MAP);
        maps.becomes("a", "to be put right", |it| data_of(it)["k"] == "v")
            .await?;
        Ok(())
    }

    /// A change of a child stays, though its hook is called: metashard does not act.
    pub(super) async fn is_left_alone(&self, drift: &str) -> anyhow::Result<()> {
        self.drift(drift).await?;
        let before = self.calls_of_a();
        eventually("the hook to be called", async || {
            ensure!(self.calls_of_a() >= before + 2, "it is not");
            Ok(())
        })
        .await?;
        throughout("the child stays as it is", async || {
            let child = self.stage.objects(CONFIG_MAP).get("a").await?;
            ensure!(data_of(&child)["k"] == drift, "{child:#}");
            Ok(())
        })
        .await
    }

    fn calls_of_a(&self) -> usize {
        let calls = self.stage.hook.calls();
        calls.iter().filter(|it| it.path == "/a").count()
    }

    /// Metacontroller has its Pod again.
    pub(super) async fn peer_is_up(&self) -> anyhow::Result<()> {
        self.stage.objects(POD).appears("mc-0").await?;
        if self.peer.elects.load(Ordering::SeqCst) {
            Objects::new(&self.stage.client, LEASE, self.ops())
                .appears("metacontroller")
                .await?;
        }
        Ok(())
    }

    /// By the API server's own log no child was written by metashard while Metacontroller had a Pod. Returns how many were.
    pub(super) fn never_were_both_at_work(&self) -> anyhow::Result<usize> {
        let events = self.stage.shared.cluster.audit_events()?;
        let mut is_up = true;
        let mut written = 0;
        for event in &events[self.audited..] {
            let object = &event["objectRef"];
            if object["namespace"] != self.ops() {
                continue;
            }
            let agent = event["userAgent"].as_str().unwrap_or_default();
            let verb = event["verb"].as_str().unwrap_or_default();
            let is_write = ["create", "update", "patch", "delete"].contains(&verb);
            match object["resource"].as_str() {
                Some("pods") if object["name"] == "mc-0" || verb == "create" => match verb {
                    "create" => is_up = true,
                    "delete" => is_up = false,
                    _ => {}
                },
                Some("configmaps" | "things") if is_write && agent.contains("epoch") => {
                    ensure!(!is_up, "both at work: {event:#}");
                    written += 1;
                }
                _ => {}
            }
        }
        Ok(written)
    }
}

/// A Pod beside.
pub(super) struct Stray<'a> {
    scene: &'a Scene,
    name: String,
}

impl Stray<'_> {
    pub(super) async fn delete(self) -> anyhow::Result<()> {
        let pods = self.scene.stage.objects(POD);
        pods.delete(&self.name).await?;
        pods.goes(&self.name).await
    }
}

/// What a command said when it had ended.
pub(super) async fn ended(child: Child) -> anyhow::Result<Says> {
    let within = WITHIN * 5;
    let output = tokio::time::timeout(within, child.wait_with_output()).await;
    let output = output.with_context(|| format!("it has not ended within {within:?}"))??;
    Ok(Says {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}
