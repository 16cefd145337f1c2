//! Three-way merge of dynamic apply: what is observed, what was applied last, what is desired now.
//!
//! The rules are Metacontroller's, with its errors mended: a list is merged by key only where the key is unique,
//! the desired type wins, and a null is removed only where it was applied before.

mod listmap;

use metashard_api::names::ANNOTATION_LAST_APPLIED;
use serde_json::{Map, Value};

use crate::{diff, lastapplied};

/// Fields of the metadata that only the API server writes.
pub(crate) const SYSTEM_FIELDS: [&str; 8] = [
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
];

/// Why a child cannot be merged.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The observed object cannot be read.
    #[error("read the observed object")]
    Observed(#[from] serde_json::Error),
    /// What was applied last cannot be read.
    #[error("read what was applied last")]
    LastApplied(#[from] lastapplied::Error),
    /// The result would have metadata that are no map.
    #[error("merge metadata: it is no object")]
    Metadata,
    /// The result would have annotations that are no map.
    #[error("merge metadata.annotations: it is no object")]
    Annotations,
}

/// A child as it should become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Updated {
    /// The whole object, as it is to be PUT.
    pub object: Value,
    /// Whether that differs from the observed object by value: if not, no write is needed.
    pub changed: bool,
    /// Whether the desired object is, by value, the one that was applied last.
    pub same_wish: bool,
}

/// Lays `desired` over `observed`; keys that are in `last` and no longer desired go.
pub fn merge(observed: &Value, last: Option<&Value>, desired: &Value) -> Value {
    match (observed, desired) {
        (_, Value::Null) => merge_null(observed, last),
        (Value::Object(observed), Value::Object(desired)) => Value::Object(merge_maps(
            observed,
            last.and_then(Value::as_object),
            desired,
        )),
        (Value::Array(observed), Value::Array(desired)) => {
            let last = last
                .and_then(Value::as_array)
                .map_or(&[][..], Vec::as_slice);
            listmap::merge(observed, last, desired)
                .map_or_else(|| Value::Array(desired.clone()), Value::Array)
        }
        _ => desired.clone(),
    }
}

/// A desired null removes what we applied, and only that.
fn merge_null(observed: &Value, last: Option<&Value>) -> Value {
    let last = last.filter(|value| !value.is_null());
    match observed {
        Value::Object(map) => Value::Object(merge_maps(
            map,
            last.and_then(Value::as_object),
            &Map::new(),
        )),
        Value::Array(items) => {
            let applied = last
                .and_then(Value::as_array)
                .map_or(&[][..], Vec::as_slice);
            match (listmap::merge(items, applied, &[]), last) {
                (Some(kept), _) => Value::Array(kept),
                (None, Some(_)) => Value::Null,
                (None, None) => observed.clone(),
            }
        }
        _ if last.is_some() => Value::Null,
        _ => observed.clone(),
    }
}

fn merge_maps(
    observed: &Map<String, Value>,
    last: Option<&Map<String, Value>>,
    desired: &Map<String, Value>,
) -> Map<String, Value> {
    let mut merged = Map::new();
    for (key, value) in observed {
        match desired.get(key) {
            Some(wanted) => {
                let last = last.and_then(|last| last.get(key));
                merged.insert(key.clone(), merge(value, last, wanted));
            }
            None if last.is_some_and(|last| last.contains_key(key)) => {}
            None => {
                merged.insert(key.clone(), value.clone());
            }
        }
    }
    for (key, value) in desired {
        if !observed.contains_key(key) {
            merged.insert(key.clone(), value.clone());
        }
    }
    merged
}

/// The whole step for one child: merge, keep what only the API server writes, and record what was desired.
///
/// # Errors
/// When it is not known what was applied last, or the metadata of either object is no map.
pub fn update(observed: &Value, desired: &Value) -> Result<Updated, Error> {
    update_from(observed, lastapplied::read(observed)?.as_ref(), desired)
}

/// As [`update`], where it is known from elsewhere what was applied last.
pub(crate) fn update_from(
    observed: &Value,
    last: Option<&Value>,
    desired: &Value,
) -> Result<Updated, Error> {
    let mut desired = desired.clone();
    lastapplied::strip(&mut desired);
    let is_last = |wish: &Value| last.is_some_and(|last| diff::equal(last, wish));
    let mut same_wish = is_last(&desired);
    let mut text = None;
    if !same_wish {
        let (record, written) = lastapplied::record(&desired);
        same_wish = is_last(&record);
        text = (!same_wish).then_some(written);
    }

    let mut object = merge(observed, last, &desired);
    restore(observed, &mut object)?;
    // A record that says the same in other words stays as it is.
    if let Some(text) = text.or_else(|| lastapplied::text_of(observed).map(str::to_owned)) {
        annotate(&mut object, text)?;
    }
    let changed = !diff::equal(observed, &object);
    if changed {
        drop_nulls(&mut object, Some(observed));
    }
    Ok(Updated {
        object,
        changed,
        same_wish,
    })
}

/// The object that creates a child: as desired, with the record of that.
///
/// # Errors
/// When its metadata is no map.
pub fn create(desired: &Value) -> Result<Value, Error> {
    let mut object = desired.clone();
    lastapplied::strip(&mut object);
    let (_, text) = lastapplied::record(&object);
    drop_nulls(&mut object, None);
    annotate(&mut object, text)?;
    Ok(object)
}

/// Takes nulls out of what is to be written, but for those that are there already: a null counts as absent, and an API server
/// takes one in a map of texts for an empty text.
pub(crate) fn drop_nulls(value: &mut Value, observed: Option<&Value>) {
    match value {
        Value::Object(map) => map.retain(|key, value| {
            let observed = observed.and_then(|observed| observed.get(key));
            drop_nulls(value, observed);
            !value.is_null() || observed.is_some_and(Value::is_null)
        }),
        Value::Array(items) => {
            let observed = observed.and_then(Value::as_array);
            for item in items {
                if !observed.is_some_and(|observed| observed.contains(item)) {
                    drop_nulls(item, None);
                }
            }
        }
        _ => {}
    }
}

fn restore(observed: &Value, object: &mut Value) -> Result<(), Error> {
    let Some(map) = object.as_object_mut() else {
        return Err(Error::Metadata);
    };
    match observed.get("status") {
        Some(status) => map.insert("status".to_owned(), status.clone()),
        None => map.remove("status"),
    };
    let observed = match observed.get("metadata") {
        Some(Value::Object(metadata)) => Some(metadata),
        None | Some(Value::Null) => None,
        Some(_) => return Err(Error::Metadata),
    };
    if observed.is_some_and(|observed| SYSTEM_FIELDS.iter().any(|it| observed.contains_key(*it))) {
        map.entry("metadata")
            .or_insert_with(|| Value::Object(Map::new()));
    }
    let Some(metadata) = map.get_mut("metadata") else {
        return Ok(());
    };
    let Some(metadata) = metadata.as_object_mut() else {
        return Err(Error::Metadata);
    };
    for field in SYSTEM_FIELDS {
        match observed.and_then(|observed| observed.get(field)) {
            Some(value) => metadata.insert(field.to_owned(), value.clone()),
            None => metadata.remove(field),
        };
    }
    Ok(())
}

fn annotate(object: &mut Value, text: String) -> Result<(), Error> {
    let map = object.as_object_mut().ok_or(Error::Metadata)?;
    let metadata = map
        .entry("metadata")
        .or_insert_with(|| Value::Object(Map::new()));
    let metadata = metadata.as_object_mut().ok_or(Error::Metadata)?;
    let annotations = metadata.entry("annotations").or_insert(Value::Null);
    if annotations.is_null() {
        *annotations = Value::Object(Map::new());
    }
    let annotations = annotations.as_object_mut().ok_or(Error::Annotations)?;
    annotations.insert(ANNOTATION_LAST_APPLIED.to_owned(), Value::String(text));
    Ok(())
}
