//! Answers: refused whole, held back, or not given at all. Children stay untouched.

use std::time::Duration;

use bytes::Bytes;
use metashard_reconcile::{
    requeue::Requeue,
    sync::{GUARD_DELAY, HookResult, MAX_MESSAGE, Verdict},
    write::Purpose,
};
use serde_json::{Value, json};

use crate::world::{Bench, CONFIG, answer, config, hook, rule, spec, told};

/// A bench with one child, and all rules that refusals need.
fn settled() -> Bench {
    let mut spec = spec();
    spec["childResources"] = json!([
        rule("v1", CONFIG, "InPlace"),
        rule("apps/v1", "deployments", "InPlace"),
        rule("rbac.authorization.k8s.io/v1", "clusterroles", "InPlace"),
    ]);
    let mut bench = Bench::wanting(&spec, &[config("a", "1")]);
    bench.pass();
    bench
}

fn child(change: impl Fn(&mut Value)) -> Value {
    let mut child = config("b", "1");
    change(&mut child);
    child
}

/// What the event must name.
type Words = &'static [&'static str];

/// What is no child at all.
fn wrong_objects() -> Vec<(Value, Words)> {
    let role = |metadata: Value| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata});
    let old =
        json!({"apiVersion": "apps/v1beta1", "kind": "Deployment", "metadata": {"name": "b"}});
    vec![
        (json!(null), &["children[1]"]),
        (json!("text"), &["children[1]"]),
        (
            json!({"apiVersion": "v1", "metadata": {"name": "b"}}),
            &["children[1]", "kind"],
        ),
        (old, &["Deployment b", "apiVersion", "use apps/v1"]),
        (
            role(json!({"name": "r", "namespace": "ns1"})),
            &["ClusterRole ns1/r", "cluster-scoped"],
        ),
        (
            role(json!({"name": "r"})),
            &["ClusterRole r", "metadata.namespace", "cluster-scoped"],
        ),
    ]
}

/// A field of a child, a wrong value for it, and what the event must name.
fn wrong_fields() -> Vec<(&'static str, Value, Words)> {
    const FOREIGN: &str = "labels on desired child ConfigMap b don't match parent selector";
    let (name, namespace) = ("/metadata/name", "/metadata/namespace");
    let (labels, annotations) = ("/metadata/labels", "/metadata/annotations");
    vec![
        ("/apiVersion", json!(null), &["children[1].apiVersion"]),
        (
            "/kind",
            json!("Secret"),
            &["Secret b", "spec.childResources"],
        ),
        ("/metadata", json!(null), &["children[1].metadata", "name"]),
        ("/metadata", json!("b"), &["children[1].metadata", "name"]),
        (
            "/metadata",
            json!({"generateName": "b-"}),
            &["metadata.name", "generateName"],
        ),
        (name, json!(null), &["children[1].metadata.name"]),
        (name, json!("../x"), &["metadata.name"]),
        (name, json!("a?b"), &["metadata.name"]),
        (name, json!("x".repeat(254)), &["metadata.name"]),
        (namespace, json!("ns2"), &["metadata.namespace", "\"ns1\""]),
        (namespace, json!(5), &["metadata.namespace"]),
        (
            annotations,
            json!({"n": 5}),
            &["metadata.annotations[\"n\"]", "quotes"],
        ),
        (annotations, json!([]), &["metadata.annotations"]),
        (
            labels,
            json!({"n": true}),
            &[
                "invalid labels on desired child ConfigMap b",
                "labels[\"n\"]",
            ],
        ),
        (labels, json!("x"), &["metadata.labels"]),
        (labels, json!({"controller-uid": "other"}), &[FOREIGN]),
    ]
}

fn wrong_children() -> Vec<(Value, Words)> {
    let with = |(pointer, value, words): (&str, Value, Words)| {
        let mut child = config("b", "1");
        let parts = pointer.split('/').skip(1);
        *parts.fold(&mut child, |at, part| &mut at[part]) = value;
        (child, words)
    };
    wrong_objects()
        .into_iter()
        .chain(wrong_fields().into_iter().map(with))
        .collect()
}

#[test]
fn one_wrong_child_refuses_the_whole_answer_and_is_named_with_field_and_fix() {
    for (wrong, words) in wrong_children() {
        let mut bench = settled();
        // The first child is right, and changed: it must not be written either.
        bench.answer = answer(&json!({"status": {"x": 1}, "children": [config("a", "2"), wrong]}));

        let outcome = bench.pass();

        assert!(
            matches!(outcome.verdict, Verdict::AnswerRefused(_)),
            "{wrong}: {outcome:?}"
        );
        assert!(bench.writes.is_empty(), "{wrong}");
        assert_eq!(outcome.requeue, Requeue::Backoff);
        let told = told(&outcome);
        assert_eq!(told.len(), 1);
        for word in words {
            assert!(
                told[0].contains(word),
                "{wrong}: {word:?} is not in {:?}",
                told[0]
            );
        }
    }
}

#[test]
fn an_answer_that_cannot_be_read_is_refused_and_children_stay() {
    let bodies: [&'static [u8]; 9] = [
        b"",
        b"<html>busy</html>",
        b"{\"children\":[",
        b"{\"children\":[]}x",
        b"[]",
        b"{\"children\":{}}",
        b"{\"status\":\"x\"}",
        b"{\"resyncAfterSeconds\":\"1\"}",
        b"\xef\xbb\xbf{}",
    ];
    for body in bodies {
        let mut bench = settled();
        bench.answer = HookResult::Answer(Bytes::from_static(body));

        let outcome = bench.pass();

        assert!(
            matches!(outcome.verdict, Verdict::AnswerRefused(_)),
            "{body:?}: {outcome:?}"
        );
        assert!(bench.writes.is_empty());
        let start = "SyncError: Sync error: sync hook failed for Foo ns1/p: sync hook failed (version=v1): ";
        assert!(told(&outcome)[0].starts_with(start), "{:?}", told(&outcome));
    }
}

#[test]
fn of_a_child_that_is_returned_twice_the_last_counts_and_it_is_told() {
    for version in ["v1", "v2"] {
        let mut spec = spec();
        spec["hooks"]["sync"] = hook(version);
        let mut bench = Bench::new(&spec);
        let (first, last) = (config("a", "1"), config("a", "2"));
        bench.want(&[first.clone(), config("b", "1"), last.clone()]);

        let outcome = bench.pass();

        assert_eq!(outcome.counts.created, 2);
        assert_eq!(bench.child("a")["data"], last["data"]);
        let told = told(&outcome);
        assert!(told[0].starts_with("OddAnswer: "), "{told:?}");
        for word in ["ConfigMap a", "children[2] counts"] {
            assert!(told[0].contains(word), "{told:?}");
        }

        bench.want(&[last.clone(), config("b", "1"), last]);
        let outcome = bench.pass();
        assert_eq!(
            outcome.verdict,
            Verdict::Unchanged,
            "the same twice is once"
        );
        assert!(outcome.events.is_empty());
    }
}

#[test]
fn odd_fields_in_strict_mode_are_told_in_metacontrollers_words() {
    for version in ["v1", "v2"] {
        let mut spec = spec();
        spec["hooks"]["sync"] = hook(version);
        spec["hooks"]["sync"]["webhook"]["responseUnMarshallMode"] = "strict".into();
        let mut bench = Bench::new(&spec);
        bench.answer = answer(&json!({"children": [], "childrn": []}));

        let outcome = bench.pass();

        let start = format!(
            "SyncError: Sync error: sync hook failed for Foo ns1/p: sync hook failed (version={version}): \
             strict validation failed for {version} webhookResponse (type: sync, mode: strict): "
        );
        let told = told(&outcome);
        assert!(told[0].starts_with(&start), "{told:?}");
        assert!(told[0].ends_with("childrn"), "{told:?}");
    }
}

#[test]
fn nulls_in_labels_and_annotations_are_absent() {
    let mut bench = settled();
    bench.want(&[
        config("a", "1"),
        child(|it| {
            it["metadata"]["labels"] = json!({"x": null});
            it["metadata"]["annotations"] = json!(null);
        }),
    ]);

    bench.pass();

    assert_eq!(bench.purposes(), [Purpose::CreateChild]);
    assert_eq!(
        bench.child("b")["metadata"]["labels"],
        json!({"controller-uid": "P-1"})
    );
}

#[test]
fn a_child_of_a_kind_that_is_not_served_now_waits_and_the_others_proceed() {
    let mut spec = spec();
    spec["childResources"] = json!([
        rule("v1", CONFIG, "InPlace"),
        rule("new.io/v1", "news", "InPlace")
    ]);
    let mut bench = Bench::wanting(
        &spec,
        &[
            config("a", "1"),
            json!({"apiVersion": "new.io/v1", "kind": "New", "metadata": {"name": "n"}}),
        ],
    );
    assert_eq!(bench.controller.missing.len(), 1);

    let outcome = bench.pass();

    assert_eq!(
        (outcome.counts.created, outcome.requeue),
        (1, Requeue::Backoff)
    );
    assert!(told(&outcome)[0].contains("New n"), "{:?}", told(&outcome));
}

#[test]
fn a_failed_call_is_told_in_metacontrollers_words() {
    let mut bench = settled();
    bench.answer = HookResult::Failed("http error: connection refused".to_owned());

    let outcome = bench.pass();

    let text = "sync hook failed for Foo ns1/p: sync hook failed (version=v1): http error: connection refused";
    assert_eq!(outcome.verdict, Verdict::HookFailed(text.to_owned()));
    assert_eq!(told(&outcome), [format!("SyncError: Sync error: {text}")]);
    assert_eq!(outcome.requeue, Requeue::Backoff);
    assert!(bench.writes.is_empty());
}

#[test]
fn a_long_error_is_cut_to_what_an_event_holds() {
    let mut bench = settled();
    bench.answer = HookResult::Failed("ü".repeat(5000));

    let message = &bench.pass().events[0].message;

    assert!(message.len() <= MAX_MESSAGE && message.len() > MAX_MESSAGE - 4);
}

#[test]
fn a_hook_that_asks_to_wait_is_waited_for_without_an_event() {
    let mut bench = settled();
    let seven = Some(Duration::from_secs(7));
    for (retry_after, requeue) in [
        (seven, Requeue::After(Duration::from_secs(7))),
        (None, Requeue::Backoff),
    ] {
        bench.answer = HookResult::TooManyRequests { retry_after };

        let outcome = bench.pass();

        assert_eq!(
            (outcome.verdict, outcome.requeue),
            (Verdict::Throttled, requeue)
        );
        assert!(outcome.events.is_empty() && bench.writes.is_empty());
    }
}

#[test]
fn a_hook_that_is_away_until_a_time_is_waited_for_with_an_event() {
    let mut bench = settled();
    let retry_after = Duration::from_secs(7);
    let error = "unsupported status code: 503 body: soon".to_owned();
    bench.answer = HookResult::Unavailable { error, retry_after };

    let outcome = bench.pass();

    assert!(matches!(&outcome.verdict, Verdict::HookFailed(why) if why.contains("503")));
    assert_eq!(outcome.requeue, Requeue::After(retry_after));
    assert!(outcome.events[0].message.contains("503") && bench.writes.is_empty());
}

#[test]
fn an_answer_without_authority_is_dropped() {
    let mut bench = settled();
    bench.answer = HookResult::NoAuthority;

    let outcome = bench.pass();

    assert_eq!(outcome.verdict, Verdict::NoAuthority);
    assert!(outcome.events.is_empty() && bench.writes.is_empty());
}

/// W03, loose: Metacontroller's rule, behind the delete guard.
#[test]
fn an_answer_without_children_deletes_only_when_it_is_given_twice() {
    let mut bench = settled();
    bench.answer = answer(&json!({"error": "x"}));

    let held = bench.pass();
    assert!(matches!(held.verdict, Verdict::Held(_)));
    assert_eq!(held.requeue, Requeue::After(GUARD_DELAY));
    assert!(bench.writes.is_empty());
    assert!(
        told(&held)[0].contains("no field children"),
        "{:?}",
        told(&held)
    );
    let second = bench.pass();

    assert_eq!(bench.purposes()[0], Purpose::DeleteChild);
    assert!(
        told(&second).iter().any(|it| it.starts_with("OddAnswer")),
        "{:?}",
        told(&second)
    );
}

#[test]
fn an_answer_without_children_that_was_a_slip_deletes_nothing() {
    let mut bench = settled();
    bench.answer = answer(&json!({}));
    bench.pass();
    bench.want(&[config("a", "1")]);
    bench.pass();
    bench.answer = answer(&json!({}));

    let outcome = bench.pass();

    assert!(
        matches!(outcome.verdict, Verdict::Held(_)),
        "the guard starts anew"
    );
    assert!(bench.world.get(CONFIG, "ns1", "a").is_some());
}

/// W03, strict.
#[test]
fn a_strict_answer_without_children_is_refused_if_it_would_delete_any() {
    let mut spec = spec();
    spec["hooks"]["sync"] = hook("v2");
    let mut bench = Bench::wanting(&spec, &[config("a", "1")]);
    bench.pass();
    bench.answer = answer(&json!({"status": {"x": 1}}));

    let outcome = bench.pass();
    assert!(matches!(outcome.verdict, Verdict::AnswerRefused(_)));
    assert!(bench.writes.is_empty());
    assert!(
        told(&outcome)[0].contains("`children: []`"),
        "{:?}",
        told(&outcome)
    );

    bench.want(&[]);
    bench.pass();
    bench.answer = answer(&json!({"status": {"x": 1}}));
    assert_eq!(
        bench.pass().verdict,
        Verdict::Changed,
        "with nothing to lose it is an answer"
    );
}

#[test]
fn an_answer_that_leaves_out_most_of_many_children_counts_only_when_it_is_given_twice() {
    let children: Vec<_> = (0..30).map(|n| config(&format!("c{n:02}"), "1")).collect();
    let mut bench = Bench::wanting(&spec(), &children);
    bench.pass();
    bench.want(&children[..5]);

    let held = bench.pass();
    assert!(matches!(held.verdict, Verdict::Held(_)));
    assert!(bench.writes.is_empty());
    bench.pass();

    assert_eq!(bench.writes.len(), 25);
    bench.want(&[]);
    bench.pass();
    assert_eq!(bench.writes.len(), 5, "few children are not guarded");
}

#[test]
fn events_and_warnings_of_an_answer_are_passed_on() {
    let mut bench = settled();
    bench.answer = answer(&json!({
        "children": [config("a", "1")],
        "childrn": [],
        "events": [{"type": "Warning", "reason": "QuotaLow", "message": "2 left"}],
    }));

    let told = told(&bench.pass());

    assert_eq!(told[0], "QuotaLow: 2 left");
    assert!(
        told[1].starts_with("OddAnswer: ") && told[1].contains("childrn"),
        "{told:?}"
    );
}
