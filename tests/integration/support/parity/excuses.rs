//! What replicas write for a shard that is no part of a pass over a parent, and so is not rendered.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::tally::Key;

/// Paths of parents, with the finalizers of their controllers.
type Parents = BTreeMap<String, BTreeSet<String>>;

/// Why a write is no part of a pass, and how it is known.
type Excuse = (&'static str, fn(&Key, &Parents) -> bool);

/// All that there are. Whatever else is sent and not planned is an error.
const EXCUSES: [Excuse; 3] = [
    (
        "the conditions of a controller are about the controller, not about a parent",
        is_condition,
    ),
    (
        "which kinds of parents carry a controller's finalizer is recorded before its passes begin (ADR 14)",
        is_record,
    ),
    (
        "a controller that is gone makes no passes: its finalizer is taken from the parents that it left (ADR 14)",
        is_left_behind,
    ),
];

/// Replicas that record nothing, by how their names begin, and why.
const UNRECORDED: [(&str, &str); 1] = [(
    "first-list-",
    "load.rs measures the memory that a first list takes, and a recording takes some as well",
)];

/// Why a replica of this name records nothing; it has that of its stage. `None`: it does.
pub(super) fn unrecorded(name: &str) -> Option<&'static str> {
    let mut unrecorded = UNRECORDED.iter();
    unrecorded
        .find(|excuse| name.starts_with(excuse.0))
        .map(|excuse| excuse.1)
}

/// The excuse of a write that no pass planned.
pub(super) fn find(key: &Key, parents: &Parents) -> Option<&'static str> {
    if let Some(why) = unrecorded(key.replica()) {
        return Some(why);
    }
    let found = EXCUSES.iter().find(|excuse| excuse.1(key, parents));
    found.map(|excuse| excuse.0)
}

fn is_condition(key: &Key, _: &Parents) -> bool {
    let name = key
        .path()
        .strip_prefix("/apis/metacontroller.k8s.io/v1alpha1/");
    let is_controller = name.is_some_and(|it| {
        it.starts_with("compositecontrollers/") || it.starts_with("decoratorcontrollers/")
    });
    key.method() == "PUT" && is_controller && key.path().ends_with("/status")
}

fn is_record(key: &Key, _: &Parents) -> bool {
    let name = "metashard-finalizers-";
    key.path().starts_with("/api/v1/namespaces/")
        && match key.method() {
            "POST" => {
                key.path().ends_with("/configmaps")
                    && body(key)["metadata"]["name"]
                        .as_str()
                        .is_some_and(|it| it.starts_with(name))
            }
            "PUT" | "DELETE" => key.path().contains(&format!("/configmaps/{name}")),
            _ => false,
        }
}

/// A parent whole, without the finalizer of a controller that had passes over it.
fn is_left_behind(key: &Key, parents: &Parents) -> bool {
    let body = body(key);
    let has = |finalizer: &String| {
        let finalizers = body["metadata"]["finalizers"].as_array();
        finalizers.is_some_and(|all| all.iter().any(|it| it == finalizer.as_str()))
    };
    let finalizers = parents.get(key.path());
    key.method() == "PUT" && finalizers.is_some_and(|all| all.iter().any(|it| !has(it)))
}

fn body(key: &Key) -> Value {
    serde_json::from_slice(key.body()).unwrap_or_default()
}
