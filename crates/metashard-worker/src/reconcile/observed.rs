//! What the caches have of a parent and of what belongs to it.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use metashard_api::id::ControllerKind;
use metashard_kube::informer::View;
use metashard_reconcile::{object::Object, sync::Candidates};

use crate::{
    instance::{Awaited, Instance},
    key::ParentKey,
};

/// What the cache has of the children of `parent`, by child rule.
pub(super) fn candidates(instance: &Instance, parent: &Object) -> Vec<Candidates> {
    let views = instance.children.iter();
    views
        .map(|view| candidates_in(instance, view, parent))
        .collect()
}

/// What one cache has that is the parent's, or could be.
pub(super) fn candidates_in(instance: &Instance, view: &View, parent: &Object) -> Candidates {
    // Before the objects: they are then at least this new.
    let reached = view.reached_version();
    let mut objects = view.owned_by(parent.uid());
    if instance.controller.kind == ControllerKind::Composite {
        objects.extend(view.ownerless(parent.namespace()));
    } else {
        // What others attach is no news.
        objects.retain(|object| instance.controller.can_be_child(object));
    }
    Candidates { objects, reached }
}

/// Waits until the caches show our own writes, and have what belongs to the parent: what came before it was selected was let
/// go, and is listed anew.
pub(super) async fn catch_up(instance: &Instance, key: &ParentKey, awaited: Vec<Awaited>) {
    for write in awaited {
        if let Some(view) = instance.view(write.cache) {
            view.reach(&write.resource_version).await;
        }
    }
    let (namespace, name) = key.parts();
    let parents = instance.parents.get(key.rule());
    let Some(parent) = parents.and_then(|view| view.get(namespace, name)) else {
        return;
    };
    for view in instance.views_of_children() {
        if view.lacks(&parent) {
            view.refresh().await;
        }
    }
}

/// All that the caches have of a parent, its children and its revisions.
pub(super) fn seen<'a>(
    parent: &'a Arc<Object>,
    candidates: impl Iterator<Item = &'a Candidates>,
) -> impl Iterator<Item = &'a Arc<Object>> {
    std::iter::once(parent).chain(candidates.flat_map(|rule| &rule.objects))
}

/// Two equal signatures: the same children in the same versions.
pub(super) fn signature(candidates: &[Candidates]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for rule in candidates {
        rule.objects.len().hash(&mut hasher);
        for object in &rule.objects {
            object.uid().hash(&mut hasher);
            object.resource_version().hash(&mut hasher);
        }
    }
    hasher.finish()
}
