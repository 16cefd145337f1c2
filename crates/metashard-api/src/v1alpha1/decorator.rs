//! DecoratorController: adds labels, annotations, status and attached objects to objects that exist already.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    Adoption, DeletionPolicy, ServiceAccountRef, Sharding, UpdateMethod, empty_as_absent,
    status::ControllerStatus,
    webhook::{EndpointConfig, Hook},
};

/// Which objects a DecoratorController watches, what it attaches to them and which hooks it calls.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "metacontroller.k8s.io",
    version = "v1alpha1",
    kind = "DecoratorController",
    plural = "decoratorcontrollers",
    singular = "decoratorcontroller",
    shortname = "dec",
    shortname = "decorators",
    status = "ControllerStatus",
    derive = "PartialEq",
    doc = "A controller that adds labels, annotations, status and attached objects to existing objects."
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [json!({
    "rule": "has(self.hooks)",
    "fieldPath": ".hooks",
    "message": "no hooks defined: give at least hooks.sync",
})]))]
pub struct DecoratorControllerSpec {
    /// The kinds of the targets, and which of their objects are decorated.
    pub resources: Vec<TargetResource>,
    /// The kinds of objects that the hook may attach.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<AttachmentResource>,
    /// The hooks to call. Without it the controller is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hooks: Option<DecoratorHooks>,
    /// Certificates and credentials for hooks, by the host of their URL.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoint_configs: Vec<EndpointConfig>,
    /// Seconds after which every target is synced again although nothing changed; less than 1 counts as 1. Absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resync_period_seconds: Option<i32>,
    /// The ServiceAccount that this controller acts as. Absent: the identity of the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_ref: Option<ServiceAccountRef>,
    /// How the targets are split over workers. Absent: decided by load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharding: Option<Sharding>,
    /// Whether this controller rests: no hook is called and nothing is written.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
}

/// One kind of targets.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetResource {
    /// `group/version`, or `version` for the core group.
    pub api_version: String,
    /// Lower-case plural, as in URLs.
    pub resource: String,
    /// Which objects are decorated, by their labels. Absent or empty: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// Which objects are decorated, by their annotations. Absent or empty: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotation_selector: Option<AnnotationSelector>,
    /// Whether a change of a target's status alone starts no sync.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ignore_status_changes: bool,
}

/// A query over annotations. All parts must match.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AnnotationSelector {
    /// Annotations that must be there with these values, which may be any text.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_annotations: BTreeMap<String, String>,
    /// Further requirements.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<LabelSelectorRequirement>,
}

/// One kind of attachments.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AttachmentResource {
    /// `group/version`, or `version` for the core group.
    pub api_version: String,
    /// Lower-case plural, as in URLs.
    pub resource: String,
    /// How attachments that differ from the desired ones are changed. Absent: `OnDelete`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_strategy: Option<AttachmentUpdateStrategy>,
    /// Which existing objects may become attachments. Absent: none (`IfOwnerless` finds none here, as attachments have no selector).
    #[serde(
        default,
        deserialize_with = "empty_as_absent",
        skip_serializing_if = "Option::is_none"
    )]
    pub adoption: Option<Adoption>,
    /// What happens to an attachment that is no longer desired. Absent: `Delete`.
    #[serde(
        default,
        deserialize_with = "empty_as_absent",
        skip_serializing_if = "Option::is_none"
    )]
    pub deletion_policy: Option<DeletionPolicy>,
}

impl AttachmentResource {
    /// The update method that holds: attachments are not rolled out, so that a rolling method is its counterpart without
    /// rolling; `OnDelete` where none is given.
    pub fn update_method(&self) -> UpdateMethod {
        let method = self.update_strategy.as_ref().and_then(|it| it.method);
        match method.unwrap_or(UpdateMethod::OnDelete) {
            UpdateMethod::RollingRecreate => UpdateMethod::Recreate,
            UpdateMethod::RollingInPlace => UpdateMethod::InPlace,
            method => method,
        }
    }
}

/// How attachments that differ from the desired ones are changed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct AttachmentUpdateStrategy {
    /// The method; the rolling ones act like their counterparts without rolling. Absent: `OnDelete`.
    #[serde(
        default,
        deserialize_with = "empty_as_absent",
        skip_serializing_if = "Option::is_none"
    )]
    pub method: Option<UpdateMethod>,
}

/// The hooks of a DecoratorController.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DecoratorHooks {
    /// Called for each sync of a target: says what to add to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = super::webhook::called_hook_rules()))]
    pub sync: Option<Hook>,
    /// Called instead of `sync` while a target is being deleted or is no longer selected. Its presence adds a finalizer to targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = super::webhook::called_hook_rules()))]
    pub finalize: Option<Hook>,
    /// Asks which other objects the sync hook wants to see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = super::webhook::called_hook_rules()))]
    pub customize: Option<Hook>,
}
