//! Values of Secrets, wherever they lie in a document: in Secrets, in what was applied of them, in wishes for them.

use serde_json::{Map, Value};

/// Ends the keys of annotations that hold a whole object, ours and those of kubectl.
const RECORD: &str = "last-applied-configuration";

/// Stands for a document that cannot be looked into.
const UNREADABLE: &str = "<not recorded: it may hold values of Secrets>";

/// The document with other texts in place of the values of Secrets; `None` if it has none.
pub(super) fn hidden(document: &[u8], hide: &dyn Fn(&str) -> String) -> Option<Vec<u8>> {
    let Ok(mut value) = serde_json::from_slice::<Value>(document) else {
        return Some(UNREADABLE.as_bytes().to_vec());
    };
    walk(&mut value, hide).then(|| value.to_string().into_bytes())
}

/// Whether something was hidden.
fn walk(value: &mut Value, hide: &dyn Fn(&str) -> String) -> bool {
    match value {
        Value::Array(items) => items
            .iter_mut()
            .fold(false, |found, item| walk(item, hide) | found),
        Value::Object(fields) if is_secret(fields) => {
            conceal(fields, hide);
            true
        }
        Value::Object(fields) => fields
            .values_mut()
            .fold(false, |found, field| walk(field, hide) | found),
        _ => false,
    }
}

fn is_secret(fields: &Map<String, Value>) -> bool {
    let is = |field: &str, text: &str| fields.get(field).is_some_and(|it| it == text);
    is("kind", "Secret") && is("apiVersion", "v1")
}

fn conceal(secret: &mut Map<String, Value>, hide: &dyn Fn(&str) -> String) {
    for field in ["data", "stringData"] {
        match secret.get_mut(field) {
            Some(Value::Object(values)) => values.values_mut().for_each(|it| replace(it, hide)),
            Some(other) => replace(other, hide),
            None => {}
        }
    }
    let annotations = secret
        .get_mut("metadata")
        .and_then(|it| it.get_mut("annotations"))
        .and_then(Value::as_object_mut);
    for (key, value) in annotations.into_iter().flatten() {
        if !key.ends_with(RECORD) {
            continue;
        }
        let text = value.as_str().unwrap_or_default();
        *value = match serde_json::from_str::<Value>(text) {
            Ok(Value::Object(mut applied)) => {
                conceal(&mut applied, hide);
                Value::Object(applied).to_string().into()
            }
            _ => UNREADABLE.into(),
        };
    }
}

fn replace(value: &mut Value, hide: &dyn Fn(&str) -> String) {
    let other = match &*value {
        Value::Null => return,
        Value::String(text) => hide(text),
        other => hide(&other.to_string()),
    };
    *value = other.into();
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn hidden(document: &Value) -> Option<String> {
        let hide = |text: &str| format!("<{}>", text.len());
        let hidden = super::hidden(document.to_string().as_bytes(), &hide)?;
        Some(String::from_utf8(hidden).unwrap())
    }

    #[test]
    fn values_of_secrets_are_hidden_wherever_they_lie() {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": "s", "annotations": {
                "metacontroller.k8s.io/last-applied-configuration": r#"{"data":{"k":"hush"}}"#,
                "kubectl.kubernetes.io/last-applied-configuration": "hush",
            } },
            "data": { "k": "hush" }, "stringData": { "k": "hush", "n": { "deep": "hush" } },
        });
        for document in [
            json!(secret),
            json!({ "children": [{ "kind": "ConfigMap" }, secret] }),
            json!({ "kind": "Thing", "spec": { "template": secret } }),
        ] {
            let hidden = hidden(&document).unwrap();

            assert!(!hidden.contains("hush"), "{hidden}");
            assert!(hidden.contains("<4>"), "equal values stay equal: {hidden}");
        }
    }

    #[test]
    fn what_holds_no_secret_stays_as_it_is() {
        let config_map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "k": "v" } });
        let other = json!({ "apiVersion": "ex.io/v1", "kind": "Secret", "data": { "k": "v" } });

        assert_eq!((hidden(&config_map), hidden(&other)), (None, None));
    }

    #[test]
    fn what_cannot_be_read_is_not_recorded() {
        let hidden = super::hidden(br#"{"kind":"Secret","data":{"k":"hush"#, &|_| String::new());

        assert!(!String::from_utf8(hidden.unwrap()).unwrap().contains("hush"));
    }
}
