//! Bodies of a CompositeController's sync hook, version v1, as far as the examples need them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What metashard asks.
#[derive(Debug, Deserialize)]
pub struct SyncRequest<Spec> {
    /// The CompositeController on whose behalf it asks.
    pub controller: Object,
    /// The parent as it is now.
    pub parent: Object<Spec>,
    /// The children as they are now: by kind (`Deployment.apps/v1`), then by name.
    pub children: BTreeMap<String, BTreeMap<String, Value>>,
}

/// What the hook answers.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct SyncResponse<Status> {
    /// The parent's whole status; metashard adds `observedGeneration`.
    pub status: Status,
    /// All children that should exist, with all fields that the hook cares about. Others are deleted.
    pub children: Vec<Value>,
}

/// Any Kubernetes object.
#[derive(Debug, Deserialize)]
pub struct Object<Spec = Value> {
    /// Who it is.
    pub metadata: Metadata,
    /// What its author wants.
    pub spec: Spec,
}

/// The part of an object's metadata that hooks look at.
#[derive(Debug, Deserialize)]
pub struct Metadata {
    /// Name, unique among the objects of its kind in its namespace.
    pub name: String,
}

impl<Spec> SyncRequest<Spec> {
    /// The child of `kind` named `name`, if it exists already.
    pub fn child(&self, kind: &str, name: &str) -> Option<&Value> {
        self.children.get(kind)?.get(name)
    }
}
