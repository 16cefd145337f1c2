//! Which attachments are a decorator's own, and what becomes of them when their target goes.

use metashard_reconcile::{
    requeue::Requeue,
    sync::{HookKind, Verdict},
    write::{Op, Purpose, WriteError},
};
use serde_json::{Value, json};

use super::{MARK, OURS, answering, attached, bench, finalizers, finalizing, labels};
use crate::world::{Bench, CONFIG, FOO, answer, config, told};

/// 3.9, 7.3.
#[test]
fn an_attachment_has_its_decorators_mark_and_its_targets_reference() {
    let mut bench = answering(&json!({"attachments": [config("a", "1")]}));

    bench.pass();

    assert_eq!(bench.purposes(), [Purpose::CreateChild]);
    let metadata = &bench.child("a")["metadata"];
    assert_eq!(metadata["annotations"][MARK], "d");
    assert_eq!(
        metadata["ownerReferences"],
        attached("a", "d")["metadata"]["ownerReferences"]
    );
    let applied = metadata["annotations"]["metacontroller.k8s.io/last-applied-configuration"]
        .as_str()
        .unwrap();
    let applied: Value = serde_json::from_str(applied).unwrap();
    assert_eq!(applied["metadata"]["annotations"], json!({ MARK: "d" }));
    assert_eq!(applied["metadata"]["ownerReferences"], Value::Null);
    bench.pass();
    assert_eq!(bench.writes, []);
}

#[test]
fn an_attachment_is_updated_and_deleted_as_the_hook_wants() {
    let mut bench = answering(&json!({"attachments": [config("a", "1"), config("b", "1")]}));
    bench.pass();
    bench.answer = answer(&json!({"attachments": [config("a", "2")]}));

    bench.pass();

    assert_eq!(
        bench.purposes(),
        [Purpose::DeleteChild, Purpose::UpdateChild]
    );
    assert_eq!(bench.child("a")["data"]["a"], "2");
    assert!(bench.world.get(CONFIG, "ns1", "b").is_none());
}

/// Two decorators on one target: neither sees, writes or deletes what the other attached.
#[test]
fn attachments_of_another_decorator_are_not_touched() {
    let mut bench = answering(&json!({"attachments": [config("mine", "1")]}));
    bench.world.put(attached("other", "other"));
    let mut unmarked = attached("unmarked", "other");
    unmarked["metadata"]["annotations"] = json!({});
    bench.world.put(unmarked);
    bench.pass();

    bench.pass();

    let seen = &bench.calls[0].1["attachments"]["ConfigMap.v1"];
    assert_eq!(
        seen.as_object().unwrap().keys().collect::<Vec<_>>(),
        ["mine"]
    );
    assert_eq!(bench.writes, []);
}

#[test]
fn a_name_that_another_decorator_has_taken_is_told_of_and_left_alone() {
    let mut bench =
        answering(&json!({"attachments": [config("other", "2")], "labels": {"a": "b"}}));
    bench.world.put(attached("other", "other"));

    let outcome = bench.pass();

    let text = "ChildConflict: create ConfigMap ns1/other: an object of this name exists, and it is no attachment of this controller";
    assert!(told(&outcome)[0].starts_with(text), "{outcome:?}");
    assert_eq!(outcome.requeue, Requeue::Backoff);
    assert_eq!(bench.child("other")["data"]["a"], "1");
    assert_eq!(
        labels(&bench)["a"],
        "b",
        "the target is decorated all the same"
    );
}

#[test]
fn an_ownerless_object_is_never_adopted() {
    let mut bench = answering(&json!({"attachments": [config("a", "2")]}));
    let mut ownerless = attached("a", "d");
    ownerless["metadata"]["ownerReferences"] = json!([]);
    bench.world.put(ownerless);

    let outcome = bench.pass();

    assert_eq!(bench.writes, []);
    assert!(told(&outcome)[0].contains("it is no attachment of this controller"));
    assert_eq!(bench.reads, 0);
}

/// A bench that has attached `a` and holds its target by its finalizer.
fn held() -> Bench {
    let mut bench = bench(&finalizing());
    bench.answer = answer(&json!({"attachments": [config("a", "1")]}));
    bench.pass();
    bench.world.edit(FOO, "p", |it| {
        it["metadata"]["finalizers"]
            .as_array_mut()
            .unwrap()
            .push("x/y".into());
    });
    bench
}

/// F04.
#[test]
fn a_decorator_that_only_finalizes_calls_nothing_until_the_end() {
    let mut spec = finalizing();
    spec["hooks"].as_object_mut().unwrap().remove("sync");
    let mut bench = bench(&spec);

    let outcome = bench.pass();

    assert_eq!(bench.purposes(), [Purpose::AddFinalizer]);
    assert!(bench.calls.is_empty() && outcome.events.is_empty());
    bench.world.delete(FOO, "p");
    bench.answer = answer(&json!({"attachments": [], "finalized": true}));
    bench.pass();
    assert_eq!(bench.calls[0].0, HookKind::Finalize);
    assert!(bench.world.get(FOO, "ns1", "p").is_none());
}

/// 3.10: attachments are managed in the pass that removes the finalizer, and the target is written once.
#[test]
fn a_target_that_is_no_longer_selected_is_finalized_and_loses_its_attachments() {
    let mut bench = held();
    bench
        .world
        .edit(FOO, "p", |it| it["metadata"]["labels"]["on"] = "no".into());
    bench.answer =
        answer(&json!({"labels": {"theirs": null}, "attachments": [], "finalized": true}));

    bench.pass();

    assert_eq!(bench.calls[0].0, HookKind::Finalize);
    assert_eq!(bench.calls[0].1["finalizing"], true);
    assert_eq!(bench.purposes(), [Purpose::DeleteChild, Purpose::Decorate]);
    assert_eq!(*finalizers(&bench), json!(["x/y"]));
    assert_eq!(*labels(&bench), json!({"on": "no"}));
    assert_eq!(bench.pass().verdict, Verdict::Unselected);
}

#[test]
fn a_deleted_target_is_finalized_until_the_hook_says_so() {
    let mut bench = held();
    bench.world.delete(FOO, "p");
    bench.answer = answer(&json!({"attachments": [config("b", "1")], "finalized": false}));
    bench.pass();
    assert_eq!(
        bench.purposes(),
        [Purpose::DeleteChild, Purpose::CreateChild]
    );

    bench.answer = answer(&json!({"attachments": [], "finalized": true}));
    bench.pass();

    assert_eq!(bench.purposes(), [Purpose::DeleteChild, Purpose::Decorate]);
    assert_eq!(*finalizers(&bench), json!(["x/y"]));
}

#[test]
fn the_finalizer_stays_while_an_attachment_cannot_be_deleted() {
    let mut bench = held();
    bench
        .world
        .edit(FOO, "p", |it| it["metadata"]["labels"]["on"] = "no".into());
    bench.answer = answer(&json!({"attachments": [], "finalized": true}));
    for (error, requeue) in [
        (WriteError::Forbidden("no".to_owned()), Requeue::Backoff),
        (WriteError::Conflict, Requeue::Soon),
    ] {
        bench.world.errors = vec![(Purpose::DeleteChild, "a", error)];

        let outcome = bench.pass();

        assert_eq!(outcome.requeue, requeue);
        assert_eq!(*finalizers(&bench), json!([OURS, "x/y"]));
    }
    bench.pass();
    assert_eq!(*finalizers(&bench), json!(["x/y"]));
    assert!(bench.world.get(CONFIG, "ns1", "a").is_none());
}

#[test]
fn an_answer_without_attachments_is_asked_for_twice_before_it_deletes() {
    let mut bench = answering(&json!({"attachments": [config("a", "1")]}));
    bench.pass();
    bench.answer = answer(&json!({"labels": {}}));

    let outcome = bench.pass();

    assert!(matches!(outcome.verdict, Verdict::Held(_)));
    assert!(told(&outcome)[0].contains("the hook's answer has no field attachments"));
    bench.pass();
    assert_eq!(bench.purposes(), [Purpose::DeleteChild]);
}

/// Q-35, Q-36.
#[test]
fn annotations_of_attachments_are_texts_or_absent() {
    let annotated = |value: Value| {
        let mut object = config("a", "1");
        object["metadata"]["annotations"] = json!({"k": value, "t": "x"});
        json!({"attachments": [object]})
    };
    let mut bench = answering(&annotated(json!(5)));

    let refused = bench.pass();

    let text =
        r#"desired child ConfigMap a: attachments[0].metadata.annotations["k"]: it is no text"#;
    assert!(told(&refused)[0].contains(text), "{refused:?}");
    assert_eq!(bench.writes, []);
    bench.answer = answer(&annotated(Value::Null));
    bench.pass();
    let annotations = bench.child("a")["metadata"]["annotations"]
        .as_object()
        .unwrap();
    assert_eq!(
        (annotations.get("k"), &annotations["t"]),
        (None, &json!("x"))
    );
}

#[test]
fn an_undeclared_attachment_is_refused_with_its_place() {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
    let mut bench = answering(&json!({"attachments": [secret]}));

    let outcome = bench.pass();

    let text = "ChildRefused: desired child Secret s: attachments[0].kind: Secret in v1 is not declared; list it in spec.attachments of the controller";
    assert_eq!(told(&outcome), [text]);
}

#[test]
fn a_target_of_another_kind_is_not_touched() {
    let mut bench = answering(&json!({"labels": {"a": "b"}, "attachments": []}));
    bench.world.put(json!({
        "apiVersion": "ex.io/v1", "kind": "Big", "metadata": {"name": "b", "finalizers": [OURS]},
    }));
    bench.parent = ("bigs", "b");

    assert_eq!(bench.pass().verdict, Verdict::Unselected);
    assert!(bench.writes.is_empty() && bench.calls.is_empty());
}

/// A16: a large attachment goes through as a child does.
#[test]
fn a_large_attachment_is_created() {
    let mut bench = answering(&json!({"attachments": [config("a", &"x".repeat(700 << 10))]}));

    assert_eq!(bench.pass().verdict, Verdict::Changed);
    assert!(matches!(&bench.writes[0].op, Op::Create { .. }));
}
