//! The objects that benches work on: Deployments where one object matters, and ConfigMaps where many make up an answer,
//! which may hold 200,000 values at most.

use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use metashard_api::resource::Resource;
use metashard_reconcile::{controller::Controller, lastapplied, object::Object};
use serde_json::{Value, json};

/// Uid of the parent.
const PARENT_UID: &str = "5f9ab0c2-8f2e-4b44-9f0f-2f3a6a1d7f10";

fn sites() -> Arc<Resource> {
    resource("example.com", "sites", "Site")
}

fn deployments() -> Arc<Resource> {
    resource("apps", "deployments", "Deployment")
}

fn resource(group: &str, plural: &str, kind: &str) -> Arc<Resource> {
    Arc::new(Resource {
        group: group.to_owned(),
        version: "v1".to_owned(),
        plural: plural.to_owned(),
        kind: kind.to_owned(),
        namespaced: true,
        has_status: true,
    })
}

fn config_maps() -> Arc<Resource> {
    resource("", "configmaps", "ConfigMap")
}

/// The resource of the parents.
pub(crate) fn parents() -> Arc<Resource> {
    sites()
}

/// A controller of Sites with Deployments and ConfigMaps, updated in place.
pub(crate) fn controller() -> anyhow::Result<Arc<Controller>> {
    compile(controller_object())
}

/// The same, whose ConfigMaps are updated one at a time, each when the one before is ready.
pub(crate) fn rolling_controller() -> anyhow::Result<Arc<Controller>> {
    let mut object = controller_object();
    object["spec"]["childResources"][1]["updateStrategy"] = json!({
        "method": "RollingInPlace",
        "statusChecks": { "conditions": [{ "type": "Ready" }] },
    });
    compile(object)
}

fn controller_object() -> Value {
    json!({
        "apiVersion": "metacontroller.k8s.io/v1alpha1",
        "kind": "CompositeController",
        "metadata": { "name": "sites", "uid": "C-1", "resourceVersion": "1", "generation": 1 },
        "spec": {
            "parentResource": { "apiVersion": "example.com/v1", "resource": "sites" },
            "childResources": [{
                "apiVersion": "apps/v1",
                "resource": "deployments",
                "updateStrategy": { "method": "InPlace" },
            }, {
                "apiVersion": "v1",
                "resource": "configmaps",
                "updateStrategy": { "method": "InPlace" },
            }],
            "generateSelector": true,
            "hooks": { "sync": { "version": "v2", "webhook": { "url": "http://hook/" } } },
        },
    })
}

fn compile(object: Value) -> anyhow::Result<Arc<Controller>> {
    let raw = Bytes::from(object.to_string());
    let lookup = |version: &str, plural: &str| {
        let known = [sites(), deployments(), config_maps()];
        known
            .into_iter()
            .find(|it| it.api_version() == version && it.plural == plural)
    };
    let object = serde_json::from_value(object).context("read the controller")?;
    Ok(Arc::new(Controller::compile(&object, &raw, &lookup)?))
}

pub(crate) fn parent() -> anyhow::Result<Arc<Object>> {
    object(&json!({
        "apiVersion": "example.com/v1",
        "kind": "Site",
        "metadata": {
            "name": "site", "namespace": "team", "uid": PARENT_UID, "resourceVersion": "7",
            "generation": 3, "labels": { "app": "site" },
        },
        "spec": { "replicas": 3, "pages": { "index.html": "<h1>Hello</h1>" } },
        "status": { "observedGeneration": 3, "ready": 3 },
    }))
}

/// What a hook answers: the desired Deployment number `n`, with this image.
pub(crate) fn desired(n: usize, image: &str) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": format!("site-{n:05}"), "namespace": "team", "labels": { "app": "site", "part": n.to_string() } },
        "spec": {
            "replicas": 3,
            "selector": { "matchLabels": { "app": "site" } },
            "template": {
                "metadata": { "labels": { "app": "site" } },
                "spec": { "containers": [{
                    "name": "web", "image": image,
                    "ports": [{ "name": "http", "containerPort": 8080 }, { "name": "metrics", "containerPort": 9090 }],
                    "env": [{ "name": "SITE", "value": "site" }, { "name": "LEVEL", "value": "info" }],
                    "resources": { "requests": { "cpu": "100m", "memory": "64Mi" } },
                    "volumeMounts": [{ "name": "pages", "mountPath": "/pages" }],
                }], "volumes": [{ "name": "pages", "configMap": { "name": "site" } }] },
            },
        },
    })
}

/// That Deployment as the API server has it after we created it: with defaults, a status, and our annotation.
pub(crate) fn observed(n: usize, image: &str) -> Value {
    let mut object = stored(n, desired(n, image));
    let spec = &mut object["spec"];
    spec["revisionHistoryLimit"] = 10.into();
    spec["progressDeadlineSeconds"] = 600.into();
    spec["strategy"] = json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": "25%", "maxUnavailable": "25%" } });
    let pod = &mut spec["template"]["spec"];
    pod["restartPolicy"] = "Always".into();
    pod["dnsPolicy"] = "ClusterFirst".into();
    pod["containers"][0]["imagePullPolicy"] = "IfNotPresent".into();
    pod["containers"][0]["terminationMessagePath"] = "/dev/termination-log".into();
    object["status"] =
        json!({ "observedGeneration": 1, "replicas": 3, "readyReplicas": 3, "updatedReplicas": 3 });
    object
}

/// What a hook answers: the desired ConfigMap number `n`, with this page.
pub(crate) fn desired_page(n: usize, page: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": format!("page-{n:05}"), "namespace": "team", "labels": { "app": "site" } },
        "data": { "index.html": page },
    })
}

/// That ConfigMap as the API server has it after we created it.
pub(crate) fn observed_page(n: usize, page: &str) -> Value {
    stored(n, desired_page(n, page))
}

/// A child as it is after we created it, but for the defaults of the API server.
fn stored(n: usize, desired: Value) -> Value {
    let mut object = labelled(desired);
    let applied = lastapplied::encode(&object);
    let metadata = &mut object["metadata"];
    metadata["annotations"] =
        json!({ "metacontroller.k8s.io/last-applied-configuration": applied });
    metadata["uid"] = format!("00000000-0000-4000-8000-{n:012}").into();
    metadata["resourceVersion"] = (1000 + n).to_string().into();
    metadata["generation"] = 1.into();
    metadata["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
    metadata["ownerReferences"] = json!([{
        "apiVersion": "example.com/v1", "kind": "Site", "name": "site", "uid": PARENT_UID,
        "controller": true, "blockOwnerDeletion": true,
    }]);
    object
}

/// That Deployment without an owner, with the label by which its parent selects it.
pub(crate) fn ownerless(n: usize) -> Value {
    let mut object = observed(n, "web:1");
    object["metadata"]["ownerReferences"] = json!([]);
    object
}

/// With the label of the generated selector, which every child gets.
fn labelled(mut object: Value) -> Value {
    object["metadata"]["labels"]["controller-uid"] = PARENT_UID.into();
    object
}

/// A revision of the parent that these ConfigMaps are at; `None`: the latest.
pub(crate) fn revision(
    spec: Option<Value>,
    pages: std::ops::Range<usize>,
) -> anyhow::Result<Arc<Object>> {
    let latest = json!({ "replicas": 3, "pages": { "index.html": "<h1>Hello</h1>" } });
    let name = if spec.is_some() { "older" } else { "latest" };
    let names: Vec<_> = pages.map(|n| format!("page-{n:05}")).collect();
    object(&json!({
        "apiVersion": "metacontroller.k8s.io/v1alpha1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": name, "namespace": "team", "uid": name, "resourceVersion": "5",
            "ownerReferences": [{
                "apiVersion": "example.com/v1", "kind": "Site", "name": "site", "uid": PARENT_UID,
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "parentPatch": { "spec": spec.unwrap_or(latest) },
        "children": [{ "apiGroup": "", "kind": "ConfigMap", "names": names }],
    }))
}

pub(crate) fn object(value: &Value) -> anyhow::Result<Arc<Object>> {
    let object = Object::parse(value.to_string()).context("parse an object")?;
    Ok(Arc::new(object))
}

/// The answer of a hook with these children.
pub(crate) fn answer(children: impl Iterator<Item = Value>) -> Bytes {
    let children: Vec<_> = children.collect();
    Bytes::from(json!({ "status": { "ready": 3 }, "children": children }).to_string())
}
