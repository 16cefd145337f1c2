//! Objects as people and Metacontroller write them.

use serde_json::{Value, json};

use super::{
    composite::{ChildResource, CompositeController},
    decorator::DecoratorController,
    revision::ControllerRevision,
    *,
};

/// A controller with every field.
const FULL: &str = include_str!("../../tests/cases/composite_controller_full.json");

#[test]
fn every_field_of_a_composite_controller_is_read_and_written_back() {
    let text: Value = serde_json::from_str(FULL).unwrap();

    let controller: CompositeController = serde_json::from_value(text.clone()).unwrap();

    assert_eq!(serde_json::to_value(&controller).unwrap(), text);
    assert!(controller.status.unwrap().condition("Ready").is_some());
}

#[test]
fn every_field_of_a_decorator_controller_is_read_and_written_back() {
    let text = json!({
        "apiVersion": "metacontroller.k8s.io/v1alpha1",
        "kind": "DecoratorController",
        "metadata": { "name": "full" },
        "spec": {
            "resources": [{
                "apiVersion": "v1", "resource": "services", "ignoreStatusChanges": true,
                "labelSelector": { "matchLabels": { "a": "b" } },
                "annotationSelector": {
                    "matchAnnotations": { "c": "d" },
                    "matchExpressions": [{ "key": "e", "operator": "Exists" }],
                },
            }],
            "attachments": [{
                "apiVersion": "v1", "resource": "configmaps",
                "updateStrategy": { "method": "InPlace" },
                "adoption": "Force", "deletionPolicy": "Delete",
            }],
            "hooks": { "sync": { "version": "v1", "webhook": { "url": "http://h/" } }, "finalize": {}, "customize": {} },
            "resyncPeriodSeconds": 5,
            "sharding": {},
        },
    });

    let controller: DecoratorController = serde_json::from_value(text.clone()).unwrap();

    assert_eq!(serde_json::to_value(&controller).unwrap(), text);
}

#[test]
fn every_field_of_a_controller_revision_is_read_and_written_back() {
    let text = json!({
        "apiVersion": "metacontroller.k8s.io/v1alpha1",
        "kind": "ControllerRevision",
        "metadata": { "name": "foos.ex.io-0", "namespace": "ns" },
        "parentPatch": { "spec": { "template": { "n": 1.5, "list": [null, { "a": true }] } } },
        "children": [{ "apiGroup": "", "kind": "Pod", "names": ["a", "b"] }],
    });

    let revision: ControllerRevision = serde_json::from_value(text.clone()).unwrap();

    assert_eq!(serde_json::to_value(&revision).unwrap(), text);
}

#[test]
fn what_metacontroller_stored_is_read_with_unknown_words_and_empty_status() {
    let text = json!({
        "apiVersion": "metacontroller.k8s.io/v1alpha1",
        "kind": "CompositeController",
        "metadata": { "name": "old", "annotations": { "x": "y" } },
        "spec": {
            "parentResource": { "apiVersion": "ex.io/v1", "resource": "foos", "later": 1 },
            "childResources": [
                { "apiVersion": "v1", "resource": "pods", "updateStrategy": { "method": "" } },
                { "apiVersion": "v1", "resource": "secrets", "updateStrategy": { "method": "Sometimes" } },
                { "apiVersion": "v1", "resource": "services", "updateStrategy": {} },
            ],
            "hooks": { "sync": { "version": "v9", "webhook": { "url": "http://h/" } } },
            "unknown": {},
        },
        "status": {},
    });

    let controller: CompositeController = serde_json::from_value(text).unwrap();

    let methods: Vec<_> = controller
        .spec
        .child_resources
        .iter()
        .map(ChildResource::update_method)
        .collect();
    assert_eq!(
        methods,
        [
            UpdateMethod::OnDelete,
            UpdateMethod::Unknown,
            UpdateMethod::OnDelete
        ]
    );
    assert_eq!(controller.status, Some(status::ControllerStatus::default()));
}
