//! What differs between two JSON values, field by field, for people.

use serde_json::Value;

/// Longest shown value; longer ones are cut.
const MAX_SHOWN: usize = 200;

/// Fields of a Secret whose values are never shown.
const SECRET_FIELDS: [&str; 2] = ["data", "stringData"];

/// One field that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    /// `+` for a new field, `-` for one that goes, `~` for one that changes.
    pub(crate) mark: char,
    /// Path of the field, as `spec.containers[0].image`.
    pub(crate) path: String,
    /// The values, as JSON, cut if they are long.
    pub(crate) text: String,
}

/// All fields in which `new` differs from `old`. Of a Secret only their names are told.
pub(crate) fn between(old: &Value, new: &Value) -> Vec<Change> {
    let is_secret = new["kind"] == "Secret" || old["kind"] == "Secret";
    let mut changes = Vec::new();
    walk(String::new(), old, new, &mut changes);
    if is_secret {
        let hidden = |path: &str| {
            SECRET_FIELDS.iter().any(|it| {
                path.strip_prefix(it)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
            })
        };
        for change in &mut changes {
            if hidden(&change.path) || change.path.contains("last-applied-configuration") {
                "(not shown)".clone_into(&mut change.text);
            }
        }
    }
    changes
}

fn walk(path: String, old: &Value, new: &Value, changes: &mut Vec<Change>) {
    match (old, new) {
        (Value::Object(before), Value::Object(after)) => {
            for (key, old) in before {
                let path = member(&path, key);
                match after.get(key) {
                    Some(new) => walk(path, old, new, changes),
                    None => changes.push(change('-', path, &shown(old))),
                }
            }
            for (key, new) in after.iter().filter(|(key, _)| !before.contains_key(*key)) {
                changes.push(change('+', member(&path, key), &shown(new)));
            }
        }
        (Value::Array(before), Value::Array(after)) => {
            for index in 0..before.len().max(after.len()) {
                let path = format!("{path}[{index}]");
                match (before.get(index), after.get(index)) {
                    (Some(old), Some(new)) => walk(path, old, new, changes),
                    (Some(old), None) => changes.push(change('-', path, &shown(old))),
                    (None, Some(new)) => changes.push(change('+', path, &shown(new))),
                    (None, None) => {}
                }
            }
        }
        (old, new) if old == new => {}
        (old, new) => {
            let text = format!("{} -> {}", shown(old), shown(new));
            changes.push(change('~', path, &text));
        }
    }
}

fn change(mark: char, path: String, text: &str) -> Change {
    Change {
        mark,
        path,
        text: text.to_owned(),
    }
}

fn member(path: &str, key: &str) -> String {
    let is_plain = |key: &str| {
        key.chars()
            .all(|it| it.is_ascii_alphanumeric() || it == '_')
    };
    match (path.is_empty(), is_plain(key)) {
        (true, true) => key.to_owned(),
        (false, true) => format!("{path}.{key}"),
        (_, false) => format!("{path}[{key:?}]"),
    }
}

fn shown(value: &Value) -> String {
    let mut text = value.to_string();
    if text.len() > MAX_SHOWN {
        text.truncate(text.floor_char_boundary(MAX_SHOWN));
        text.push('…');
    }
    text
}

/// An object without what people do not look at.
pub(crate) fn for_people(bytes: &[u8]) -> Value {
    let mut value: Value = serde_json::from_slice(bytes).unwrap_or_default();
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in [
            "managedFields",
            "resourceVersion",
            "generation",
            "uid",
            "creationTimestamp",
        ] {
            metadata.remove(field);
        }
        if let Some(annotations) = metadata
            .get_mut("annotations")
            .and_then(Value::as_object_mut)
        {
            annotations.remove(metashard_api::names::ANNOTATION_LAST_APPLIED);
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
    }
    if value["kind"] == "Secret" {
        for field in SECRET_FIELDS {
            if let Some(fields) = value.get_mut(field).and_then(Value::as_object_mut) {
                fields
                    .values_mut()
                    .for_each(|it| *it = "(not shown)".into());
            }
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lines(old: &Value, new: &Value) -> Vec<String> {
        let changes = between(old, new);
        changes
            .iter()
            .map(|it| format!("{} {} {}", it.mark, it.path, it.text))
            .collect()
    }

    #[test]
    fn each_field_that_differs_is_named_once() {
        let old = json!({"a": {"b": 1, "x.y/z": 2}, "list": [1, 2], "same": true});
        let new = json!({"a": {"b": 3}, "list": [1, 2, {"c": 4}], "same": true, "new": null});

        assert_eq!(
            lines(&old, &new),
            [
                "~ a.b 1 -> 3",
                r#"- a["x.y/z"] 2"#,
                r#"+ list[2] {"c":4}"#,
                "+ new null"
            ]
        );
    }

    #[test]
    fn values_of_a_secret_are_not_shown() {
        let old = json!({"kind": "Secret", "data": {"key": "b2xk"}});
        let new = json!({"kind": "Secret", "data": {"key": "bmV3", "more": "eA=="}});

        let text = lines(&old, &new).join("\n");

        assert!(
            text.contains("data.key") && text.contains("data.more"),
            "{text}"
        );
        assert!(!text.contains("bmV3") && !text.contains("b2xk") && !text.contains("eA=="));
        assert!(
            !for_people(new.to_string().as_bytes())
                .to_string()
                .contains("bmV3")
        );
    }
}
