//! The shape of the CRDs where it matters that it is Metacontroller's.

use std::collections::BTreeMap;

use serde_json::Value;

use super::*;

fn schema(crd: &CustomResourceDefinition) -> Value {
    serde_json::to_value(&crd.spec.versions[0].schema).unwrap()["openAPIV3Schema"].clone()
}

/// Every field of a schema by its path, with its type, and `!` where it is required.
fn fields(schema: &Value, path: &str, found: &mut BTreeMap<String, String>) {
    let required = |name: &str| {
        schema["required"]
            .as_array()
            .is_some_and(|names| names.iter().any(|it| it == name))
    };
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        let mark = if required(name) { "!" } else { "" };
        let format = field["format"]
            .as_str()
            .map(|it| format!("/{it}"))
            .unwrap_or_default();
        let words = field["enum"]
            .as_array()
            .map(|words| Value::from(words.clone()).to_string());
        let default = field
            .get("default")
            .map(|it| format!("={it}"))
            .unwrap_or_default();
        let type_ = field["type"].as_str().unwrap();
        let words = words.unwrap_or_default();
        found.insert(
            path.clone(),
            format!("{type_}{format}{words}{default}{mark}"),
        );
        fields(field, &path, found);
        fields(&field["items"], &format!("{path}[]"), found);
    }
}

#[test]
fn fields_of_composite_controllers_have_metacontrollers_names_types_and_defaults() {
    let mut found = BTreeMap::new();
    fields(&schema(&composite_controllers()), "", &mut found);
    found.retain(|path, _| {
        !path.contains("finalize.")
            && !path.contains("customize.")
            && !path.contains("UpdateChild.")
    });

    let lines: Vec<_> = found
        .iter()
        .map(|(path, type_)| format!("{path}: {type_}"))
        .collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn fields_of_decorator_controllers_have_metacontrollers_names_types_and_defaults() {
    let mut found = BTreeMap::new();
    fields(&schema(&decorator_controllers()), "", &mut found);
    found.retain(|path, _| {
        !path.starts_with(".spec.hooks.") && !path.starts_with(".spec.endpointConfigs[]")
    });

    let lines: Vec<_> = found
        .iter()
        .map(|(path, type_)| format!("{path}: {type_}"))
        .collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn names_scopes_and_status_are_metacontrollers() {
    let described = [
        composite_controllers(),
        decorator_controllers(),
        controller_revisions(),
    ]
    .map(|crd| {
        let names = &crd.spec.names;
        let version = &crd.spec.versions[0];
        assert!(
            version
                .subresources
                .as_ref()
                .is_some_and(|it| it.status.is_some()),
            "{crd:?}"
        );
        assert!(
            crd.metadata
                .annotations
                .as_ref()
                .is_some_and(|it| it.contains_key(names::ANNOTATION_API_APPROVED))
        );
        format!(
            "{} {} {:?} {:?} {:?} {} {}",
            names.kind,
            names.plural,
            names.singular,
            names.list_kind,
            names.short_names,
            crd.spec.scope,
            version.name,
        )
    });

    assert_eq!(
        described,
        [
            r#"CompositeController compositecontrollers Some("compositecontroller") Some("CompositeControllerList") Some(["cc", "cctl"]) Cluster v1alpha1"#,
            r#"DecoratorController decoratorcontrollers Some("decoratorcontroller") Some("DecoratorControllerList") Some(["dec", "decorators"]) Cluster v1alpha1"#,
            r#"ControllerRevision controllerrevisions Some("controllerrevision") Some("ControllerRevisionList") None Namespaced v1alpha1"#,
        ]
    );
}

#[test]
fn no_schema_has_what_the_api_server_warns_of() {
    for crd in all() {
        let text = schema(&crd).to_string();
        for word in ["nullable", "\"uint", "title"] {
            assert!(!text.contains(word), "{word} in {}", crd.spec.names.plural);
        }
    }
}
