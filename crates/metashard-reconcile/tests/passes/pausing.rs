//! Parents that rest by their annotation.

use metashard_reconcile::{
    requeue::Requeue,
    sync::{HookKind, Verdict},
    write::Purpose,
};
use serde_json::{Value, json};

use crate::world::{Bench, CONFIG, FOO, answer, config, hook, spec};

const PAUSED: &str = "metashard.io/paused";

fn pause(bench: &mut Bench, value: &Value) {
    bench.world.edit(FOO, "p", |it| {
        it["metadata"]["annotations"] = json!({ PAUSED: value });
    });
}

fn finalizing() -> Value {
    let mut spec = spec();
    spec["hooks"]["finalize"] = hook("v1");
    spec
}

#[test]
fn a_paused_parent_is_left_alone_and_synced_as_soon_as_it_is_resumed() {
    let mut bench = Bench::wanting(&spec(), &[config("a", "1")]);
    bench.pass();
    bench.want(&[config("b", "1")]);
    pause(&mut bench, &json!("true"));

    let paused = bench.pass();

    assert_eq!(
        (paused.verdict, paused.requeue),
        (Verdict::Paused, Requeue::Await)
    );
    assert!(bench.calls.is_empty() && bench.writes.is_empty() && bench.reads == 0);
    pause(&mut bench, &Value::Null);
    assert_eq!(bench.pass().verdict, Verdict::Changed);
    let expected = [Purpose::DeleteChild, Purpose::CreateChild];
    assert_eq!(bench.purposes(), expected);
}

#[test]
fn a_pause_and_its_end_are_told_once_each() {
    let mut bench = Bench::new(&spec());
    let reasons = |bench: &mut Bench| -> Vec<String> {
        let events = bench.pass().events;
        assert!(events.iter().all(|event| !event.is_warning));
        events.iter().map(|it| it.reason.to_string()).collect()
    };
    pause(&mut bench, &json!("true"));

    assert_eq!(reasons(&mut bench), ["Paused"]);
    assert_eq!(reasons(&mut bench), [""; 0]);
    pause(&mut bench, &Value::Null);
    assert_eq!(reasons(&mut bench), ["Resumed"]);
    assert_eq!(reasons(&mut bench), [""; 0]);
}

#[test]
fn only_the_value_true_pauses() {
    for value in ["false", "", "yes"] {
        let mut bench = Bench::new(&spec());
        pause(&mut bench, &json!(value));

        assert_ne!(bench.pass().verdict, Verdict::Paused, "{value:?}");
    }
}

#[test]
fn a_new_parent_that_is_paused_gets_no_finalizer() {
    let mut bench = Bench::new(&finalizing());
    pause(&mut bench, &json!("true"));

    bench.pass();

    assert!(bench.writes.is_empty());
}

#[test]
fn the_deletion_of_a_paused_parent_is_honoured() {
    let mut bench = Bench::wanting(&finalizing(), &[config("a", "1")]);
    bench.pass();
    pause(&mut bench, &json!("true"));
    bench.pass();
    bench.world.delete(FOO, "p");
    bench.answer = answer(&json!({"children": [], "finalized": true}));

    bench.pass();

    assert_eq!(bench.calls[0].0, HookKind::Finalize);
    assert!(bench.world.get(FOO, "ns1", "p").is_none());
}

#[test]
fn a_finalizer_of_a_hook_that_is_no_more_does_not_hold_a_paused_parent_that_is_deleted() {
    let mut bench = Bench::new(&spec());
    let ours = bench.controller.finalizer.clone();
    bench.world.edit(FOO, "p", |it| {
        it["metadata"]["finalizers"] = json!([ours]);
    });
    pause(&mut bench, &json!("true"));
    assert_eq!(bench.pass().verdict, Verdict::Paused);

    bench.world.delete(FOO, "p");
    bench.pass();

    assert_eq!(bench.purposes(), [Purpose::RemoveFinalizer]);
}

#[test]
fn without_a_finalize_hook_a_paused_parent_rests_although_it_is_deleted() {
    let mut bench = Bench::wanting(&spec(), &[config("a", "1")]);
    bench.pass();
    bench.world.edit(FOO, "p", |it| {
        it["metadata"]["finalizers"] = json!(["x/y"]);
        it["metadata"]["annotations"] = json!({ PAUSED: "true" });
    });
    bench.world.delete(FOO, "p");

    assert_eq!(bench.pass().verdict, Verdict::Paused);
    assert!(bench.calls.is_empty() && bench.world.get(CONFIG, "ns1", "a").is_some());
}
