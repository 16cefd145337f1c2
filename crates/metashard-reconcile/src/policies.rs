//! What a child rule may say otherwise: `adoption: Force` takes over what is nobody's, `deletionPolicy: Orphan` lets go instead of deleting.

use std::sync::Arc;

use metashard_api::{
    names::{ANNOTATION_DECORATOR, ANNOTATION_ORPHANED_FROM},
    resource::Resource,
};
use serde_json::{Map, Value};

use crate::{
    claim::{self, owner},
    controller::ChildRule,
    object::Object,
    write::{Op, Purpose, Write},
};

/// Whether an object is one that this parent has let go: its labels may still match, and it stays alone all the same.
pub(crate) fn is_orphan_of(parent: &Object, object: &Object) -> bool {
    object
        .annotation(ANNOTATION_ORPHANED_FROM)
        .is_some_and(|uid| uid == parent.uid())
}

/// Whether an object that has the name of a desired child becomes that child: it is nobody's, and the rule says so, or it was
/// the parent's before.
pub(crate) fn may_take_over(rule: &ChildRule, parent: &Object, object: &Object) -> bool {
    let is_free = object.controller_owner().is_none() && !object.is_deleting();
    let is_wanted = rule.takes_over || (rule.adopts && is_orphan_of(parent, object));
    is_free && is_wanted && !parent.is_deleting()
}

/// The write that lets a child go for good.
pub(crate) fn orphan(rule: &ChildRule, parent: &Object, child: &Object) -> Write {
    let mut annotations = map_of(child, "annotations");
    annotations.insert(ANNOTATION_ORPHANED_FROM.to_owned(), parent.uid().into());
    let owners = claim::owners_but(child, parent).collect();
    let fields = [
        ("annotations".to_owned(), annotations.into()),
        ("ownerReferences".to_owned(), owners),
    ];
    write(
        rule,
        child,
        fields,
        Purpose::OrphanChild,
        "its deletionPolicy is Orphan",
    )
}

/// The write that makes an object the parent's child under the labels of the desired one. What else is desired comes later.
pub(crate) fn take_over(
    resource: &Resource,
    rule: &ChildRule,
    parent: &Object,
    object: &Object,
    desired: &Value,
) -> Write {
    let wanted = |field: &str| desired["metadata"][field].as_object();
    let mut labels = map_of(object, "labels");
    labels.extend(wanted("labels").into_iter().flatten().map(copied));
    let mut annotations = map_of(object, "annotations");
    annotations.remove(ANNOTATION_ORPHANED_FROM);
    let of_decorator = wanted("annotations").and_then(|it| it.get_key_value(ANNOTATION_DECORATOR));
    annotations.extend(of_decorator.map(copied));
    let owners = claim::owners_but(object, parent)
        .chain([owner(resource, parent)])
        .collect();
    let fields = [
        ("labels".to_owned(), labels.into()),
        ("annotations".to_owned(), annotations.into()),
        ("ownerReferences".to_owned(), owners),
    ];
    let why = "it has the name of a desired child, and nothing controls it";
    write(rule, object, fields, Purpose::AdoptChild, why)
}

fn copied((key, value): (&String, &Value)) -> (String, Value) {
    (key.clone(), value.clone())
}

/// A map of the metadata; empty if it cannot be read.
fn map_of(object: &Object, field: &str) -> Map<String, Value> {
    let value = object.to_value().unwrap_or_default();
    value["metadata"][field]
        .as_object()
        .cloned()
        .unwrap_or_default()
}

fn write(
    rule: &ChildRule,
    object: &Object,
    fields: impl IntoIterator<Item = (String, Value)>,
    purpose: Purpose,
    why: &str,
) -> Write {
    Write {
        resource: Arc::clone(&rule.resource),
        namespace: object.namespace().map(Into::into),
        name: object.name().into(),
        op: Op::Update {
            body: object.with_metadata(Map::from_iter(fields)),
        },
        purpose,
        why: why.into(),
    }
}
