//! An API server that refuses, breaks connections, restarts, or is away.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::ensure;
use metashard_api::names::{condition, event, reason};
use metashard_testkit::{
    Cluster, FakeHook, Replica, cluster, crds,
    proxy::{Fault, Proxy, Request},
    replica, wait,
};
use serde_json::json;
use tokio::{
    sync::{Mutex, MutexGuard, OnceCell},
    time::Instant,
};

use super::{
    canary::Canary,
    fault::{PARENT, Scene, children},
    support::{
        CONFIG_MAP, Kind, OWN_REPLICA, Parity, SECRET, Shared, Stage, THING, WITHIN, as_told,
        condition_of, config_map, install_crds, shared,
    },
};

const SECOND: Duration = Duration::from_secs(1);

/// How long an API server is away. A replica does the same after the first Lease durations, however long it is: it
/// suspends its shards and tries again every second or two. 60 s differ from this in the length of the test only.
const AWAY: Duration = Duration::from_secs(12);

const API_SERVICE: Kind = Kind {
    api_version: "apiregistration.k8s.io/v1",
    kind: "APIService",
    plural: "apiservices",
    namespaced: false,
};

const NEWCOMER: Kind = Kind {
    api_version: crds::API_VERSION,
    kind: "Newcomer",
    plural: "newcomers",
    namespaced: true,
};

/// A replica of our own on the shared cluster, which reaches the API server through a proxy, and a canary that it serves.
struct Ours {
    proxy: Proxy,
    replica: Replica,
    name: String,
    canary: Arc<Canary>,
}

impl Ours {
    async fn start(claim: &str, flags: &[&str]) -> anyhow::Result<Self> {
        let cluster = &shared().await?.cluster;
        let stage = Stage::new(claim).await?;
        let name = stage.namespace.clone();
        let proxy = Proxy::start(cluster)?;
        let mut options = replica::Options::new(cluster, &name, &name)?
            .flags([format!("--target-label-selector={OWN_REPLICA}={name}").as_str()])
            .flags(["--zap-log-level=debug", "--zap-encoder=console"])
            .flags(flags.iter().copied());
        options.kubeconfig = proxy.kubeconfig();
        let mut replica = Replica::start(cluster.group(), &options)?;
        replica.ready(WITHIN).await?;
        let labels = json!({ OWN_REPLICA: name });
        let canary = Canary::start(stage, |controller| {
            controller.edit(|it| it["metadata"]["labels"] = labels)
        })
        .await?;
        Ok(Self {
            proxy,
            replica,
            name,
            canary,
        })
    }

    /// A parent at rest that our replica serves.
    async fn scene(&self, claim: &str) -> anyhow::Result<Scene> {
        let labels = json!({ OWN_REPLICA: self.name });
        Scene::on(Stage::new(claim).await?, &self.canary, |controller| {
            controller.edit(|it| it["metadata"]["labels"] = labels)
        })
        .await
    }
}

/// Whether a request is a write of a ConfigMap in `namespace`.
fn writes_child(request: &Request, namespace: &str) -> bool {
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    request.is_write() && request.path.starts_with(&path)
}

#[tokio::test]
async fn writes_that_the_api_server_refuses_for_a_while_are_made_later() -> anyhow::Result<()> {
    let ours = Ours::start("refused-writes", &[]).await?;
    let mut scene = ours.scene("refused-writes").await?;
    let namespace = scene.stage.namespace.clone();
    for (fault, text) in [
        (Fault::Answer(429), "429 Too Many Requests"),
        (Fault::Answer(503), "503 Service Unavailable"),
        (Fault::Cut, "reach the API server"),
    ] {
        let at = namespace.clone();
        ours.proxy.fail(move |request| {
            if writes_child(request, &at) {
                fault
            } else {
                Fault::Pass
            }
        });
        scene.edit().await?;
        scene.is_retried().await?;
        let named = format!("ConfigMap {namespace}/edited");
        let told = scene
            .stage
            .event(&scene.parent, event::SYNC_ERROR, text)
            .await?;
        ensure!(
            told["message"]
                .as_str()
                .is_some_and(|it| it.contains(&named)),
            "{told:#}"
        );
        scene.is_untouched().await?;

        ours.proxy.heal();
        scene.heals().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_write_whose_answer_is_lost_is_neither_lost_nor_made_twice() -> anyhow::Result<()> {
    let ours = Ours::start("lost-answers", &[]).await?;
    let mut scene = ours.scene("lost-answers").await?;
    let at = scene.stage.namespace.clone();
    let lost = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&lost);
    ours.proxy.fail(move |request| {
        if writes_child(request, &at) && counted.fetch_add(1, Ordering::Relaxed) < 3 {
            Fault::LoseAnswer
        } else {
            Fault::Pass
        }
    });
    let mut spec = children("before");
    spec.push(config_map("new", json!({ "text": "new" })));

    scene
        .stage
        .objects(THING)
        .patch(PARENT, json!({ "spec": { "children": spec } }))
        .await?;

    scene.stage.objects(CONFIG_MAP).appears("new").await?;
    ensure!(lost.load(Ordering::Relaxed) > 0, "no answer was lost");
    scene.heals().await
}

#[tokio::test]
async fn a_kind_that_cannot_be_listed_holds_up_its_own_controller_only() -> anyhow::Result<()> {
    let ours = Ours::start("refused-lists", &[]).await?;
    let watch = ours.canary.watch();
    let stage = Stage::new("refused-lists").await?;
    ours.proxy.fail(|request| {
        if request.path == "/api/v1/secrets" {
            Fault::Answer(500)
        } else {
            Fault::Pass
        }
    });
    let labels = json!({ OWN_REPLICA: ours.name });
    let controller = stage
        .controller()
        .child(SECRET, "InPlace")
        .edit(|it| it["metadata"]["labels"] = labels)
        .apply()
        .await?;
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "made" } });
    stage
        .parent(THING, PARENT, json!({ "children": [secret] }))
        .await?;

    let text = "list and watch v1/secrets: 500 Internal Server Error";
    stage.event(&controller, event::SYNC_ERROR, text).await?;
    let why = reason::UNAVAILABLE;
    stage
        .says(condition::WATCHES_READY, "False", why, text)
        .await?;
    ensure!(stage.hook.count() == 0, "the hook was called");

    ours.proxy.heal();
    stage.objects(SECRET).appears("made").await?;
    stage.condition(condition::READY, "True").await?;
    watch.is_unharmed().await
}

#[tokio::test]
async fn an_api_server_that_refuses_everything_stops_work_until_it_is_well() -> anyhow::Result<()> {
    let ours = Ours::start("refuses-all", &["--lease-duration=2s"]).await?;
    let mut scene = ours.scene("refuses-all").await?;
    for fault in [Fault::Answer(503), Fault::Answer(429), Fault::Cut] {
        let moment = Instant::now().into_std();
        ours.proxy.fail(move |_| fault);
        scene.edit().await?;
        let namespace = scene.stage.namespace.clone();
        // Longer than its Lease lasts; after that it must not call any hook.
        wait::throughout(6 * SECOND, "no child is written", async || {
            let calls = scene.stage.hook.calls();
            let late = calls
                .iter()
                .filter(|call| call.received > moment + 3 * SECOND)
                .count();
            ensure!(late == 0, "{late} calls came after the end of the Lease");
            Ok(())
        })
        .await?;
        scene.is_untouched().await?;

        let healed = Instant::now();
        ours.proxy.heal();
        scene.has_caught_up().await?;
        let took = healed.elapsed();
        ensure!(
            took < 15 * SECOND,
            "{namespace}: it took {took:?} after {fault:?}"
        );
    }
    drop(ours.replica);
    Ok(())
}

/// A cluster whose API server can be stopped, with a replica and a canary.
struct Private {
    shared: &'static Shared,
    canary: Arc<Canary>,
}

/// One test at a time.
async fn private() -> anyhow::Result<MutexGuard<'static, Private>> {
    static SHARED: OnceCell<Shared> = OnceCell::const_new();
    static PRIVATE: OnceCell<Mutex<Private>> = OnceCell::const_new();
    let private = PRIVATE
        .get_or_try_init(async || {
            let shared = SHARED.get_or_try_init(start_private).await?;
            let stage = Stage::on(shared, "canary", FakeHook::json(as_told)?).await?;
            let canary = Canary::start(stage, |it| it).await?;
            anyhow::Ok(Mutex::new(Private { shared, canary }))
        })
        .await?;
    Ok(private.lock().await)
}

async fn start_private() -> anyhow::Result<Shared> {
    let cluster = Cluster::start(cluster::Options {
        audit: true,
        recorded: true,
        ..cluster::Options::default()
    })
    .await?;
    install_crds(&cluster).await?;
    let options = replica::Options::new(&cluster, "private", "metashard-system")?
        .flags(["--zap-log-level=debug", "--zap-encoder=console"]);
    let mut replica = Replica::start(cluster.group(), &options)?;
    replica.ready(WITHIN).await?;
    Ok(Shared {
        cluster,
        replica,
        parity: Parity::default(),
    })
}

#[tokio::test]
async fn an_api_server_that_restarts_again_and_again_loses_no_edit() -> anyhow::Result<()> {
    let private = private().await?;
    let cluster = &private.shared.cluster;
    let stage = Stage::on(private.shared, "restart", FakeHook::json(as_told)?).await?;
    let mut scene = Scene::on(stage, &private.canary, |it| it).await?;
    for round in 0..3 {
        if round == 1 {
            cluster.kill_api_server().await?;
        } else {
            cluster.stop_api_server().await?;
        }
        cluster.start_api_server().await?;
        let back = Instant::now();
        scene.is_untouched().await?;
        scene.edit().await?;
        scene.has_caught_up().await?;
        // Changes of children are seen again as well.
        let strayed = json!({ "data": { "text": "strayed" } });
        scene
            .stage
            .objects(CONFIG_MAP)
            .patch("edited", strayed)
            .await?;
        scene.has_caught_up().await?;
        ensure!(back.elapsed() < 20 * SECOND, "it took {:?}", back.elapsed());
    }
    private.canary.watch().is_unharmed().await
}

#[tokio::test]
async fn an_api_server_that_is_away_for_long_finds_its_replica_again() -> anyhow::Result<()> {
    let private = private().await?;
    let cluster = &private.shared.cluster;
    let stage = Stage::on(private.shared, "away-api", FakeHook::json(as_told)?).await?;
    let mut scene = Scene::on(stage, &private.canary, |it| it).await?;

    cluster.stop_api_server().await?;
    let replica = &private.shared.replica;
    wait::throughout(AWAY, "the replica lives on", async || {
        let (status, _) = replica.health("/livez").await?;
        ensure!(status == 200, "livez answers {status}");
        Ok(())
    })
    .await?;
    scene.stage.hook.forget();
    cluster.start_api_server().await?;
    let back = Instant::now();
    scene.edit().await?;
    scene.is_untouched().await?;
    scene.has_caught_up().await?;
    ensure!(back.elapsed() < 20 * SECOND, "it took {:?}", back.elapsed());
    private.canary.watch().is_unharmed().await
}

#[tokio::test]
async fn an_api_group_whose_server_is_down_holds_up_nobody() -> anyhow::Result<()> {
    let private = private().await?;
    let watch = private.canary.watch();
    let stage = Stage::on(private.shared, "group-down", FakeHook::json(as_told)?).await?;
    let services = stage.objects(API_SERVICE);
    services
        .create(json!({
            "metadata": { "name": "v1.down.example.com" },
            "spec": {
                "group": "down.example.com", "version": "v1",
                "groupPriorityMinimum": 1000, "versionPriority": 10,
                "service": { "namespace": stage.namespace, "name": "nobody" },
            },
        }))
        .await?;
    services
        .becomes("v1.down.example.com", "to be known as down", |service| {
            condition_of(service, "Available").is_some_and(|it| it["status"] == "False")
        })
        .await?;

    // What is installed meanwhile is found all the same.
    let mut crd = crds::thing();
    crd["metadata"]["name"] = format!("{}.{}", NEWCOMER.plural, crds::GROUP).into();
    crd["spec"]["names"] = json!({
        "kind": NEWCOMER.kind, "plural": NEWCOMER.plural, "singular": "newcomer",
    });
    crds::install_one(&stage.client, &crd).await?;
    stage
        .controller()
        .parent(NEWCOMER)
        .child(CONFIG_MAP, "InPlace")
        .apply()
        .await?;
    let spec = json!({ "children": [config_map("made", json!({}))] });
    stage.parent(NEWCOMER, PARENT, spec).await?;

    stage.objects(CONFIG_MAP).appears("made").await?;
    services.delete("v1.down.example.com").await?;
    watch.is_unharmed().await
}
