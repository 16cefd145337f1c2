//! A cluster of its own with two controllers whose children Metacontroller made, one scene at a time.

use std::{
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::{Context, ensure};
use metashard_api::names::{ANNOTATION_OBSERVE, MIGRATION_RECORD};
use metashard_testkit::{Cluster, FakeHook, Replica, Terminal, cluster, hook::Answer, replica};
use serde_json::{Value, json};
use tokio::{
    process::{Child, Command},
    sync::{Mutex, MutexGuard, OnceCell},
};

use super::peer::{self, DEPLOYMENT, Peer, STATEFUL_SET};
use crate::support::{
    CONFIG_MAP, CONTROLLER, DECORATOR, Kind, LEASE, Objects, POD, Parity, REPLICA_SET, Shared,
    Stage, WITHIN, condition_of, config_map, data_of, eventually, install_crds, throughout,
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
    /// The hooks fail for controllers that metashard acts on.
    pub(super) breaks: Arc<AtomicBool>,
    pub(super) cast: Cast,
    pub(super) names: [String; 2],
    /// Length of the audit log at the beginning.
    pub(super) audited: usize,
    _only: MutexGuard<'static, ()>,
}

/// Who plays in a scene.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cast {
    /// What Metacontroller runs as.
    pub(super) workload: Kind,
    /// The kinds of the two controllers.
    pub(super) controllers: [Kind; 2],
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
                controller_manager: true,
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

/// A Metacontroller that runs as a StatefulSet, two CompositeControllers, and no metashard yet.
pub(super) async fn scene() -> anyhow::Result<Scene> {
    let cast = Cast {
        workload: STATEFUL_SET,
        controllers: [CONTROLLER, CONTROLLER],
    };
    scene_of(cast).await
}

/// A Metacontroller that runs, two controllers, and no metashard yet.
pub(super) async fn scene_of(cast: Cast) -> anyhow::Result<Scene> {
    static ONLY: Mutex<()> = Mutex::const_new(());
    let only = ONLY.lock().await;
    let shared = private().await?;
    clean(&shared.cluster).await?;
    let breaks = Arc::<AtomicBool>::default();
    let broken = Arc::clone(&breaks);
    let hook = FakeHook::start(move |call| {
        let request = call.json();
        let annotations = &request["controller"]["metadata"]["annotations"];
        let acts = annotations[ANNOTATION_OBSERVE] != "true";
        if acts && broken.load(Ordering::SeqCst) {
            return Answer::status(500, "broken");
        }
        let (parent, field) = if request["object"].is_object() {
            (&request["object"], "attachments")
        } else {
            (&request["parent"], "children")
        };
        let name = parent["metadata"]["name"].as_str().unwrap_or_default();
        let child = config_map(name, json!({ "k": "v" }));
        Answer::json(&json!({ field: [child], "resyncAfterSeconds": 0.3 }))
    })?;
    let stage = Stage::on(shared, "migrate", hook).await?;
    let audited = shared.cluster.audit_events()?.len();
    let peer = Peer::start(&stage.client, &stage.namespace, cast.workload).await?;
    let names = ["a", "b"].map(|it| format!("{}-{it}", stage.namespace));
    let scene = Scene {
        stage,
        peer,
        replica: None,
        breaks,
        cast,
        names,
        audited,
        _only: only,
    };
    for (name, kind) in ["a", "b"].into_iter().zip(cast.controllers) {
        scene.left_by_metacontroller(kind, name, name).await?;
        scene.controller_of(kind, name, &format!("/{name}")).await?;
    }
    Ok(scene)
}

/// Takes away what the scene before left.
async fn clean(cluster: &Cluster) -> anyhow::Result<()> {
    let client = cluster.admin().await?;
    for kind in [
        CONTROLLER,
        DECORATOR,
        STATEFUL_SET,
        DEPLOYMENT,
        REPLICA_SET,
        POD,
    ] {
        let everywhere = Objects::everywhere(&client, kind);
        // A new API server may not be able to yet.
        let list = eventually("a list", async || everywhere.list().await).await?;
        for object in list {
            let metadata = &object["metadata"];
            let namespace = metadata["namespace"].as_str().unwrap_or_default();
            let name = metadata["name"].as_str().unwrap_or_default();
            let objects = Objects::new(&client, kind, namespace);
            // What a workload made may have gone with it.
            drop(objects.delete(name).await);
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

    /// Starts metashard in the namespace of the record.
    pub(super) fn start(&mut self) -> anyhow::Result<()> {
        self.replica = Some(self.new_replica()?);
        Ok(())
    }

    /// A replica of metashard in that namespace.
    pub(super) fn new_replica(&self) -> anyhow::Result<Replica> {
        let cluster = &self.stage.shared.cluster;
        let name = format!("{}-{}", self.ops(), self.replica.is_some());
        let options = replica::Options::new(cluster, &name, self.ops())?;
        Replica::start(cluster.group(), &options)
    }

    /// The same once a move has begun: of a Metacontroller that elects no leader nothing else tells.
    pub(super) async fn start_held(&mut self) -> anyhow::Result<()> {
        let says = self.apply(&["--timeout=1s"]).await?;
        ensure!(says.err.contains("no replica is live"), "{says:?}");
        self.start()
    }

    /// The tool at a terminal of 200 columns, as its user runs it.
    pub(super) fn at_terminal(&self, args: &[&str]) -> anyhow::Result<Terminal> {
        let mut command = std::process::Command::new(replica::built("metashardctl")?);
        command.args(args).env("KUBECONFIG", self.kubeconfig()?);
        if args.contains(&"apply") || args.contains(&"rollback") {
            command.args(["--system-namespace", self.ops(), TIMEOUT]);
        }
        Terminal::start(command, 200)
    }

    fn kubeconfig(&self) -> anyhow::Result<std::path::PathBuf> {
        self.stage.shared.cluster.kubeconfig(cluster::ADMIN)
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

    /// Replicas that the workload asks for.
    pub(super) async fn replicas(&self) -> anyhow::Result<i64> {
        let workload = self.stage.objects(self.cast.workload).get("mc").await?;
        workload["spec"]["replicas"].as_i64().context("no replicas")
    }

    pub(super) async fn workload(&self, patch: Value) -> anyhow::Result<()> {
        let workloads = self.stage.objects(self.cast.workload);
        workloads.patch("mc", patch).await?;
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
        for (name, kind) in self.names.iter().zip(self.cast.controllers) {
            let controller = self.stage.objects(kind).get(name).await?;
            let annotations = &controller["metadata"]["annotations"];
            let round = annotations["metashard.io/migration"].as_str();
            marks.push((
                annotations[ANNOTATION_OBSERVE] == "true",
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
        peer::has_pods(&self.stage.client, self.ops()).await?;
        if self.peer.elects.load(Ordering::SeqCst) {
            Objects::new(&self.stage.client, LEASE, self.ops())
                .appears("metacontroller")
                .await?;
        }
        Ok(())
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
