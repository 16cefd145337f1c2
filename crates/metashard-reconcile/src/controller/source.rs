//! What the specs of CompositeControllers and DecoratorControllers have in common.

use metashard_api::{
    id::ControllerKind,
    v1alpha1::{
        ServiceAccountRef,
        composite::{ChildResource, CompositeController, CompositeHooks, UpdateStrategy},
        decorator::{AttachmentResource, DecoratorController},
        webhook::EndpointConfig,
    },
};

/// The parts of a controller object that both kinds have, under the names of a CompositeController's spec.
pub(super) struct Source<'a> {
    pub(super) kind: ControllerKind,
    pub(super) uid: Option<&'a str>,
    pub(super) name: Option<&'a str>,
    pub(super) child_resources: Vec<ChildResource>,
    pub(super) hooks: CompositeHooks,
    pub(super) endpoint_configs: &'a [EndpointConfig],
    pub(super) resync_period_seconds: Option<i32>,
    pub(super) generate_selector: bool,
    pub(super) service_account_ref: Option<&'a ServiceAccountRef>,
    pub(super) paused: bool,
}

impl<'a> Source<'a> {
    pub(super) fn composite(object: &'a CompositeController) -> Self {
        let spec = &object.spec;
        Self {
            kind: ControllerKind::Composite,
            uid: object.metadata.uid.as_deref(),
            name: object.metadata.name.as_deref(),
            child_resources: spec.child_resources.clone(),
            hooks: spec.hooks.clone().unwrap_or_default(),
            endpoint_configs: &spec.endpoint_configs,
            resync_period_seconds: spec.resync_period_seconds,
            generate_selector: spec.generate_selector,
            service_account_ref: spec.service_account_ref.as_ref(),
            paused: spec.paused,
        }
    }

    pub(super) fn decorator(object: &'a DecoratorController) -> Self {
        let spec = &object.spec;
        let hooks = spec.hooks.clone().unwrap_or_default();
        Self {
            kind: ControllerKind::Decorator,
            uid: object.metadata.uid.as_deref(),
            name: object.metadata.name.as_deref(),
            child_resources: spec.attachments.iter().map(child_resource).collect(),
            hooks: CompositeHooks {
                sync: hooks.sync,
                finalize: hooks.finalize,
                customize: hooks.customize,
                ..CompositeHooks::default()
            },
            endpoint_configs: &spec.endpoint_configs,
            resync_period_seconds: spec.resync_period_seconds,
            generate_selector: false,
            service_account_ref: spec.service_account_ref.as_ref(),
            paused: spec.paused,
        }
    }

    /// The path of an entry of the list of children's kinds.
    pub(super) fn child_field(&self, index: usize) -> String {
        format!("spec.{}[{index}]", super::child_list(self.kind))
    }
}

fn child_resource(attachment: &AttachmentResource) -> ChildResource {
    ChildResource {
        api_version: attachment.api_version.clone(),
        resource: attachment.resource.clone(),
        update_strategy: Some(UpdateStrategy {
            method: Some(attachment.update_method()),
            status_checks: None,
        }),
        adoption: attachment.adoption,
        deletion_policy: attachment.deletion_policy,
    }
}
