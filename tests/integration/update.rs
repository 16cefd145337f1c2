//! What happens to children that are not, or no longer, as the hook wants them.

use anyhow::ensure;
use metashard_api::names::ANNOTATION_LAST_APPLIED;
use serde_json::{Value, json};

use crate::support::{
    CONFIG_MAP, DEFAULTED, POD, SECRET, SERVICE, Stage, THING, config_map, data_of, version_of,
};

/// A stage with a parent `p` of one ConfigMap `a`, which is there already, and its version.
async fn one_child(claim: &str, method: &str, data: Value) -> anyhow::Result<(Stage, Value)> {
    let stage = Stage::new(claim).await?;
    stage.controller().child(CONFIG_MAP, method).apply().await?;
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

#[tokio::test]
async fn in_place_a_child_is_updated_and_what_others_added_stays() -> anyhow::Result<()> {
    let (stage, first) = one_child("inplace", "InPlace", json!({ "k": "1", "gone": "x" })).await?;
    let children = stage.objects(CONFIG_MAP);
    let foreign = json!({ "data": { "theirs": "t" }, "metadata": { "labels": { "theirs": "t" } } });
    children.patch("a", foreign).await?;

    want(&stage, json!([config_map("a", json!({ "k": "2" }))])).await?;

    let wanted = json!({ "k": "2", "theirs": "t" });
    let child = children
        .becomes("a", "to be updated", |it| data_of(it) == wanted)
        .await?;
    assert_eq!(
        version_of(&child).0,
        version_of(&first).0,
        "the same object"
    );
    assert_eq!(child["metadata"]["labels"]["theirs"], "t");
    assert_eq!(
        child["metadata"]["ownerReferences"],
        first["metadata"]["ownerReferences"]
    );
    Ok(())
}

#[tokio::test]
async fn recreated_a_child_is_deleted_and_created_as_wanted() -> anyhow::Result<()> {
    let (stage, first) =
        one_child("recreate", "Recreate", json!({ "k": "1", "gone": "x" })).await?;
    let wanted = json!({ "k": "2" });

    want(&stage, json!([config_map("a", wanted.clone())])).await?;

    let child = stage
        .objects(CONFIG_MAP)
        .becomes("a", "to be made anew", |it| data_of(it) == wanted)
        .await;
    let child = child?;
    assert_ne!(version_of(&child).0, version_of(&first).0, "another object");
    stage.settle(THING, "p").await?;
    let later = stage.objects(CONFIG_MAP).get("a").await?;
    assert_eq!(version_of(&later), version_of(&child), "once is enough");
    Ok(())
}

#[tokio::test]
async fn on_delete_a_child_stays_as_it_is_until_somebody_deletes_it() -> anyhow::Result<()> {
    let (stage, first) = one_child("ondelete", "OnDelete", json!({ "k": "1" })).await?;
    let children = stage.objects(CONFIG_MAP);

    want(&stage, json!([config_map("a", json!({ "k": "2" }))])).await?;
    stage.settle(THING, "p").await?;

    let untouched = children.get("a").await?;
    assert_eq!(version_of(&untouched), version_of(&first));
    children.delete("a").await?;
    let wanted = json!({ "k": "2" });
    let is_new = |it: &Value| data_of(it) == wanted && version_of(it).0 != version_of(&first).0;
    children.becomes("a", "to be made anew", is_new).await?;
    Ok(())
}

#[tokio::test]
async fn what_somebody_changes_in_a_child_is_changed_back() -> anyhow::Result<()> {
    let (stage, _) = one_child("edit", "InPlace", json!({ "k": "1", "l": "1" })).await?;
    let children = stage.objects(CONFIG_MAP);

    let edit = json!({ "data": { "k": "theirs", "l": null, "m": "theirs" } });
    children.patch("a", edit).await?;

    let wanted = json!({ "k": "1", "l": "1", "m": "theirs" });
    children
        .becomes("a", "to be as wanted", |it| data_of(it) == wanted)
        .await?;
    Ok(())
}

#[tokio::test]
async fn a_child_that_is_no_longer_wanted_is_deleted_in_the_background() -> anyhow::Result<()> {
    let (stage, _) = one_child("unwanted", "OnDelete", json!({})).await?;
    let children = stage.objects(CONFIG_MAP);
    let hold = "test.metashard.io/hold";
    children
        .patch("a", json!({ "metadata": { "finalizers": [hold] } }))
        .await?;

    want(&stage, json!([])).await?;

    let is_deleted = |it: &Value| it["metadata"]["deletionTimestamp"].is_string();
    let child = children.becomes("a", "to be deleted", is_deleted).await?;
    // The other ways of deletion add a finalizer of their own.
    assert_eq!(child["metadata"]["finalizers"], json!([hold]));
    children
        .patch("a", json!({ "metadata": { "finalizers": null } }))
        .await?;
    children.goes("a").await
}

/// An object as Metacontroller left it, by the record's text.
fn as_left(parent: &Value, name: &str, record: &str, fields: &Value) -> Value {
    let mut object = json!({
        "metadata": {
            "name": name,
            "labels": { "controller-uid": parent["metadata"]["uid"] },
            "annotations": { ANNOTATION_LAST_APPLIED: record },
            "ownerReferences": [{
                "apiVersion": THING.api_version,
                "kind": "Thing",
                "name": "p",
                "uid": parent["metadata"]["uid"],
                "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
    });
    for (field, value) in fields.as_object().into_iter().flatten() {
        object[field] = value.clone();
    }
    object
}

#[tokio::test]
async fn children_that_metacontroller_made_are_taken_over_without_a_write() -> anyhow::Result<()> {
    let stage = Stage::answering("switch-over", |_| {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" },
            "data": { "k": "dg==" }, "type": "Opaque",
        });
        json!({ "children": [config_map("a", json!({ "b": "2", "a": "<1>" })), secret] })
    })
    .await?;
    let parent = stage.parent(THING, "p", json!({})).await?;
    let (namespace, uid) = (
        &stage.namespace,
        parent["metadata"]["uid"].as_str().unwrap(),
    );
    let metadata = |name: &str| {
        format!(
            r#""metadata": {{"namespace": "{namespace}", "name": "{name}", "labels": {{"controller-uid": "{uid}"}}}}"#
        )
    };
    let record = format!(
        r#"{{"kind": "ConfigMap", "data": {{"b": "2", "a": "\u003c1>"}}, {}, "apiVersion": "v1"}}"#,
        metadata("a")
    );
    let map = as_left(
        &parent,
        "a",
        &record,
        &json!({ "data": { "a": "<1>", "b": "2" } }),
    );
    let map = stage.objects(CONFIG_MAP).create(map).await?;
    let record = format!(
        r#"{{"type": "Opaque", "kind": "Secret", {}, "data": {{"k": "dg=="}}, "apiVersion": "v1"}}"#,
        metadata("s")
    );
    let secret = as_left(
        &parent,
        "s",
        &record,
        &json!({ "data": { "k": "dg==" }, "type": "Opaque" }),
    );
    let secret = stage.objects(SECRET).create(secret).await?;

    stage
        .controller()
        .child(CONFIG_MAP, "InPlace")
        .child(SECRET, "Recreate")
        .apply()
        .await?;
    let request = stage.poke(THING, "p").await?;
    stage.settle(THING, "p").await?;

    assert_eq!(request["children"]["ConfigMap.v1"]["a"], map);
    assert_eq!(stage.objects(CONFIG_MAP).get("a").await?, map);
    assert_eq!(stage.objects(SECRET).get("s").await?, secret);
    assert_eq!(stage.writes()?, ["update things/status"]);
    Ok(())
}

#[tokio::test]
async fn a_child_that_the_api_server_completes_is_not_made_anew() -> anyhow::Result<()> {
    // One volume mounted three times, a field reference without apiVersion, a toleration of ours beside those that the
    // API server adds, and items of a list that it completes and that no field tells apart.
    let stage = Stage::answering("completed", |_| {
        let mount = |path: &str| json!({ "name": "v", "mountPath": path });
        let items = json!([{ "path": "labels", "fieldRef": { "fieldPath": "metadata.labels" } }]);
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "pod" },
            "spec": {
                "containers": [{
                    "name": "c", "image": "example.org/none",
                    "volumeMounts": [mount("/a"), mount("/b"), mount("/c")],
                }],
                "volumes": [{ "name": "v", "downwardAPI": { "items": items } }],
                "tolerations": [{ "key": "ours", "operator": "Exists" }],
            },
        });
        let defaulted = json!({
            "apiVersion": DEFAULTED.api_version, "kind": "Defaulted", "metadata": { "name": "d" },
            "spec": { "items": [{ "path": "/a" }, { "path": "/b", "mode": "0600" }] },
        });
        json!({ "children": [pod, defaulted] })
    })
    .await?;
    stage
        .controller()
        .child(POD, "Recreate")
        .child(DEFAULTED, "Recreate")
        .apply()
        .await?;
    stage.parent(THING, "p", json!({})).await?;
    let pod = stage.objects(POD).appears("pod").await?;
    let defaulted = stage.objects(DEFAULTED).appears("d").await?;

    stage.settle(THING, "p").await?;
    stage.settle(THING, "p").await?;

    assert_eq!(
        version_of(&stage.objects(POD).get("pod").await?),
        version_of(&pod)
    );
    assert_eq!(
        version_of(&stage.objects(DEFAULTED).get("d").await?),
        version_of(&defaulted)
    );
    Ok(())
}

#[tokio::test]
async fn a_null_in_a_child_is_as_good_as_nothing() -> anyhow::Result<()> {
    let stage = Stage::answering("null", |request| {
        let mut child = config_map("a", json!({ "k": "v" }));
        child["immutable"] = Value::Null;
        child["metadata"]["annotations"] = json!({ "note": null });
        child["data"]["n"] = Value::Null;
        if request["parent"]["spec"]["drop"] == true {
            child["data"]["k"] = Value::Null;
        }
        json!({ "children": [child] })
    })
    .await?;
    stage
        .controller()
        .child(CONFIG_MAP, "Recreate")
        .apply()
        .await?;
    stage.parent(THING, "p", json!({})).await?;
    let children = stage.objects(CONFIG_MAP);
    let first = children.appears("a").await?;

    stage.settle(THING, "p").await?;

    let later = children.get("a").await?;
    assert_eq!(version_of(&later), version_of(&first));
    stage
        .objects(THING)
        .patch("p", json!({ "spec": { "drop": true } }))
        .await?;
    let is_dropped = |it: &Value| it["data"].get("k").is_none();
    children
        .becomes("a", "to lose a key that we applied", is_dropped)
        .await?;
    Ok(())
}

#[tokio::test]
async fn ports_that_differ_in_their_protocol_alone_are_kept_apart() -> anyhow::Result<()> {
    let stage = Stage::answering("ports", |request| {
        let port = |protocol: &str| json!({ "name": protocol.to_lowercase(), "port": 53, "protocol": protocol });
        let mut ports = vec![port("UDP")];
        if request["parent"]["spec"]["both"] == true {
            ports.push(port("TCP"));
        }
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": "dns" },
            "spec": { "selector": { "app": "dns" }, "ports": ports },
        });
        json!({ "children": [service] })
    })
    .await?;
    stage.controller().child(SERVICE, "InPlace").apply().await?;
    stage.parent(THING, "p", json!({})).await?;
    let services = stage.objects(SERVICE);
    let first = services.appears("dns").await?;

    stage
        .objects(THING)
        .patch("p", json!({ "spec": { "both": true } }))
        .await?;

    let protocols = |it: &Value| {
        let ports = it["spec"]["ports"].as_array().cloned().unwrap_or_default();
        let protocols = ports.iter().map(|port| port["protocol"].clone());
        protocols.collect::<Value>()
    };
    let has_both = |it: &Value| protocols(it) == json!(["UDP", "TCP"]);
    let service = services
        .becomes("dns", "to have both ports", has_both)
        .await?;
    ensure!(
        service["spec"]["clusterIP"] == first["spec"]["clusterIP"],
        "{service:#}"
    );
    stage.settle(THING, "p").await?;
    assert_eq!(
        version_of(&services.get("dns").await?),
        version_of(&service)
    );
    Ok(())
}
