//! Passes whose writes are only observed: they plan all that they would do, and leave no trace.

use metashard_reconcile::{
    requeue::Requeue,
    sync::{HookKind, Verdict},
    write::Purpose,
};
use serde_json::{Value, json};

use crate::world::{Bench, CONFIG, FOO, answer, config, hook, rule, spec};

fn finalizing() -> Value {
    let mut spec = spec();
    spec["hooks"]["finalize"] = hook("v1");
    spec
}

/// A bench whose writes are observed from now on.
fn observe(mut bench: Bench) -> Bench {
    bench.world.observes = true;
    bench
}

#[test]
fn every_write_of_a_new_parent_is_planned_in_one_pass_and_the_pass_is_not_repeated() {
    let mut bench = observe(Bench::new(&finalizing()));
    bench.answer =
        answer(&json!({"status": {"n": 1}, "children": [config("a", "1"), config("b", "1")]}));
    let before = bench.world.object(FOO, "p").unwrap();

    let outcome = bench.pass();

    assert_eq!(
        (outcome.verdict, outcome.requeue),
        (Verdict::Observed, Requeue::Await)
    );
    let expected = [
        Purpose::AddFinalizer,
        Purpose::CreateChild,
        Purpose::CreateChild,
        Purpose::UpdateStatus,
    ];
    assert_eq!(bench.purposes(), expected);
    assert!(outcome.events.is_empty() && outcome.written.is_empty());
    assert_eq!(outcome.counts.total(), 0);
    let after = bench.world.object(FOO, "p").unwrap();
    assert_eq!(before.bytes(), after.bytes());
}

#[test]
fn the_next_pass_observes_the_same() {
    let mut bench = Bench::wanting(&spec(), &[config("a", "1"), config("b", "1")]);
    bench.pass();
    let mut bench = observe(bench);
    bench.want(&[config("b", "2"), config("c", "1")]);

    for _ in 0..3 {
        assert_eq!(bench.pass().verdict, Verdict::Observed);
        let expected = [
            Purpose::DeleteChild,
            Purpose::UpdateChild,
            Purpose::CreateChild,
        ];
        assert_eq!(bench.purposes(), expected);
    }
    assert!(bench.world.get(CONFIG, "ns1", "a").is_some());
}

#[test]
fn what_needs_no_write_is_unchanged() {
    let mut bench = Bench::wanting(&finalizing(), &[config("a", "1")]);
    bench.pass();
    let mut bench = observe(bench);

    assert_eq!(bench.pass().verdict, Verdict::Unchanged);
    assert!(bench.writes.is_empty());
}

#[test]
fn an_orphan_that_would_be_adopted_is_shown_to_the_hook() {
    let mut bench = Bench::new(&spec());
    let mut orphan = config("a", "1");
    orphan["metadata"]["namespace"] = "ns1".into();
    orphan["metadata"]["labels"] = json!({"controller-uid": "P-1"});
    bench.world.put(orphan);
    let mut bench = observe(bench);
    bench.want(&[config("a", "1")]);

    let outcome = bench.pass();

    assert_eq!(outcome.verdict, Verdict::Observed);
    assert!(bench.calls[0].1["children"]["ConfigMap.v1"]["a"].is_object());
    assert!(bench.purposes().contains(&Purpose::AdoptChild));
}

#[test]
fn a_deleted_parent_keeps_its_finalizer_and_its_children() {
    let mut bench = Bench::wanting(&finalizing(), &[config("a", "1")]);
    bench.pass();
    bench.world.delete(FOO, "p");
    let mut bench = observe(bench);
    bench.answer = answer(&json!({"children": [], "finalized": true}));

    let outcome = bench.pass();

    assert_eq!(outcome.verdict, Verdict::Observed);
    assert_eq!(bench.calls[0].0, HookKind::Finalize);
    assert_eq!(bench.purposes()[0], Purpose::RemoveFinalizer);
    assert!(bench.world.get(FOO, "ns1", "p").is_some());
}

#[test]
fn a_hook_that_asks_for_it_is_called_again() {
    let mut bench = observe(Bench::new(&spec()));
    bench.answer = answer(&json!({"children": [config("a", "1")], "resyncAfterSeconds": 7}));

    let outcome = bench.pass();

    let after = std::time::Duration::from_secs(7);
    assert_eq!(outcome.requeue, Requeue::After(after));
}

#[test]
fn a_decorators_target_and_attachments_are_left_as_they_are() {
    let decorator = json!({
        "resources": [{"apiVersion": "ex.io/v1", "resource": FOO}],
        "attachments": [rule("v1", CONFIG, "InPlace")],
        "hooks": {"sync": hook("v1"), "finalize": hook("v1")},
    });
    let mut bench = observe(Bench::decorating(&decorator));
    bench.answer = answer(&json!({
        "labels": {"a": "b"}, "status": {"n": 1}, "attachments": [config("a", "1")],
    }));

    for _ in 0..2 {
        assert_eq!(bench.pass().verdict, Verdict::Observed);
        let expected = [
            Purpose::AddFinalizer,
            Purpose::CreateChild,
            Purpose::UpdateStatus,
            Purpose::Decorate,
        ];
        assert_eq!(bench.purposes(), expected);
    }
}

#[test]
fn a_roll_out_is_observed_with_its_revisions() {
    let mut spec = spec();
    spec["childResources"][0] = rule("v1", CONFIG, "RollingInPlace");
    let mut bench = observe(Bench::wanting(&spec, &[config("a", "1")]));

    for _ in 0..2 {
        assert_eq!(bench.pass().verdict, Verdict::Observed);
        let expected = [
            Purpose::CreateRevision,
            Purpose::CreateChild,
            Purpose::UpdateStatus,
        ];
        assert_eq!(bench.purposes(), expected);
    }
}
