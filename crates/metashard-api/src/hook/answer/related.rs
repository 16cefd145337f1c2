//! The rules of a customize answer: typed at every level, so that odd fields are noticed at every level.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{DecodeError, as_object, wrong_type};

/// Which other objects a sync hook wants to see.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RelatedRule {
    /// `group/version`, or `version` for the core group.
    pub api_version: String,
    /// Lower-case plural, as in URLs.
    pub resource: String,
    /// Selects by labels; an empty one selects all.
    pub label_selector: Option<LabelSelector>,
    /// Selects namespaces by their labels.
    pub namespace_selector: Option<LabelSelector>,
    /// The one namespace; empty where none is given.
    pub namespace: String,
    /// Names; empty where none are given.
    pub names: Vec<String>,
}

/// Reads the list of rules. Paths of unknown fields are added to `unknown`.
pub(super) fn rules(
    field: &str,
    value: Value,
    unknown: &mut Vec<String>,
) -> Result<Vec<RelatedRule>, DecodeError> {
    items(field, Some(value), unknown, rule)
}

fn rule(path: &str, value: Value, unknown: &mut Vec<String>) -> Result<RelatedRule, DecodeError> {
    let mut fields = as_object(path, value)?;
    let rule = RelatedRule {
        api_version: text(path, "apiVersion", &mut fields)?,
        resource: text(path, "resource", &mut fields)?,
        label_selector: selector(path, "labelSelector", &mut fields, unknown)?,
        namespace_selector: selector(path, "namespaceSelector", &mut fields, unknown)?,
        namespace: text(path, "namespace", &mut fields)?,
        names: items(
            &format!("{path}.names"),
            fields.remove("names"),
            unknown,
            plain_text,
        )?,
    };
    note_rest(path, fields, unknown);
    Ok(rule)
}

fn selector(
    path: &str,
    name: &str,
    fields: &mut Map<String, Value>,
    unknown: &mut Vec<String>,
) -> Result<Option<LabelSelector>, DecodeError> {
    let path = format!("{path}.{name}");
    let Some(value) = fields.remove(name).filter(|value| !value.is_null()) else {
        return Ok(None);
    };
    let mut fields = as_object(&path, value)?;
    let match_labels = match fields.remove("matchLabels") {
        None | Some(Value::Null) => None,
        Some(labels) => {
            let path = format!("{path}.matchLabels");
            let labels = as_object(&path, labels)?.into_iter();
            let read = |(key, value)| {
                let text = plain_text(&format!("{path}.{key}"), value, unknown)?;
                Ok((key, text))
            };
            Some(labels.map(read).collect::<Result<_, DecodeError>>()?)
        }
    };
    let match_expressions = match fields.remove("matchExpressions") {
        None | Some(Value::Null) => None,
        list => Some(items(
            &format!("{path}.matchExpressions"),
            list,
            unknown,
            requirement,
        )?),
    };
    note_rest(&path, fields, unknown);
    Ok(Some(LabelSelector {
        match_expressions,
        match_labels,
    }))
}

fn requirement(
    path: &str,
    value: Value,
    unknown: &mut Vec<String>,
) -> Result<LabelSelectorRequirement, DecodeError> {
    let mut fields = as_object(path, value)?;
    let key = text(path, "key", &mut fields)?;
    let operator = text(path, "operator", &mut fields)?;
    let values = match fields.remove("values") {
        None | Some(Value::Null) => None,
        list => Some(items(&format!("{path}.values"), list, unknown, plain_text)?),
    };
    note_rest(path, fields, unknown);
    Ok(LabelSelectorRequirement {
        key,
        operator,
        values,
    })
}

/// Reads a list; absent and null count as empty.
fn items<T>(
    path: &str,
    value: Option<Value>,
    unknown: &mut Vec<String>,
    read: impl Fn(&str, Value, &mut Vec<String>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    match value {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(items)) => items
            .into_iter()
            .enumerate()
            .map(|(index, item)| read(&format!("{path}[{index}]"), item, unknown))
            .collect(),
        Some(other) => Err(wrong_type(path, "a list", &other)),
    }
}

fn text(path: &str, name: &str, fields: &mut Map<String, Value>) -> Result<String, DecodeError> {
    let value = fields.remove(name).unwrap_or_default();
    plain_text(&format!("{path}.{name}"), value, &mut Vec::new())
}

/// A text; null reads as an empty one, as in Go.
fn plain_text(path: &str, value: Value, _: &mut Vec<String>) -> Result<String, DecodeError> {
    match value {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text),
        other => Err(wrong_type(path, "a text", &other)),
    }
}

fn note_rest(path: &str, fields: Map<String, Value>, unknown: &mut Vec<String>) {
    unknown.extend(fields.into_iter().map(|(name, _)| format!("{path}.{name}")));
}
