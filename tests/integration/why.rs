//! `metashardctl why` names what made a sync run, from what the replica that ran it remembers.

use anyhow::{Context, ensure};
use metashard_testkit::{cluster, replica};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::{CONFIG_MAP, Stage, THING, as_told, config_map, data_of, eventually};

/// What `metashardctl why thing/p -o json` says, the newest first.
async fn why(stage: &Stage, object: &str) -> anyhow::Result<Vec<Value>> {
    let cluster = &stage.shared.cluster;
    let output = Command::new(replica::built("metashardctl")?)
        .args(["why", object, "-o", "json", "--limit=100"])
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
    let mut answer: Value = serde_json::from_slice(&output.stdout)?;
    serde_json::from_value(answer["syncs"].take()).context("read syncs")
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

    let wrote = |what: &str| {
        let what = format!("{what} ConfigMap {}/a", stage.namespace);
        move |sync: &Value| {
            let writes = sync["writes"].as_array();
            writes.is_some_and(|all| all.iter().any(|it| it["what"] == what.as_str()))
        }
    };
    let edited = because(&stage, "parent", wrote("update")).await?;
    assert_eq!(edited["calls"][0]["hook"], "sync");
    assert_eq!(edited["calls"][0]["result"], "answered");
    let why_written = edited["writes"][0]["why"].as_str().unwrap_or_default();
    assert!(why_written.contains("data"), "{edited:#}");
    // The child itself is asked for as well.
    assert!(
        why(&stage, "configmap/a")
            .await?
            .iter()
            .any(wrote("create"))
    );
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
async fn the_begin_of_a_controller_on_a_replica_is_a_cause() -> anyhow::Result<()> {
    let stage = Stage::new("why-move").await?;
    stage.parent(THING, "p", json!({})).await?;
    stage.controller().apply().await?;

    let first = because(&stage, "shard_move", |_| true).await?;

    assert!(first["epoch"].as_u64() > Some(0), "{first:#}");
    Ok(())
}
