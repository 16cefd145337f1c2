//! Comparing JSON as an API server keeps it: numbers by value, and a null key as an absent one.

#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use serde_json::{Map, Number, Value};
use xxhash_rust::xxh3::Xxh3;

use crate::lastapplied::put_number;

/// Most paths that are told to people.
const SHOWN_PATHS: usize = 5;

/// One place where two values differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Difference<'a> {
    /// What the first one has there; `None`: nothing, or null.
    pub left: Option<&'a Value>,
    /// What the second one has there; `None`: nothing, or null.
    pub right: Option<&'a Value>,
}

/// Whether two values are the same for an API server.
pub fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            left.iter().all(|(key, value)| match right.get(key) {
                Some(other) => equal(value, other),
                None => value.is_null(),
            }) && right
                .iter()
                .all(|(key, value)| value.is_null() || left.contains_key(key))
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .zip(right)
                    .all(|(left, right)| equal(left, right))
        }
        (Value::Number(left), Value::Number(right)) => numbers_equal(left, right),
        _ => left == right,
    }
}

fn numbers_equal(left: &Number, right: &Number) -> bool {
    if left == right {
        return true;
    }
    if left.is_f64() == right.is_f64() {
        // Two integers, or two floats of which one may be -0.0.
        return left.is_f64() && left.as_f64() == right.as_f64();
    }
    // An integer and a float: the float must be that very integer, also beyond 2^53.
    left.as_f64() == right.as_f64() && number_text(left) == number_text(right)
}

/// The text of a number's value: the same for 1 and 1.0.
pub(crate) fn number_text(number: &Number) -> String {
    let mut text = String::new();
    put_number(number, &mut text);
    if text == "-0" { "0".to_owned() } else { text }
}

/// Every place where two values differ, with its path, as deep as both are of the same type.
pub fn differences<'a>(left: &'a Value, right: &'a Value) -> Vec<(String, Difference<'a>)> {
    let mut found = Vec::new();
    walk(&mut String::new(), Some(left), Some(right), &mut found);
    found
}

/// The paths, as they are told to people: the first few.
pub fn describe(found: &[(String, Difference<'_>)]) -> String {
    let mut text = String::new();
    for (index, (path, _)) in found.iter().take(SHOWN_PATHS).enumerate() {
        let comma = if index > 0 { ", " } else { "" };
        let _ok = write!(text, "{comma}{path}");
    }
    if found.len() > SHOWN_PATHS {
        let _ok = write!(text, " and {} more", found.len() - SHOWN_PATHS);
    }
    text
}

fn walk<'a>(
    path: &mut String,
    left: Option<&'a Value>,
    right: Option<&'a Value>,
    found: &mut Vec<(String, Difference<'a>)>,
) {
    let left = left.filter(|value| !value.is_null());
    let right = right.filter(|value| !value.is_null());
    match (left, right) {
        (None, None) => {}
        (Some(Value::Object(a)), Some(Value::Object(b))) => walk_maps(path, a, b, found),
        (Some(Value::Array(a)), Some(Value::Array(b))) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                let length = path.len();
                let _ok = write!(path, "[{index}]");
                walk(path, Some(a), Some(b), found);
                path.truncate(length);
            }
        }
        (Some(a), Some(b)) if equal(a, b) => {}
        _ => found.push((path.clone(), Difference { left, right })),
    }
}

fn walk_maps<'a>(
    path: &mut String,
    left: &'a Map<String, Value>,
    right: &'a Map<String, Value>,
    found: &mut Vec<(String, Difference<'a>)>,
) {
    let only_right = right.iter().filter(|(key, _)| !left.contains_key(*key));
    let keys = left.keys().chain(only_right.map(|(key, _)| key));
    for key in keys {
        let length = path.len();
        push_key(path, key);
        walk(path, left.get(key), right.get(key), found);
        path.truncate(length);
    }
}

/// Appends a key to a path.
pub(crate) fn push_key(path: &mut String, key: &str) {
    if is_plain(key) {
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(key);
    } else {
        let _ok = write!(path, "[{key:?}]");
    }
}

fn is_plain(key: &str) -> bool {
    !key.is_empty()
        && key
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Adds a value to a hash, so that values that are [`equal`] add the same.
pub(crate) fn hash(value: &Value, into: &mut Xxh3) {
    match value {
        Value::Null => into.update(b"n"),
        Value::Bool(flag) => into.update(if *flag { b"t" } else { b"f" }),
        Value::Number(number) => hash_text(b'#', &number_text(number), into),
        Value::String(text) => hash_text(b'"', text, into),
        Value::Array(items) => {
            into.update(b"[");
            for item in items {
                hash(item, into);
            }
            into.update(b"]");
        }
        Value::Object(map) => {
            into.update(b"{");
            let mut entries: Vec<_> = map.iter().filter(|(_, value)| !value.is_null()).collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            for (key, value) in entries {
                hash_text(b'k', key, into);
                hash(value, into);
            }
            into.update(b"}");
        }
    }
}

/// The length goes in too, so that no two sequences of texts read alike.
fn hash_text(sort: u8, text: &str, into: &mut Xxh3) {
    into.update(&[sort]);
    into.update(&(text.len() as u64).to_le_bytes());
    into.update(text.as_bytes());
}

/// A hash of what the first value has where the two differ; 0 if they do not.
pub(crate) fn disagreement(found: &[(String, Difference<'_>)]) -> u64 {
    if found.is_empty() {
        return 0;
    }
    let mut hasher = Xxh3::new();
    for (path, difference) in found {
        hash_text(b'p', path, &mut hasher);
        hash(difference.left.unwrap_or(&Value::Null), &mut hasher);
    }
    hasher.digest().max(1)
}

/// Whether an observed value holds all of a wanted one, if what an API server adds is set aside:
/// keys in maps, further items in lists, and maps, lists and nulls that it drops when they are empty.
pub fn covers(observed: Option<&Value>, wanted: &Value) -> bool {
    match (observed, wanted) {
        (None | Some(Value::Null), Value::Null) => true,
        (None | Some(Value::Null), Value::Object(wanted)) => {
            wanted.values().all(|value| covers(None, value))
        }
        (None | Some(Value::Null), Value::Array(wanted)) => wanted.is_empty(),
        (Some(Value::Object(observed)), Value::Object(wanted)) => wanted
            .iter()
            .all(|(key, value)| covers(observed.get(key), value)),
        (Some(Value::Array(observed)), Value::Array(wanted)) => {
            let mut observed = observed.iter();
            wanted
                .iter()
                .all(|want| observed.any(|item| covers(Some(item), want)))
        }
        (Some(observed), wanted) => equal(observed, wanted),
        (None, _) => false,
    }
}
