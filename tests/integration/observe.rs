//! Replicas and controllers that call hooks and write nothing.

use anyhow::ensure;
use metashard_testkit::{Replica, replica};
use serde_json::{Value, json};

use crate::support::{
    CONFIG_MAP, CONTROLLER, LEASE, OWN_REPLICA, Objects, Stage, THING, WITHIN, config_map, data_of,
    eventually, throughout, version_of,
};

/// How many writes of this purpose a replica would have sent for this stage's controller.
async fn observed(
    replica: &Replica,
    stage: &Stage,
    purpose: &str,
    resource: &str,
) -> anyhow::Result<f64> {
    let controller = &stage.namespace;
    replica
        .metric(&format!(
            "metashard_observed_writes_total{{controller=\"{controller}\",controller_type=\"CompositeController\",purpose=\"{purpose}\",resource=\"{resource}\"}}"
        ))
        .await
}

/// The Lease of a Metacontroller that is live for an hour, in the namespace of this stage.
async fn live_metacontroller(stage: &Stage) -> anyhow::Result<Value> {
    let time = "2026-01-01T00:00:00.000000Z";
    let lease = json!({
        "metadata": { "name": "metacontroller" },
        "spec": {
            "holderIdentity": "metacontroller-0", "leaseDurationSeconds": 3600, "leaseTransitions": 1,
            "acquireTime": time, "renewTime": time,
        },
    });
    Objects::new(&stage.client, LEASE, &stage.namespace)
        .create(lease)
        .await
}

#[tokio::test]
async fn an_observing_replica_beside_a_live_metacontroller_says_what_it_would_write_and_writes_nothing()
-> anyhow::Result<()> {
    let stage = Stage::new("observe").await?;
    let cluster = &stage.shared.cluster;
    let lease = live_metacontroller(&stage).await?;
    let name = stage.namespace.as_str();
    let controller = stage
        .controller()
        .child(CONFIG_MAP, "InPlace")
        .finalize()
        .edit(|it| it["metadata"]["labels"] = json!({ OWN_REPLICA: name }))
        .apply()
        .await?;
    let spec = json!({ "children": [config_map("a", json!({ "k": "v" }))], "status": { "n": 1 } });
    let parent = stage.parent(THING, "p", spec).await?;

    let options = replica::Options::new(cluster, name, name)?.flags([
        "--observe",
        "--leader-election-id=metacontroller",
        format!("--target-label-selector={OWN_REPLICA}={name}").as_str(),
    ]);
    let mut replica = Replica::start(cluster.group(), &options)?;
    replica.ready(WITHIN).await?;

    let things = "test.metashard.io/v1/things";
    eventually("every write to be observed", async || {
        for (purpose, resource) in [
            ("add_finalizer", things),
            ("create_child", "v1/configmaps"),
            ("update_status", things),
        ] {
            let count = observed(&replica, &stage, purpose, resource).await?;
            ensure!(count >= 1.0, "{purpose}: {count}");
        }
        Ok(())
    })
    .await?;
    let calls = stage.hook.count();
    ensure!(calls >= 1, "the hook was not called");
    throughout(
        "nothing is written, and the hook not called again",
        async || {
            let now = stage.objects(THING).get("p").await?;
            ensure!(version_of(&now) == version_of(&parent), "{now:#}");
            ensure!(stage.objects(CONFIG_MAP).find("a").await?.is_none());
            let now = stage.objects(CONTROLLER).get(name).await?;
            ensure!(version_of(&now) == version_of(&controller), "{now:#}");
            ensure!(stage.hook.count() == calls, "a call came");
            Ok(())
        },
    )
    .await?;
    let log = replica.whole_log();
    ensure!(log.contains("would be written"), "{log}");
    ensure!(stage.writes()?.is_empty(), "{:?}", stage.writes()?);
    for object in [&parent, &controller] {
        ensure!(stage.events(object).await?.is_empty());
    }
    let leases = Objects::new(&stage.client, LEASE, name);
    let kept = leases.get("metacontroller").await?;
    ensure!(version_of(&kept) == version_of(&lease), "{kept:#}");
    Ok(())
}

#[tokio::test]
async fn a_controller_is_observed_by_annotation_until_that_is_removed() -> anyhow::Result<()> {
    let stage = Stage::new("observe-one").await?;
    stage
        .controller()
        .child(CONFIG_MAP, "InPlace")
        .edit(|it| {
            it["metadata"]["annotations"] = json!({ "metashard.io/observe": "true" });
        })
        .apply()
        .await?;
    let spec = json!({ "children": [config_map("a", json!({ "k": "v" }))] });
    stage.parent(THING, "p", spec).await?;

    let replica = &stage.shared.replica;
    eventually("the creation to be observed", async || {
        let count = observed(replica, &stage, "create_child", "v1/configmaps").await?;
        ensure!(count >= 1.0);
        Ok(())
    })
    .await?;
    stage.says("Ready", "True", "Observing", "").await?;
    stage.poke(THING, "p").await?;
    ensure!(stage.writes()?.is_empty(), "{:?}", stage.writes()?);

    let act = json!({ "metadata": { "annotations": { "metashard.io/observe": null } } });
    stage
        .objects(CONTROLLER)
        .patch(&stage.namespace, act)
        .await?;
    let child = stage.objects(CONFIG_MAP).appears("a").await?;
    ensure!(data_of(&child) == json!({ "k": "v" }));
    stage.says("Ready", "True", "Ready", "").await?;
    Ok(())
}
