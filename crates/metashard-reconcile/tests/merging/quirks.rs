//! What Metacontroller's merge gets wrong, one test each: every one of them fails under its behaviour.

use metashard_reconcile::{apply, diff};
use serde_json::{Value, json};

/// The record that says that this object was applied last.
fn recorded(mut observed: Value, last: &Value) -> Value {
    let text = metashard_reconcile::lastapplied::encode(last);
    observed["metadata"]["annotations"]["metacontroller.k8s.io/last-applied-configuration"] =
        text.into();
    observed
}

fn object(spec: Value) -> Value {
    let mut object = json!({"apiVersion": "v1", "kind": "K", "metadata": {"annotations": {}}});
    object["spec"] = spec;
    object
}

#[test]
fn two_ports_of_one_number_stay_two_ports() {
    let udp = json!({"name": "u", "port": 53, "protocol": "UDP"});
    let tcp = json!({"name": "t", "port": 53, "protocol": "TCP"});
    let (before, after) = (json!({"ports": [udp]}), json!({"ports": [udp, tcp]}));

    let merged = apply::merge(&before, Some(&before), &after);

    assert_eq!(merged, after);
}

#[test]
fn a_field_of_another_type_becomes_what_is_desired() {
    for (observed, desired) in [
        (json!({"a": {"b": 1}}), json!({"a": "text"})),
        (json!({"a": [1, 2]}), json!({"a": {"b": 1}})),
        (json!({"a": "text"}), json!({"a": [1]})),
    ] {
        assert_eq!(apply::merge(&observed, None, &desired), desired);
    }
}

#[test]
fn a_null_and_a_float_that_is_an_integer_need_no_write() {
    let desired = object(json!({"gone": null, "count": 3.0, "deep": {"gone": null, "x": 1}}));
    let stored = object(json!({"count": 3, "deep": {"x": 1}}));

    let updated = apply::update(&recorded(stored, &desired), &desired).unwrap();

    assert!(!updated.changed, "{:#}", updated.object);
}

#[test]
fn one_annotation_that_is_no_text_hides_no_other() {
    let desired = json!({"apiVersion": "v1", "kind": "K", "metadata": {"annotations": {"ours": "1", "odd": 5}}});
    let mut observed = object(json!({}));
    observed["metadata"]["annotations"] = json!({"theirs": "t", "ours": "0"});

    let updated = apply::update(&observed, &desired).unwrap();

    let annotations = &updated.object["metadata"]["annotations"];
    assert_eq!(annotations["theirs"], "t", "somebody else's stays");
    assert_eq!(annotations["ours"], "1");
}

#[test]
fn an_annotation_that_is_null_is_absent_and_no_empty_text() {
    let desired =
        json!({"apiVersion": "v1", "kind": "K", "metadata": {"annotations": {"note": null}}});

    let created = apply::create(&desired).unwrap();
    let updated = apply::update(&object(json!({})), &desired).unwrap();

    for written in [created, updated.object] {
        assert_eq!(written["metadata"]["annotations"].get("note"), None);
    }
    assert!(diff::equal(&json!({"note": null}), &json!({})));
}
