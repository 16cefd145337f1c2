//! The CustomResourceDefinitions of our kinds, as the API server gets them.
//!
//! Derived from the types, then brought to the shape of Metacontroller's own: no `nullable` (the API server drops
//! or refuses nulls), atomic selectors, `metadata` required, a status subresource everywhere.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, CustomResourceSubresourceStatus,
    CustomResourceSubresources, CustomResourceValidation,
};
use kube::CustomResourceExt;
use serde_json::{Map, Value, json};

use crate::{
    names::{self, condition},
    placement::Placement,
    shard_map::ShardMap,
    v1alpha1::{
        GROUP, composite::CompositeController, decorator::DecoratorController,
        revision::ControllerRevision,
    },
};

/// All of them, in the order in which they are listed in documents.
pub fn all() -> Vec<CustomResourceDefinition> {
    vec![
        composite_controllers(),
        decorator_controllers(),
        controller_revisions(),
        shard_maps(),
        placements(),
    ]
}

/// `compositecontrollers.metacontroller.k8s.io`.
pub fn composite_controllers() -> CustomResourceDefinition {
    with_columns(finish(CompositeController::crd()))
}

/// `decoratorcontrollers.metacontroller.k8s.io`.
pub fn decorator_controllers() -> CustomResourceDefinition {
    with_columns(finish(DecoratorController::crd()))
}

/// `controllerrevisions.metacontroller.k8s.io`.
pub fn controller_revisions() -> CustomResourceDefinition {
    finish(ControllerRevision::crd())
}

/// `shardmaps.metashard.io`: what a process installs itself where it is absent.
pub fn shard_maps() -> CustomResourceDefinition {
    finish(ShardMap::crd())
}

/// `placements.metashard.io`: a process installs it too, and does without it where it may not.
pub fn placements() -> CustomResourceDefinition {
    with(finish(Placement::crd()), || {
        let status = |name: &str| {
            let path = format!(".status.conditions[?(@.type==\"{name}\")].status");
            column(name, "string", &path)
        };
        let types = [
            condition::ACCEPTED,
            condition::RESOLVED,
            condition::DRAINED,
            condition::PINNED,
            condition::LEVELLED,
        ];
        let mut columns: Vec<_> = types.map(status).into();
        columns.push(column("Age", "date", ".metadata.creationTimestamp"));
        columns
    })
}

fn finish(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    crd.spec.names.list_kind = Some(format!("{}List", crd.spec.names.kind));
    let is_peers = crd.spec.group == GROUP;
    if is_peers {
        crd.metadata.annotations.get_or_insert_default().insert(
            names::ANNOTATION_API_APPROVED.to_owned(),
            names::API_UNAPPROVED.to_owned(),
        );
    }
    for version in &mut crd.spec.versions {
        if is_peers {
            version.subresources = Some(CustomResourceSubresources {
                status: Some(CustomResourceSubresourceStatus(json!({}))),
                ..CustomResourceSubresources::default()
            });
        }
        version.schema = version.schema.take().map(finish_validation);
    }
    crd
}

/// What `kubectl get` shows of a controller.
fn with_columns(crd: CustomResourceDefinition) -> CustomResourceDefinition {
    with(crd, || {
        vec![
            column(
                "Ready",
                "string",
                ".status.conditions[?(@.type==\"Ready\")].status",
            ),
            column(
                "Reason",
                "string",
                ".status.conditions[?(@.type==\"Ready\")].reason",
            ),
            column("Shard", "integer", ".status.shard"),
            column("Worker", "string", ".status.worker"),
            column("Parents", "integer", ".status.parents"),
            column("Age", "date", ".metadata.creationTimestamp"),
        ]
    })
}

fn with(
    mut crd: CustomResourceDefinition,
    columns: impl Fn() -> Vec<CustomResourceColumnDefinition>,
) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        version.additional_printer_columns = Some(columns());
    }
    crd
}

fn column(name: &str, type_: &str, json_path: &str) -> CustomResourceColumnDefinition {
    CustomResourceColumnDefinition {
        name: name.to_owned(),
        type_: type_.to_owned(),
        json_path: json_path.to_owned(),
        ..CustomResourceColumnDefinition::default()
    }
}

/// The schema goes through its JSON form, where one walk reaches every level. Should that ever fail, it stays as derived.
fn finish_validation(validation: CustomResourceValidation) -> CustomResourceValidation {
    let Ok(mut root) = serde_json::to_value(&validation.open_api_v3_schema) else {
        return validation;
    };
    finish_schema(&mut root);
    finish_root(&mut root);
    serde_json::from_value(root)
        .map(|schema| CustomResourceValidation {
            open_api_v3_schema: Some(schema),
        })
        .unwrap_or(validation)
}

fn finish_root(root: &mut Value) {
    for (name, type_) in [
        ("apiVersion", "string"),
        ("kind", "string"),
        ("metadata", "object"),
    ] {
        root["properties"][name] = json!({ "type": type_ });
    }
    let mut required = vec![json!("metadata")];
    if let Some(rest) = root["required"].as_array() {
        required.extend(rest.iter().cloned());
    }
    root["required"] = Value::Array(required);
}

fn finish_schema(schema: &mut Value) {
    let Some(schema) = schema.as_object_mut() else {
        return;
    };
    schema.remove("nullable");
    schema.remove("title");
    if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&json!(true)) {
        schema.remove("additionalProperties");
    }
    finish_unsigned(schema);
    finish_selector(schema);
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(finish_schema);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get_mut(key) {
            finish_schema(inner);
        }
    }
}

/// OpenAPI knows no unsigned formats, and the API server warns about them.
fn finish_unsigned(schema: &mut Map<String, Value>) {
    let (format, maximum) = match schema.get("format").and_then(Value::as_str) {
        Some("uint16") => ("int32", Some(u16::MAX)),
        Some("uint32" | "uint64") => ("int64", None),
        _ => return,
    };
    schema.insert("format".to_owned(), json!(format));
    if let Some(maximum) = maximum {
        schema.entry("maximum").or_insert_with(|| json!(maximum));
    }
}

/// A label or annotation selector: one owner for all of it, and only the operators that there are.
fn finish_selector(schema: &mut Map<String, Value>) {
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else {
        return;
    };
    if !properties.contains_key("matchExpressions") {
        return;
    }
    let is_labels = properties.contains_key("matchLabels");
    if let Some(labels) = properties.get_mut("matchLabels") {
        labels["description"] = json!("Labels that must be there with these values.");
    }
    let mut expressions = json!({
        "description": "Further requirements. All of them must hold.",
        "type": "array",
        "items": requirement(),
    });
    if is_labels {
        expressions["x-kubernetes-list-type"] = json!("atomic");
    }
    properties.insert("matchExpressions".to_owned(), expressions);
    if is_labels {
        schema.insert("x-kubernetes-map-type".to_owned(), json!("atomic"));
    }
}

fn requirement() -> Value {
    json!({
        "description": "A requirement on one key.",
        "type": "object",
        "required": ["key", "operator"],
        "x-kubernetes-validations": [{
            "rule": "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
            "message": "In and NotIn need values, Exists and DoesNotExist take none",
        }],
        "properties": {
            "key": { "description": "The key.", "type": "string" },
            "operator": {
                "description": "How the key's value relates to `values`.",
                "type": "string",
                "enum": ["In", "NotIn", "Exists", "DoesNotExist"],
            },
            "values": {
                "description": "For In and NotIn: at least one. For the others: none.",
                "type": "array",
                "items": { "type": "string" },
                "x-kubernetes-list-type": "atomic",
            },
        },
    })
}

#[cfg(test)]
mod tests;
