//! Fields that the schema does not know: the API server drops them without a word.

use serde_json::Value;

use super::{Found, error};
use crate::suggest;

/// The fields of an object that its kind does not have.
pub(super) fn unknown(object: &Value, crd: &Value) -> Vec<Found> {
    let mut found = Vec::new();
    let Some(schema) = crd.pointer("/spec/versions/0/schema/openAPIV3Schema") else {
        return found;
    };
    if let (Some(fields), Some(known)) = (object.as_object(), schema["properties"].as_object()) {
        let standard = ["apiVersion", "kind", "metadata", "status"];
        for field in fields.keys().filter(|it| !known.contains_key(*it)) {
            if !standard.contains(&field.as_str()) {
                let all = known.keys().map(String::as_str).chain(standard);
                found.push(no_such(field, field, all));
            }
        }
    }
    walk(
        "spec",
        &object["spec"],
        &schema["properties"]["spec"],
        &mut found,
    );
    found
}

fn walk(path: &str, value: &Value, schema: &Value, found: &mut Vec<Found>) {
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        return;
    }
    match value {
        Value::Object(fields) => {
            let known = schema["properties"].as_object();
            let others = &schema["additionalProperties"];
            for (field, value) in fields {
                let path = format!("{path}.{field}");
                match known.and_then(|known| known.get(field)) {
                    Some(schema) => walk(&path, value, schema, found),
                    None if others.is_object() => walk(&path, value, others, found),
                    None if others == true || known.is_none() => {}
                    None => {
                        let known = known.into_iter().flatten().map(|it| it.0.as_str());
                        found.push(no_such(&path, field, known));
                    }
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                walk(&format!("{path}[{index}]"), item, &schema["items"], found);
            }
        }
        _ => {}
    }
}

fn no_such<'a>(path: &str, field: &str, known: impl Iterator<Item = &'a str>) -> Found {
    let fix = match suggest::nearest(field, known) {
        Some(known) => format!("did you mean {known}?"),
        None => "remove it".to_owned(),
    };
    error(
        path,
        "there is no such field, and the API server drops it",
        fix,
    )
}
