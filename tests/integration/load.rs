//! What many controllers, objects and timers do to one worker, and what they leave behind.

use std::{collections::BTreeMap, fs, time::Duration};

use anyhow::{Context, ensure};
use futures::{StreamExt, TryStreamExt, future::try_join_all, stream};
use metashard_testkit::{
    FakeHook, Replica, crds,
    hook::{Answer, Call},
    replica,
};
use serde_json::{Value, json};

use crate::support::{
    CONFIG_MAP, CONTROLLER, Kind, OWN_REPLICA, Stage, THING, WITHIN, config_map, data_of,
    eventually, throughout,
};

const CRD: Kind = Kind {
    api_version: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    plural: "customresourcedefinitions",
    namespaced: false,
};

const QUEUED: Kind = Kind {
    api_version: crds::API_VERSION,
    kind: "Queued",
    plural: "queueds",
    namespaced: true,
};

/// Kinds that come and go, each with a controller.
const LEAVES: [Kind; 8] = [
    leaf("LeafA", "leafas"),
    leaf("LeafB", "leafbs"),
    leaf("LeafC", "leafcs"),
    leaf("LeafD", "leafds"),
    leaf("LeafE", "leafes"),
    leaf("LeafF", "leaffs"),
    leaf("LeafG", "leafgs"),
    leaf("LeafH", "leafhs"),
];

const fn leaf(kind: &'static str, plural: &'static str) -> Kind {
    Kind {
        api_version: crds::API_VERSION,
        kind,
        plural,
        namespaced: true,
    }
}

/// How often replicas have asked the API server about leaves so far, and how often the shared one has logged of them.
fn traces(stage: &Stage) -> anyhow::Result<(usize, usize)> {
    let events = stage.shared.cluster.audit_events()?;
    let asked = events.iter().filter(|event| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        text(&event["objectRef"]["resource"]).starts_with("leaf")
            && text(&event["userAgent"]).starts_with("metashard")
    });
    let log = stage.shared.replica.whole_log();
    let logged = log.lines().filter(|line| line.contains("/leaf"));
    Ok((asked.count(), logged.count()))
}

#[tokio::test]
async fn controllers_that_come_and_go_with_their_kinds_leave_no_watch_behind() -> anyhow::Result<()>
{
    let stage = Stage::new("leaves").await?;
    let name = |kind: Kind| format!("{}-{}", stage.namespace, kind.plural);
    try_join_all(LEAVES.map(async |kind: Kind| {
        let crd = crds::like_thing(kind.kind, kind.plural);
        crds::install_one(&stage.client, &crd).await?;
        let controller = stage.controller().parent(kind);
        controller
            .edit(|it| it["metadata"]["name"] = name(kind).into())
            .apply()
            .await?;
        stage.parent(kind, "p", json!({})).await?;
        stage
            .request("a request of each kind", |it| {
                it["parent"]["kind"] == kind.kind
            })
            .await?;
        anyhow::Ok(())
    }))
    .await?;

    for kind in LEAVES {
        stage.objects(CONTROLLER).delete(&name(kind)).await?;
    }
    eventually("views to close", async || {
        let metrics = stage.shared.replica.metrics().await?;
        let is_open =
            |line: &&str| line.starts_with("metashard_kube_views{") && line.contains("/leaf");
        let left = metrics.lines().find(is_open);
        ensure!(left.is_none(), "{left:?}");
        Ok(())
    })
    .await?;
    for kind in LEAVES {
        let name = format!("{}.{}", kind.plural, crds::GROUP);
        stage.objects(CRD).delete(&name).await?;
        stage.objects(CRD).goes(&name).await?;
    }
    // A watch ends a moment after its view, and only then is in the audit log.
    let mut before = traces(&stage)?;
    eventually("the last watches to end", async || {
        let now = traces(&stage)?;
        ensure!(std::mem::replace(&mut before, now) == now, "{now:?}");
        throughout("nothing more is asked or logged", async || {
            let later = traces(&stage)?;
            ensure!(later == now, "{now:?} and {later:?}");
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test]
async fn a_kind_that_changes_while_its_parents_wait_is_served_fresh_until_none_waits()
-> anyhow::Result<()> {
    const PARENTS: usize = 40;
    // So slow that they wait until that was seen.
    let none = || Answer::json(&json!({ "children": [] }));
    let hook = FakeHook::start(move |_| none().after(Duration::from_secs(1)))?;
    let stage = Stage::with_hook("queued", hook).await?;
    let mut crd = crds::like_thing(QUEUED.kind, QUEUED.plural);
    crds::install_one(&stage.client, &crd).await?;
    let parents = stage.objects(QUEUED);
    for number in 0..PARENTS {
        let spec = json!({ "number": 1 });
        stage.parent(QUEUED, &format!("p-{number}"), spec).await?;
    }
    stage.controller().parent(QUEUED).apply().await?;
    let depth = format!(
        "workqueue_depth{{name=\"CompositeController-{}\"}}",
        stage.namespace
    );
    eventually("parents to wait", async || {
        let waiting = stage.shared.replica.metric(&depth).await?;
        ensure!(waiting > 1.0, "{waiting} do");
        Ok(())
    })
    .await?;
    stage.hook.answer_with(move |_| none());

    // Objects are stored in another version from now on, and the one that is watched is served still.
    let mut second = crd["spec"]["versions"][0].clone();
    second["name"] = "v2".into();
    crd["spec"]["versions"][0]["storage"] = false.into();
    if let Value::Array(versions) = &mut crd["spec"]["versions"] {
        versions.push(second);
    }
    crds::install_one(&stage.client, &crd).await?;
    for number in 0..PARENTS {
        let edit = json!({ "spec": { "number": 2 } });
        parents.patch(&format!("p-{number}"), edit).await?;
    }

    eventually("each parent to be seen as it is now", async || {
        let mut seen = BTreeMap::new();
        for call in stage.hook.calls() {
            let parent = &call.json()["parent"];
            let name = parent["metadata"]["name"].as_str().unwrap_or_default();
            seen.insert(name.to_owned(), parent["spec"]["number"].clone());
        }
        let fresh = seen.values().filter(|it| **it == 2).count();
        ensure!(fresh == PARENTS, "{fresh} are");
        Ok(())
    })
    .await?;
    eventually("none to wait", async || {
        let waiting = stage.shared.replica.metric(&depth).await?;
        ensure!(waiting < 0.5, "{waiting} do");
        Ok(())
    })
    .await
}

/// Memory of a process in bytes, by a field of its status.
fn memory(replica: &Replica, field: &str) -> anyhow::Result<f64> {
    let status = fs::read_to_string(format!("/proc/{}/status", replica.pid()))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|line| line.split_whitespace().next());
    let kib: f64 = kib.with_context(|| format!("no {field}"))?.parse()?;
    Ok(kib * 1024.0)
}

/// Objects whose fields are many and small: parsed, they are many times as large.
#[tokio::test]
async fn a_first_list_of_many_objects_takes_little_more_memory_than_they_do_afterwards()
-> anyhow::Result<()> {
    const OBJECTS: usize = 600;
    const SLACK: f64 = 4.0 * 1024.0 * 1024.0;
    let stage = Stage::new("first-list").await?;
    let data: Value = (0..400)
        .map(|number| (format!("k{number}"), "v".into()))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let maps = stage.objects(CONFIG_MAP);
    stream::iter(0..OBJECTS)
        .map(|number| maps.create(config_map(&format!("m-{number}"), data.clone())))
        .buffer_unordered(8)
        .try_for_each(async |_| Ok(()))
        .await?;
    let cluster = &stage.shared.cluster;
    let ours = format!("--target-label-selector={OWN_REPLICA}={}", stage.namespace);
    let options = replica::Options::new(cluster, &stage.namespace, &stage.namespace)?.unrecorded();
    let mut replica = Replica::start(cluster.group(), &options.flags([ours.as_str()]))?;
    replica.ready(WITHIN).await?;
    let before = memory(&replica, "VmRSS:")?;
    // From here on the peak counts.
    fs::write(format!("/proc/{}/clear_refs", replica.pid()), "5")?;

    stage
        .controller()
        .child(CONFIG_MAP, "InPlace")
        .edit(|it| it["metadata"]["labels"] = json!({ OWN_REPLICA: stage.namespace }))
        .apply()
        .await?;
    stage.parent(THING, "p", json!({ "children": [] })).await?;
    stage.settle(THING, "p").await?;

    let cached = replica
        .metric("metashard_kube_cached_bytes{resource=\"v1/configmaps\"}")
        .await?;
    let size = data.to_string().len() * OBJECTS;
    ensure!(
        cached >= f64::from(u32::try_from(size)?),
        "only {cached} bytes are cached"
    );
    let peak = memory(&replica, "VmHWM:")? - before;
    // Not against what the process has afterwards: an allocator may keep what it was given.
    ensure!(
        peak <= 2.0 * cached + SLACK,
        "at its peak it took {peak}, with {cached} of objects"
    );
    Ok(())
}

/// An object that the customize hook of the next test asks for.
fn snapshot(name: &str, data: Value) -> Value {
    let mut map = config_map(name, data);
    map["metadata"]["labels"] = json!({ "shared": "yes" });
    map
}

#[tokio::test]
async fn many_timers_on_one_snapshot_of_related_objects_do_no_harm() -> anyhow::Result<()> {
    const PARENTS: usize = 40;
    const ROUNDS: usize = 20;
    let hook = FakeHook::start(|call| {
        Answer::json(&if call.path == "/customize" {
            let labels = json!({ "matchLabels": { "shared": "yes" } });
            json!({ "relatedResources": [
                { "apiVersion": "v1", "resource": "configmaps", "labelSelector": labels },
            ] })
        } else {
            json!({ "children": [], "resyncAfterSeconds": 0.1 })
        })
    })?;
    let stage = Stage::with_hook("timers", hook).await?;
    let maps = stage.objects(CONFIG_MAP);
    for name in ["one", "two"] {
        maps.create(snapshot(name, json!({ "round": "0" }))).await?;
    }
    let url = stage.hook.url("/customize");
    stage
        .controller()
        .edit(|it| it["spec"]["hooks"]["customize"] = json!({ "webhook": { "url": url } }))
        .apply()
        .await?;
    for number in 0..PARENTS {
        let name = format!("p-{number}");
        stage.parent(THING, &name, json!({})).await?;
    }

    for round in 1..=ROUNDS {
        let data = json!({ "round": round.to_string() });
        maps.patch("one", json!({ "data": data })).await?;
        if round % 2 == 0 {
            maps.delete("two").await?;
            maps.create(snapshot("two", data)).await?;
        }
    }

    let last = ROUNDS.to_string();
    let mut shown: BTreeMap<String, usize> = BTreeMap::new();
    eventually("each timer to show the snapshot as it is", async || {
        for request in stage.hook.take_calls().iter().map(Call::json) {
            let related = &request["related"]["ConfigMap.v1"];
            let is_last = |name: &str| data_of(&related[name])["round"] == last.as_str();
            if is_last("one") && is_last("two") {
                let name = request["parent"]["metadata"]["name"].to_string();
                *shown.entry(name).or_default() += 1;
            }
        }
        let served = shown.values().filter(|times| **times >= 3).count();
        ensure!(served == PARENTS, "{served} of {PARENTS} go on");
        Ok(())
    })
    .await?;
    let log = stage.shared.replica.whole_log();
    let panicked = |line: &&str| line.contains("panicked") && line.contains(&stage.namespace);
    let found = log.lines().find(panicked);
    ensure!(found.is_none(), "{found:?}");
    // They would go on for as long as the test runs.
    stage.objects(CONTROLLER).delete(&stage.namespace).await?;
    Ok(())
}
