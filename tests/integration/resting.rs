//! Parents that are paused, and syncs that are asked for by annotation.

use anyhow::ensure;
use metashard_testkit::hook::Answer;
use serde_json::{Value, json};

use crate::support::{
    CONFIG_MAP, CONTROLLER, Stage, THING, as_told, config_map, data_of, eventually, throughout,
    version_of,
};

fn annotated(key: &str, value: &Value) -> Value {
    json!({ "metadata": { "annotations": { key: value } } })
}

fn paused(value: &Value) -> Value {
    annotated("metashard.io/paused", value)
}

fn sync_now(value: &str) -> Value {
    annotated("metashard.io/sync-now", &value.into())
}

#[tokio::test]
async fn a_paused_parent_is_neither_called_for_nor_written_and_resumes_at_once()
-> anyhow::Result<()> {
    let stage = Stage::new("paused").await?;
    stage
        .controller()
        .child(CONFIG_MAP, "InPlace")
        .apply()
        .await?;
    let (things, children) = (stage.objects(THING), stage.objects(CONFIG_MAP));
    let child = |text: &str| json!([config_map("a", json!({ "text": text }))]);
    let parent = stage
        .parent(THING, "p", json!({ "children": child("before") }))
        .await?;
    children.appears("a").await?;
    stage.settle(THING, "p").await?;

    let paused_parent = things.patch("p", paused(&json!("true"))).await?;
    let told = stage
        .event(&parent, "Paused", "metashard.io/paused")
        .await?;
    ensure!(told["type"] == "Normal", "{told:#}");
    let calls = stage.hook.count();
    let edit = json!({ "spec": { "children": child("after") } });
    let edited = things.patch("p", edit).await?;
    ensure!(version_of(&edited) != version_of(&paused_parent));
    let drift = children
        .patch("a", json!({ "data": { "text": "drift" } }))
        .await?;
    throughout("nothing is done", async || {
        ensure!(stage.hook.count() == calls, "the hook was called");
        let (parent, child) = (things.get("p").await?, children.get("a").await?);
        ensure!(version_of(&parent) == version_of(&edited), "{parent:#}");
        ensure!(version_of(&child) == version_of(&drift), "{child:#}");
        Ok(())
    })
    .await?;
    ensure!(stage.told(&parent, "Paused").await? == 1);

    things.patch("p", paused(&Value::Null)).await?;
    let is_new = |it: &Value| data_of(it)["text"] == "after";
    children.becomes("a", "to be updated", is_new).await?;
    stage.event(&parent, "Resumed", "").await?;
    Ok(())
}

#[tokio::test]
async fn the_deletion_of_a_paused_parent_is_finalized() -> anyhow::Result<()> {
    let stage = Stage::new("paused-delete").await?;
    stage.controller().finalize().apply().await?;
    let things = stage.objects(THING);
    stage
        .parent(THING, "p", json!({ "finalized": true }))
        .await?;
    stage.settle(THING, "p").await?;

    things.patch("p", paused(&json!("true"))).await?;
    things.delete("p").await?;

    things.goes("p").await?;
    let is_finalized = stage.hook.calls().iter().any(|it| it.path == "/finalize");
    ensure!(is_finalized, "the finalize hook was not called");
    Ok(())
}

#[tokio::test]
async fn each_new_value_of_sync_now_calls_the_hook_once_although_the_status_is_ignored()
-> anyhow::Result<()> {
    let stage = Stage::new("sync-now").await?;
    stage
        .controller()
        .child(CONFIG_MAP, "InPlace")
        .edit(|it| it["spec"]["parentResource"]["ignoreStatusChanges"] = true.into())
        .apply()
        .await?;
    let things = stage.objects(THING);
    let spec = json!({ "children": [config_map("a", json!({}))], "status": { "n": 1 } });
    stage.parent(THING, "p", spec).await?;
    stage.settle(THING, "p").await?;

    for value in ["one", "two"] {
        let before = stage.hook.count();
        things.patch("p", sync_now(value)).await?;
        eventually("a call", async || {
            ensure!(stage.hook.count() > before, "none came");
            Ok(())
        })
        .await?;
        throughout("it is the only one", async || {
            let calls = stage.hook.count() - before;
            ensure!(calls == 1, "{calls} came");
            Ok(())
        })
        .await?;
    }
    let before = stage.hook.count();
    things.patch("p", sync_now("two")).await?;
    throughout("the same value calls nothing", async || {
        ensure!(stage.hook.count() == before, "a call came");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn sync_now_does_not_wait_for_the_delay_after_failures() -> anyhow::Result<()> {
    let stage = Stage::new("sync-now-failing").await?;
    stage.controller().apply().await?;
    stage
        .hook
        .answer_with(|_| Answer::status(429, "later").header("Retry-After", "600"));
    stage
        .parent(THING, "p", json!({ "status": { "n": 1 } }))
        .await?;
    stage.request("the first call", |_| true).await?;

    stage
        .hook
        .answer_with(|request| Answer::json(&as_told(&request.json())));
    stage.objects(THING).patch("p", sync_now("now")).await?;

    let is_synced = |it: &Value| it["status"]["n"] == 1;
    let things = stage.objects(THING);
    things.becomes("p", "to be synced", is_synced).await?;
    Ok(())
}

#[tokio::test]
async fn sync_now_on_a_controller_calls_the_hook_for_each_parent() -> anyhow::Result<()> {
    let stage = Stage::new("sync-now-all").await?;
    stage.controller().apply().await?;
    for name in ["p", "q"] {
        stage.parent(THING, name, json!({})).await?;
        stage.settle(THING, name).await?;
    }
    let before = stage.hook.count();

    stage
        .objects(CONTROLLER)
        .patch(&stage.namespace, sync_now("now"))
        .await?;

    eventually("a call for both", async || {
        let calls = stage.hook.calls();
        let names: Vec<_> = calls
            .get(before..)
            .unwrap_or_default()
            .iter()
            .map(|it| it.json()["parent"]["metadata"]["name"].clone())
            .collect();
        ensure!(names.contains(&json!("p")) && names.contains(&json!("q")));
        Ok(())
    })
    .await?;
    throughout("there are no more", async || {
        ensure!(stage.hook.count() == before + 2);
        Ok(())
    })
    .await
}
