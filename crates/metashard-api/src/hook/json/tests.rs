//! The reader against serde_json's writer, and its limits.

use proptest::prelude::*;
use serde_json::json;

use super::*;

const FIELDS: Fields = Fields {
    known: &["a", "b", "whole"],
    opaque: &["whole"],
};

fn object(text: &str) -> Result<Document, Error> {
    match read(text.as_bytes(), FIELDS)? {
        Outermost::Object(document) => Ok(document),
        Outermost::Other(what) => panic!("{what}"),
    }
}

#[test]
fn repeated_fields_are_named_by_their_paths_and_not_inside_whole_objects() {
    let text =
        r#"{"a":[[{"x":{"k":1,"k":2}}]],"whole":[{"k":1,"k":2}],"other":{"k":1,"k":2},"a":1}"#;

    assert_eq!(object(text).unwrap().repeated, ["a[0][0].x.k", "a"]);
}

#[test]
fn only_so_many_repeated_fields_are_named() {
    let text = format!("{{{}\"a\":1}}", "\"a\":1,".repeat(1000));

    assert_eq!(object(&text).unwrap().repeated.len(), MAX_REPEATED);
}

#[test]
fn depth_values_and_texts_have_limits() {
    let nested = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
    let values = |count: usize| format!("{{\"a\":[{}1]}}", "1,".repeat(count - 1));
    let text = |length: usize| format!("{{\"a\":\"{}\"}}", "x".repeat(length));

    assert!(object(&nested(MAX_DEPTH - 1)).is_ok());
    assert_eq!(object(&nested(MAX_DEPTH)).unwrap_err(), Error::TooDeep);
    assert!(object(&values(MAX_VALUES - 1)).is_ok());
    assert_eq!(
        object(&values(MAX_VALUES)).unwrap_err(),
        Error::TooManyValues
    );
    assert!(object(&text(MAX_TEXT)).is_ok());
    assert_eq!(
        object(&text(MAX_TEXT + 1)).unwrap_err(),
        Error::TextTooLong { offset: 6 }
    );
}

#[test]
fn half_a_surrogate_pair_is_replaced_and_the_rest_is_kept() {
    let a =
        |escaped: &str| object(&format!("{{\"a\":\"{escaped}\"}}")).unwrap().fields["a"].clone();

    assert_eq!(a(r"\ud83d\ude00"), json!("\u{1f600}"));
    assert_eq!(a(r"\ud83dx"), json!("\u{fffd}x"));
    assert_eq!(a(r"\ud83d\u0041"), json!("\u{fffd}A"));
    assert_eq!(a(r"\ud83d\ud83d\ude00"), json!("\u{fffd}\u{1f600}"));
    assert_eq!(a(r"\ude00"), json!("\u{fffd}"));
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..6)
                .prop_map(|fields| fields.into_iter().collect()),
        ]
    })
}

proptest! {
    #[test]
    fn what_serde_json_writes_is_read_back_the_same(value in value()) {
        let text = json!({ "a": value }).to_string();

        let document = object(&text).unwrap();

        prop_assert_eq!(&document.fields["a"], &value);
        prop_assert!(document.repeated.is_empty());
    }
}
