//! `--apply-strategy=server-side-apply`: children that the API server merges, and the way from and to dynamic apply.

use anyhow::ensure;
use metashard_api::names::ANNOTATION_LAST_APPLIED;
use serde_json::{Value, json};

use crate::support::{
    Applying, CONFIG_MAP, CONTROLLER, OWN_REPLICA, REPLICA_SET, SECRET, SERVER_SIDE, SERVICE,
    Stage, THING, config_map, data_of, version_of,
};

async fn start_replica(stage: &Stage) -> anyhow::Result<()> {
    Applying::ServerSide.start(stage).await
}

fn served_by_it(object: &mut Value) {
    Applying::ServerSide.serve(object);
}

/// A stage with a parent `p` of one ConfigMap `a`, which is there already.
async fn one_child(claim: &str, method: &str, data: Value) -> anyhow::Result<(Stage, Value)> {
    let stage = Stage::new(claim).await?;
    start_replica(&stage).await?;
    let controller = stage.controller().child(CONFIG_MAP, method);
    controller.edit(served_by_it).apply().await?;
    stage
        .parent(THING, "p", json!({ "children": [config_map("a", data)] }))
        .await?;
    let child = stage.objects(CONFIG_MAP).appears("a").await?;
    Ok((stage, child))
}

/// Makes the hook want `children`.
async fn want(stage: &Stage, children: Value) -> anyhow::Result<()> {
    let patch = json!({ "spec": { "children": children } });
    stage.objects(THING).patch("p", patch).await?;
    Ok(())
}

/// `manager operation` of each entry of the managed fields, sorted.
pub(crate) fn managers(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut all: Vec<_> = entries
        .into_iter()
        .flatten()
        .map(|entry| format!("{} {}", text(&entry["manager"]), text(&entry["operation"])))
        .collect();
    all.sort();
    all
}

#[tokio::test]
async fn what_somebody_changes_in_a_child_is_changed_back_and_what_they_add_stays()
-> anyhow::Result<()> {
    let (stage, first) = one_child("ssa-edit", "InPlace", json!({ "k": "1", "l": "1" })).await?;
    ensure!(managers(&first) == ["metacontroller Apply"], "{first:#}");
    ensure!(first["metadata"].get("annotations").is_none(), "{first:#}");
    let children = stage.objects(CONFIG_MAP);

    let edit = json!({ "data": { "k": "theirs", "l": null, "m": "theirs" } });
    children.patch("a", edit).await?;

    let wanted = json!({ "k": "1", "l": "1", "m": "theirs" });
    let child = children
        .becomes("a", "to be as wanted", |it| data_of(it) == wanted)
        .await?;
    want(&stage, json!([config_map("a", json!({ "k": "2" }))])).await?;
    let fewer = json!({ "k": "2", "m": "theirs" });
    let later = children
        .becomes("a", "to lose what is ours", |it| data_of(it) == fewer)
        .await?;
    assert_eq!(
        version_of(&later).0,
        version_of(&child).0,
        "the same object"
    );
    stage.settle(THING, "p").await?;
    assert_eq!(version_of(&children.get("a").await?), version_of(&later));
    Ok(())
}

#[tokio::test]
async fn a_recreated_child_keeps_what_others_add_until_what_is_wanted_changes() -> anyhow::Result<()>
{
    let (stage, first) = one_child("ssa-recreate", "Recreate", json!({ "k": "1" })).await?;
    let children = stage.objects(CONFIG_MAP);
    let foreign = json!({ "data": { "side": "x" }, "metadata": { "labels": { "theirs": "t" } } });
    let added = children.patch("a", foreign).await?;
    stage.settle(THING, "p").await?;
    assert_eq!(version_of(&children.get("a").await?), version_of(&added));

    let wanted = json!({ "k": "2" });
    want(&stage, json!([config_map("a", wanted.clone())])).await?;

    let child = children
        .becomes("a", "to be made anew", |it| data_of(it) == wanted)
        .await?;
    assert_ne!(version_of(&child).0, version_of(&first).0, "another object");
    stage.settle(THING, "p").await?;
    assert_eq!(version_of(&children.get("a").await?), version_of(&child));
    Ok(())
}

#[tokio::test]
async fn on_delete_a_child_stays_as_it_is() -> anyhow::Result<()> {
    let (stage, first) = one_child("ssa-ondelete", "OnDelete", json!({ "k": "1" })).await?;

    want(&stage, json!([config_map("a", json!({ "k": "2" }))])).await?;
    stage.settle(THING, "p").await?;

    let untouched = stage.objects(CONFIG_MAP).get("a").await?;
    assert_eq!(version_of(&untouched), version_of(&first));
    Ok(())
}

fn replica_set(app: &str) -> Value {
    let container = json!({
        "name": "c", "image": "example.org/none",
        "ports": [{ "containerPort": 53, "protocol": "UDP" }, { "containerPort": 53 }],
        "env": [{ "name": "A", "value": "1" }],
        "resources": { "limits": { "cpu": "500m" } },
        "volumeMounts": [{ "name": "v", "mountPath": "/a" }, { "name": "v", "mountPath": "/b" }],
    });
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": { "name": "r" },
        "spec": {
            "replicas": 0,
            "selector": { "matchLabels": { "app": app } },
            "template": {
                "metadata": { "labels": { "app": app } },
                "spec": { "containers": [container], "volumes": [{ "name": "v", "emptyDir": {} }] },
            },
        },
    })
}

#[tokio::test]
async fn a_field_that_cannot_be_changed_makes_the_child_anew() -> anyhow::Result<()> {
    let stage = Stage::answering("ssa-immutable", |request| {
        let app = request["parent"]["spec"]["app"].as_str().unwrap_or("one");
        json!({ "children": [replica_set(app)] })
    })
    .await?;
    start_replica(&stage).await?;
    let controller = stage.controller().child(REPLICA_SET, "Recreate");
    controller.edit(served_by_it).apply().await?;
    stage.parent(THING, "p", json!({})).await?;
    let sets = stage.objects(REPLICA_SET);
    let first = sets.appears("r").await?;

    stage
        .objects(THING)
        .patch("p", json!({ "spec": { "app": "two" } }))
        .await?;

    let is_new = |it: &Value| it["spec"]["selector"]["matchLabels"]["app"] == "two";
    let second = sets.becomes("r", "to be made anew", is_new).await?;
    assert_ne!(version_of(&second).0, version_of(&first).0);
    stage.settle(THING, "p").await?;
    assert_eq!(version_of(&sets.get("r").await?), version_of(&second));
    Ok(())
}

/// A ConfigMap, a Secret, a Service and a ReplicaSet.
fn of_all_sorts() -> [Value; 4] {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" },
        "data": { "k": "dg==" },
    });
    let ports = json!([
        { "name": "u", "port": 53, "protocol": "UDP" }, { "name": "t", "port": 53 },
    ]);
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "dns" },
        "spec": { "ports": ports },
    });
    let map = config_map("a", json!({ "a": "1" }));
    [map, secret, service, replica_set("one")]
}

/// A child as Metacontroller applies it.
fn as_metacontroller_applies(parent: &Value, mut child: Value) -> Value {
    let metadata = &parent["metadata"];
    child["metadata"]["namespace"] = metadata["namespace"].clone();
    child["metadata"]["labels"] = json!({ "controller-uid": metadata["uid"] });
    child["metadata"]["ownerReferences"] = json!([{
        "apiVersion": THING.api_version, "kind": "Thing", "name": "p", "uid": metadata["uid"],
        "controller": true, "blockOwnerDeletion": true,
    }]);
    child
}

#[tokio::test]
async fn children_that_metacontroller_applied_are_taken_over_without_a_write() -> anyhow::Result<()>
{
    let answer = |_: &Value| json!({ "children": of_all_sorts() });
    let stage = Stage::answering("ssa-switch-over", answer).await?;
    start_replica(&stage).await?;
    let parent = stage.parent(THING, "p", json!({})).await?;
    let kinds = [CONFIG_MAP, SECRET, SERVICE, REPLICA_SET];
    let mut before = Vec::new();
    for (kind, child) in kinds.iter().zip(of_all_sorts()) {
        let object = as_metacontroller_applies(&parent, child);
        let objects = stage.objects(*kind);
        before.push(objects.apply_as("metacontroller", &object).await?);
    }

    let mut controller = stage.controller();
    for (kind, method) in kinds
        .iter()
        .zip(["InPlace", "Recreate", "InPlace", "InPlace"])
    {
        controller = controller.child(*kind, method);
    }
    controller.edit(served_by_it).apply().await?;
    stage.settle(THING, "p").await?;

    for (kind, before) in kinds.iter().zip(&before) {
        let name = before["metadata"]["name"].as_str().unwrap_or_default();
        assert_eq!(&stage.objects(*kind).get(name).await?, before);
    }
    assert_eq!(stage.writes()?, ["update things/status"]);
    Ok(())
}

#[tokio::test]
async fn a_child_goes_from_dynamic_apply_to_the_server_and_back_and_loses_nothing()
-> anyhow::Result<()> {
    let stage = Stage::new("ssa-from-dynamic").await?;
    start_replica(&stage).await?;
    stage
        .controller()
        .child(CONFIG_MAP, "InPlace")
        .apply()
        .await?;
    let child = |data: Value| json!([config_map("a", data)]);
    let spec = json!({ "children": child(json!({ "k": "1", "l": "1", "m": "1" })) });
    stage.parent(THING, "p", spec).await?;
    let children = stage.objects(CONFIG_MAP);
    let has_record = |it: &Value| {
        it["metadata"]["annotations"]
            .get(ANNOTATION_LAST_APPLIED)
            .is_some()
    };
    let first = children.becomes("a", "to be made", has_record).await?;
    children
        .patch("a", json!({ "data": { "theirs": "t" } }))
        .await?;
    let label = |value: Value| json!({ "metadata": { "labels": { OWN_REPLICA: value } } });
    let controllers = stage.objects(CONTROLLER);

    controllers
        .patch(&stage.namespace, label(json!(SERVER_SIDE)))
        .await?;

    let handed = children
        .becomes("a", "to lose its record", |it| !has_record(it))
        .await?;
    assert_eq!(
        data_of(&handed),
        json!({ "k": "1", "l": "1", "m": "1", "theirs": "t" })
    );
    assert_eq!(
        handed["metadata"]["ownerReferences"],
        first["metadata"]["ownerReferences"]
    );
    ensure!(
        !managers(&handed).contains(&"metashard Update".to_owned()),
        "{handed:#}"
    );
    stage.settle(THING, "p").await?;
    assert_eq!(version_of(&children.get("a").await?), version_of(&handed));
    want(&stage, child(json!({ "k": "2", "l": "1" }))).await?;
    let fewer = json!({ "k": "2", "l": "1", "theirs": "t" });
    let applied = children
        .becomes("a", "to lose a key", |it| data_of(it) == fewer)
        .await?;

    controllers
        .patch(&stage.namespace, label(Value::Null))
        .await?;
    stage.settle(THING, "p").await?;
    assert_eq!(version_of(&children.get("a").await?), version_of(&applied));
    want(&stage, child(json!({ "k": "2" }))).await?;
    let fewer = json!({ "k": "2", "theirs": "t" });
    children
        .becomes("a", "to lose another key", |it| data_of(it) == fewer)
        .await?;
    Ok(())
}

#[tokio::test]
async fn an_object_that_is_nobodys_is_not_taken_over_by_the_server() -> anyhow::Result<()> {
    let stage = Stage::new("ssa-unowned").await?;
    start_replica(&stage).await?;
    let theirs = config_map("a", json!({ "k": "theirs" }));
    let theirs = stage.objects(CONFIG_MAP).create(theirs).await?;
    let controller = stage.controller().child(CONFIG_MAP, "InPlace");
    controller.edit(served_by_it).apply().await?;

    let children = json!({ "children": [config_map("a", json!({ "k": "ours" }))] });
    let parent = stage.parent(THING, "p", children).await?;

    stage
        .event(&parent, "ChildConflict", "create ConfigMap")
        .await?;
    assert_eq!(stage.objects(CONFIG_MAP).get("a").await?, theirs);
    Ok(())
}
