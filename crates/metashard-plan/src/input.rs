//! From objects as people write them to what a sync starts from: what only an API server sets is filled in.

use std::sync::Arc;

use bytes::Bytes;
use metashard_api::{
    id::ControllerKind,
    names::{ANNOTATION_DECORATOR, LABEL_CONTROLLER_UID},
    resource::Resource,
};
use metashard_reconcile::{
    controller::{self, Apply, Controller},
    object::{self, Object},
    sync::Candidates,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::{document::name_of, resources::Resources, suggest};

/// Namespace of objects that name none.
pub const DEFAULT_NAMESPACE: &str = "default";

/// Longest name of a made-up uid, which must do as the value of a label.
const MAX_UID: usize = 63;

/// Why a sync cannot be tried.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The controller object cannot be read as one.
    #[error("read {name}: {text}")]
    Unreadable {
        /// Which.
        name: String,
        /// What is wrong.
        text: String,
    },
    /// The controller cannot be run.
    #[error("compile {name}{hint}")]
    Controller {
        /// Which.
        name: String,
        /// What may help.
        hint: String,
        /// Why not.
        #[source]
        source: Box<controller::Error>,
    },
    /// It is of a kind that nothing is known of.
    #[error(
        "read {name}: its kind {kind:?} of {api_version:?} is not known{hint}; is its CustomResourceDefinition among the files?"
    )]
    UnknownKind {
        /// Which.
        name: String,
        /// The kind.
        kind: String,
        /// The apiVersion.
        api_version: String,
        /// What may have been meant.
        hint: String,
    },
    /// It is no object.
    #[error("read {name}")]
    Object {
        /// Which.
        name: String,
        /// What is wrong.
        #[source]
        source: object::Error,
    },
}

/// Compiles a controller as a worker would that was started without flags.
///
/// # Errors
/// When it cannot be run.
pub fn controller(value: &Value, resources: &Resources) -> Result<Arc<Controller>, Error> {
    controller_applying(value, resources, Apply::default())
}

/// Compiles a controller as a worker would that writes children in this way.
///
/// # Errors
/// When it cannot be run.
pub fn controller_applying(
    value: &Value,
    resources: &Resources,
    apply: Apply,
) -> Result<Arc<Controller>, Error> {
    let name = name_of(value);
    let mut value = value.clone();
    fill(&mut value, None);
    let raw = Bytes::from(value.to_string());
    let lookup = |version: &str, plural: &str| resources.lookup(version, plural);
    let compiled = match value["kind"].as_str().unwrap_or_default() {
        "CompositeController" => Controller::compile(&typed(&value, &name)?, &raw, &lookup),
        "DecoratorController" => {
            Controller::compile_decorator(&typed(&value, &name)?, &raw, &lookup)
        }
        other => {
            let text = format!("its kind is {other:?}, and it is no controller");
            return Err(Error::Unreadable { name, text });
        }
    };
    match compiled {
        Ok(controller) => Ok(Arc::new(controller.applying(apply))),
        Err(source) => Err(Error::Controller {
            hint: hint(&value, &source, resources),
            name,
            source: Box::new(source),
        }),
    }
}

fn typed<T: DeserializeOwned>(value: &Value, name: &str) -> Result<T, Error> {
    serde_json::from_value(value.clone()).map_err(|error| Error::Unreadable {
        name: name.to_owned(),
        text: error.to_string(),
    })
}

fn hint(object: &Value, error: &controller::Error, known: &Resources) -> String {
    let controller::Error::ParentNotFound(_) = error else {
        return String::new();
    };
    let spec = &object["spec"];
    let parent = match &spec["parentResource"] {
        Value::Null => &spec["resources"][0],
        parent => parent,
    };
    let text = |field: &str| parent[field].as_str().unwrap_or_default();
    match known.nearest(text("apiVersion"), text("resource")) {
        Some(meant) => format!(" (did you mean {meant}?)"),
        None => " (is its CustomResourceDefinition among the files?)".to_owned(),
    }
}

/// The resource of an object.
///
/// # Errors
/// When its kind is not known.
pub fn resource_of(value: &Value, resources: &Resources) -> Result<Arc<Resource>, Error> {
    let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    resources
        .of_kind(&api_version, &kind)
        .ok_or_else(|| Error::UnknownKind {
            name: name_of(value),
            hint: suggest::hint(
                &kind,
                ["ConfigMap", "Secret", "Deployment", "Service", "Pod"],
            ),
            kind,
            api_version,
        })
}

/// A parent and its resource; with a uid, a resourceVersion, a generation and a namespace where it has none.
///
/// # Errors
/// When it is no object of the controller's parent kind.
pub fn parent(
    mut value: Value,
    controller: &Controller,
    namespace: &str,
) -> Result<(Arc<Resource>, Arc<Object>), Error> {
    let Some(resource) = parent_resource(&value, controller) else {
        let kinds = controller
            .parents
            .iter()
            .map(|rule| format!("{} in {}", rule.resource.kind, rule.resource.api_version()))
            .collect::<Vec<_>>();
        return Err(Error::Unreadable {
            name: name_of(&value),
            text: format!(
                "it is no parent of this controller, whose parents are of kind {}",
                kinds.join(", ")
            ),
        });
    };
    fill(&mut value, resource.namespaced.then_some(namespace));
    Ok((Arc::clone(resource), object(&value)?))
}

/// The resource of a parent; `None` if it is of none of the controller's parent kinds.
pub fn parent_resource<'a>(value: &Value, controller: &'a Controller) -> Option<&'a Arc<Resource>> {
    let mut resources = controller.parents.iter().map(|rule| &rule.resource);
    resources.find(|it| {
        value["kind"] == it.kind.as_str() && value["apiVersion"] == it.api_version().as_str()
    })
}

/// What else is there: children of the parent, unless their owner references say otherwise.
///
/// # Errors
/// When one is no object, or of a kind that is not known.
pub fn others(
    values: impl IntoIterator<Item = Value>,
    controller: &Controller,
    parent: &Object,
    resources: &Resources,
) -> Result<Vec<Arc<Object>>, Error> {
    let mut objects = Vec::new();
    for mut value in values {
        let resource = resource_of(&value, resources)?;
        let namespace = parent.namespace().unwrap_or(DEFAULT_NAMESPACE);
        let is_stored = value["metadata"]["uid"].is_string();
        fill(&mut value, resource.namespaced.then_some(namespace));
        own(&mut value, is_stored, controller, parent);
        objects.push(object(&value)?);
    }
    Ok(objects)
}

/// What caches would hand to a sync of this parent: what may be children, by child rule, and what may be revisions.
pub fn candidates(
    controller: &Controller,
    parent: &Object,
    objects: &[Arc<Object>],
) -> (Vec<Candidates>, Candidates) {
    let may_be = |object: &Object| {
        let is_near = parent
            .namespace()
            .is_none_or(|it| object.namespace() == Some(it));
        match object.controller_owner() {
            Some(owner) => owner.uid == parent.uid() && controller.can_be_child(object),
            None => is_near && controller.kind == ControllerKind::Composite,
        }
    };
    let of = |resource: &Resource| {
        let is_of = |it: &&Arc<Object>| {
            it.kind() == resource.kind && it.api_version() == resource.api_version()
        };
        let found = objects.iter().filter(is_of).filter(|it| may_be(it));
        Candidates::from(found.cloned().collect::<Vec<_>>())
    };
    let children = controller.children.iter().map(|rule| of(&rule.resource));
    let revisions = match controller.history {
        Some(_) => of(&Resource::of_revisions()),
        None => Candidates::default(),
    };
    (children.collect(), revisions)
}

/// An object that lacks nothing.
///
/// # Errors
/// When it has no apiVersion, kind or name.
pub fn object(value: &Value) -> Result<Arc<Object>, Error> {
    Object::parse(value.to_string())
        .map(Arc::new)
        .map_err(|source| Error::Object {
            name: name_of(value),
            source,
        })
}

/// Sets what every stored object has.
fn fill(value: &mut Value, namespace: Option<&str>) {
    let uid = made_up_uid(value);
    let Some(object) = value.as_object_mut() else {
        return;
    };
    let metadata = object.entry("metadata").or_insert_with(|| json!({}));
    let Some(metadata) = metadata.as_object_mut() else {
        return;
    };
    let mut set = |field: &str, value: Value| {
        let slot = metadata.entry(field).or_insert(Value::Null);
        if slot.is_null() || *slot == "" {
            *slot = value;
        }
    };
    set("uid", uid.into());
    set("resourceVersion", "1".into());
    set("generation", 1.into());
    if let Some(namespace) = namespace {
        set("namespace", namespace.into());
    }
}

fn made_up_uid(value: &Value) -> String {
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str);
    let kind = text("/kind").unwrap_or("object").to_lowercase();
    let name = text("/metadata/name").unwrap_or_default();
    let mut uid = format!("uid-{kind}-{name}");
    uid.truncate(uid.floor_char_boundary(MAX_UID));
    uid.trim_end_matches(['-', '.']).to_owned()
}

/// Makes an object that says nothing of its owners a child of the parent, unless it was read from an API server, which
/// would have said so.
fn own(value: &mut Value, is_stored: bool, controller: &Controller, parent: &Object) {
    let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    if is_stored || metadata.contains_key("ownerReferences") {
        return;
    }
    let owner = json!({
        "apiVersion": parent.api_version(),
        "kind": parent.kind(),
        "name": parent.name(),
        "uid": parent.uid(),
        "controller": true,
        "blockOwnerDeletion": true,
    });
    metadata.insert("ownerReferences".to_owned(), json!([owner]));
    let mut mark = |field: &str, key: &str, value: &str| {
        let map = metadata
            .entry(field)
            .or_insert_with(|| Value::Object(Map::new()));
        if let Some(map) = map.as_object_mut() {
            map.entry(key).or_insert_with(|| value.into());
        }
    };
    if controller.generate_selector {
        mark("labels", LABEL_CONTROLLER_UID, parent.uid());
    }
    if controller.kind == ControllerKind::Decorator {
        mark("annotations", ANNOTATION_DECORATOR, &controller.name);
    }
}
