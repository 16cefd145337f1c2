//! CompositeController: for each object of a parent kind, a hook says which children should exist.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    Adoption, DeletionPolicy, ServiceAccountRef, Sharding, UpdateMethod, empty_as_absent,
    status::ControllerStatus,
    webhook::{EndpointConfig, Hook},
};

/// What a CompositeController watches, which children it manages and which hooks it calls.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "metacontroller.k8s.io",
    version = "v1alpha1",
    kind = "CompositeController",
    plural = "compositecontrollers",
    singular = "compositecontroller",
    shortname = "cc",
    shortname = "cctl",
    status = "ControllerStatus",
    derive = "PartialEq",
    doc = "A controller that manages, for each object of a parent kind, the children that its sync hook asks for."
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [json!({
    "rule": "has(self.hooks)",
    "fieldPath": ".hooks",
    "message": "no hooks defined: give at least hooks.sync",
})]))]
pub struct CompositeControllerSpec {
    /// The kind of the parents, and which of its objects are handled.
    pub parent_resource: ParentResource,
    /// The kinds of children that the hook may return.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub child_resources: Vec<ChildResource>,
    /// The hooks to call. Without it the controller is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hooks: Option<CompositeHooks>,
    /// Certificates and credentials for hooks, by the host of their URL.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoint_configs: Vec<EndpointConfig>,
    /// Seconds after which every parent is synced again although nothing changed; less than 1 counts as 1. Absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resync_period_seconds: Option<i32>,
    /// Whether children are selected by a generated label `controller-uid` and not by the parent's `spec.selector`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub generate_selector: bool,
    /// The ServiceAccount that this controller acts as. Absent: the identity of the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_ref: Option<ServiceAccountRef>,
    /// How the parents are split over workers. Absent: decided by load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharding: Option<Sharding>,
    /// Whether this controller rests: no hook is called and nothing is written.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
}

/// The parent kind of a CompositeController.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ParentResource {
    /// `group/version`, or `version` for the core group.
    pub api_version: String,
    /// Lower-case plural, as in URLs.
    pub resource: String,
    /// Which part of a parent makes a new revision when it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision_history: Option<RevisionHistory>,
    /// Which parents are handled, by their labels. Absent or empty: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// Whether a change of a parent's status alone starts no sync.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ignore_status_changes: bool,
}

/// Which part of a parent makes a new revision when it changes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevisionHistory {
    /// Paths of fields, with dots between the names. Absent or empty: `spec`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub field_paths: Vec<String>,
}

/// One kind of children.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChildResource {
    /// `group/version`, or `version` for the core group.
    pub api_version: String,
    /// Lower-case plural, as in URLs.
    pub resource: String,
    /// How children that differ from the desired ones are changed. Absent: `OnDelete`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_strategy: Option<UpdateStrategy>,
    /// Which existing objects may become children. Absent: `IfOwnerless`.
    #[serde(
        default,
        deserialize_with = "empty_as_absent",
        skip_serializing_if = "Option::is_none"
    )]
    pub adoption: Option<Adoption>,
    /// What happens to a child that is no longer desired. Absent: `Delete`.
    #[serde(
        default,
        deserialize_with = "empty_as_absent",
        skip_serializing_if = "Option::is_none"
    )]
    pub deletion_policy: Option<DeletionPolicy>,
}

impl ChildResource {
    /// The update method that holds: `OnDelete` where none is given.
    pub fn update_method(&self) -> UpdateMethod {
        self.update_strategy
            .as_ref()
            .and_then(|strategy| strategy.method)
            .unwrap_or(UpdateMethod::OnDelete)
    }
}

/// How children that differ from the desired ones are changed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateStrategy {
    /// The method. Absent: `OnDelete`.
    #[serde(
        default,
        deserialize_with = "empty_as_absent",
        skip_serializing_if = "Option::is_none"
    )]
    pub method: Option<UpdateMethod>,
    /// What a child must show before the next one is moved; for the rolling methods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_checks: Option<StatusChecks>,
}

/// What a child must show before the next one is moved.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct StatusChecks {
    /// Conditions in its `status.conditions`, all of which must hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<StatusCondition>,
}

/// One condition that a child must show.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct StatusCondition {
    /// Type of the condition.
    #[serde(rename = "type")]
    pub type_: String,
    /// Status that it must have. Absent: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Reason that it must have. Absent: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The hooks of a CompositeController.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CompositeHooks {
    /// Called for each sync of a parent: says which children should exist, and the parent's status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = super::webhook::called_hook_rules()))]
    pub sync: Option<Hook>,
    /// Called instead of `sync` while a parent is being deleted or is no longer selected. Its presence adds a finalizer to parents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = super::webhook::called_hook_rules()))]
    pub finalize: Option<Hook>,
    /// Asks which other objects the sync hook wants to see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = super::webhook::called_hook_rules()))]
    pub customize: Option<Hook>,
    /// Accepted as Metacontroller accepts it, and never called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pre_update_child: Option<Hook>,
    /// Accepted as Metacontroller accepts it, and never called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub post_update_child: Option<Hook>,
}
