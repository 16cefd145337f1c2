//! What an API server keeps of who owns which field, in small: enough for server-side apply of the objects in these tests.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

type Path = Vec<String>;

/// Metadata that nobody owns.
const OF_NOBODY: [&str; 8] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "managedFields",
];

/// What becomes of `stored` when `manager` applies `body` by force.
pub(super) fn apply(stored: &Value, body: &Value, manager: &str) -> Value {
    let mut object = stored.clone();
    let wanted = leaves(body);
    let mut entries = entries(stored);
    let mine = entries
        .iter()
        .position(|it| it.0 == manager && it.1 == "Apply")
        .map(|index| entries.remove(index).2);
    for path in mine.unwrap_or_default().difference(&wanted) {
        if !entries.iter().any(|(_, _, theirs)| theirs.contains(path)) {
            remove(&mut object, path);
        }
    }
    for path in &wanted {
        let value = at(body, path).unwrap().clone();
        if at(&object, path) != Some(&value) {
            for entry in &mut entries {
                entry.2.retain(|theirs| theirs != path);
            }
            set(&mut object, path, value);
        }
    }
    entries.push((manager.to_owned(), "Apply".to_owned(), wanted));
    keep(&mut object, entries);
    object
}

/// Notes that `manager` made `object` of `stored` by another write.
pub(super) fn update(stored: &Value, object: &mut Value, manager: &str) {
    let given = &object["metadata"]["managedFields"];
    let mut entries = entries(if given.is_null() { stored } else { object });
    let (before, after) = (leaves(stored), leaves(object));
    let changed: BTreeSet<_> = before
        .union(&after)
        .filter(|path| at(stored, path) != at(object, path))
        .cloned()
        .collect();
    for (_, _, fields) in &mut entries {
        fields.retain(|path| !changed.contains(path));
    }
    let new: BTreeSet<_> = changed.intersection(&after).cloned().collect();
    match entries
        .iter_mut()
        .find(|it| it.0 == manager && it.1 == "Update")
    {
        Some(entry) => entry.2.extend(new),
        None => entries.push((manager.to_owned(), "Update".to_owned(), new)),
    }
    keep(object, entries);
}

type Entry = (String, String, BTreeSet<Path>);

fn entries(object: &Value) -> Vec<Entry> {
    let all = object["metadata"]["managedFields"].as_array();
    let read = |entry: &Value| {
        let text = |field: &str| entry[field].as_str().unwrap().to_owned();
        let mut fields = BTreeSet::new();
        members(&entry["fieldsV1"], &mut Path::new(), &mut fields);
        (text("manager"), text("operation"), fields)
    };
    all.into_iter().flatten().map(read).collect()
}

fn keep(object: &mut Value, entries: Vec<Entry>) {
    let version = object["apiVersion"].clone();
    let entries = entries
        .into_iter()
        .filter(|(_, _, fields)| !fields.is_empty());
    let written = |(manager, operation, fields): Entry| {
        json!({
            "manager": manager, "operation": operation, "apiVersion": version,
            "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": notation(&fields),
        })
    };
    object["metadata"]["managedFields"] = entries.map(written).collect();
}

fn members(node: &Value, path: &mut Path, into: &mut BTreeSet<Path>) {
    let map = node.as_object().unwrap();
    if (map.is_empty() || map.contains_key(".")) && !path.is_empty() {
        into.insert(path.clone());
    }
    for (name, node) in map.iter().filter(|(name, _)| *name != ".") {
        path.push(name.clone());
        members(node, path, into);
        path.pop();
    }
}

fn notation(paths: &BTreeSet<Path>) -> Value {
    let mut root = json!({});
    for path in paths {
        let mut node = &mut root;
        for name in path {
            node = &mut node[name.as_str()];
            if node.is_null() {
                *node = json!({});
            }
        }
    }
    for path in paths {
        let node = path
            .iter()
            .fold(&mut root, |node, name| &mut node[name.as_str()]);
        if node.as_object().is_some_and(|map| !map.is_empty()) {
            node["."] = json!({});
        }
    }
    root
}

/// All that an object has to own.
fn leaves(object: &Value) -> BTreeSet<Path> {
    let mut found = BTreeSet::new();
    for (key, value) in object.as_object().into_iter().flatten() {
        match (key.as_str(), value) {
            ("apiVersion" | "kind" | "status", _) => {}
            ("metadata", Value::Object(metadata)) => {
                let mut metadata = metadata.clone();
                metadata.retain(|key, _| !OF_NOBODY.contains(&key.as_str()));
                walk(
                    &Value::Object(metadata),
                    &mut vec!["f:metadata".to_owned()],
                    &mut found,
                );
            }
            _ => walk(value, &mut vec![format!("f:{key}")], &mut found),
        }
    }
    found.remove(&vec!["f:metadata".to_owned()]);
    found
}

fn walk(value: &Value, path: &mut Path, found: &mut BTreeSet<Path>) {
    let list = path.last().cloned().unwrap_or_default();
    match (value, list.as_str()) {
        (Value::Object(map), _) if !map.is_empty() => {
            for (key, value) in map {
                path.push(format!("f:{key}"));
                walk(value, path, found);
                path.pop();
            }
        }
        (Value::Array(items), "f:ownerReferences") => {
            for item in items {
                path.push(format!("k:{}", json!({"uid": item["uid"]})));
                found.insert(path.clone());
                path.pop();
            }
        }
        (Value::Array(items), "f:items") => {
            for item in items {
                path.push(format!("k:{}", json!({"name": item["name"]})));
                found.insert(path.clone());
                walk(item, path, found);
                path.pop();
            }
        }
        _ => drop(found.insert(path.clone())),
    }
}

fn key_of(name: &str) -> Option<Map<String, Value>> {
    name.strip_prefix("k:")
        .map(|key| serde_json::from_str(key).unwrap())
}

fn is_called(item: &Value, key: &Map<String, Value>) -> bool {
    key.iter().all(|(field, value)| item[field] == *value)
}

fn at<'a>(value: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter()
        .try_fold(value, |value, name| match key_of(name) {
            Some(key) => value.as_array()?.iter().find(|item| is_called(item, &key)),
            None => value.get(name.strip_prefix("f:")?),
        })
}

fn set(object: &mut Value, path: &[String], value: Value) {
    let mut node = object;
    for name in path {
        node = match key_of(name) {
            Some(key) => {
                if node.is_null() {
                    *node = json!([]);
                }
                let items = node.as_array_mut().unwrap();
                let index = items.iter().position(|item| is_called(item, &key));
                let index = index.unwrap_or_else(|| {
                    items.push(Value::Object(key));
                    items.len() - 1
                });
                &mut items[index]
            }
            None => &mut node[name.strip_prefix("f:").unwrap()],
        };
    }
    *node = value;
}

fn remove(object: &mut Value, path: &[String]) {
    let (last, parents) = path.split_last().unwrap();
    let Some(parent) = parents
        .iter()
        .try_fold(object, |node, name| match key_of(name) {
            Some(key) => node
                .as_array_mut()?
                .iter_mut()
                .find(|item| is_called(item, &key)),
            None => node.get_mut(name.strip_prefix("f:")?),
        })
    else {
        return;
    };
    if let Some(key) = key_of(last) {
        let items = parent.as_array_mut().unwrap();
        items.retain(|item| !is_called(item, &key));
    } else {
        let key = last.strip_prefix("f:").unwrap();
        parent.as_object_mut().unwrap().remove(key);
    }
}
