//! A second statement of the merge rules, as plain as it can be: what the crate is compared with.
//!
//! It is slow, and it says each rule once: it works on lists of (key, value) and looks everything up from the front.

use serde_json::{Map, Value};

type Pairs = Vec<(String, Value)>;

/// What an item of a list is called.
type Naming = Box<dyn Fn(&Value) -> String>;

/// Null where something is absent, on either side.
fn at<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    match value {
        Value::Object(map) => map.get(key),
        _ => None,
    }
}

fn is_null(value: Option<&Value>) -> bool {
    matches!(value, None | Some(Value::Null))
}

/// The merge by the rules of the compatibility document.
pub(crate) fn merge(observed: &Value, last: &Value, want: &Value) -> Value {
    if want.is_null() {
        return without(observed, last);
    }
    if let (Value::Object(_), Value::Object(_)) = (observed, want) {
        return from_pairs(merge_pairs(&pairs(observed), &pairs(last), &pairs(want)));
    }
    if let (Value::Array(old), Value::Array(new)) = (observed, want) {
        let applied = last.as_array().cloned().unwrap_or_default();
        let Some(name) = telling_key(&[old, &applied, new]) else {
            return want.clone();
        };
        let keyed = |items: &[Value]| -> Pairs {
            items
                .iter()
                .map(|item| (name(item), item.clone()))
                .collect()
        };
        let merged = merge_pairs(&keyed(old), &keyed(&applied), &keyed(new));
        return Value::Array(merged.into_iter().map(|(_, item)| item).collect());
    }
    want.clone()
}

/// What a desired null leaves: all but what was applied.
fn without(observed: &Value, last: &Value) -> Value {
    match observed {
        Value::Object(_) => merge(observed, last, &Value::Object(Map::new())),
        Value::Array(items) => {
            let applied = last.as_array().cloned().unwrap_or_default();
            if telling_key(&[items, &applied]).is_some() {
                merge(observed, last, &Value::Array(vec![]))
            } else if last.is_null() {
                observed.clone()
            } else {
                Value::Null
            }
        }
        _ if last.is_null() => observed.clone(),
        _ => Value::Null,
    }
}

fn merge_pairs(old: &Pairs, applied: &Pairs, new: &Pairs) -> Pairs {
    let find = |list: &Pairs, key: &str| {
        list.iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value.clone())
    };
    let mut result = Pairs::new();
    for (key, value) in old {
        match find(new, key) {
            Some(want) => {
                let last = find(applied, key).unwrap_or(Value::Null);
                result.push((key.clone(), merge(value, &last, &want)));
            }
            None if find(applied, key).is_some() => {}
            None => result.push((key.clone(), value.clone())),
        }
    }
    for (key, want) in new {
        if find(old, key).is_none() {
            result.push((key.clone(), want.clone()));
        }
    }
    result
}

fn pairs(value: &Value) -> Pairs {
    match value {
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
        _ => Pairs::new(),
    }
}

fn from_pairs(pairs: Pairs) -> Value {
    Value::Object(pairs.into_iter().collect())
}

/// How the items of a list-map are named, or nothing if the lists are plain.
fn telling_key(versions: &[&Vec<Value>]) -> Option<Naming> {
    let everything: Vec<&Value> = versions.iter().flat_map(|list| list.iter()).collect();
    if everything.is_empty() || !everything.iter().all(|item| item.is_object()) {
        return None;
    }
    for field in [
        "containerPort",
        "port",
        "mountPath",
        "name",
        "uid",
        "ip",
        "path",
    ] {
        if everything.iter().any(|item| at(item, field).is_none()) {
            continue;
        }
        let single = move |item: &Value| named(at(item, field));
        let double = move |item: &Value| {
            let protocol = at(item, "protocol")
                .and_then(Value::as_str)
                .unwrap_or("TCP");
            format!("{} {protocol}", named(at(item, field)))
        };
        if versions
            .iter()
            .all(|list| distinct(&list.iter().map(single).collect::<Vec<_>>()))
        {
            return Some(Box::new(single));
        }
        if field.ends_with("ort")
            && versions
                .iter()
                .all(|list| distinct(&list.iter().map(double).collect::<Vec<_>>()))
        {
            return Some(Box::new(double));
        }
    }
    None
}

fn distinct(names: &[String]) -> bool {
    (1..names.len()).all(|index| !names[..index].contains(&names[index]))
}

fn named(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 1e15 => {
                format!("{float:.0}").replace("-0", "0")
            }
            _ => number.to_string(),
        },
        Some(Value::Null) | None => "<nil>".to_owned(),
        Some(Value::Array(items)) => {
            format!(
                "{:?}",
                items
                    .iter()
                    .map(|item| named(Some(item)))
                    .collect::<Vec<_>>()
            )
        }
        Some(Value::Object(map)) => {
            let there = map.iter().filter(|(_, value)| !value.is_null());
            format!(
                "{:?}",
                there
                    .map(|(key, value)| (key, named(Some(value))))
                    .collect::<Vec<_>>()
            )
        }
        Some(other) => other.to_string(),
    }
}

/// Equality as an API server has it: numbers by value, a null key as an absent one.
pub(crate) fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.keys()
                .chain(b.keys())
                .all(|key| match (a.get(key), b.get(key)) {
                    (Some(a), Some(b)) => same(a, b),
                    (a, b) => is_null(a) && is_null(b),
                })
        }
        _ => left == right,
    }
}
