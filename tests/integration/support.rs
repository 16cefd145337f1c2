//! What the integration tests share: one cluster, one replica that serves their controllers, and a stage for each test.
//!
//! A test that starts replicas of its own labels its controllers with [`OWN_REPLICA`], so that the shared replica leaves
//! them alone, and has its replicas select by that label.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use anyhow::{Context, ensure};
use kube::Client;
use metashard_testkit::{
    Cluster, FakeHook, Replica, cluster, crds, hook::Call, replica, shipped, wait,
};
use serde_json::{Value, json};
use tokio::{sync::OnceCell, time::Instant};

mod applying;
mod audit;
mod controller;
mod decorator;
mod objects;
mod own;
mod parity;

pub(crate) use applying::{Applying, SERVER_SIDE, owner};
pub(crate) use controller::ControllerBuilder;
pub(crate) use decorator::{DecoratorBuilder, want};
pub(crate) use objects::{
    BIG_THING, CONFIG_MAP, CONTROLLER, DECORATOR, DEFAULTED, Kind, LEASE, MULTI_V2, NAMESPACE,
    Objects, PLACEMENT, POD, REPLICA_SET, SECRET, SERVICE, SHARD_MAP, THING, config_map, data_of,
    labelled, version_of,
};
pub(crate) use own::LONG_LEASE;
pub(crate) use parity::{Parity, Tally};

/// Label of controllers that the shared replica does not serve.
pub(crate) const OWN_REPLICA: &str = "own-replica";

/// Label of the parents of one test; its controllers select by it.
pub(crate) const STAGE: &str = "stage";

/// Annotation by which a sync is started.
const POKE: &str = "poke";

/// Time for anything to happen: far more than it takes, for machines that are busy.
pub(crate) const WITHIN: Duration = Duration::from_mins(1);

/// How long healing may take once the cause of a trouble is gone.
const HEALED_WITHIN: Duration = Duration::from_secs(10);

/// How long it is watched that something does not happen.
const WHILE: Duration = Duration::from_millis(400);

/// What a cause was in the way of came soon after `since`, when it was taken away.
pub(crate) fn healed_in_time(since: Instant) -> anyhow::Result<()> {
    let took = since.elapsed();
    ensure!(took < HEALED_WITHIN, "it took {took:?}");
    Ok(())
}

/// What all tests of this program share.
pub(crate) struct Shared {
    pub(crate) cluster: Cluster,
    /// Serves every controller without the label [`OWN_REPLICA`].
    pub(crate) replica: Replica,
    /// What replicas write there against what is rendered.
    pub(crate) parity: Parity,
}

/// What one test has for itself: a namespace, a hook, and a name for its controller and as label of its parents.
pub(crate) struct Stage {
    pub(crate) shared: &'static Shared,
    /// May do everything.
    pub(crate) client: Client,
    /// Also the name of its controller, and the value of the label [`STAGE`]. No other test has it.
    pub(crate) namespace: String,
    pub(crate) hook: FakeHook,
    pokes: AtomicU32,
}

/// The shared cluster with its replica, started by the first to ask.
pub(crate) async fn shared() -> anyhow::Result<&'static Shared> {
    static SHARED: OnceCell<Shared> = OnceCell::const_new();
    SHARED.get_or_try_init(start).await
}

async fn start() -> anyhow::Result<Shared> {
    let cluster = Cluster::start(cluster::Options {
        audit: true,
        recorded: true,
        ..cluster::Options::default()
    })
    .await?;
    install_crds(&cluster).await?;
    let options = replica::Options::new(&cluster, "shared", "metashard-system")?.flags([
        "--workers=5",
        "--lease-duration=20s",
        "--zap-log-level=debug",
        "--zap-encoder=console",
    ]);
    let only_ours = format!("--target-label-selector=!{OWN_REPLICA}");
    let options = options.flags([only_ours.as_str()]);
    let mut replica = Replica::start(cluster.group(), &options)?;
    replica.ready(WITHIN).await?;
    serves(&replica).await?;
    Ok(Shared {
        cluster,
        replica,
        parity: Parity::default(),
    })
}

/// Returns once a replica that is alone has all shards: what is applied from then on waits for no election any more.
async fn serves(replica: &Replica) -> anyhow::Result<()> {
    eventually("the first shards to be assigned", async || {
        let shards = replica.metric("metashard_leader_shards").await?;
        let unowned = replica.metric("metashard_leader_unowned_shards").await?;
        anyhow::ensure!(
            shards > 0.0 && unowned == 0.0,
            "{unowned} of {shards} are not"
        );
        Ok(())
    })
    .await
}

/// Installs the CRDs as they are shipped, and those of the test kit.
pub(crate) async fn install_crds(cluster: &Cluster) -> anyhow::Result<()> {
    let client = cluster.admin().await?;
    shipped::put_crds(&client).await?;
    crds::install(&client).await
}

/// Asks `probe` until it is content.
pub(crate) async fn eventually<T>(
    what: &str,
    probe: impl AsyncFnMut() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    wait::eventually(WITHIN, what, probe).await
}

/// Asks `probe` for a while; it must be content each time.
pub(crate) async fn throughout(
    what: &str,
    probe: impl AsyncFnMut() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    wait::throughout(WHILE, what, probe).await
}

/// The answer of a hook that does what the parent's spec says: `children`, `status`, `resyncAfterSeconds`, `finalized`.
pub(crate) fn as_told(request: &Value) -> Value {
    let spec = &request["parent"]["spec"];
    let mut answer = json!({ "children": [] });
    for field in ["children", "status", "resyncAfterSeconds", "finalized"] {
        if let Some(value) = spec.get(field) {
            answer[field] = value.clone();
        }
    }
    answer
}

impl Stage {
    /// A stage whose hook [does what parents say](as_told). `claim`: a word for its names.
    pub(crate) async fn new(claim: &str) -> anyhow::Result<Self> {
        Self::with_hook(claim, FakeHook::json(as_told)?).await
    }

    /// A stage whose hook answers each request with `answer`.
    pub(crate) async fn answering(
        claim: &str,
        answer: impl Fn(&Value) -> Value + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        Self::with_hook(claim, FakeHook::json(answer)?).await
    }

    /// A stage with this hook.
    pub(crate) async fn with_hook(claim: &str, hook: FakeHook) -> anyhow::Result<Self> {
        Self::on(shared().await?, claim, hook).await
    }

    /// A stage with this hook on another cluster.
    pub(crate) async fn on(
        shared: &'static Shared,
        claim: &str,
        hook: FakeHook,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            shared,
            client: shared.cluster.admin().await?,
            namespace: shared.cluster.namespace(claim).await?,
            hook,
            pokes: AtomicU32::new(1),
        })
    }

    /// The objects of a kind: those of this stage's namespace, unless the kind is cluster-scoped.
    pub(crate) fn objects(&self, kind: Kind) -> Objects {
        Objects::new(&self.client, kind, &self.namespace)
    }

    /// A CompositeController of this stage's [`Thing`](THING)s with generated selectors, which calls its hook's `/sync`.
    pub(crate) fn controller(&self) -> ControllerBuilder<'_> {
        ControllerBuilder::new(self)
    }

    /// Creates a parent that this stage's controller selects.
    pub(crate) async fn parent(
        &self,
        kind: Kind,
        name: &str,
        spec: Value,
    ) -> anyhow::Result<Value> {
        let labels = json!({ STAGE: self.namespace });
        let parent = json!({ "metadata": { "name": name, "labels": labels }, "spec": spec });
        self.objects(kind).create(parent).await
    }

    /// The first request of this stage's hook that is `wanted`.
    pub(crate) async fn request(
        &self,
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Value> {
        eventually(what, async || {
            let calls = self.hook.calls();
            let found = calls.iter().map(Call::json).find(&wanted);
            found.with_context(|| format!("no such request among {}", calls.len()))
        })
        .await
    }

    /// Starts a sync of a parent by an annotation, and returns the request that shows it.
    ///
    /// Syncs of one parent never overlap: all earlier ones have ended by then.
    pub(crate) async fn poke(&self, kind: Kind, name: &str) -> anyhow::Result<Value> {
        let number = self.pokes.fetch_add(1, Ordering::Relaxed).to_string();
        let patch = json!({ "metadata": { "annotations": { POKE: number } } });
        self.objects(kind).patch(name, patch).await?;
        self.request("the request of a poked parent", |request| {
            let metadata = &request["parent"]["metadata"];
            metadata["name"] == name && metadata["annotations"][POKE] == number
        })
        .await
    }

    /// No hook is called for a while.
    pub(crate) async fn no_calls(&self) -> anyhow::Result<()> {
        let before = self.hook.count();
        throughout("no call comes", async || {
            let calls = self.hook.calls();
            let came = calls.get(before).map(Call::json);
            anyhow::ensure!(calls.len() == before, "one came: {came:#?}");
            Ok(())
        })
        .await
    }

    /// A parent is touched, and for a while no hook is called. What was under way before may end.
    pub(crate) async fn is_unserved(&self, kind: Kind, name: &str) -> anyhow::Result<()> {
        let before = eventually("earlier calls to end", async || {
            let before = self.hook.count();
            wait::throughout(WHILE / 4, "no call comes", async || {
                anyhow::ensure!(self.hook.count() == before, "one came");
                Ok(())
            })
            .await?;
            Ok(before)
        })
        .await?;
        let number = self.pokes.fetch_add(1, Ordering::Relaxed).to_string();
        let patch = json!({ "metadata": { "annotations": { POKE: number } } });
        self.objects(kind).patch(name, patch).await?;
        throughout("no call comes", async || {
            let calls = self.hook.count() - before;
            anyhow::ensure!(calls == 0, "{calls} came");
            Ok(())
        })
        .await
    }

    /// How often an event of this reason was told of `object`.
    pub(crate) async fn told(&self, object: &Value, reason: &str) -> anyhow::Result<i64> {
        let events = self.events(object).await?;
        let same = events.iter().filter(|event| event["reason"] == reason);
        Ok(same.map(|event| event["count"].as_i64().unwrap_or(0)).sum())
    }

    /// Lets a parent come to rest: the last of its syncs has ended, and the next would see what that one wrote.
    pub(crate) async fn settle(&self, kind: Kind, name: &str) -> anyhow::Result<()> {
        let objects = self.objects(kind);
        // Not before: a poke changes the parent, and a status that is based on what it was would be refused.
        let has_status =
            |it: &Value| it["status"]["observedGeneration"] == it["metadata"]["generation"];
        objects.becomes(name, "to be synced", has_status).await?;
        self.poke(kind, name).await?;
        self.poke(kind, name).await?;
        Ok(())
    }

    /// The events about `object` so far.
    pub(crate) async fn events(&self, object: &Value) -> anyhow::Result<Vec<Value>> {
        let metadata = &object["metadata"];
        let namespace = metadata["namespace"].as_str().unwrap_or("default");
        let mut events = Objects::new(&self.client, objects::EVENT, namespace)
            .list()
            .await?;
        events.retain(|event| event["involvedObject"]["uid"] == metadata["uid"]);
        Ok(events)
    }

    /// The first event about `object` with this reason whose message contains `text`.
    pub(crate) async fn event(
        &self,
        object: &Value,
        reason: &str,
        text: &str,
    ) -> anyhow::Result<Value> {
        eventually(&format!("an event {reason} with {text:?}"), async || {
            let events = self.events(object).await?;
            let matches = |event: &&Value| {
                event["reason"] == reason
                    && event["message"]
                        .as_str()
                        .is_some_and(|it| it.contains(text))
            };
            let found = events.iter().find(matches).cloned();
            found.with_context(|| format!("none such among {events:#?}"))
        })
        .await
    }

    /// The condition of this stage's controller, once it has this status.
    pub(crate) async fn condition(&self, type_: &str, status: &str) -> anyhow::Result<Value> {
        let name = self.namespace.as_str();
        let controllers = self.objects(CONTROLLER);
        eventually(&format!("condition {type_} to be {status}"), async || {
            let controller = controllers.get(name).await?;
            let found = condition_of(&controller, type_).filter(|it| it["status"] == status);
            found.with_context(|| format!("the status is {:#}", controller["status"]))
        })
        .await
    }

    /// The condition of this stage's controller, once it has this status and reason and its message contains `text`: one
    /// that was told before for another reason is waited out.
    pub(crate) async fn says(
        &self,
        type_: &str,
        status: &str,
        reason: &str,
        text: &str,
    ) -> anyhow::Result<Value> {
        let what = format!("condition {type_} to be {status} for {reason} with {text:?}");
        eventually(&what, async || {
            let told = self.condition(type_, status).await?;
            let message = told["message"].as_str().unwrap_or_default();
            anyhow::ensure!(
                told["reason"] == reason && message.contains(text),
                "{told:#}"
            );
            Ok(told)
        })
        .await
    }
}

impl Drop for Stage {
    /// Prints what the shared replica logged about this stage; the test runner shows it if the test fails. Then compares
    /// what was written with what is rendered.
    #[expect(
        clippy::print_stdout,
        reason = "the test runner keeps it, and shows it if the test fails"
    )]
    fn drop(&mut self) {
        let log = self.shared.replica.whole_log();
        println!(
            "--- what the shared replica logged about {}",
            self.namespace
        );
        for line in log.lines().filter(|line| line.contains(&self.namespace)) {
            println!("{line}");
        }
        if std::thread::panicking() {
            return;
        }
        let (shared, calls) = (self.shared, self.hook.count());
        let compared = shared.parity.check(&shared.cluster, &self.namespace, calls);
        let findings = match compared {
            Ok((count, findings)) => {
                let (passes, writes) = (count.passes, count.writes);
                println!("--- rendered as written so far: {passes} passes, {writes} writes");
                findings
            }
            Err(error) => vec![format!("{error:#}")],
        };
        assert!(
            findings.is_empty(),
            "what was written is not what is rendered:\n{}",
            findings.join("\n")
        );
    }
}

/// A condition of an object.
pub(crate) fn condition_of(object: &Value, type_: &str) -> Option<Value> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().find(|it| it["type"] == type_).cloned()
}
