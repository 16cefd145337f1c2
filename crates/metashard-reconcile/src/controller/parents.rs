//! The kinds of parents of a controller, found among the served resources.

use std::sync::Arc;

use metashard_api::{
    resource::Resource,
    selector::{self, Selector},
    v1alpha1::{
        composite::CompositeControllerSpec,
        decorator::{DecoratorControllerSpec, TargetResource},
    },
    validate::Finding,
};

use super::{
    Error, ParentRule,
    compile::{Lookup, not_found},
};

/// The kinds of parents, as far as they are served.
#[derive(Default)]
pub(super) struct Parents {
    pub(super) served: Vec<ParentRule>,
    pub(super) missing: Vec<Finding>,
    pub(super) notes: Vec<Finding>,
}

impl Parents {
    pub(super) fn composite(
        spec: &CompositeControllerSpec,
        lookup: Lookup<'_>,
    ) -> Result<Self, Error> {
        let parent = &spec.parent_resource;
        let (version, plural) = (&parent.api_version, &parent.resource);
        let field = "spec.parentResource";
        let Some(resource) = lookup(version, plural) else {
            return Err(Error::ParentNotFound(not_found(field, version, plural)));
        };
        if !resource.has_status {
            return Err(Error::NoStatus(Finding::invalid(
                field,
                format!("{plural} in {version} have no status subresource"),
                "add `subresources: {status: {}}` to that version of its CustomResourceDefinition",
            )));
        }
        let labels = parent.label_selector.as_ref().map(Selector::compile);
        let rule = ParentRule {
            resource,
            labels: selected(labels)?,
            annotations: Selector::everything(),
            ignore_status_changes: parent.ignore_status_changes,
        };
        Ok(Self {
            served: vec![rule],
            ..Self::default()
        })
    }

    pub(super) fn decorator(
        spec: &DecoratorControllerSpec,
        lookup: Lookup<'_>,
    ) -> Result<Self, Error> {
        let mut parents = Self::default();
        for (index, target) in spec.resources.iter().enumerate() {
            let field = format!("spec.resources[{index}]");
            let (version, plural) = (&target.api_version, &target.resource);
            if let Some(resource) = lookup(version, plural) {
                parents.add(&field, target, resource)?;
            } else {
                parents.missing.push(not_found(&field, version, plural));
            }
        }
        match parents.missing.first() {
            Some(finding) if parents.served.is_empty() => {
                Err(Error::ParentNotFound(finding.clone()))
            }
            _ => Ok(parents),
        }
    }

    /// Of two rules for one kind, whatever their versions, the later counts.
    fn add(
        &mut self,
        field: &str,
        target: &TargetResource,
        resource: Arc<Resource>,
    ) -> Result<(), Error> {
        let is_same = |it: &ParentRule| {
            it.resource.group == resource.group && it.resource.kind == resource.kind
        };
        if let Some(earlier) = self.served.iter().position(is_same) {
            let earlier = self.served.remove(earlier).resource;
            if earlier != resource {
                let message = format!(
                    "{} is listed before, in version {}; this entry counts",
                    resource.kind, earlier.version
                );
                self.notes.push(Finding::no_effect(
                    field,
                    message,
                    "keep one version of each kind",
                ));
            }
        }
        let labels = target.label_selector.as_ref().map(Selector::compile);
        let annotations = target
            .annotation_selector
            .as_ref()
            .map(Selector::of_annotations);
        self.served.push(ParentRule {
            resource,
            labels: selected(labels)?,
            annotations: selected(annotations)?,
            ignore_status_changes: target.ignore_status_changes,
        });
        Ok(())
    }
}

/// Validation has seen the selectors before.
fn selected(selector: Option<Result<Selector, selector::Error>>) -> Result<Selector, Error> {
    selector
        .unwrap_or_else(|| Ok(Selector::everything()))
        .map_err(|error| Error::Unreadable(error.to_string()))
}
