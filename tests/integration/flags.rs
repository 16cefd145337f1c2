//! Flags that bound what a replica does, seen from outside.

use std::time::Duration;

use anyhow::ensure;
use metashard_testkit::{
    FakeHook, Replica,
    hook::{Answer, gap},
    replica,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{
    CONFIG_MAP, OWN_REPLICA, Stage, THING, WITHIN, as_told, config_map, eventually,
};

/// A replica with these flags that serves this stage's controller, which has ConfigMaps as children.
async fn replica(stage: &Stage, flags: &[&str]) -> anyhow::Result<Replica> {
    let name = stage.namespace.as_str();
    let selector = format!("--target-label-selector={OWN_REPLICA}={name}");
    let options = replica::Options::new(&stage.shared.cluster, name, name)?
        .flags([selector.as_str()])
        .flags(flags.iter().copied());
    let mut replica = Replica::start(stage.shared.cluster.group(), &options)?;
    replica.ready(WITHIN).await?;
    stage
        .controller()
        .child(CONFIG_MAP, "InPlace")
        .edit(|it| it["metadata"]["labels"] = json!({ OWN_REPLICA: name }))
        .apply()
        .await?;
    Ok(replica)
}

/// Until the stage's hook has been called so often.
async fn calls(stage: &Stage, count: usize) -> anyhow::Result<()> {
    eventually(&format!("{count} calls"), async || {
        let now = stage.hook.count();
        ensure!(now >= count, "there are {now}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn workers_are_the_calls_of_one_controller_at_a_time() -> anyhow::Result<()> {
    let delay = Duration::from_millis(500);
    let hook = FakeHook::start(move |call| Answer::json(&as_told(&call.json())).after(delay))?;
    let stage = Stage::with_hook("flag-workers", hook).await?;
    let _replica = replica(&stage, &["--workers=1"]).await?;

    for parent in ["a", "b", "c"] {
        stage.parent(THING, parent, json!({})).await?;
    }
    calls(&stage, 3).await?;

    for pair in stage.hook.calls()[..3].windows(2) {
        let apart = gap(&pair[0], &pair[1]);
        ensure!(apart >= delay, "two calls were {apart:?} apart");
    }
    Ok(())
}

#[tokio::test]
async fn after_each_flush_interval_every_parent_is_synced() -> anyhow::Result<()> {
    let stage = Stage::new("flag-flush").await?;
    let _replica = replica(&stage, &["--cache-flush-interval=1s"]).await?;
    stage.parent(THING, "p", json!({})).await?;
    stage.settle(THING, "p").await?;

    let since = Instant::now();
    calls(&stage, stage.hook.count() + 5).await?;

    // Syncs are due at fixed times; one that was late may be the first of the five.
    let took = since.elapsed();
    ensure!(took >= Duration::from_secs(3), "five syncs took {took:?}");
    Ok(())
}

#[tokio::test]
async fn requests_are_limited_where_that_is_asked_for() -> anyhow::Result<()> {
    let stage = Stage::new("flag-qps").await?;
    let _replica = replica(&stage, &["--client-go-qps=5", "--client-go-burst=1"]).await?;
    let children: Vec<_> = (0..10)
        .map(|n| config_map(&format!("c{n}"), json!({})))
        .collect();

    let began = Instant::now();
    stage
        .parent(THING, "p", json!({ "children": children }))
        .await?;
    stage.settle(THING, "p").await?;

    // Ten creations and a status write, five a second.
    let took = began.elapsed();
    ensure!(took >= Duration::from_secs(2), "it took {took:?}");
    Ok(())
}

#[tokio::test]
async fn one_object_has_no_more_events_than_asked_for() -> anyhow::Result<()> {
    let hook = FakeHook::json(|request| {
        let reason = request["parent"]["metadata"]["annotations"]["poke"].as_str();
        let reason = format!("Poked{}", reason.unwrap_or_default());
        json!({ "children": [], "events": [{ "reason": reason, "message": "x" }] })
    })?;
    let stage = Stage::with_hook("flag-events", hook).await?;
    let _replica = replica(&stage, &["--events-burst=2", "--events-qps=0.0001"]).await?;
    let parent = stage.parent(THING, "p", json!({})).await?;
    for _ in 0..4 {
        stage.poke(THING, "p").await?;
    }
    // Another object's are not held back by these, and come after them.
    let other = stage.parent(THING, "other", json!({})).await?;
    stage.event(&other, "Poked", "x").await?;

    let told: Vec<Value> = stage.events(&parent).await?;
    let count: i64 = told.iter().filter_map(|it| it["count"].as_i64()).sum();
    ensure!(count == 2, "{told:#?}");
    Ok(())
}
