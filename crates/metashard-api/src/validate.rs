//! What is wrong with a controller object, as far as it can be told without asking the API server.

use std::collections::BTreeSet;

use crate::{
    names::reason,
    selector::Selector,
    shard_map::can_be_slices,
    v1alpha1::{
        Adoption, DeletionPolicy, ServiceAccountRef, Sharding, UpdateMethod,
        composite::{ChildResource, CompositeController, CompositeHooks},
        webhook::{EndpointConfig, Hook},
    },
};

/// Most resources that one controller may name, parents and children together.
pub const MAX_RESOURCES: usize = 50;

mod decorator;
mod security;
mod webhook;

pub use decorator::decorator;

/// Something that is wrong in an object, where, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Finding {
    /// Path of the field, as `spec.childResources[2].resource`.
    pub field: String,
    /// What is wrong with it.
    pub message: String,
    /// What to do.
    pub fix: String,
    /// What it means for the object.
    pub verdict: Verdict,
}

/// What a finding means for its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// It cannot work: the object is refused.
    Invalid,
    /// It is right, and this version does not do it yet: the object is refused.
    NotSupported,
    /// The field has no effect: the object is served without it.
    NoEffect,
}

impl Finding {
    /// A finding that refuses the object.
    pub fn invalid(
        field: impl Into<String>,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self::new(Verdict::Invalid, field, message, fix)
    }

    /// A finding of something that is not served yet.
    pub fn not_supported(
        field: impl Into<String>,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self::new(Verdict::NotSupported, field, message, fix)
    }

    /// A finding of something that has no effect.
    pub fn no_effect(
        field: impl Into<String>,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self::new(Verdict::NoEffect, field, message, fix)
    }

    /// Whether the object is refused for it.
    pub fn refuses(&self) -> bool {
        self.verdict != Verdict::NoEffect
    }

    /// The reason for the condition `Accepted`.
    pub fn reason(&self) -> &'static str {
        match self.verdict {
            Verdict::Invalid => reason::INVALID_SPEC,
            Verdict::NotSupported => reason::NOT_SUPPORTED,
            Verdict::NoEffect => reason::NO_EFFECT,
        }
    }

    fn new(
        verdict: Verdict,
        field: impl Into<String>,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self {
            field: field.into(),
            message: message.into(),
            fix: fix.into(),
            verdict,
        }
    }
}

/// `<field>: <message>; <fix>`.
impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}; {}", self.field, self.message, self.fix)
    }
}

/// All that is wrong with a CompositeController, in the order of its fields.
pub fn composite(controller: &CompositeController) -> Vec<Finding> {
    let spec = &controller.spec;
    let mut findings = Vec::new();
    let parent = &spec.parent_resource;
    resource(
        "spec.parentResource",
        &parent.api_version,
        &parent.resource,
        &mut findings,
    );
    if let Some(selector) = &parent.label_selector
        && let Err(error) = Selector::compile(selector)
    {
        findings.push(Finding::invalid(
            "spec.parentResource.labelSelector",
            error.to_string(),
            "correct the selector",
        ));
    }
    child_resources(&spec.child_resources, &mut findings);
    let children = spec.child_resources.iter();
    let children = children.map(|it| (it.api_version.as_str(), it.resource.as_str()));
    let named = [(parent.api_version.as_str(), parent.resource.as_str())].into_iter();
    most_resources("spec.childResources", named.chain(children), &mut findings);
    hooks(spec.hooks.as_ref(), &spec.endpoint_configs, &mut findings);
    service_account(spec.service_account_ref.as_ref(), &mut findings);
    sharding(spec.sharding.as_ref(), &mut findings);
    findings
}

fn hooks(hooks: Option<&CompositeHooks>, configs: &[EndpointConfig], findings: &mut Vec<Finding>) {
    let Some(hooks) = hooks else {
        findings.push(no_hooks());
        return;
    };
    let called = [
        ("spec.hooks.sync", hooks.sync.as_ref()),
        ("spec.hooks.finalize", hooks.finalize.as_ref()),
        ("spec.hooks.customize", hooks.customize.as_ref()),
    ];
    called_hooks(called, configs, findings);
    let never_called = [
        ("spec.hooks.preUpdateChild", &hooks.pre_update_child),
        ("spec.hooks.postUpdateChild", &hooks.post_update_child),
    ];
    for (field, hook) in never_called {
        if hook.is_some() {
            findings.push(Finding::no_effect(
                field,
                "this hook is never called",
                "remove it",
            ));
        }
    }
}

fn no_hooks() -> Finding {
    Finding::invalid(
        "spec.hooks",
        "no hooks defined",
        "give at least spec.hooks.sync with a webhook",
    )
}

/// The hooks that are called, the sync hook first, and the configurations of their endpoints.
fn called_hooks(
    hooks: [(&str, Option<&Hook>); 3],
    configs: &[EndpointConfig],
    findings: &mut Vec<Finding>,
) {
    let [(_, sync), ..] = hooks;
    if sync.is_none_or(|hook| hook.webhook.is_none()) {
        findings.push(Finding::invalid(
            "spec.hooks.sync",
            "no sync hook defined",
            "give spec.hooks.sync.webhook a url, or a service and path",
        ));
    }
    for (field, hook) in hooks {
        if let Some(hook) = hook {
            webhook::check(field, hook, findings);
        }
    }
    let called = hooks
        .into_iter()
        .filter_map(|(_, hook)| hook?.webhook.as_ref());
    security::configs(configs, &called.collect::<Vec<_>>(), findings);
}

fn child_resources(children: &[ChildResource], findings: &mut Vec<Finding>) {
    let mut seen = BTreeSet::new();
    for (index, child) in children.iter().enumerate() {
        let field = format!("spec.childResources[{index}]");
        resource(&field, &child.api_version, &child.resource, findings);
        if !seen.insert((&child.api_version, &child.resource)) {
            findings.push(Finding::no_effect(
                &field,
                "this resource is listed before; the last entry counts",
                "keep one entry for each resource",
            ));
        }
        child_words(
            &field,
            child.update_method(),
            (child.adoption, child.deletion_policy),
            findings,
        );
        let has_checks = child
            .update_strategy
            .as_ref()
            .is_some_and(|strategy| strategy.status_checks.is_some());
        if has_checks && !child.update_method().is_rolling() {
            findings.push(Finding::no_effect(
                format!("{field}.updateStrategy.statusChecks"),
                "status checks matter for the rolling methods only",
                "remove them, or use RollingInPlace or RollingRecreate",
            ));
        }
    }
}

/// Words from a fixed list, which old CRDs let through unchecked.
fn child_words(
    field: &str,
    method: UpdateMethod,
    (adoption, deletion): (Option<Adoption>, Option<DeletionPolicy>),
    findings: &mut Vec<Finding>,
) {
    if method == UpdateMethod::Unknown {
        findings.push(Finding::invalid(
            format!("{field}.updateStrategy.method"),
            "not a method",
            "use OnDelete, Recreate, InPlace, RollingRecreate or RollingInPlace",
        ));
    }
    if adoption == Some(Adoption::Unknown) {
        findings.push(Finding::invalid(
            format!("{field}.adoption"),
            "not a way of adoption",
            "use Never, IfOwnerless or Force",
        ));
    }
    if deletion == Some(DeletionPolicy::Unknown) {
        findings.push(Finding::invalid(
            format!("{field}.deletionPolicy"),
            "not a deletion policy",
            "use Delete or Orphan",
        ));
    }
}

/// Each resource of a controller is watched: one controller may not take all that a worker has.
fn most_resources<'a>(
    field: &str,
    named: impl Iterator<Item = (&'a str, &'a str)>,
    findings: &mut Vec<Finding>,
) {
    let count = named.collect::<BTreeSet<_>>().len();
    if count > MAX_RESOURCES {
        findings.push(Finding::invalid(
            field,
            format!("the controller names {count} resources, and {MAX_RESOURCES} is the most"),
            "split it into several controllers",
        ));
    }
}

fn resource(field: &str, api_version: &str, resource: &str, findings: &mut Vec<Finding>) {
    let mut parts = api_version.split('/');
    let is_version = match (parts.next(), parts.next(), parts.next()) {
        (Some(version), None, _) => !version.is_empty(),
        (Some(group), Some(version), None) => !group.is_empty() && !version.is_empty(),
        _ => false,
    };
    if !is_version {
        findings.push(Finding::invalid(
            format!("{field}.apiVersion"),
            format!("{api_version:?} is no apiVersion"),
            "write group/version, or version for the core group",
        ));
    }
    if resource.is_empty() || resource.contains('/') {
        findings.push(Finding::invalid(
            format!("{field}.resource"),
            format!("{resource:?} is no resource"),
            "write the lower-case plural, as in `kubectl api-resources`",
        ));
    }
}

fn service_account(reference: Option<&ServiceAccountRef>, findings: &mut Vec<Finding>) {
    if reference
        .is_some_and(|reference| reference.name.is_empty() || reference.namespace.is_empty())
    {
        findings.push(Finding::invalid(
            "spec.serviceAccountRef",
            "name or namespace is empty",
            "give both, or remove it",
        ));
    }
}

fn sharding(sharding: Option<&Sharding>, findings: &mut Vec<Finding>) {
    let slices = sharding.and_then(|sharding| sharding.slices);
    if let Some(slices) = slices.filter(|slices| !can_be_slices(*slices)) {
        findings.push(Finding::invalid(
            "spec.sharding.slices",
            format!("{slices} is no power of two up to 64"),
            "use 1, 2, 4, 8, 16, 32 or 64",
        ));
    }
}

#[cfg(test)]
mod tests;
