//! A cluster as Metacontroller left it: metashard takes over, and writes nothing until something changes.

mod rolling;

use std::collections::BTreeSet;

use anyhow::ensure;
use metashard_api::names::ANNOTATION_DECORATOR;
use metashard_testkit::{FakeHook, hook::Answer};
use serde_json::{Value, json};

use crate::support::{
    Applying, BIG_THING, CONFIG_MAP, DecoratorBuilder, Kind, SECRET, STAGE, Stage, THING,
    config_map, data_of, eventually, owner,
};

/// What metashard writes all the same: to each controller object its conditions, and to nothing else of the stage that is
/// cluster-scoped.
async fn only_conditions_are_written(stage: &Stage, resources: &[&str]) -> anyhow::Result<()> {
    let status = |resource: &&str| format!("update {resource}/status");
    let wanted: BTreeSet<_> = resources.iter().map(status).collect();
    eventually("the conditions of controllers to be written", async || {
        let writes = stage.cluster_writes()?;
        ensure!(writes == wanted, "{writes:?}");
        Ok(())
    })
    .await
}

fn secret() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "secret" },
        "data": { "k": "dg==" }, "type": "Opaque",
    })
}

/// `object` where the hook puts it: of a namespaced parent it does not say.
fn placed(spec: &Value, mut object: Value) -> Value {
    if let Some(namespace) = spec.get("namespace") {
        object["metadata"]["namespace"] = namespace.clone();
    }
    object
}

/// The composite hook does what the parent's spec says; the decorator's wants a label and an attachment.
fn answer(path: &str, request: &Value) -> Value {
    if path == "/one" {
        let attachment = config_map("attached", json!({ "k": "v" }));
        let attachment = placed(&request["object"]["spec"], attachment);
        return json!({ "labels": { "decorated": "yes" }, "attachments": [attachment] });
    }
    let spec = &request["parent"]["spec"];
    let children = [config_map("map", spec["data"].clone()), secret()];
    let children = children.map(|child| placed(spec, child));
    json!({ "children": children, "status": { "phase": "Done" } })
}

/// What Metacontroller left: a parent, and how its children were applied.
struct Left<'a> {
    stage: &'a Stage,
    applying: Applying,
    /// Of the parent.
    kind: Kind,
    parent: Value,
}

impl Left<'_> {
    /// A child of a CompositeController with generated selectors.
    async fn child(&self, kind: Kind, mut desired: Value) -> anyhow::Result<Value> {
        let uid = &self.parent["metadata"]["uid"];
        desired["metadata"]["labels"]["controller-uid"] = uid.clone();
        self.put(kind, desired).await
    }

    /// An attachment of a DecoratorController.
    async fn attachment(&self, mut desired: Value, decorator: &str) -> anyhow::Result<Value> {
        desired["metadata"]["annotations"][ANNOTATION_DECORATOR] = decorator.into();
        self.put(CONFIG_MAP, desired).await
    }

    async fn put(&self, kind: Kind, mut desired: Value) -> anyhow::Result<Value> {
        desired["metadata"]["namespace"] = self.stage.namespace.as_str().into();
        let owner = owner(self.kind, &self.parent);
        self.applying.put(self.stage, kind, &desired, owner).await
    }
}

/// Name of the parent: a cluster-scoped one needs its own.
fn parent_of(stage: &Stage, kind: Kind) -> &str {
    if kind.namespaced {
        "p"
    } else {
        &stage.namespace
    }
}

/// The parent with its children and attachment, finalizers and status, and what others added.
async fn leave(
    stage: &Stage,
    applying: Applying,
    kind: Kind,
    decorator: &str,
) -> anyhow::Result<()> {
    let (parents, name) = (stage.objects(kind), parent_of(stage, kind));
    let finalizers = [
        format!("metacontroller.io/compositecontroller-{}", stage.namespace),
        format!("metacontroller.io/decoratorcontroller-{decorator}"),
    ];
    let labels = json!({ STAGE: stage.namespace, "decorated": "yes" });
    let mut spec = json!({ "data": { "b": "2", "a": "<1>" } });
    if !kind.namespaced {
        spec["namespace"] = stage.namespace.as_str().into();
    }
    let metadata = json!({ "name": name, "labels": labels, "finalizers": finalizers });
    let parent = json!({ "metadata": metadata, "spec": spec });
    let parent = parents.create(parent).await?;
    let status = json!({ "phase": "Done", "observedGeneration": 1 });
    parents.patch_status(name, status).await?;

    let left = Left {
        stage,
        applying,
        kind,
        parent,
    };
    let data = spec["data"].clone();
    left.child(CONFIG_MAP, config_map("map", data)).await?;
    left.child(SECRET, secret()).await?;
    left.attachment(config_map("attached", json!({ "k": "v" })), decorator)
        .await?;
    let theirs = json!({
        "metadata": { "labels": { "theirs": "1" }, "annotations": { "theirs": "1" } },
        "data": { "theirs": "dGhlaXJz" },
    });
    let maps = stage.objects(CONFIG_MAP);
    maps.patch("map", theirs.clone()).await?;
    maps.patch("attached", theirs.clone()).await?;
    stage.objects(SECRET).patch("secret", theirs).await?;
    Ok(())
}

async fn children(stage: &Stage) -> anyhow::Result<Vec<Value>> {
    Ok(vec![
        stage.objects(CONFIG_MAP).get("map").await?,
        stage.objects(CONFIG_MAP).get("attached").await?,
        stage.objects(SECRET).get("secret").await?,
    ])
}

/// A composite and a decorator with finalize hooks, of parents of this kind, as Metacontroller's user has them.
async fn take_over(stage: &Stage, applying: Applying, kind: Kind) -> anyhow::Result<()> {
    stage
        .controller()
        .parent(kind)
        .child(CONFIG_MAP, "InPlace")
        .child(SECRET, "Recreate")
        .finalize()
        .edit(|it| applying.serve(it))
        .apply()
        .await?;
    DecoratorBuilder::new(stage, "one")
        .target(kind)
        .attaching(CONFIG_MAP, "Recreate")
        .finalize()
        .edit(|it| applying.serve(it))
        .apply()
        .await?;
    Ok(())
}

async fn nothing_is_written(claim: &str, applying: Applying, kind: Kind) -> anyhow::Result<()> {
    let hook = FakeHook::start(|call| Answer::json(&answer(&call.path, &call.json())))?;
    let stage = Stage::with_hook(claim, hook).await?;
    applying.start(&stage).await?;
    let (parents, name) = (stage.objects(kind), parent_of(&stage, kind));
    leave(&stage, applying, kind, &format!("{}-one", stage.namespace)).await?;
    let before = children(&stage).await?;

    take_over(&stage, applying, kind).await?;
    stage.settle(kind, name).await?;
    let is_observed = |it: &Value| {
        let seen = it["attachments"]["ConfigMap.v1"].as_object();
        seen.is_some_and(|seen| seen.keys().any(|key| key.ends_with("attached")))
    };
    stage
        .request("a call of the decorator with its attachment", is_observed)
        .await?;
    stage.settle(kind, name).await?;

    let none: [&str; 0] = [];
    assert_eq!(stage.writes()?, none);
    let controllers = ["compositecontrollers", "decoratorcontrollers"];
    only_conditions_are_written(&stage, &controllers).await?;
    assert_eq!(children(&stage).await?, before);

    // It is ours all the same: what changes is kept up, and nothing else.
    let patch = json!({ "spec": { "data": { "a": "changed", "b": null } } });
    parents.patch(name, patch).await?;
    let wanted = json!({ "a": "changed", "theirs": "dGhlaXJz" });
    let map = stage
        .objects(CONFIG_MAP)
        .becomes("map", "to be updated", |it| data_of(it) == wanted)
        .await?;
    assert_eq!(map["metadata"]["uid"], before[0]["metadata"]["uid"]);
    assert_eq!(children(&stage).await?[1..], before[1..]);
    Ok(())
}

#[tokio::test]
async fn a_cluster_that_metacontroller_left_is_taken_over_without_a_write() -> anyhow::Result<()> {
    nothing_is_written("left", Applying::Dynamic, THING).await
}

#[tokio::test]
async fn a_cluster_whose_children_metacontroller_applied_by_the_server_is_taken_over_without_a_write()
-> anyhow::Result<()> {
    nothing_is_written("left-ssa", Applying::ServerSide, THING).await
}

#[tokio::test]
async fn cluster_scoped_parents_that_metacontroller_left_are_taken_over_without_a_write()
-> anyhow::Result<()> {
    nothing_is_written("left-big", Applying::Dynamic, BIG_THING).await?;
    nothing_is_written("left-big-ssa", Applying::ServerSide, BIG_THING).await
}
