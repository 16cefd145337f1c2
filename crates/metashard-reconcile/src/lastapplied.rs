//! The annotation that holds what a hook wanted at our last write, as Metacontroller writes and reads it.
//!
//! It is written as Go encodes JSON, so that either can take over from the other, and it is compared as JSON, never as text.

use std::{borrow::Cow, fmt::Write as _};

use metashard_api::names::ANNOTATION_LAST_APPLIED;
use serde_json::{Map, Number, Value};
use xxhash_rust::xxh3::xxh3_128;

/// Longest text of the annotation; the API server takes 256 KiB for all annotations of an object together.
const MAX_TEXT: usize = 192 << 10;

/// Longest text that an abridged record keeps as it is: names by which the items of lists are told apart are shorter.
const MAX_KEPT: usize = 64;

/// Why an annotation cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is no JSON.
    #[error("unmarshal {ANNOTATION_LAST_APPLIED:?} annotation")]
    Json(#[from] serde_json::Error),
    /// It is JSON, and no object.
    #[error("unmarshal {ANNOTATION_LAST_APPLIED:?} annotation: it holds no object")]
    NoObject,
}

/// The text that is written for a desired object: Go's encoding of JSON.
pub fn encode(desired: &Value) -> String {
    let mut text = String::with_capacity(256);
    put(desired, &mut text);
    text
}

/// What is recorded of a desired object, and its text: the object itself; of a Secret without what is secret; and if that
/// is too long its outline, in which long texts are replaced by their hashes. A merge needs no more: which fields there were.
pub(crate) fn record(desired: &Value) -> (Cow<'_, Value>, String) {
    let desired = without_secrets(desired);
    let text = encode(&desired);
    if text.len() <= MAX_TEXT {
        return (desired, text);
    }
    let outline = outline(&desired);
    let text = encode(&outline);
    (Cow::Owned(outline), text)
}

/// A Secret with its keys alone: annotations are shown where nobody expects secrets.
fn without_secrets(desired: &Value) -> Cow<'_, Value> {
    if desired["kind"] != "Secret" || desired["apiVersion"] != "v1" {
        return Cow::Borrowed(desired);
    }
    let mut desired = desired.clone();
    for field in ["data", "stringData"] {
        let values = desired.get_mut(field).and_then(Value::as_object_mut);
        for value in values.into_iter().flat_map(Map::values_mut) {
            if !value.is_null() {
                *value = Value::String(String::new());
            }
        }
    }
    Cow::Owned(desired)
}

fn outline(value: &Value) -> Value {
    match value {
        Value::String(text) if text.len() > MAX_KEPT => {
            Value::String(format!("xxh3:{:032x}", xxh3_128(text.as_bytes())))
        }
        Value::Array(items) => items.iter().map(outline).collect(),
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| (key.clone(), outline(value)))
            .collect(),
        other => other.clone(),
    }
}

/// What a text of the annotation holds; `None` if it is empty or null.
///
/// # Errors
/// When it is no JSON object: then nobody knows what was applied last, and the child is better not touched.
pub fn decode(text: &str) -> Result<Option<Value>, Error> {
    if text.is_empty() {
        return Ok(None);
    }
    match serde_json::from_str(text)? {
        Value::Null => Ok(None),
        Value::Object(object) => Ok(Some(Value::Object(object))),
        _ => Err(Error::NoObject),
    }
}

/// The annotation's text in an object.
pub(crate) fn text_of(object: &Value) -> Option<&str> {
    object
        .get("metadata")?
        .get("annotations")?
        .get(ANNOTATION_LAST_APPLIED)?
        .as_str()
}

/// What was applied last to an observed object.
///
/// # Errors
/// As [`decode`].
pub fn read(observed: &Value) -> Result<Option<Value>, Error> {
    text_of(observed).map_or(Ok(None), decode)
}

/// Removes the annotation. A map of annotations that it leaves empty stays, as Metacontroller leaves it.
pub(crate) fn strip(object: &mut Value) {
    if let Some(Value::Object(annotations)) = object
        .get_mut("metadata")
        .and_then(|metadata| metadata.get_mut("annotations"))
    {
        annotations.remove(ANNOTATION_LAST_APPLIED);
    }
}

fn put(value: &Value, text: &mut String) {
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(true) => text.push_str("true"),
        Value::Bool(false) => text.push_str("false"),
        Value::Number(number) => put_number(number, text),
        Value::String(string) => put_string(string, text),
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                put(item, text);
            }
            text.push(']');
        }
        Value::Object(map) => put_map(map, text),
    }
}

fn put_map(map: &Map<String, Value>, text: &mut String) {
    let mut entries: Vec<_> = map.iter().collect();
    if !entries.is_sorted_by_key(|(key, _)| *key) {
        entries.sort_unstable_by_key(|(key, _)| *key);
    }
    text.push('{');
    for (index, (key, value)) in entries.into_iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        put_string(key, text);
        text.push(':');
        put(value, text);
    }
    text.push('}');
}

fn put_string(string: &str, text: &mut String) {
    text.push('"');
    for letter in string.chars() {
        match letter {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            '\0'..='\u{1f}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                // Writing to a String cannot fail.
                let _ok = write!(text, "\\u{:04x}", u32::from(letter));
            }
            _ => text.push(letter),
        }
    }
    text.push('"');
}

/// Writes a number as Go does: an integer beyond 64 signed bits is a float there.
pub(crate) fn put_number(number: &Number, text: &mut String) {
    let float = match (number.as_i64(), number.as_f64()) {
        (Some(integer), _) => {
            let _ok = write!(text, "{integer}");
            return;
        }
        (None, float) => float.unwrap_or_default(),
    };
    let size = float.abs();
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let plain = format!("{float:e}");
        match plain.split_once('e') {
            Some((digits, exponent)) if !exponent.starts_with('-') => {
                let _ok = write!(text, "{digits}e+{exponent}");
            }
            _ => text.push_str(&plain),
        }
    } else {
        let _ok = write!(text, "{float}");
    }
}
