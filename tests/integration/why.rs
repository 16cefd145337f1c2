//! `metashardctl why` names what made a sync run, from what the replica that ran it remembers.

use anyhow::{Context, ensure};
use metashard_testkit::{FakeHook, cluster, hook::Answer, replica};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::{CONFIG_MAP, Stage, THING, as_told, config_map, data_of, eventually};

/// So many repairs of one child within a minute are a fight.
const REPAIRS: u32 = 10;

/// What `metashardctl why thing/p -o json` says, the newest first.
async fn why(stage: &Stage, object: &str) -> anyhow::Result<Vec<Value>> {
    let text = run(stage, object, "json").await?;
    let mut answer: Value = serde_json::from_str(&text)?;
    serde_json::from_value(answer["syncs"].take()).context("read syncs")
}

/// What it says to people.
async fn why_text(stage: &Stage, object: &str) -> anyhow::Result<String> {
    run(stage, object, "text").await
}

async fn run(stage: &Stage, object: &str, format: &str) -> anyhow::Result<String> {
    let cluster = &stage.shared.cluster;
    let output = Command::new(replica::built("metashardctl")?)
        .args(["why", object, "-o", format, "--limit=100"])
        .arg("--namespace")
        .arg(&stage.namespace)
        .arg("--kubeconfig")
        .arg(cluster.kubeconfig(cluster::ADMIN)?)
        .arg("--server")
        .arg(stage.shared.replica.health_url())
        .output()
        .await
        .context("run metashardctl")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {errors}", output.status);
    String::from_utf8(output.stdout).context("read its output")
}

fn is_because(sync: &Value, cause: &str) -> bool {
    let causes = sync["causes"].as_array();
    causes.is_some_and(|causes| causes.iter().any(|it| it == cause))
}

/// Waits for a sync with this cause that is also `wanted`.
async fn because(
    stage: &Stage,
    cause: &str,
    wanted: impl Fn(&Value) -> bool,
) -> anyhow::Result<Value> {
    eventually(&format!("a sync because of {cause}"), async || {
        let syncs = why(stage, "things/p").await?;
        let found = syncs.iter().find(|it| is_because(it, cause) && wanted(it));
        found
            .cloned()
            .with_context(|| format!("there are {syncs:#?}"))
    })
    .await
}

#[tokio::test]
async fn a_new_parent_and_an_edited_one_are_causes_and_the_writes_are_named() -> anyhow::Result<()>
{
    let stage = Stage::new("why-parent").await?;
    stage
        .controller()
        .child(CONFIG_MAP, "InPlace")
        .apply()
        .await?;
    let children = |value: &str| json!({ "children": [config_map("a", json!({ "k": value }))] });
    stage.parent(THING, "p", children("1")).await?;
    stage.settle(THING, "p").await?;
    let edit = json!({ "spec": children("2") });
    stage.objects(THING).patch("p", edit).await?;

    let written = |sync: &Value, what: &str| -> Option<Value> {
        let what = format!("{what} ConfigMap {}/a", stage.namespace);
        let mut writes = sync["writes"].as_array()?.iter();
        writes.find(|it| it["what"] == what.as_str()).cloned()
    };
    let is_update = |sync: &Value| written(sync, "update").is_some();
    let edited = because(&stage, "parent", is_update).await?;
    assert_eq!(edited["calls"][0]["hook"], "sync");
    assert_eq!(edited["calls"][0]["result"], "answered");
    let update = written(&edited, "update").context("an update")?;
    let why_written = update["why"].as_str().unwrap_or_default();
    assert!(why_written.contains("data"), "{edited:#}");
    // The child itself is asked for as well.
    let of_child = why(&stage, "configmap/a").await?;
    assert!(of_child.iter().any(|it| written(it, "create").is_some()));
    Ok(())
}

#[tokio::test]
async fn drift_of_a_child_is_a_cause() -> anyhow::Result<()> {
    let stage = Stage::new("why-child").await?;
    stage
        .controller()
        .child(CONFIG_MAP, "InPlace")
        .apply()
        .await?;
    let spec = json!({ "children": [config_map("a", json!({ "k": "1" }))] });
    stage.parent(THING, "p", spec).await?;
    stage.settle(THING, "p").await?;
    let maps = stage.objects(CONFIG_MAP);

    maps.patch("a", json!({ "data": { "k": "by hand" } }))
        .await?;
    maps.becomes("a", "to be put back", |it| data_of(it)["k"] == "1")
        .await?;

    let drift = because(&stage, "child", |it| it["verdict"] == "changed").await?;
    assert!(!is_because(&drift, "parent"), "{drift:#}");
    Ok(())
}

#[tokio::test]
async fn a_resync_and_the_hooks_own_timer_are_causes() -> anyhow::Result<()> {
    let stage = Stage::new("why-time").await?;
    let controller = stage.controller();
    controller
        .edit(|it| it["spec"]["resyncPeriodSeconds"] = 1.into())
        .apply()
        .await?;
    stage
        .parent(THING, "p", json!({ "resyncAfterSeconds": 0.5 }))
        .await?;

    because(&stage, "resync", |_| true).await?;
    because(&stage, "timer", |_| true).await?;
    Ok(())
}

#[tokio::test]
async fn a_failure_is_followed_by_a_retry() -> anyhow::Result<()> {
    let stage = Stage::answering("why-retry", |request| {
        let mut answer = as_told(request);
        if request["parent"]["metadata"]["annotations"]["broken"] == "true" {
            answer["children"] = "no list".into();
        }
        answer
    })
    .await?;
    stage.controller().apply().await?;
    let broken = |value: Value| json!({ "metadata": { "annotations": { "broken": value } } });
    stage.parent(THING, "p", json!({})).await?;
    stage
        .objects(THING)
        .patch("p", broken("true".into()))
        .await?;

    let retry = because(&stage, "retry", |it| it["verdict"] == "answer_refused").await?;

    assert!(retry["message"].is_string(), "{retry:#}");
    assert_eq!(retry["requeue"], "after a backoff");
    Ok(())
}

#[tokio::test]
async fn a_change_of_a_related_object_is_a_cause() -> anyhow::Result<()> {
    let hook = FakeHook::start(|call| {
        Answer::json(&if call.path == "/customize" {
            json!({ "relatedResources": [
                { "apiVersion": "v1", "resource": "configmaps", "names": ["seen"] },
            ] })
        } else {
            as_told(&call.json())
        })
    })?;
    let url = hook.url("/customize");
    let stage = Stage::with_hook("why-related", hook).await?;
    let maps = stage.objects(CONFIG_MAP);
    maps.create(config_map("seen", json!({ "k": "1" }))).await?;
    let customize = |it: &mut Value| {
        it["spec"]["hooks"]["customize"] = json!({ "webhook": { "url": url } });
    };
    stage.controller().edit(customize).apply().await?;
    stage.parent(THING, "p", json!({})).await?;
    stage.settle(THING, "p").await?;

    maps.patch("seen", json!({ "data": { "k": "2" } })).await?;

    let related = because(&stage, "related", |it| {
        let calls = it["calls"].as_array();
        calls.is_some_and(|calls| calls.iter().any(|it| it["hook"] == "sync"))
    })
    .await?;
    assert!(!is_because(&related, "parent"), "{related:#}");
    assert!(!is_because(&related, "child"), "{related:#}");
    Ok(())
}

#[tokio::test]
async fn a_hot_loop_is_a_cause_and_the_field_and_the_manager_that_fights_back_are_named()
-> anyhow::Result<()> {
    let stage = Stage::new("why-hot-loop").await?;
    stage
        .controller()
        .child(CONFIG_MAP, "InPlace")
        .apply()
        .await?;
    let spec = json!({ "children": [config_map("a", json!({ "k": "ours" }))] });
    stage.parent(THING, "p", spec).await?;
    let maps = stage.objects(CONFIG_MAP);
    let is_ours = |it: &Value| data_of(it) == json!({ "k": "ours" });
    for round in 0..REPAIRS {
        maps.becomes("a", "to be put right", is_ours).await?;
        let theirs = config_map("a", json!({ "k": format!("theirs {round}") }));
        maps.apply_as("gitops", &theirs).await?;
    }

    let told = format!(
        "ConfigMap {}/a: data.k is changed by manager \"gitops\"",
        stage.namespace
    );
    let is_let_be = |sync: &Value| {
        let told_of = sync["letBe"][0].as_str().unwrap_or_default();
        told_of.starts_with(&told)
    };
    // First it is put off, then it is looked at again.
    let put_off = because(&stage, "child", |it| {
        is_let_be(it) && it["verdict"] == "unchanged"
    })
    .await?;
    assert_eq!(put_off["writes"], json!([]), "{put_off:#}");
    because(&stage, "hot_loop", |_| true).await?;
    let of_child = why(&stage, "configmap/a").await?;
    assert!(of_child.iter().any(is_let_be), "{of_child:#?}");
    let text = why_text(&stage, "configmap/a").await?;
    assert!(text.contains(&format!("not written: {told}")), "{text}");
    Ok(())
}

#[tokio::test]
async fn the_begin_of_a_controller_on_a_replica_is_a_cause() -> anyhow::Result<()> {
    let stage = Stage::new("why-move").await?;
    stage.parent(THING, "p", json!({})).await?;
    stage.controller().apply().await?;

    let first = because(&stage, "shard_move", |_| true).await?;

    assert!(first["epoch"].as_u64() > Some(0), "{first:#}");
    Ok(())
}
