//! The finalizer of a controller on its parents: when it is added, what it holds up, when it goes.

use std::sync::Arc;

use metashard_api::{
    names::{FINALIZER_FOREGROUND, FINALIZER_ORPHAN},
    resource::Resource,
};
use serde_json::Map;

use crate::{
    controller::Controller,
    object::Object,
    sync::HookKind,
    write::{Op, Purpose, Write},
};

/// The write that brings a parent's finalizer in line with the controller, if one is needed.
pub(crate) fn align(
    controller: &Controller,
    resource: &Arc<Resource>,
    parent: &Object,
) -> Option<Write> {
    let ours = &controller.finalizer;
    // Only a hook is asked about a parent that is not selected any more.
    let finalizes =
        controller.finalize.is_some() || (controller.finalizes() && controller.selects(parent));
    match (finalizes, parent.has_finalizer(ours)) {
        (true, false) if !parent.is_deleting() => Some(patch(
            resource,
            ours,
            parent,
            Purpose::AddFinalizer,
            "the finalize hook must be called before it goes",
        )),
        (false, true) => Some(remove(
            resource,
            ours,
            parent,
            "there is no finalize hook any more",
        )),
        _ => None,
    }
}

/// The write that takes our finalizer away, and only ours.
pub(crate) fn remove(resource: &Arc<Resource>, ours: &str, parent: &Object, why: &str) -> Write {
    patch(resource, ours, parent, Purpose::RemoveFinalizer, why)
}

/// The write that takes a controller's finalizer from a parent when the controller object itself is deleted; `None` if the
/// parent does not carry it. For nothing else: an edit of a controller or a move of its shard keeps finalizers.
pub fn let_go(resource: &Arc<Resource>, finalizer: &str, parent: &Object) -> Option<Write> {
    let why = "its controller is deleted";
    parent
        .has_finalizer(finalizer)
        .then(|| remove(resource, finalizer, parent, why))
}

fn patch(
    resource: &Arc<Resource>,
    ours: &str,
    parent: &Object,
    purpose: Purpose,
    why: &str,
) -> Write {
    let mut finalizers: Vec<_> = others(parent, ours).collect();
    if purpose == Purpose::AddFinalizer {
        finalizers.push(ours);
    }
    let finalizers = Map::from_iter([("finalizers".to_owned(), finalizers.into())]);
    Write {
        resource: Arc::clone(resource),
        namespace: parent.namespace().map(Into::into),
        name: parent.name().into(),
        op: Op::Update {
            body: parent.with_metadata(finalizers),
        },
        purpose,
        why: why.into(),
    }
}

/// All finalizers but ours.
pub(crate) fn others<'a>(parent: &'a Object, ours: &str) -> impl Iterator<Item = &'a str> {
    parent.finalizers().filter(move |name| *name != ours)
}

/// Which hook a parent's sync calls, if any.
pub(crate) fn hook_for(controller: &Controller, parent: &Object) -> Option<HookKind> {
    if controller.finalize.is_some() && (parent.is_deleting() || !controller.selects(parent)) {
        Some(HookKind::Finalize)
    } else {
        controller.sync.is_some().then_some(HookKind::Sync)
    }
}

/// Whether a deleted parent is held only for its children to be let go.
pub(crate) fn lets_go(controller: &Controller, parent: &Object) -> bool {
    controller.finalize.is_none()
        && parent.is_deleting()
        && parent.has_finalizer(&controller.finalizer)
        && controller.finalizes()
}

/// Whether the children of a parent are created, updated and deleted by us: not while it is being deleted,
/// except that our finalizer holds it for that and the garbage collector does not do it.
pub(crate) fn manages_children(controller: &Controller, parent: &Object) -> bool {
    !parent.is_deleting()
        || (controller.finalize.is_some()
            && parent.has_finalizer(&controller.finalizer)
            && !parent.has_finalizer(FINALIZER_FOREGROUND)
            && !parent.has_finalizer(FINALIZER_ORPHAN))
}

/// Whether nothing holds a deleted parent any more: it is gone, or will be in a moment.
pub(crate) fn is_gone(parent: &Object) -> bool {
    parent.is_deleting() && parent.finalizers().next().is_none()
}
