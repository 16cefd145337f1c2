//! Tests of the index.

use std::cmp::Ordering;

use serde_json::json;

use super::{Error, Object, compare_versions};

fn parse(text: &str) -> Object {
    Object::parse(text.to_owned()).unwrap()
}

const WHOLE: &str = r#"{
    "kind": "Pod", "apiVersion": "v1",
    "metadata": {
        "name": "p-0", "namespace": "ns1", "uid": "U", "resourceVersion": "4711", "generation": 3,
        "deletionTimestamp": "2026-01-02T03:04:05Z",
        "labels": {"app": "web", "empty": ""},
        "annotations": {"text": "a \"quoted\" \u003cword\u003e", "odd": 5},
        "finalizers": ["x/y", "z/w"],
        "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}}],
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Other", "name": "o", "uid": "O"},
            {"apiVersion": "ex.io/v1", "kind": "Foo", "name": "p", "uid": "P", "controller": true, "blockOwnerDeletion": true}
        ]
    },
    "spec": {"a": [1, 2]}, "status": {"b": null}
}"#;

#[test]
fn an_index_holds_what_a_sync_asks_for() {
    let object = parse(WHOLE);

    assert_eq!((object.api_version(), object.kind()), ("v1", "Pod"));
    assert_eq!((object.namespace(), object.name()), (Some("ns1"), "p-0"));
    assert_eq!(
        (object.uid(), object.resource_version(), object.generation()),
        ("U", "4711", 3)
    );
    assert!(object.is_deleting());
    assert_eq!(
        object.labels().collect::<Vec<_>>(),
        [("app", "web"), ("empty", "")]
    );
    assert_eq!(
        (object.label("empty"), object.label("none")),
        (Some(""), None)
    );
    assert_eq!(
        object.annotation("text").as_deref(),
        Some("a \"quoted\" <word>")
    );
    assert_eq!(object.annotation("odd"), None, "it is no text");
    assert_eq!(object.finalizers().collect::<Vec<_>>(), ["x/y", "z/w"]);
    let owner = object.controller_owner().unwrap();
    assert_eq!(
        (owner.kind, owner.uid, owner.block_owner_deletion),
        ("Foo", "P", true)
    );
    assert_eq!(object.owner_references().count(), 2);
    assert_eq!(object.spec(), Some(&br#"{"a": [1, 2]}"#[..]));
    assert_eq!(object.status(), Some(&br#"{"b": null}"#[..]));
    assert_eq!(
        object.bytes(),
        WHOLE.as_bytes(),
        "the bytes stay as they came"
    );
    assert_eq!(object.to_string(), "Pod ns1/p-0");
}

#[test]
fn what_is_absent_or_null_reads_as_absent() {
    let minimal = parse(
        r#"{"apiVersion":"v1","kind":"K","status":null,"metadata":{"name":"n","uid":"u","resourceVersion":"1","labels":null,"annotations":null,"ownerReferences":null,"finalizers":null,"generation":null,"deletionTimestamp":null,"namespace":null}}"#,
    );

    assert_eq!((minimal.namespace(), minimal.generation()), (None, 0));
    assert!(!minimal.is_deleting());
    assert_eq!(
        (minimal.labels().count(), minimal.finalizers().count()),
        (0, 0)
    );
    assert_eq!((minimal.spec(), minimal.status()), (None, None));
    assert_eq!(minimal.to_string(), "K n");
}

#[test]
fn texts_with_escapes_are_decoded() {
    let object = parse(
        r#"{"apiVersion":"v1","kind":"K","metadata":{"name":"\u0061\"b","uid":"\u0075","resourceVersion":"1","labels":{"\u006b":"v\u0031"}}}"#,
    );

    assert_eq!(
        (object.name(), object.uid(), object.label("k")),
        ("a\"b", "u", Some("v1"))
    );
}

#[test]
fn what_no_api_server_sends_is_refused() {
    for (text, missing) in [
        (
            r#"{"kind":"K","metadata":{"name":"n","uid":"u","resourceVersion":"1"}}"#,
            "apiVersion",
        ),
        (
            r#"{"apiVersion":"v1","metadata":{"name":"n","uid":"u","resourceVersion":"1"}}"#,
            "kind",
        ),
        (r#"{"apiVersion":"v1","kind":"K"}"#, "metadata"),
        (
            r#"{"apiVersion":"v1","kind":"K","metadata":{"uid":"u","resourceVersion":"1"}}"#,
            "metadata.name",
        ),
        (
            r#"{"apiVersion":"v1","kind":"K","metadata":{"name":"n","resourceVersion":"1"}}"#,
            "metadata.uid",
        ),
        (
            r#"{"apiVersion":"v1","kind":"K","metadata":{"name":"n","uid":"u"}}"#,
            "metadata.resourceVersion",
        ),
    ] {
        let error = Object::parse(text).unwrap_err();
        assert!(
            matches!(error, Error::Missing(field) if field == missing),
            "{text}: {error:?}"
        );
    }
    for text in [
        "",
        "null",
        "[]",
        "{",
        "{} x",
        r#"{"metadata":[]}"#,
        r#"{"metadata":{"labels":[]}}"#,
    ] {
        Object::parse(text).expect_err(text);
    }
}

#[test]
fn a_value_for_merging_comes_without_managed_fields() {
    let value = parse(WHOLE).to_value().unwrap();

    assert_eq!(value["metadata"].get("managedFields"), None);
    assert_eq!(value["spec"], json!({"a": [1, 2]}));
    assert_eq!(value["metadata"]["finalizers"], json!(["x/y", "z/w"]));
}

#[test]
fn a_status_is_replaced_or_added_and_all_else_stays_as_it_is() {
    let with = |status: &str| {
        let text = format!(
            r#"{{"apiVersion":"v1","kind":"K","metadata":{{"name":"n","uid":"u","resourceVersion":"1"}}{status},"spec": [ ]}}"#
        );
        String::from_utf8(parse(&text).with_status(&json!({"a": 1})).to_vec()).unwrap()
    };
    let replaced = r#"{"apiVersion":"v1","kind":"K","metadata":{"name":"n","uid":"u","resourceVersion":"1"},"status":{"a":1},"spec": [ ]}"#;

    assert_eq!(with(r#","status":{"b":2}"#), replaced);
    assert_eq!(with(r#","status":null"#), replaced, "a null has a place");
    let added = r#"{"apiVersion":"v1","kind":"K","metadata":{"name":"n","uid":"u","resourceVersion":"1"},"spec": [ ],"status":{"a":1}}"#;
    assert_eq!(with(""), added);
}

#[test]
fn metadata_are_replaced_field_by_field_and_all_else_stays_as_it_is() {
    let fields = json!({"finalizers": ["x/y"]}).as_object().unwrap().clone();

    let text = parse(WHOLE).with_metadata(fields);

    let changed = Object::parse(text.clone()).unwrap();
    assert_eq!(changed.finalizers().collect::<Vec<_>>(), ["x/y"]);
    assert_eq!((changed.uid(), changed.resource_version()), ("U", "4711"));
    assert_eq!(changed.owner_references().count(), 2);
    let text = String::from_utf8(text.to_vec()).unwrap();
    assert!(
        text.contains(r#""spec": {"a": [1, 2]}, "status": {"b": null}"#),
        "{text}"
    );
    assert!(!text.contains("managedFields"), "{text}");
}

#[test]
fn versions_are_ordered_as_numbers_or_not_at_all() {
    assert_eq!(compare_versions("9", "10"), Some(Ordering::Less));
    assert_eq!(
        compare_versions("18446744073709551616", "2"),
        Some(Ordering::Greater)
    );
    assert_eq!(compare_versions("010", "10"), Some(Ordering::Equal));
    for odd in ["", "a", "-1", "1.0"] {
        assert_eq!(compare_versions(odd, "1"), None);
    }
}

#[test]
fn only_a_state_of_the_same_object_is_newer() {
    let of = |uid: &str, version: &str| {
        parse(&format!(
            r#"{{"apiVersion":"v1","kind":"K","metadata":{{"name":"n","uid":"{uid}","resourceVersion":"{version}"}}}}"#
        ))
    };

    assert!(of("u", "10").is_newer_than(&of("u", "9")));
    assert!(!of("u", "9").is_newer_than(&of("u", "9")));
    assert!(!of("other", "10").is_newer_than(&of("u", "9")));
}

#[test]
fn an_index_is_small_beside_its_bytes() {
    assert!(size_of::<Object>() <= 256, "{}", size_of::<Object>());
}
