//! What probes are told of a replica whose parts fail, and that it goes on where it can. Faults are planted.

#![cfg(debug_assertions)]

use anyhow::ensure;
use serde_json::json;

use crate::support::{CONFIG_MAP, Stage, THING, config_map, data_of, eventually};

#[tokio::test]
async fn a_loop_that_is_stuck_fails_the_liveness_probe_by_name() -> anyhow::Result<()> {
    let stage = Stage::new("probe-stuck").await?;

    // The others turn every five seconds.
    let replica = stage.unready_replica("stuck-1", "stop host; loop-limit=8")?;

    eventually("the liveness probe to fail", async || {
        let (status, text) = replica.health("/healthz?verbose").await?;
        ensure!(
            status == 500 && text.contains("stuck: host"),
            "{status}: {text}"
        );
        Ok(())
    })
    .await?;
    let (_, text) = replica.health("/healthz?verbose").await?;
    ensure!(!text.contains("dispatcher"), "{text}");
    Ok(())
}

#[tokio::test]
async fn a_loop_that_turns_passes_the_liveness_probe_and_the_readiness_probe_sees_watches()
-> anyhow::Result<()> {
    let stage = Stage::new("probe-well").await?;
    let replica = &stage.shared.replica;

    let (status, live) = replica.health("/healthz?verbose").await?;
    ensure!(
        status == 200 && live.contains("loops ok"),
        "{status}: {live}"
    );
    let (status, ready) = replica.health("/readyz?verbose").await?;
    ensure!(
        status == 200 && ready.contains("watches ok"),
        "{status}: {ready}"
    );
    Ok(())
}

#[tokio::test]
async fn children_are_put_right_though_the_feed_of_their_kind_panicked() -> anyhow::Result<()> {
    let stage = Stage::new("probe-feed").await?;
    let replica = stage.replica("feed-1", "panic feed v1/configmaps").await?;
    stage
        .controller()
        .own()
        .child(CONFIG_MAP, "InPlace")
        .apply()
        .await?;
    let spec = json!({ "children": [config_map("child", json!({ "k": "v" }))] });
    stage.parent(THING, "p", spec).await?;
    let maps = stage.objects(CONFIG_MAP);
    maps.appears("child").await?;

    maps.patch("child", json!({ "data": { "k": "by hand" } }))
        .await?;

    let is_right = |it: &serde_json::Value| data_of(it)["k"] == "v";
    maps.becomes("child", "to be put right", is_right).await?;
    let restarts = "metashard_kube_feed_restarts_total{resource=\"v1/configmaps\"}";
    let restarts = replica.metric(restarts).await?;
    ensure!((restarts - 1.0).abs() < 0.1, "{restarts} restarts");
    let log = replica.whole_log();
    ensure!(log.contains("feed of a view panicked"), "{log}");
    Ok(())
}
