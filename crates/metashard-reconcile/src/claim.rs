//! Which observed objects are children of a parent, and the writes that make or end that.

use std::sync::Arc;

use metashard_api::{
    id::ControllerKind,
    names::{ANNOTATION_DECORATOR, LABEL_CONTROLLER_UID},
    resource::Resource,
    selector::Selector,
};
use serde::Deserialize;
use serde_json::{Map, Value, json, value::RawValue};

use crate::{
    controller::{ChildRule, Controller},
    object::{Object, OwnerReference},
    policies::is_orphan_of,
    write::{Op, Purpose, Write},
};

/// What claiming the children of one rule comes to.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    /// Children already.
    pub(crate) mine: Vec<Arc<Object>>,
    /// What must be written before the hook is called.
    pub(crate) changes: Vec<Change>,
}

/// One write that makes or ends a child.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) object: Arc<Object>,
    pub(crate) write: Write,
}

impl Change {
    /// Whether the object is a child afterwards.
    pub(crate) fn keeps(&self) -> bool {
        self.write.purpose != Purpose::ReleaseChild
    }
}

/// The selector of a parent's children. That of attachments says nothing: only the decorator's own objects are its.
///
/// # Errors
/// In Metacontroller's words, when the parent has none that selects by something: then nothing of it is touched.
pub(crate) fn selector(controller: &Controller, parent: &Object) -> Result<Selector, String> {
    use metashard_api::selector::Error;
    if controller.kind == ControllerKind::Decorator {
        return Ok(Selector::everything());
    }
    if controller.generate_selector {
        return Selector::generated(parent.uid()).map_err(|error| {
            format!(
                "can't convert label selector ({LABEL_CONTROLLER_UID}={}): {error}",
                parent.uid()
            )
        });
    }
    let spec = parent.spec().map(selector_alone);
    Selector::of_children(spec.as_ref()).map_err(|error| match error {
        Error::Empty => {
            let is_there = spec.as_ref().and_then(|spec| spec.get("selector"));
            let hint = if is_there.is_some_and(|it| !it.is_null()) {
                " (it is there but holds neither: the schema of the parent's kind may drop its content)"
            } else {
                ""
            };
            let fix = "set spec.selector.matchLabels, or generateSelector: true in the controller";
            format!(
                ".spec.selector must have either matchLabels, matchExpressions, or both{hint}; {fix}"
            )
        }
        Error::Shape(_) => format!("can't get label selector from {parent}: {error}"),
        error => {
            let selector = spec.as_ref().map_or(&Value::Null, |spec| &spec["selector"]);
            format!("can't convert label selector ({selector}): {error}")
        }
    })
}

/// A spec with its selector only: the rest is not decoded.
fn selector_alone(spec: &[u8]) -> Value {
    #[derive(Deserialize)]
    struct Spec<'a> {
        #[serde(borrow)]
        selector: Option<&'a RawValue>,
    }
    match serde_json::from_slice::<Spec<'_>>(spec) {
        Ok(Spec {
            selector: Some(selector),
        }) => {
            json!({ "selector": serde_json::from_str::<Value>(selector.get()).unwrap_or_default() })
        }
        Ok(Spec { selector: None }) => json!({}),
        // No object: whoever reads it says so.
        Err(_) => Value::Bool(false),
    }
}

/// Sorts out the candidates of one rule.
pub(crate) fn claim(
    controller: &Controller,
    resource: &Resource,
    rule: &ChildRule,
    parent: &Object,
    selector: &Selector,
    candidates: &[Arc<Object>],
) -> Claims {
    let mut claims = Claims::default();
    for object in candidates {
        if object.uid() == parent.uid()
            || parent
                .namespace()
                .is_some_and(|namespace| object.namespace() != Some(namespace))
        {
            continue;
        }
        if controller.kind == ControllerKind::Decorator {
            // Nothing else becomes an attachment, and none is released.
            if is_made_for(controller, parent, object) {
                claims.mine.push(Arc::clone(object));
            }
            continue;
        }
        let matches = selector.matches(|key| object.label(key));
        let purpose = match object.controller_owner() {
            Some(owner) if owner.uid != parent.uid() => None,
            // A decorator of the same parent made it.
            Some(_) if object.annotation(ANNOTATION_DECORATOR).is_some() => None,
            Some(_) if matches => {
                claims.mine.push(Arc::clone(object));
                None
            }
            // The label is ours to keep: somebody took it away.
            Some(_) if controller.generate_selector && !object.is_deleting() => {
                Some(Purpose::RelabelChild)
            }
            Some(_) if controller.generate_selector => {
                claims.mine.push(Arc::clone(object));
                None
            }
            Some(_) if parent.is_deleting() => None,
            Some(_) => Some(Purpose::ReleaseChild),
            None if matches && rule.adopts && !parent.is_deleting() && !object.is_deleting() => {
                (!is_orphan_of(parent, object)).then_some(Purpose::AdoptChild)
            }
            None => None,
        };
        if let Some(purpose) = purpose {
            let write = write(resource, rule, parent, object, purpose);
            claims.changes.push(Change {
                object: Arc::clone(object),
                write,
            });
        }
    }
    claims
}

/// Whether an object is controlled by a parent, and by this controller if that is a decorator.
pub(crate) fn is_made_for(controller: &Controller, parent: &Object, object: &Object) -> bool {
    let is_controlled = object
        .controller_owner()
        .is_some_and(|owner| owner.uid == parent.uid());
    is_controlled && controller.can_be_child(object)
}

fn write(
    of_parent: &Resource,
    rule: &ChildRule,
    parent: &Object,
    object: &Object,
    purpose: Purpose,
) -> Write {
    let (field, value, why) = match purpose {
        Purpose::RelabelChild => {
            let others = object
                .labels()
                .filter(|(key, _)| *key != LABEL_CONTROLLER_UID);
            let labels = others.chain([(LABEL_CONTROLLER_UID, parent.uid())]);
            let labels = labels
                .map(|(key, value)| (key.to_owned(), value.into()))
                .collect();
            (
                "labels",
                Value::Object(labels),
                "its label controller-uid is not that of its parent",
            )
        }
        Purpose::AdoptChild => {
            let owners = owners_but(object, parent)
                .chain([owner(of_parent, parent)])
                .collect();
            (
                "ownerReferences",
                owners,
                "its labels match and nothing controls it",
            )
        }
        _ => {
            let owners = owners_but(object, parent).collect();
            (
                "ownerReferences",
                owners,
                "its labels do not match any more",
            )
        }
    };
    Write {
        resource: Arc::clone(&rule.resource),
        namespace: object.namespace().map(Into::into),
        name: object.name().into(),
        op: Op::Update {
            body: object.with_metadata(Map::from_iter([(field.to_owned(), value)])),
        },
        purpose,
        why: why.into(),
    }
}

/// All owner references of an object but that to a parent.
pub(crate) fn owners_but<'a>(
    object: &'a Object,
    parent: &'a Object,
) -> impl Iterator<Item = Value> + 'a {
    object
        .owner_references()
        .filter(|owner| owner.uid != parent.uid())
        .map(reference)
}

/// The reference that makes an object the parent's child.
pub(crate) fn owner(resource: &Resource, parent: &Object) -> Value {
    json!({
        "apiVersion": resource.api_version(),
        "kind": resource.kind,
        "name": parent.name(),
        "uid": parent.uid(),
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

pub(crate) fn reference(owner: OwnerReference<'_>) -> Value {
    let mut reference = json!({
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.name,
        "uid": owner.uid,
    });
    for (field, value) in [
        ("controller", owner.controller),
        ("blockOwnerDeletion", owner.block_owner_deletion),
    ] {
        if value {
            reference[field] = true.into();
        }
    }
    reference
}
