//! Whether the kind of the parents can do what a controller needs of it.

use serde_json::Value;

use super::{Found, error, warning};
use crate::resources::Resources;

/// What is wrong with the kind of a CompositeController's parents.
pub(super) fn problems(controller: &Value, resources: &Resources) -> Vec<Found> {
    let mut found = Vec::new();
    // The targets of a DecoratorController need nothing that a kind may lack.
    let parent = &controller["spec"]["parentResource"];
    let text = |field: &str| parent[field].as_str().unwrap_or_default();
    let (api_version, plural) = (text("apiVersion"), text("resource"));
    let field = "spec.parentResource";
    let Some(resource) = resources.lookup(api_version, plural) else {
        return found;
    };
    if !resource.has_status {
        found.push(error(
            field,
            format!("{plural} in {api_version} have no status subresource"),
            format!(
                "add `subresources: {{status: {{}}}}` to version {} of CustomResourceDefinition {plural}.{}",
                resource.version, resource.group
            ),
        ));
    }
    let Some(crd) = resources.crd(&resource.group, plural) else {
        return found;
    };
    let version = crd["spec"]["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|it| it["name"] == resource.version.as_str());
    let Some(schema) = version.map(|version| &version["schema"]["openAPIV3Schema"]) else {
        return found;
    };
    if !keeps(schema, &["status"]) {
        found.push(warning(
            field,
            format!("the schema of {plural} drops the whole status that the hook answers"),
            "add the status's fields to the schema, or `status: {type: object, x-kubernetes-preserve-unknown-fields: true}`",
        ));
    } else if !keeps(schema, &["status", "observedGeneration"]) {
        found.push(warning(
            field,
            format!("the schema of {plural} drops status.observedGeneration, which every sync writes"),
            "add `observedGeneration: {type: integer, format: int64}` to the properties of its status",
        ));
    }
    let generates = controller["spec"]["generateSelector"] == true;
    if !generates && !keeps(schema, &["spec", "selector", "matchLabels"]) {
        found.push(error(
            field,
            format!("the schema of {plural} drops spec.selector.matchLabels, by which children are found"),
            "add them to the schema, or set spec.generateSelector: true in the controller",
        ));
    }
    found
}

/// Whether a schema keeps a field of this path.
fn keeps(schema: &Value, path: &[&str]) -> bool {
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        return true;
    }
    let Some((field, rest)) = path.split_first() else {
        return true;
    };
    let inner = &schema["properties"][field];
    if inner.is_object() {
        // An object without properties of its own keeps none.
        return if rest.is_empty() {
            inner["type"] != "object"
                || inner["properties"].is_object()
                || !inner["additionalProperties"].is_null()
                || inner["x-kubernetes-preserve-unknown-fields"] == true
        } else {
            keeps(inner, rest)
        };
    }
    let others = &schema["additionalProperties"];
    others == true || others.is_object()
}
