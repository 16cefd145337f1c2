//! What holds of the merge for all trees.

use metashard_reconcile::{apply, diff};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::model;

fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        (-3..4i64).prop_map(Value::from),
        (-3..4i32).prop_map(|number| Value::from(f64::from(number))),
        Just(Value::from(-0.0)),
        prop_oneof![Just("a"), Just("TCP"), Just("UDP"), Just("1"), Just("")].prop_map(Value::from),
    ]
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("name"),
        Just("port"),
        Just("containerPort"),
        Just("protocol"),
        Just("uid"),
        Just("a"),
        Just("b"),
    ]
    .prop_map(str::to_owned)
}

fn tree() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::vec((key(), inner), 0..4)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

fn object() -> impl Strategy<Value = Value> {
    prop::collection::vec((key(), tree()), 0..5)
        .prop_map(|pairs| Value::Object(pairs.into_iter().collect::<Map<_, _>>()))
}

/// The value without the keys whose value is null.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => map
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| (key, without_nulls(value)))
            .collect(),
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        value => value,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn merge_equals_the_model(observed in tree(), last in tree(), desired in tree()) {
        let ours = apply::merge(&observed, Some(&last), &desired);

        let model = model::merge(&observed, &last, &desired);
        prop_assert!(model::same(&ours, &model), "ours {ours}, model {model}");
        let twice = apply::merge(&ours, Some(&desired), &desired);
        prop_assert!(diff::equal(&ours, &twice), "once {ours}, twice {twice}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn what_was_applied_is_not_applied_again(observed in object(), last in object(), desired in object()) {
        let once = apply::merge(&observed, Some(&last), &desired);

        let twice = apply::merge(&once, Some(&desired), &desired);
        prop_assert!(diff::equal(&once, &twice), "once {once}, twice {twice}");
    }

    #[test]
    fn a_merge_of_what_is_there_changes_nothing(observed in object()) {
        let merged = apply::merge(&observed, Some(&observed), &observed);

        prop_assert!(diff::equal(&observed, &merged), "{merged}");
    }

    #[test]
    fn equality_is_symmetric_and_agrees_with_the_differences(left in tree(), right in tree()) {
        let equal = diff::equal(&left, &right);

        prop_assert_eq!(equal, diff::equal(&right, &left));
        prop_assert_eq!(equal, model::same(&left, &right));
        prop_assert_eq!(equal, diff::differences(&left, &right).is_empty() || (left.is_null() != right.is_null() && equal));
    }

    #[test]
    fn an_update_settles_at_once(observed in object(), desired in object()) {
        let observed = json!({"apiVersion": "v1", "kind": "K", "metadata": {"uid": "u"}, "spec": observed});
        let desired = json!({"apiVersion": "v1", "kind": "K", "spec": desired});
        let first = apply::update(&observed, &desired).unwrap();

        let second = apply::update(&first.object, &desired).unwrap();

        prop_assert!(first.changed, "the record of what was applied is new");
        prop_assert!(!second.changed, "{} then {}", first.object, second.object);
        prop_assert!(second.same_wish);
    }

    #[test]
    fn no_null_is_written_that_is_not_there_already(observed in object(), desired in object()) {
        let desired = json!({"apiVersion": "v1", "kind": "K", "spec": desired});
        let observed = json!({"apiVersion": "v1", "kind": "K", "metadata": {"uid": "u"}, "spec": without_nulls(observed)});

        let created = apply::create(&desired).unwrap();
        let updated = apply::update(&observed, &desired).unwrap().object;

        for written in [created, updated] {
            prop_assert_eq!(&without_nulls(written.clone()), &written);
        }
    }

    #[test]
    fn whatever_is_observed_covers_itself(value in tree()) {
        prop_assert!(diff::covers(Some(&value), &value));
    }
}
