//! Tests of compiling a controller.

use std::sync::Arc;

use bytes::Bytes;
use metashard_api::{names::reason, resource::Resource};
use serde_json::{Value, json};

use super::{Controller, Error, UpdateStrategy};
use crate::object::Object;

mod decorators;

fn lookup(api_version: &str, plural: &str) -> Option<Arc<Resource>> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = match plural {
        "foos" => "Foo",
        "plains" => "Plain",
        "configmaps" => "ConfigMap",
        "deployments" => "Deployment",
        _ => return None,
    };
    Some(Arc::new(Resource {
        group: group.to_owned(),
        version: version.to_owned(),
        plural: plural.to_owned(),
        kind: kind.to_owned(),
        namespaced: true,
        has_status: plural != "plains",
    }))
}

fn hook() -> Value {
    json!({"webhook": {"url": "http://hook/"}})
}

fn spec() -> Value {
    json!({
        "parentResource": {"apiVersion": "ex.io/v1", "resource": "foos"},
        "childResources": [
            {"apiVersion": "v1", "resource": "configmaps", "updateStrategy": {"method": "InPlace"}},
            {"apiVersion": "apps/v1", "resource": "deployments"},
        ],
        "hooks": {"sync": hook()},
    })
}

fn compile(spec: &Value) -> Result<Controller, Error> {
    let object = json!({
        "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "CompositeController",
        "metadata": {"name": "c", "uid": "C", "resourceVersion": "1", "generation": 7},
        "spec": spec,
    });
    let raw = Bytes::from(object.to_string());
    Controller::compile(&serde_json::from_value(object).unwrap(), &raw, &lookup)
}

/// The spec with one field set.
fn with(pointer: &str, value: Value) -> Value {
    let mut spec = spec();
    *pointer
        .split('/')
        .skip(1)
        .fold(&mut spec, |at, part| match part.parse::<usize>() {
            Ok(index) => &mut at[index],
            Err(_) => &mut at[part],
        }) = value;
    spec
}

fn object(metadata: &Value) -> Object {
    let mut object = json!({
        "apiVersion": "ex.io/v1", "kind": "Foo",
        "metadata": {"name": "p", "uid": "P", "resourceVersion": "1", "generation": 2},
    });
    for (key, value) in metadata.as_object().unwrap() {
        object["metadata"][key] = value.clone();
    }
    Object::parse(object.to_string()).unwrap()
}

#[test]
fn a_controller_is_compiled_with_its_defaults() {
    let controller = compile(&spec()).unwrap();

    assert_eq!(controller.name, "c");
    assert_eq!(
        controller.finalizer,
        "metacontroller.io/compositecontroller-c"
    );
    assert_eq!(controller.parents[0].resource.kind, "Foo");
    assert_eq!(controller.children[0].update, UpdateStrategy::InPlace);
    assert_eq!(controller.children[1].update, UpdateStrategy::OnDelete);
    assert!(controller.children[0].adopts);
    assert!(controller.parents[0].labels.is_everything() && controller.finalize.is_none());
    assert_eq!(controller.resync_period, None);
    assert!(controller.missing.is_empty() && controller.notes.is_empty());
}

#[test]
fn a_resync_period_below_a_second_is_a_second() {
    for (seconds, expected) in [(-5, 1), (0, 1), (1, 1), (90, 90)] {
        let period = compile(&with("/resyncPeriodSeconds", seconds.into()))
            .unwrap()
            .resync_period;
        assert_eq!(period.map(|it| it.as_secs()), Some(expected));
    }
}

/// A field of the spec, a value that is not served yet, and the field that the finding names.
fn not_served() -> Vec<(&'static str, Value, &'static str)> {
    vec![(
        "/serviceAccountRef",
        json!({"name": "s", "namespace": "n"}),
        "spec.serviceAccountRef",
    )]
}

#[test]
fn what_is_not_served_yet_is_refused_with_field_and_fix() {
    for (pointer, value, field) in not_served() {
        let error = compile(&with(pointer, value)).expect_err(field);

        let [finding] = error.findings() else {
            panic!("{field}: {error}")
        };
        assert_eq!(finding.field, field);
        assert!(
            finding.message.contains("not served yet") && !finding.fix.is_empty(),
            "{finding}"
        );
        assert_eq!(error.reason(), reason::NOT_SUPPORTED);
    }
}

#[test]
fn what_cannot_work_is_refused() {
    for (pointer, value, field) in [
        ("/hooks", json!(null), "spec.hooks"),
        ("/hooks", json!({}), "spec.hooks.sync"),
        ("/hooks/sync/webhook", json!({}), "spec.hooks.sync.webhook"),
        ("/hooks/finalize", json!({}), "spec.hooks.finalize.webhook"),
        (
            "/childResources/1",
            json!({"apiVersion": "v2", "resource": "configmaps"}),
            "spec.childResources[1]",
        ),
    ] {
        let error = compile(&with(pointer, value)).expect_err(field);

        assert_eq!(error.findings()[0].field, field, "{error}");
        assert_eq!(error.reason(), reason::INVALID_SPEC);
    }
}

#[test]
fn a_parent_resource_must_be_served_and_have_a_status() {
    let missing = compile(&with("/parentResource/resource", "nones".into())).unwrap_err();
    assert_eq!(missing.reason(), reason::RESOURCE_NOT_FOUND);
    assert!(
        missing
            .to_string()
            .contains("can't find resource nones in apiVersion ex.io/v1")
    );

    let plain = compile(&with("/parentResource/resource", "plains".into())).unwrap_err();
    assert_eq!(plain.reason(), reason::NO_STATUS_SUBRESOURCE);
    assert!(plain.findings()[0].fix.contains("subresources"), "{plain}");
}

/// D06: the other kinds reconcile, and the missing one is named.
#[test]
fn a_missing_kind_of_children_is_named_and_left_out() {
    let controller = compile(&with("/childResources/0/resource", "nones".into())).unwrap();

    assert_eq!(controller.children.len(), 1);
    assert_eq!(controller.missing[0].field, "spec.childResources[0]");
}

#[test]
fn of_a_kind_that_is_listed_twice_the_last_entry_counts() {
    let mut spec = spec();
    let again = json!({"apiVersion": "v1", "resource": "configmaps", "updateStrategy": {"method": "Recreate"}});
    spec["childResources"].as_array_mut().unwrap().push(again);

    let controller = compile(&spec).unwrap();

    assert_eq!(controller.children.len(), 2);
    assert_eq!(controller.children[1].update, UpdateStrategy::Recreate);
    assert!(!controller.notes.is_empty(), "and it is told");
}

#[test]
fn only_a_change_of_the_status_alone_is_ignored() {
    let ignoring = compile(&with("/parentResource/ignoreStatusChanges", true.into())).unwrap();
    let old = object(&json!({}));
    let same = object(&json!({"resourceVersion": "2"}));

    assert!(ignoring.ignores_update(&old, &same));
    assert!(!compile(&spec()).unwrap().ignores_update(&old, &same));
    for change in [
        json!({"generation": 3}),
        json!({"labels": {"a": "b"}}),
        json!({"annotations": {"a": "b"}}),
        json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        json!({"uid": "other"}),
        json!({"generation": 0}),
    ] {
        assert!(!ignoring.ignores_update(&old, &object(&change)), "{change}");
    }
}

#[test]
fn a_parent_concerns_a_controller_by_its_labels_or_its_finalizer() {
    let selector = json!({"matchLabels": {"on": "yes"}});
    let controller = compile(&with("/parentResource/labelSelector", selector)).unwrap();

    assert!(controller.concerns(&object(&json!({"labels": {"on": "yes"}}))));
    assert!(!controller.concerns(&object(&json!({"labels": {"on": "no"}}))));
    assert!(controller.concerns(&object(&json!({"finalizers": [controller.finalizer]}))));
}

#[test]
fn a_child_leads_to_its_parent_by_group_and_kind_in_any_version() {
    let controller = compile(&spec()).unwrap();
    let owned = |api_version: &str, kind: &str| {
        let owner = json!({"apiVersion": api_version, "kind": kind, "name": "p", "uid": "P", "controller": true});
        object(&json!({"ownerReferences": [owner]}))
    };

    assert_eq!(
        controller
            .parent_of(&owned("ex.io/v2", "Foo"))
            .map(|(rule, it)| (rule, it.uid)),
        Some((0, "P"))
    );
    assert_eq!(controller.parent_of(&owned("other.io/v1", "Foo")), None);
    assert_eq!(controller.parent_of(&owned("ex.io/v1", "Bar")), None);
    assert_eq!(controller.parent_of(&object(&json!({}))), None);
}
