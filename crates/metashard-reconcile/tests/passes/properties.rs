//! What holds of passes for all answers.

use bytes::Bytes;
use metashard_reconcile::{
    memory::Memory,
    object::Object,
    sync::{HookResult, Verdict},
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::world::{Bench, config, spec};

fn tree() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        (-3..4i64).prop_map(Value::from),
        any::<f64>()
            .prop_filter("finite", |it| it.is_finite())
            .prop_map(Value::from),
        "[a-z<&\u{e9}]{0,3}".prop_map(Value::from),
    ];
    let key = prop_oneof![
        Just("name"),
        Just("namespace"),
        Just("kind"),
        Just("apiVersion"),
        Just("metadata"),
        Just("port"),
        Just("labels"),
        Just("annotations"),
        Just("ownerReferences"),
        Just("children"),
        Just("a"),
        Just("status"),
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::vec((key.clone(), inner), 0..5).prop_map(|pairs| {
                Value::Object(
                    pairs
                        .into_iter()
                        .map(|(key, value)| (key.to_owned(), value))
                        .collect(),
                )
            }),
        ]
    })
}

/// A ConfigMap with random fields beside its name.
fn child() -> impl Strategy<Value = Value> {
    ("[ab]", tree(), tree(), tree()).prop_map(|(name, data, spec, owners)| {
        let mut child = config(&name, "1");
        child["data"] = data;
        child["spec"] = spec;
        if owners
            .as_array()
            .is_some_and(|all| all.iter().all(Value::is_object))
        {
            child["metadata"]["ownerReferences"] = owners;
        }
        child
    })
}

/// What an API server would take as owners; others it refuses.
fn has_real_owners(child: &Value) -> bool {
    child["metadata"]["ownerReferences"]
        .as_array()
        .is_none_or(Vec::is_empty)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_answer_makes_a_pass_panic_or_go_on_for_ever(answer in tree(), wrong in tree(), first in child()) {
        for body in [answer, json!({"children": [first, wrong]}), json!({"children": wrong})] {
            let mut bench = Bench::new(&spec());
            bench.answer = HookResult::Answer(Bytes::from(body.to_string()));
            bench.pass();
        }
    }

    #[test]
    fn what_was_written_is_not_written_again(first in child(), second in child()) {
        prop_assume!(has_real_owners(&first) && has_real_owners(&second));
        let mut bench = Bench::wanting(&spec(), &[first]);
        bench.pass();
        bench.want(&[second]);
        bench.pass();

        let remembered = bench.pass();
        prop_assert!(bench.writes.is_empty(), "{:?}", bench.writes);
        prop_assert_eq!(remembered.verdict, Verdict::Unchanged);
        bench.memory = Memory::default();
        let anew = bench.pass();
        prop_assert!(bench.writes.is_empty(), "{:?}", bench.writes);
        prop_assert_eq!(anew.verdict, Verdict::Unchanged);
    }

    #[test]
    fn an_index_agrees_with_the_whole_object(metadata in tree(), rest in tree()) {
        let mut object = json!({"apiVersion": "v1", "kind": "K", "status": rest, "spec": rest});
        let mut fields = metadata.as_object().cloned().unwrap_or_default();
        fields.retain(|key, _| !["labels", "annotations", "ownerReferences"].contains(&key.as_str()));
        fields.insert("name".to_owned(), "n\u{22}<\\".into());
        fields.insert("namespace".to_owned(), "ns".into());
        fields.insert("uid".to_owned(), "u".into());
        fields.insert("resourceVersion".to_owned(), "12".into());
        fields.insert("labels".to_owned(), json!({"a": "b", "c": ""}));
        object["metadata"] = Value::Object(fields);

        let parsed = Object::parse(object.to_string()).unwrap();

        prop_assert_eq!(parsed.name(), "n\u{22}<\\");
        prop_assert_eq!(parsed.label("a"), Some("b"));
        let raw = |raw: Option<&[u8]>| raw.map_or(Value::Null, |raw| serde_json::from_slice(raw).unwrap());
        prop_assert_eq!(raw(parsed.status()), object["status"].clone());
        prop_assert_eq!(raw(parsed.spec()), object["spec"].clone());
    }

    #[test]
    fn arbitrary_bytes_are_parsed_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), value in tree()) {
        drop(Object::parse(bytes));
        drop(Object::parse(value.to_string()));
        let wrapped = json!({"apiVersion": "v1", "kind": "K", "metadata": value, "x": Map::new()});
        drop(Object::parse(wrapped.to_string()));
    }
}
