//! Tests of comparing by value.

use serde_json::{Value, json};
use xxhash_rust::xxh3::Xxh3;

use super::{covers, describe, differences, disagreement, equal, hash};

fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn numbers_are_compared_by_value_also_where_a_float_cannot_tell() {
    for (left, right, expected) in [
        ("1", "1.0", true),
        ("0", "-0.0", true),
        ("5e-1", "0.5", true),
        ("9007199254740993", "9007199254740992.0", false),
        ("9007199254740992", "9007199254740992.0", true),
        ("9223372036854775808", "9223372036854775808.0", true),
        ("1", "2", false),
        ("1", "\"1\"", false),
    ] {
        assert_eq!(
            equal(&read(left), &read(right)),
            expected,
            "{left} and {right}"
        );
    }
}

#[test]
fn a_null_key_is_an_absent_one_and_a_null_item_is_an_item() {
    assert!(equal(
        &json!({"a": null, "b": {"c": null}}),
        &json!({"b": {}})
    ));
    assert!(!equal(&json!({"a": {}}), &json!({})));
    assert!(!equal(&json!([null]), &json!([])));
}

#[test]
fn values_that_are_equal_hash_alike_and_others_do_not() {
    let of = |text: &str| {
        let mut hasher = Xxh3::new();
        hash(&read(text), &mut hasher);
        hasher.digest()
    };

    assert_eq!(
        of(r#"{"a":1,"b":null,"c":[1.0]}"#),
        of(r#"{"c":[1],"a":1.0}"#)
    );
    assert_ne!(of(r#"["ab","c"]"#), of(r#"["a","bc"]"#));
    assert_ne!(of(r#"{"a":{"b":1}}"#), of(r#"{"a":{},"b":1}"#));
}

#[test]
fn differences_are_named_by_their_paths() {
    let left = json!({"metadata": {"labels": {"x.io/y": "1", "z": "1"}}, "list": [{"a": 1}, 2], "same": [1]});
    let right = json!({"metadata": {"labels": {"x.io/y": "2"}}, "list": [{"a": 2}, 2], "same": [1.0], "new": 1});

    let found = differences(&left, &right);

    let expected = r#"list[0].a, metadata.labels["x.io/y"], metadata.labels.z, new"#;
    assert_eq!(describe(&found), expected);
}

#[test]
fn many_differences_are_counted() {
    let right: Value = (0..8).map(|n| (format!("k{n}"), Value::from(n))).collect();

    assert_eq!(
        describe(&differences(&json!({}), &right)),
        "k0, k1, k2, k3, k4 and 3 more"
    );
}

#[test]
fn a_disagreement_is_about_what_the_first_value_has() {
    let of = |left: Value, right: Value| disagreement(&differences(&left, &right));

    assert_eq!(of(json!({"a": 1}), json!({"a": 1.0})), 0);
    assert_eq!(
        of(json!({"a": 1}), json!({"a": 2})),
        of(json!({"a": 1}), json!({"a": 3}))
    );
    assert_ne!(
        of(json!({"a": 1}), json!({"a": 3})),
        of(json!({"a": 2}), json!({"a": 3}))
    );
    assert_ne!(
        of(json!({"a": 1}), json!({"a": 3})),
        of(json!({"b": 1}), json!({"b": 3}))
    );
}

#[test]
fn what_a_server_adds_or_drops_is_covered_and_other_values_are_not() {
    for (observed, wanted, expected) in [
        (json!({"a": 1, "b": 2}), json!({"a": 1}), true),
        (
            json!({"l": [{"k": 1, "d": 0}, {"k": 2}]}),
            json!({"l": [{"k": 1}]}),
            true,
        ),
        (
            json!({}),
            json!({"e": {}, "l": [], "n": null, "d": {"e": {}}}),
            true,
        ),
        (json!({"l": [1, 2]}), json!({"l": [2, 1]}), false),
        (json!({"l": [1]}), json!({"l": [1, 1]}), false),
        (json!({"a": 2}), json!({"a": 1}), false),
        (json!({}), json!({"a": 1}), false),
        (json!({"a": "x"}), json!({"a": {}}), false),
        (json!({"a": 1}), json!({"a": null}), false),
    ] {
        assert_eq!(
            covers(Some(&observed), &wanted),
            expected,
            "{observed} and {wanted}"
        );
    }
}
