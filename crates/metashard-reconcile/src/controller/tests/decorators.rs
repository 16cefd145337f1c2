//! Which objects a DecoratorController decorates.

use std::sync::Arc;

use bytes::Bytes;
use metashard_api::{names::reason, resource::Resource};
use serde_json::{Value, json};

use super::super::{Controller, Error};
use crate::object::Object;

const VECTORS: &str = include_str!("../../../../../tests/vectors/selectors.jsonl");

/// Cases that Metacontroller decides otherwise, with what we say.
const OURS: [(&str, Option<bool>); 10] = [
    // Annotations may hold any text, and so may selectors over them: Metacontroller takes them for labels.
    ("s144", Some(true)),
    ("s145", Some(true)),
    ("s146", Some(true)),
    ("s147", Some(true)),
    ("s148", Some(true)),
    ("s150", Some(true)),
    ("s151", Some(true)),
    // A label that is no text comes from no API server: there is no such object.
    ("s166", None),
    ("s167", None),
    // Nor is null; it reads as the empty text.
    ("s168", Some(true)),
];

/// What discovery knew when the vectors were recorded.
fn lookup(api_version: &str, plural: &str) -> Option<Arc<Resource>> {
    let kind = match (api_version, plural) {
        ("v1", "pods") => "Pod",
        ("v1", "services") => "Service",
        ("apps/v1", "deployments") => "Deployment",
        ("ex.io/v1" | "ex.io/v2", "foos") => "Foo",
        _ => return None,
    };
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    Some(Arc::new(Resource {
        group: group.to_owned(),
        version: version.to_owned(),
        plural: plural.to_owned(),
        kind: kind.to_owned(),
        namespaced: true,
        has_status: true,
    }))
}

fn compile(resources: &Value) -> Result<Controller, Error> {
    let object = json!({
        "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "DecoratorController",
        "metadata": {"name": "d", "uid": "D", "resourceVersion": "1", "generation": 7},
        "spec": {
            "resources": resources,
            "hooks": {"sync": {"webhook": {"url": "http://hook/"}}},
        },
    });
    let raw = Bytes::from(object.to_string());
    Controller::compile_decorator(&serde_json::from_value(object).unwrap(), &raw, &lookup)
}

fn parse(object: &Value) -> Option<Object> {
    let mut object = object.clone();
    object["metadata"]["uid"] = "U".into();
    object["metadata"]["resourceVersion"] = "1".into();
    Object::parse(object.to_string()).ok()
}

fn pods() -> Value {
    json!({"apiVersion": "v1", "resource": "pods"})
}

#[test]
fn every_recorded_selector_of_decorators_matches_the_same() {
    let (mut same, mut ours) = (0, 0);
    let cases = VECTORS.lines().map(|it| serde_json::from_str(it).unwrap());
    for case in cases.filter(|it: &Value| it["via"] == "dc") {
        let matches = match (compile(&case["resources"]), parse(&case["object"])) {
            (Ok(controller), Some(object)) => Some(controller.selects(&object)),
            _ => None,
        };
        if let Some((_, expected)) = OURS.iter().find(|(id, _)| case["id"] == *id) {
            assert_eq!(matches, *expected, "{case}");
            ours += 1;
        } else {
            assert_eq!(json!(matches), case["matches"], "{case}");
            same += 1;
        }
    }

    println!("selectors.jsonl: {same} of decorators the same, {ours} as we decided");
    assert_eq!((same, ours), (33, 10));
}

#[test]
fn a_decorator_is_compiled_with_a_rule_for_each_kind() {
    let ignoring = json!({
        "apiVersion": "apps/v1", "resource": "deployments", "ignoreStatusChanges": true,
    });

    let controller = compile(&json!([pods(), ignoring])).unwrap();

    assert_eq!(
        controller.finalizer,
        "metacontroller.io/decoratorcontroller-d"
    );
    let kinds: Vec<_> = controller
        .parents
        .iter()
        .map(|it| (it.resource.kind.as_str(), it.ignore_status_changes))
        .collect();
    assert_eq!(kinds, [("Pod", false), ("Deployment", true)]);
    assert!(controller.notes.is_empty() && controller.missing.is_empty());
}

#[test]
fn of_two_versions_of_a_kind_the_later_entry_counts_and_it_is_told() {
    let foos = |version: &str| json!({"apiVersion": version, "resource": "foos"});

    let controller = compile(&json!([foos("ex.io/v1"), pods(), foos("ex.io/v2")])).unwrap();

    let versions: Vec<_> = controller
        .parents
        .iter()
        .map(|it| it.resource.api_version())
        .collect();
    assert_eq!(versions, ["v1", "ex.io/v2"]);
    assert_eq!(controller.notes[0].field, "spec.resources[2]");
}

/// D03, D06 for targets.
#[test]
fn a_kind_of_targets_that_is_not_served_is_named_and_the_others_are_decorated() {
    let missing = json!({"apiVersion": "ex.io/v1", "resource": "nones"});

    let controller = compile(&json!([missing, pods()])).unwrap();

    assert_eq!(controller.parents.len(), 1);
    assert_eq!(controller.missing[0].field, "spec.resources[0]");
    let error = compile(&json!([missing])).unwrap_err();
    assert_eq!(error.reason(), reason::RESOURCE_NOT_FOUND);
    assert!(
        error
            .to_string()
            .contains("can't find resource nones in apiVersion ex.io/v1")
    );
}

#[test]
fn each_kind_has_its_own_rule_for_status_changes() {
    let ignoring = json!({
        "apiVersion": "apps/v1", "resource": "deployments", "ignoreStatusChanges": true,
    });
    let controller = compile(&json!([pods(), ignoring])).unwrap();
    let of = |api_version: &str, kind: &str| {
        parse(&json!({
            "apiVersion": api_version, "kind": kind, "metadata": {"name": "o", "generation": 1},
        }))
        .unwrap()
    };
    let (pod, deployment) = (of("v1", "Pod"), of("apps/v1", "Deployment"));

    assert!(!controller.ignores_update(&pod, &pod));
    assert!(controller.ignores_update(&deployment, &deployment));
}

#[test]
fn an_attachment_leads_to_its_target_by_owner_and_mark() {
    let deployments = json!({"apiVersion": "apps/v1", "resource": "deployments"});
    let controller = compile(&json!([pods(), deployments])).unwrap();
    let owned = |mark: &str| {
        let owner = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "name": "p", "uid": "P", "controller": true,
        });
        parse(&json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {
                "name": "s",
                "annotations": {"metacontroller.k8s.io/decorator-controller": mark},
                "ownerReferences": [owner],
            },
        }))
        .unwrap()
    };

    let (mine, other) = (owned("d"), owned("e"));

    let found = controller.parent_of(&mine).map(|(rule, it)| (rule, it.uid));
    assert_eq!(found, Some((1, "P")));
    assert_eq!(controller.parent_of(&other), None);
}
