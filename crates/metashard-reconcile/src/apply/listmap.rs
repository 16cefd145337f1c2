//! Lists that are maps: which key tells their items apart, and merging by it.

use std::{borrow::Cow, collections::BTreeMap};

use serde_json::{Map, Value};

use crate::{diff::number_text, lastapplied::encode};

/// Keys by which items are told apart, most telling first: Metacontroller's order.
const KEYS: [&str; 7] = [
    "containerPort",
    "port",
    "mountPath",
    "name",
    "uid",
    "ip",
    "path",
];

/// Keys of ports: one number can be served by two protocols.
const PORTS: [&str; 2] = ["containerPort", "port"];

type Item = Map<String, Value>;

/// What tells the items of a list apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    /// One field.
    Field(&'static str),
    /// A port and its protocol, which is TCP where it is absent.
    Port(&'static str),
}

impl Key {
    /// The key of one item, as text: `80` and `"80"` are the same, as they are to Metacontroller.
    fn of(self, item: &Item) -> Cow<'_, str> {
        match self {
            Self::Field(field) => text(item.get(field)),
            Self::Port(field) => {
                let protocol = item
                    .get("protocol")
                    .and_then(Value::as_str)
                    .unwrap_or("TCP");
                Cow::Owned(format!("{}/{protocol}", text(item.get(field))))
            }
        }
    }

    fn is_unique_in(self, items: &[&Item]) -> bool {
        let mut keys: Vec<_> = items.iter().map(|item| self.of(item)).collect();
        keys.sort_unstable();
        keys.windows(2).all(|pair| pair.first() != pair.last())
    }
}

/// The text of a key's value; values that are equal have the same.
fn text(value: Option<&Value>) -> Cow<'_, str> {
    match value {
        Some(Value::String(text)) => Cow::Borrowed(text),
        Some(Value::Number(number)) => Cow::Owned(number_text(number)),
        Some(Value::Null) | None => Cow::Borrowed("<nil>"),
        Some(other) => Cow::Owned(encode(&without_nulls(other))),
    }
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let entries = map.iter().filter(|(_, value)| !value.is_null());
            entries
                .map(|(key, value)| (key.clone(), without_nulls(value)))
                .collect()
        }
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

/// Merges three versions of a list by key; `None` if it is no list-map and the desired list replaces it.
pub(super) fn merge(observed: &[Value], last: &[Value], desired: &[Value]) -> Option<Vec<Value>> {
    let (observed, last, desired) = (items(observed)?, items(last)?, items(desired)?);
    let key = key_of([&observed, &last, &desired])?;
    let last: BTreeMap<_, _> = last.into_iter().map(|item| (key.of(item), item)).collect();
    let wanted: BTreeMap<_, _> = desired.iter().map(|item| (key.of(item), *item)).collect();
    let mut seen: Vec<Cow<'_, str>> = Vec::with_capacity(observed.len());

    let mut merged = Vec::with_capacity(observed.len().max(desired.len()));
    for item in observed {
        let name = key.of(item);
        match wanted.get(&name) {
            Some(want) => {
                let last = last.get(&name).copied();
                merged.push(Value::Object(super::merge_maps(item, last, want)));
            }
            None if last.contains_key(&name) => {}
            None => merged.push(Value::Object(item.clone())),
        }
        seen.push(name);
    }
    seen.sort_unstable();
    let new = desired
        .iter()
        .filter(|item| seen.binary_search(&key.of(item)).is_err());
    merged.extend(new.map(|item| Value::Object((*item).clone())));
    Some(merged)
}

fn items(list: &[Value]) -> Option<Vec<&Item>> {
    list.iter().map(Value::as_object).collect()
}

/// The first key that every item has and that is unique in each version; for ports, if need be, with the protocol.
fn key_of(versions: [&[&Item]; 3]) -> Option<Key> {
    let all = || versions.iter().copied().flatten();
    all().next()?;
    let fits = |key: Key| versions.iter().all(|items| key.is_unique_in(items));
    KEYS.iter()
        .filter(|field| all().all(|item| item.contains_key(**field)))
        .find_map(|field| {
            let alone = Key::Field(field);
            if fits(alone) {
                return Some(alone);
            }
            let port = Key::Port(field);
            (PORTS.contains(field) && fits(port)).then_some(port)
        })
}
