//! ControllerRevision: a former state of a parent, and the children that are still at it.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Content of a ControllerRevision; written by the controller, not by people.
#[derive(CustomResource, Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "metacontroller.k8s.io",
    version = "v1alpha1",
    kind = "ControllerRevision",
    plural = "controllerrevisions",
    singular = "controllerrevision",
    namespaced,
    no_spec,
    derive = "PartialEq",
    doc = "A former state of a parent, and the children that are still at it. Written by the controller."
)]
#[serde(rename_all = "camelCase")]
pub struct ControllerRevisionContent {
    /// The parent, cut down to the fields that make a revision.
    #[schemars(with = "BTreeMap<String, Value>", extend("x-kubernetes-preserve-unknown-fields" = true))]
    pub parent_patch: Map<String, Value>,
    /// The children at this revision, by kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<RevisionChildren>,
}

/// The children of one kind that are at a revision.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevisionChildren {
    /// API group of the kind; empty for the core group.
    pub api_group: String,
    /// The kind.
    pub kind: String,
    /// Names of the children.
    pub names: Vec<String>,
}
