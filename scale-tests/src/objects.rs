//! The objects of a scenario: controllers that each have parents of their own, and what their hooks answer.

use kube::api::ApiResource;
use metashard_testkit::crds;
use serde_json::{Value, json};

/// Where the parents are.
pub(crate) const NAMESPACE: &str = "parents";

/// Name of the user that subjects are.
pub(crate) const USER: &str = "subject";

/// Path of the hook of a controller.
pub(crate) fn path(controller: usize) -> String {
    format!("/{controller}")
}

/// The controller whose hook has this path.
pub(crate) fn controller_of(path: &str) -> Option<usize> {
    path.strip_prefix('/')?.parse().ok()
}

/// Name of a controller.
pub(crate) fn controller_name(number: usize) -> String {
    format!("controller-{number}")
}

/// Name of a parent.
pub(crate) fn parent_name(controller: usize, parent: usize) -> String {
    format!("thing-{controller}-{parent}")
}

/// The namespace of all parents.
pub(crate) fn namespace() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": { "name": NAMESPACE },
    })
}

/// All rights for subjects.
pub(crate) fn rights() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": { "name": USER },
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "cluster-admin",
        },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER }],
    })
}

/// A controller whose hook is at `url`.
pub(crate) fn controller(number: usize, url: &str) -> Value {
    let name = controller_name(number);
    let mut controller = crds::controller_of_things(&name, ("number", &number.to_string()), url);
    // Hooks may be told to take longer than the default.
    controller["spec"]["hooks"]["sync"]["webhook"]["timeout"] = "2m".into();
    controller
}

/// A parent of a controller.
pub(crate) fn parent(controller: usize, parent: usize) -> Value {
    json!({
        "apiVersion": crds::API_VERSION,
        "kind": "Thing",
        "metadata": {
            "name": parent_name(controller, parent),
            "namespace": NAMESPACE,
            "labels": { "number": controller.to_string() },
        },
        "spec": { "value": "0" },
    })
}

/// Plural of an object's kind; of those that are here.
pub(crate) fn plural(object: &Value) -> &'static str {
    if object["kind"] == "Thing" {
        "things"
    } else {
        "compositecontrollers"
    }
}

/// Where to create an object.
pub(crate) fn resource(object: &Value) -> (ApiResource, Option<String>) {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let api_version = text("/apiVersion").unwrap_or_default();
    let (group, version) = api_version.split_once('/').unwrap_or_default();
    let resource = ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: api_version.to_owned(),
        kind: text("/kind").unwrap_or_default().to_owned(),
        plural: plural(object).to_owned(),
    };
    (resource, text("/metadata/namespace").map(str::to_owned))
}

/// Children that show the parent's value, and a status that does.
pub(crate) fn answer(request: &Value, children: usize) -> Value {
    let parent = &request["parent"];
    let name = parent["metadata"]["name"].as_str().unwrap_or_default();
    let value = &parent["spec"]["value"];
    let children: Vec<Value> = (0..children)
        .map(|child| {
            json!({
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": { "name": format!("{name}-{child}") },
                "data": { "value": value },
            })
        })
        .collect();
    json!({ "children": children, "status": { "value": value } })
}
