//! Kinds of parents and children beyond the usual: built-in ones, and those of several versions.

use serde_json::{Value, json};

use crate::support::{
    CONFIG_MAP, MULTI_V2, REPLICA_SET, STAGE, Stage, THING, config_map, version_of,
};

/// A ReplicaSet that this stage's controller selects. Nobody makes Pods of it here.
fn replica_set(stage: &Stage) -> Value {
    let labels = json!({ "app": "demo" });
    json!({
        "metadata": { "name": "p", "labels": { STAGE: stage.namespace } },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "c", "image": "example.org/none" }] },
            },
        },
    })
}

#[tokio::test]
async fn a_built_in_kind_with_a_status_can_be_a_parent() -> anyhow::Result<()> {
    let stage = Stage::answering(
        "built-in",
        |_| json!({ "children": [config_map("a", json!({}))], "status": { "replicas": 0 } }),
    )
    .await?;
    stage
        .controller()
        .parent(REPLICA_SET)
        .child(CONFIG_MAP, "InPlace")
        .apply()
        .await?;

    let parent = stage
        .objects(REPLICA_SET)
        .create(replica_set(&stage))
        .await?;

    let child = stage.objects(CONFIG_MAP).appears("a").await?;
    let owner = &child["metadata"]["ownerReferences"][0];
    assert_eq!(owner["apiVersion"], "apps/v1");
    assert_eq!(owner["kind"], "ReplicaSet");
    assert_eq!(owner["uid"], parent["metadata"]["uid"]);
    stage.settle(REPLICA_SET, "p").await
}

#[tokio::test]
async fn a_field_of_the_status_that_the_api_server_drops_is_told_of_and_not_written_for_ever()
-> anyhow::Result<()> {
    let stage = Stage::answering(
        "dropped-field",
        |_| json!({ "children": [], "status": { "replicas": 0, "phase": "Done" } }),
    )
    .await?;
    stage.controller().parent(REPLICA_SET).apply().await?;

    let parent = stage
        .objects(REPLICA_SET)
        .create(replica_set(&stage))
        .await?;

    let event = stage.event(&parent, "OddAnswer", "phase").await?;
    assert_eq!(event["type"], "Warning");
    stage.settle(REPLICA_SET, "p").await?;
    assert_eq!(stage.writes()?, ["update replicasets/status"]);
    Ok(())
}

#[tokio::test]
async fn children_are_written_and_shown_in_the_version_of_their_rule() -> anyhow::Result<()> {
    let stage = Stage::new("versions").await?;
    stage
        .controller()
        .child(MULTI_V2, "InPlace")
        .apply()
        .await?;
    let child = json!({
        "apiVersion": MULTI_V2.api_version, "kind": "Multi", "metadata": { "name": "a" },
        "spec": { "size": 1 },
    });
    stage
        .parent(THING, "p", json!({ "children": [child] }))
        .await?;
    let created = stage.objects(MULTI_V2).appears("a").await?;

    let request = stage.poke(THING, "p").await?;
    stage.settle(THING, "p").await?;

    let shown = &request["children"]["Multi.test.metashard.io/v2"]["a"];
    assert_eq!(shown["apiVersion"], MULTI_V2.api_version);
    assert_eq!(shown["spec"], json!({ "size": 1 }));
    let later = stage.objects(MULTI_V2).get("a").await?;
    assert_eq!(version_of(&later), version_of(&created));
    Ok(())
}
