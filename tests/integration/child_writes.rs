//! Children that somebody else changes back, and writes that the API server refuses: what people are told, and when it ends.

use std::time::Duration;

use anyhow::ensure;
use metashard_api::names::{condition, event};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{
    CONFIG_MAP, CONTROLLER, Stage, THING, config_map, data_of, eventually, throughout, version_of,
};

/// So many repairs of one child within a minute are a fight.
const REPAIRS: u32 = 10;

async fn want(stage: &Stage, children: Value) -> anyhow::Result<()> {
    let patch = json!({ "spec": { "children": children } });
    stage.objects(THING).patch("p", patch).await?;
    Ok(())
}

#[tokio::test]
async fn a_child_that_is_fought_over_is_let_be_with_a_condition_that_names_the_field_and_the_rival()
-> anyhow::Result<()> {
    let stage = Stage::new("hot-loop").await?;
    stage
        .controller()
        .child(CONFIG_MAP, "InPlace")
        .apply()
        .await?;
    let wanted = config_map("a", json!({ "k": "ours" }));
    let parent = stage
        .parent(THING, "p", json!({ "children": [wanted] }))
        .await?;
    let children = stage.objects(CONFIG_MAP);
    let is_ours = |it: &Value| data_of(it) == json!({ "k": "ours" });

    for round in 0..REPAIRS {
        children.becomes("a", "to be put right", is_ours).await?;
        let theirs = config_map("a", json!({ "k": format!("theirs {round}") }));
        children.apply_as("gitops", &theirs).await?;
    }

    let told = stage.condition(condition::HOT_LOOP, "True").await?;
    let text = told["message"].as_str().unwrap_or_default();
    let expected = format!(
        "ConfigMap {}/a: data.k is changed by manager \"gitops\"",
        stage.namespace
    );
    ensure!(text.starts_with(&expected), "{text}");
    stage.event(&parent, event::HOT_LOOP, &expected).await?;
    // Nobody fights any more: it is put right once more, and that is the end.
    children
        .becomes("a", "to be put right in the end", is_ours)
        .await?;
    stage.condition(condition::HOT_LOOP, "False").await?;
    stage.condition(condition::READY, "True").await?;
    Ok(())
}

#[tokio::test]
async fn a_child_that_the_api_server_refuses_is_told_in_a_condition_until_it_is_mended()
-> anyhow::Result<()> {
    let stage = Stage::new("refused").await?;
    stage
        .controller()
        .child(CONFIG_MAP, "InPlace")
        .apply()
        .await?;
    let mut wrong = config_map("a", json!({}));
    wrong["data"]["no key!"] = "x".into();
    stage
        .parent(
            THING,
            "p",
            json!({ "children": [wrong, config_map("b", json!({}))] }),
        )
        .await?;

    let told = stage.condition(condition::STALLED, "True").await?;

    let text = told["message"].as_str().unwrap_or_default();
    ensure!(
        text.contains(&format!("create ConfigMap {}/a", stage.namespace)),
        "{text}"
    );
    ensure!(text.contains("no key!"), "{text}");
    stage.condition(condition::READY, "False").await?;
    stage.objects(CONFIG_MAP).appears("b").await?;
    want(&stage, json!([config_map("a", json!({ "key": "x" }))])).await?;
    stage.condition(condition::STALLED, "False").await?;
    stage.condition(condition::READY, "True").await?;
    Ok(())
}

/// Tries after which a parent that fails waits for more than [`AT_ONCE`]: for 5 to 10 s before the next.
const TRIES: usize = 12;

/// An edit is seen within this time, whatever was waited for.
const AT_ONCE: Duration = Duration::from_secs(4);

/// An edit leads to a call of the hook in time.
async fn called_again(
    stage: &Stage,
    edit: impl Future<Output = anyhow::Result<Value>>,
) -> anyhow::Result<()> {
    eventually("what came before to be over", async || {
        let before = stage.hook.count();
        throughout("it waits", async || {
            ensure!(stage.hook.count() == before, "it was called");
            Ok(())
        })
        .await
    })
    .await?;
    let before = stage.hook.count();
    edit.await?;
    let since = Instant::now();
    eventually("a call after the edit", async || {
        ensure!(stage.hook.count() > before, "none");
        Ok(())
    })
    .await?;
    let took = since.elapsed();
    ensure!(took < AT_ONCE, "it took {took:?}");
    Ok(())
}

/// A quota or a right that is mended tells nobody; an edit of what one has at hand does.
#[tokio::test]
async fn a_parent_that_waits_long_after_a_refused_write_is_synced_at_once_after_an_edit()
-> anyhow::Result<()> {
    let stage = Stage::new("refused-long").await?;
    let controller = stage.controller().child(CONFIG_MAP, "InPlace");
    controller.apply().await?;
    let mut wrong = config_map("a", json!({}));
    wrong["data"]["no key!"] = "x".into();
    let spec = json!({ "children": [wrong, config_map("b", json!({ "k": "1" }))] });
    stage.parent(THING, "p", spec).await?;
    eventually("many tries", async || {
        let calls = stage.hook.count();
        ensure!(calls >= TRIES, "{calls}");
        Ok(())
    })
    .await?;

    let annotated = json!({ "metadata": { "annotations": { "edited": "1" } } });
    called_again(&stage, stage.objects(THING).patch("p", annotated)).await?;
    let drifted = json!({ "data": { "k": "2" } });
    called_again(&stage, stage.objects(CONFIG_MAP).patch("b", drifted)).await?;
    let edited = json!({ "spec": { "resyncPeriodSeconds": 3600 } });
    let controllers = stage.objects(CONTROLLER);
    called_again(&stage, controllers.patch(&stage.namespace, edited)).await
}

#[tokio::test]
async fn an_object_of_nobody_is_taken_over_where_the_rule_says_force() -> anyhow::Result<()> {
    let stage = Stage::new("force").await?;
    let children = stage.objects(CONFIG_MAP);
    let theirs = children
        .create(config_map("a", json!({ "k": "theirs", "l": "1" })))
        .await?;
    let controller = stage.controller().child(CONFIG_MAP, "InPlace");
    let force = |it: &mut Value| it["spec"]["childResources"][0]["adoption"] = "Force".into();
    controller.edit(force).apply().await?;

    let wanted = config_map("a", json!({ "k": "ours" }));
    let parent = stage
        .parent(THING, "p", json!({ "children": [wanted] }))
        .await?;

    stage
        .event(&parent, event::CHILD_ADOPTED, "adopt ConfigMap")
        .await?;
    let is_ours = |it: &Value| data_of(it) == json!({ "k": "ours", "l": "1" });
    let child = children.becomes("a", "to be taken over", is_ours).await?;
    assert_eq!(
        version_of(&child).0,
        version_of(&theirs).0,
        "the same object"
    );
    assert_eq!(
        child["metadata"]["ownerReferences"][0]["uid"],
        parent["metadata"]["uid"]
    );
    Ok(())
}

#[tokio::test]
async fn children_stay_where_the_rule_says_orphan_also_when_their_parent_goes() -> anyhow::Result<()>
{
    let stage = Stage::new("orphan").await?;
    let controller = stage.controller().child(CONFIG_MAP, "InPlace");
    let orphan =
        |it: &mut Value| it["spec"]["childResources"][0]["deletionPolicy"] = "Orphan".into();
    controller.edit(orphan).apply().await?;
    let both = json!([config_map("a", json!({})), config_map("b", json!({}))]);
    stage
        .parent(THING, "p", json!({ "children": both }))
        .await?;
    let children = stage.objects(CONFIG_MAP);
    children.appears("b").await?;

    let is_free = |it: &Value| it["metadata"].get("ownerReferences").is_none();
    want(&stage, json!([config_map("b", json!({}))])).await?;
    let first = children.becomes("a", "to be let go", is_free).await?;
    stage.settle(THING, "p").await?;
    assert_eq!(version_of(&children.get("a").await?), version_of(&first));

    stage.objects(THING).delete("p").await?;
    stage.objects(THING).goes("p").await?;
    ensure!(
        is_free(&children.get("b").await?),
        "it is not the garbage collector's"
    );
    Ok(())
}
