//! What starts a sync: which parents, which of their changes, and which timers.

use std::time::Duration;

use anyhow::ensure;
use metashard_testkit::hook::gap;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{CONFIG_MAP, STAGE, Stage, THING, config_map, eventually, labelled};

/// Until `count` more calls have come than now.
async fn more_calls(stage: &Stage, count: usize) -> anyhow::Result<()> {
    let before = stage.hook.count();
    eventually(&format!("{count} more calls"), async || {
        let now = stage.hook.count();
        ensure!(now >= before + count, "only {} more", now - before);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn parents_that_are_not_selected_are_never_fetched_nor_synced() -> anyhow::Result<()> {
    let stage = Stage::new("selected").await?;
    stage.controller().apply().await?;
    let things = stage.objects(THING);

    let others =
        json!({ "metadata": { "name": "other", "labels": { STAGE: "other" } }, "spec": {} });
    things.create(others).await?;
    stage.parent(THING, "p", json!({})).await?;
    stage.settle(THING, "p").await?;

    let calls = stage.hook.calls();
    assert!(
        calls
            .iter()
            .all(|call| call.json()["parent"]["metadata"]["name"] == "p")
    );
    let query = format!("labelSelector={STAGE}%3D{}", stage.namespace);
    let asked = stage.shared.cluster.audit_events()?;
    let is_selecting = |event: &&Value| {
        event["objectRef"]["resource"] == "things"
            && event["requestURI"]
                .as_str()
                .is_some_and(|uri| uri.contains(&query))
    };
    assert!(
        asked.iter().find(is_selecting).is_some(),
        "no request had {query}"
    );
    Ok(())
}

#[tokio::test]
async fn a_parent_that_is_relabelled_away_is_left_alone_and_comes_back_by_its_label()
-> anyhow::Result<()> {
    let stage = Stage::new("relabelled").await?;
    stage
        .controller()
        .child(CONFIG_MAP, "InPlace")
        .apply()
        .await?;
    let things = stage.objects(THING);
    stage
        .parent(
            THING,
            "p",
            json!({ "children": [config_map("a", json!({}))] }),
        )
        .await?;
    stage.objects(CONFIG_MAP).appears("a").await?;
    stage.settle(THING, "p").await?;

    let away = json!({ "metadata": { "labels": { STAGE: "other" } }, "spec": { "children": [] } });
    things.patch("p", away).await?;
    stage.no_calls().await?;

    stage.objects(CONFIG_MAP).get("a").await?;
    let back = json!({ "metadata": { "labels": { STAGE: stage.namespace } } });
    things.patch("p", back).await?;
    stage.objects(CONFIG_MAP).goes("a").await
}

#[tokio::test]
async fn an_ownerless_object_that_no_parent_selects_starts_no_sync() -> anyhow::Result<()> {
    let stage = Stage::new("not-picked").await?;
    stage
        .controller()
        .child(CONFIG_MAP, "InPlace")
        .with_selectors_of_parents()
        .apply()
        .await?;
    let selector = json!({ "matchLabels": { "app": "mine" } });
    stage
        .parent(THING, "p", json!({ "selector": selector }))
        .await?;
    stage.settle(THING, "p").await?;
    let others = stage.objects(CONFIG_MAP);
    let other = |name| labelled(config_map(name, json!({})), "app", "other");

    others.create(other("a")).await?;
    others.patch("a", json!({ "data": { "k": "v" } })).await?;
    stage.no_calls().await?;

    let picked = json!({ "metadata": { "labels": { "app": "mine" } } });
    others.patch("a", picked).await?;
    others.goes("a").await
}

#[tokio::test]
async fn a_change_of_the_status_by_somebody_else_starts_a_sync() -> anyhow::Result<()> {
    let stage = Stage::new("foreign-status").await?;
    stage.controller().apply().await?;
    stage
        .parent(THING, "p", json!({ "status": { "ours": 1 } }))
        .await?;
    stage.settle(THING, "p").await?;

    let things = stage.objects(THING);
    things.patch_status("p", json!({ "theirs": 1 })).await?;

    let has_theirs = |it: &Value| it["parent"]["status"]["theirs"] == 1;
    stage.request("a request that shows it", has_theirs).await?;
    let is_ours = |it: &Value| it["status"] == json!({ "ours": 1, "observedGeneration": 1 });
    things
        .becomes("p", "to have its status back", is_ours)
        .await?;
    Ok(())
}

#[tokio::test]
async fn with_ignore_status_changes_a_change_of_the_status_alone_starts_no_sync()
-> anyhow::Result<()> {
    let stage = Stage::new("ignore-status").await?;
    stage
        .controller()
        .edit(|it| it["spec"]["parentResource"]["ignoreStatusChanges"] = true.into())
        .apply()
        .await?;
    stage
        .parent(THING, "p", json!({ "status": { "ours": 1 } }))
        .await?;
    stage.settle(THING, "p").await?;

    stage
        .objects(THING)
        .patch_status("p", json!({ "theirs": 1 }))
        .await?;
    stage.no_calls().await?;

    let labels = json!({ "metadata": { "labels": { "more": "x" } } });
    stage.objects(THING).patch("p", labels).await?;
    let is_new = |it: &Value| it["parent"]["metadata"]["labels"]["more"] == "x";
    let request = stage
        .request("a request after a change of labels", is_new)
        .await?;
    assert_eq!(request["parent"]["status"]["theirs"], 1);
    Ok(())
}

/// A controller with a period of one second calls about once a second and writes nothing.
async fn resyncs(claim: &str, ignore_status: bool) -> anyhow::Result<()> {
    let stage = Stage::new(claim).await?;
    stage
        .controller()
        .edit(|it| {
            it["spec"]["resyncPeriodSeconds"] = 1.into();
            it["spec"]["parentResource"]["ignoreStatusChanges"] = ignore_status.into();
        })
        .apply()
        .await?;
    stage
        .parent(THING, "p", json!({ "status": { "ours": 1 } }))
        .await?;
    stage.settle(THING, "p").await?;
    let since = Instant::now();

    more_calls(&stage, 5).await?;

    // Syncs are due at fixed times; one that was late may be the first of the five.
    let took = since.elapsed();
    let about_five_seconds = Duration::from_secs(3)..Duration::from_secs(10);
    assert!(about_five_seconds.contains(&took), "five took {took:?}");
    assert_eq!(stage.writes()?, ["update things/status"]);
    Ok(())
}

#[tokio::test]
async fn every_parent_is_synced_once_a_resync_period() -> anyhow::Result<()> {
    resyncs("resync", false).await
}

#[tokio::test]
async fn a_resync_is_no_change_of_the_status_that_is_ignored() -> anyhow::Result<()> {
    resyncs("resync-ignore", true).await
}

#[tokio::test]
async fn a_hook_that_asks_for_it_is_called_again_and_sees_the_status_just_written()
-> anyhow::Result<()> {
    let stage = Stage::answering("resync-after", |request| {
        let seen = request["parent"]["status"]["round"].as_u64().unwrap_or(0);
        let again = if seen < 3 { json!(0.1) } else { Value::Null };
        json!({ "status": { "round": seen + 1 }, "resyncAfterSeconds": again, "children": [] })
    })
    .await?;
    stage
        .controller()
        .edit(|it| it["spec"]["parentResource"]["ignoreStatusChanges"] = true.into())
        .apply()
        .await?;
    stage.parent(THING, "p", json!({})).await?;

    let calls = eventually("four calls", async || {
        let calls = stage.hook.calls();
        ensure!(calls.len() >= 4, "only {}", calls.len());
        Ok(calls)
    })
    .await?;
    let rounds: Vec<_> = calls
        .iter()
        .map(|it| it.json()["parent"]["status"]["round"].clone())
        .collect();
    assert_eq!(rounds[..4], [Value::Null, 1.into(), 2.into(), 3.into()]);
    for pair in calls[..4].windows(2) {
        let gap = gap(&pair[0], &pair[1]);
        let wanted = Duration::from_millis(95)..Duration::from_secs(2);
        assert!(wanted.contains(&gap), "{gap:?} between two calls");
    }
    stage.no_calls().await
}

#[tokio::test]
async fn a_hook_that_steps_through_its_status_is_called_until_it_rests() -> anyhow::Result<()> {
    let stage = Stage::answering("steps", |request| {
        let step = request["parent"]["status"]["step"].as_u64().unwrap_or(0);
        json!({ "status": { "step": (step + 1).min(8) }, "children": [] })
    })
    .await?;
    stage.controller().apply().await?;

    stage.parent(THING, "p", json!({})).await?;

    let is_last = |it: &Value| it["status"]["step"] == 8;
    stage
        .objects(THING)
        .becomes("p", "to reach its last step", is_last)
        .await?;
    Ok(())
}
