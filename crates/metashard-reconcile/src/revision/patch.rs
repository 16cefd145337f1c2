//! What a revision holds of a parent: the fields at some paths, cut out, named, and laid over the parent again.

use metashard_api::{
    names::{LABEL_CONTROLLER_UID, LABEL_REVISION_GROUP, LABEL_REVISION_RESOURCE},
    resource::Resource,
};
use serde_json::{Map, Value};
use sha1_smol::Sha1;

use crate::lastapplied;

/// Longest name before the hash.
const MAX_PREFIX: usize = 212;

/// Where a parent may have the labels of its pods.
const TEMPLATE_LABELS: &str = "spec.template.metadata.labels";

/// Why there is no revision of a parent, or no parent of a revision.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A path leads through something that is no object.
    #[error("path {path:?} of spec.parentResource.revisionHistory: .{at} is no object")]
    NoObject {
        /// The path.
        path: String,
        /// How far it leads.
        at: String,
    },
    /// The labels of the parent's template are no map of texts.
    #[error("invalid labels on parent: .{TEMPLATE_LABELS} is no map of texts")]
    Labels,
    /// The parent or the revision cannot be read.
    #[error("read a revision or its parent")]
    Json(#[from] serde_json::Error),
    /// The parent is no object any more once the revision is laid over it.
    #[error("lay a revision over its parent")]
    Object(#[from] crate::object::Error),
}

/// The parent, cut down to the fields at `paths`. A path that leads nowhere is passed over.
///
/// # Errors
/// When a path leads through something that is no object.
pub fn cut(parent: &Value, paths: &[String]) -> Result<Value, Error> {
    let mut patch = Value::Object(Map::new());
    lay_over(&mut patch, parent, paths)?;
    Ok(patch)
}

/// Replaces the fields of `parent` that `patch` has at `paths`.
///
/// # Errors
/// When a path leads through something that is no object, in either.
pub fn lay_over(parent: &mut Value, patch: &Value, paths: &[String]) -> Result<(), Error> {
    for path in paths {
        if let Some(value) = get(patch, path)? {
            put(parent, path, value.clone())?;
        }
    }
    Ok(())
}

/// The name of a revision: the same for the same patch of the same parent.
pub fn name(resource: &Resource, uid: &str, patch: &Value) -> String {
    let group = match resource.group.as_str() {
        "" => "core",
        group => group,
    };
    let mut prefix = format!("{}.{group}", resource.plural);
    prefix.truncate(prefix.floor_char_boundary(MAX_PREFIX));
    let mut hash = Sha1::new();
    hash.update(uid.as_bytes());
    hash.update(lastapplied::encode(patch).as_bytes());
    format!("{prefix}-{}", hash.digest())
}

/// The labels of a new revision. They are for people: revisions are found by their owner.
///
/// # Errors
/// When the parent has a template with labels that are no map of texts, and the children's selector is not generated.
pub fn labels(
    resource: &Resource,
    generate_selector: bool,
    parent: &Value,
    uid: &str,
) -> Result<Map<String, Value>, Error> {
    let mut labels = Map::new();
    if generate_selector {
        labels.insert(LABEL_CONTROLLER_UID.to_owned(), uid.into());
    } else {
        match get(parent, TEMPLATE_LABELS).map_err(|_| Error::Labels)? {
            None => {}
            Some(Value::Object(given)) if given.values().all(Value::is_string) => {
                labels.clone_from(given);
            }
            Some(_) => return Err(Error::Labels),
        }
    }
    for (label, value) in [
        (LABEL_REVISION_GROUP, &resource.group),
        (LABEL_REVISION_RESOURCE, &resource.plural),
    ] {
        labels.insert(label.to_owned(), value.as_str().into());
    }
    Ok(labels)
}

fn get<'a>(root: &'a Value, path: &str) -> Result<Option<&'a Value>, Error> {
    let mut value = root;
    for (index, name) in path.split('.').enumerate() {
        value = match value {
            Value::Null => return Ok(None),
            Value::Object(map) => match map.get(name) {
                Some(value) => value,
                None => return Ok(None),
            },
            _ => return Err(no_object(path, index)),
        };
    }
    Ok(Some(value))
}

fn put(root: &mut Value, path: &str, value: Value) -> Result<(), Error> {
    let mut place = root;
    for (index, name) in path.split('.').enumerate() {
        let Value::Object(map) = place else {
            return Err(no_object(path, index));
        };
        place = map.entry(name).or_insert_with(|| Value::Object(Map::new()));
    }
    *place = value;
    Ok(())
}

fn no_object(path: &str, names: usize) -> Error {
    let at: Vec<_> = path.split('.').take(names).collect();
    Error::NoObject {
        path: path.to_owned(),
        at: at.join("."),
    }
}
