//! A cluster as Metacontroller left it: metashard takes over, and writes nothing until something changes.

use metashard_api::names::{ANNOTATION_DECORATOR, ANNOTATION_LAST_APPLIED};
use metashard_testkit::{FakeHook, hook::Answer};
use serde_json::{Value, json};

use crate::support::{
    CONFIG_MAP, DecoratorBuilder, SECRET, STAGE, Stage, THING, config_map, data_of,
};

/// What Metacontroller recorded and wrote of `desired` for `parent`.
fn as_left(parent: &Value, desired: &Value) -> Value {
    let mut record = desired.clone();
    record["metadata"]["namespace"] = parent["metadata"]["namespace"].clone();
    let mut object = record.clone();
    object["metadata"]["annotations"][ANNOTATION_LAST_APPLIED] = record.to_string().into();
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": THING.api_version, "kind": "Thing", "name": "p",
        "uid": parent["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
    }]);
    object
}

fn secret() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "secret" },
        "data": { "k": "dg==" }, "type": "Opaque",
    })
}

/// The composite hook does what the parent's spec says; the decorator's wants a label and an attachment.
fn answer(path: &str, request: &Value) -> Value {
    if path == "/one" {
        return json!({ "labels": { "decorated": "yes" }, "attachments": [config_map("attached", json!({ "k": "v" }))] });
    }
    let data = request["parent"]["spec"]["data"].clone();
    json!({ "children": [config_map("map", data), secret()], "status": { "phase": "Done" } })
}

/// The parent with its children and attachment, finalizers and status.
async fn leave(stage: &Stage, decorator: &str) -> anyhow::Result<Vec<Value>> {
    let things = stage.objects(THING);
    let finalizers = [
        format!("metacontroller.io/compositecontroller-{}", stage.namespace),
        format!("metacontroller.io/decoratorcontroller-{decorator}"),
    ];
    let labels = json!({ STAGE: stage.namespace, "decorated": "yes" });
    let parent = json!({
        "metadata": { "name": "p", "labels": labels, "finalizers": finalizers },
        "spec": { "data": { "b": "2", "a": "<1>" } },
    });
    let parent = things.create(parent).await?;
    let status = json!({ "phase": "Done", "observedGeneration": 1 });
    things.patch_status("p", status).await?;

    let uid = &parent["metadata"]["uid"];
    let generated = |mut child: Value| {
        child["metadata"]["labels"] = json!({ "controller-uid": uid });
        as_left(&parent, &child)
    };
    let maps = stage.objects(CONFIG_MAP);
    let map = generated(config_map("map", parent["spec"]["data"].clone()));
    let mut attached = config_map("attached", json!({ "k": "v" }));
    attached["metadata"]["annotations"] = json!({ ANNOTATION_DECORATOR: decorator });
    Ok(vec![
        maps.create(map).await?,
        maps.create(as_left(&parent, &attached)).await?,
        stage.objects(SECRET).create(generated(secret())).await?,
    ])
}

async fn children(stage: &Stage) -> anyhow::Result<Vec<Value>> {
    Ok(vec![
        stage.objects(CONFIG_MAP).get("map").await?,
        stage.objects(CONFIG_MAP).get("attached").await?,
        stage.objects(SECRET).get("secret").await?,
    ])
}

#[tokio::test]
async fn a_cluster_that_metacontroller_left_is_taken_over_without_a_write() -> anyhow::Result<()> {
    let hook = FakeHook::start(|call| Answer::json(&answer(&call.path, &call.json())))?;
    let stage = Stage::with_hook("left", hook).await?;
    let decorator = format!("{}-one", stage.namespace);
    let before = leave(&stage, &decorator).await?;

    stage
        .controller()
        .child(CONFIG_MAP, "InPlace")
        .child(SECRET, "Recreate")
        .finalize()
        .apply()
        .await?;
    DecoratorBuilder::new(&stage, "one")
        .target(THING)
        .attaching(CONFIG_MAP, "Recreate")
        .finalize()
        .apply()
        .await?;
    stage.settle(THING, "p").await?;
    let is_observed = |it: &Value| {
        let seen = it["attachments"]["ConfigMap.v1"].as_object();
        seen.is_some_and(|seen| seen.contains_key("attached"))
    };
    stage
        .request("a call of the decorator with its attachment", is_observed)
        .await?;
    stage.settle(THING, "p").await?;

    let none: [&str; 0] = [];
    assert_eq!(stage.writes()?, none);
    assert_eq!(children(&stage).await?, before);

    // It is ours all the same: what changes is kept up, and nothing else.
    let patch = json!({ "spec": { "data": { "a": "changed" } } });
    stage.objects(THING).patch("p", patch).await?;
    let is_changed = |it: &Value| data_of(it)["a"] == "changed";
    let map = stage
        .objects(CONFIG_MAP)
        .becomes("map", "to be updated", is_changed)
        .await?;
    assert_eq!(map["metadata"]["uid"], before[0]["metadata"]["uid"]);
    assert_eq!(children(&stage).await?[1..], before[1..]);
    Ok(())
}
