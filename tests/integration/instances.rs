//! When controllers start, start anew and stop, and what they share.

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use crate::support::{CONFIG_MAP, CONTROLLER, Stage, THING, config_map, eventually};

#[tokio::test]
async fn a_controller_tells_when_it_starts_and_stops() -> anyhow::Result<()> {
    let stage = Stage::new("events").await?;
    let controller = stage.controller().apply().await?;

    let name = &stage.namespace;
    let mut told = Vec::new();
    for reason in ["Starting", "Started"] {
        let text = format!("{reason} controller: {name}");
        told.push(stage.event(&controller, reason, &text).await?);
    }
    stage.objects(CONTROLLER).delete(name).await?;
    for reason in ["Stopping", "Stopped"] {
        let text = format!("{reason} controller: {name}");
        told.push(stage.event(&controller, reason, &text).await?);
    }

    for event in told {
        assert_eq!(event["type"], "Normal");
        assert_eq!(event["involvedObject"]["kind"], "CompositeController");
        assert_eq!(event["source"]["component"], "metacontroller");
    }
    Ok(())
}

#[tokio::test]
async fn a_change_of_the_spec_restarts_a_controller_and_a_change_of_labels_does_not()
-> anyhow::Result<()> {
    let stage = Stage::new("restart").await?;
    let controller = stage.controller().apply().await?;
    let controllers = stage.objects(CONTROLLER);
    let name = &stage.namespace;
    stage.parent(THING, "p", json!({})).await?;
    stage.settle(THING, "p").await?;

    let label = json!({ "metadata": { "labels": { "seen": "no" } } });
    controllers.patch(name, label).await?;
    stage.settle(THING, "p").await?;
    let request = stage.poke(THING, "p").await?;
    assert_eq!(request["controller"]["metadata"]["labels"], Value::Null);
    assert_eq!(stage.told(&controller, "Stopped").await?, 0);

    let url = stage.hook.url("/other");
    let other = json!({ "spec": { "hooks": { "sync": { "webhook": { "url": url } } } } });
    controllers.patch(name, other).await?;
    let call = eventually("a call of the other URL", async || {
        let calls = stage.hook.calls_to("/other");
        Ok(calls.first().context("none yet")?.json())
    })
    .await?;
    assert_eq!(call["controller"]["metadata"]["labels"]["seen"], "no");
    let before = stage.hook.calls_to("/sync").len();
    stage.settle(THING, "p").await?;
    assert_eq!(stage.hook.calls_to("/sync").len(), before);
    eventually("events of one restart", async || {
        let told = (
            stage.told(&controller, "Stopped").await?,
            stage.told(&controller, "Started").await?,
        );
        ensure!(told == (1, 2), "stopped and started: {told:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_deleted_controller_calls_no_more_and_leaves_everything_there() -> anyhow::Result<()> {
    let stage = Stage::new("deleted").await?;
    let controller = stage
        .controller()
        .child(CONFIG_MAP, "InPlace")
        .apply()
        .await?;
    let spec = json!({ "children": [config_map("a", json!({}))], "resyncAfterSeconds": 0.05 });
    stage.parent(THING, "p", spec).await?;
    stage.objects(CONFIG_MAP).appears("a").await?;

    stage.objects(CONTROLLER).delete(&stage.namespace).await?;
    stage.event(&controller, "Stopped", "").await?;

    stage.is_unserved(THING, "p").await?;
    stage.objects(THING).get("p").await?;
    stage.objects(CONFIG_MAP).get("a").await?;
    Ok(())
}

#[tokio::test]
async fn a_paused_controller_calls_nothing_until_it_goes_on() -> anyhow::Result<()> {
    let stage = Stage::new("paused").await?;
    let controllers = stage.objects(CONTROLLER);
    stage.controller().apply().await?;
    stage.parent(THING, "p", json!({})).await?;
    stage.settle(THING, "p").await?;

    controllers
        .patch(&stage.namespace, json!({ "spec": { "paused": true } }))
        .await?;
    stage.says("Accepted", "False", "Paused", "").await?;
    stage.is_unserved(THING, "p").await?;

    controllers
        .patch(&stage.namespace, json!({ "spec": { "paused": false } }))
        .await?;
    stage.poke(THING, "p").await?;
    Ok(())
}

#[tokio::test]
async fn of_two_controllers_of_one_kind_the_second_outlives_the_first() -> anyhow::Result<()> {
    let stage = Stage::new("shared").await?;
    let first = stage.controller().apply().await?;
    stage.parent(THING, "p", json!({})).await?;
    stage.settle(THING, "p").await?;
    let url = stage.hook.url("/second");
    let second = stage.controller().edit(|it| {
        it["metadata"]["name"] = format!("{}-second", stage.namespace).into();
        it["spec"]["hooks"]["sync"]["webhook"]["url"] = url.into();
    });
    second.apply().await?;
    let calls = || stage.hook.calls_to("/second");
    eventually("a call of the second", async || {
        ensure!(!calls().is_empty(), "none yet");
        Ok(())
    })
    .await?;

    stage.objects(CONTROLLER).delete(&stage.namespace).await?;
    stage.event(&first, "Stopped", "").await?;
    stage
        .objects(THING)
        .patch("p", json!({ "spec": { "news": true } }))
        .await?;

    eventually("a call of the second with the news", async || {
        let last = calls().last().context("none yet")?.json();
        ensure!(last["parent"]["spec"]["news"] == true, "not yet");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_controller_that_is_made_and_deleted_again_and_again_runs_once_in_the_end()
-> anyhow::Result<()> {
    let stage = Stage::new("often").await?;
    stage.parent(THING, "p", json!({})).await?;
    let controllers = stage.objects(CONTROLLER);
    let version = |number: usize| {
        move |it: &mut Value| {
            it["spec"]["hooks"]["sync"]["version"] =
                if number.is_multiple_of(2) { "v1" } else { "v2" }.into();
        }
    };

    for number in 0..20 {
        stage.controller().edit(version(number)).apply().await?;
        let edit = json!({ "spec": { "resyncPeriodSeconds": 1000 + number } });
        controllers.patch(&stage.namespace, edit).await?;
        controllers.delete(&stage.namespace).await?;
    }
    let last = stage.controller().apply().await?;

    stage.condition("Ready", "True").await?;
    let request = stage.poke(THING, "p").await?;
    assert_eq!(
        request["controller"]["metadata"]["uid"],
        last["metadata"]["uid"]
    );
    stage.settle(THING, "p").await?;
    let before = stage.hook.count();
    stage.settle(THING, "p").await?;
    assert_eq!(stage.hook.count(), before + 2, "one call for each change");
    Ok(())
}
