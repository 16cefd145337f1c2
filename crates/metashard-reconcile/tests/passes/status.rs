//! The parent's status.

use metashard_reconcile::{
    memory::Memory,
    requeue::Requeue,
    sync::Verdict,
    write::{Op, Purpose, WriteError},
};
use serde_json::{Value, json};

use crate::world::{Bench, FOO, answer, config, spec, told};

fn status(bench: &Bench) -> Value {
    bench.world.get(FOO, "ns1", "p").unwrap()["status"].clone()
}

#[test]
fn the_status_is_replaced_whole_and_carries_the_generation_that_the_hook_saw() {
    let mut bench = Bench::new(&spec());
    bench
        .world
        .edit(FOO, "p", |it| it["status"] = json!({"old": 1}));
    bench.answer =
        answer(&json!({"status": {"ready": 1, "observedGeneration": 99}, "children": []}));

    bench.pass();

    assert_eq!(status(&bench), json!({"ready": 1, "observedGeneration": 3}));
    assert!(matches!(bench.writes[0].op, Op::UpdateStatus { .. }));
    assert_eq!(bench.reads, 0, "the parent is not read again");
}

#[test]
fn an_absent_status_is_an_empty_one() {
    for body in [
        json!({"children": []}),
        json!({"children": [], "status": null}),
    ] {
        let mut bench = Bench::new(&spec());
        bench
            .world
            .edit(FOO, "p", |it| it["status"] = json!({"old": 1}));
        bench.answer = answer(&body);

        bench.pass();

        assert_eq!(status(&bench), json!({"observedGeneration": 3}));
    }
}

/// A child that fails for good makes the backoff grow to a quarter of an hour; the hook asked to be called each five seconds.
#[test]
fn a_hook_is_called_when_it_asked_for_it_also_while_children_fail() {
    let mut bench = Bench::new(&spec());
    let body = json!({"children": [config("a", "1")], "resyncAfterSeconds": 5});
    bench.answer = answer(&body);
    for error in [
        WriteError::Invalid("no".to_owned()),
        WriteError::Unavailable("busy".to_owned()),
    ] {
        let error = (Purpose::CreateChild, "a", error);
        bench.world.errors.push(error);

        let outcome = bench.pass();

        assert!(matches!(outcome.verdict, Verdict::Failed(_)), "{outcome:?}");
        let five = std::time::Duration::from_secs(5);
        assert_eq!(outcome.requeue, Requeue::BackoffAndAfter(five));
    }
}

#[test]
fn a_status_that_is_the_same_by_value_is_not_written() {
    let mut bench = Bench::new(&spec());
    let stored = json!({"a": 1, "b": 0.5, "observedGeneration": 3});
    bench
        .world
        .edit(FOO, "p", |it| it["status"] = stored.clone());
    bench.answer = HookBody(r#"{"children":[],"status":{"b":5e-1,"a":1.0,"c":null}}"#).into();

    let outcome = bench.pass();

    assert_eq!(
        (outcome.verdict, bench.writes.len()),
        (Verdict::Unchanged, 0)
    );
}

struct HookBody(&'static str);

impl From<HookBody> for metashard_reconcile::sync::HookResult {
    fn from(body: HookBody) -> Self {
        Self::Answer(bytes::Bytes::from_static(body.0.as_bytes()))
    }
}

/// S03, and what makes Metacontroller write on every sync.
#[test]
fn a_status_that_the_schema_prunes_is_written_once_and_told_once() {
    let mut bench = Bench::new(&spec());
    bench.world.normalize = Some(Box::new(|it| {
        if let Some(status) = it["status"].as_object_mut() {
            status.retain(|key, _| key == "kept");
        }
    }));
    bench.answer = answer(&json!({"children": [], "status": {"kept": 1, "lost": 2}}));

    let first = bench.pass();
    let told = told(&first);
    assert!(
        told[0].contains("lost") && told[0].contains("observedGeneration"),
        "{told:?}"
    );
    for _ in 0..3 {
        bench
            .world
            .edit(FOO, "p", |it| it["metadata"]["labels"] = json!({"x": "y"}));
        let again = bench.pass();
        assert_eq!((again.events.len(), bench.writes.len()), (0, 0));
    }

    bench
        .world
        .edit(FOO, "p", |it| it["status"]["kept"] = 7.into());
    bench.pass();
    assert_eq!(
        status(&bench),
        json!({"kept": 1}),
        "drift is still put right"
    );
}

#[test]
fn a_conflict_comes_back_soon_and_tells_nobody() {
    let mut bench = Bench::new(&spec());
    bench.world.errors = vec![(Purpose::UpdateStatus, "p", WriteError::Conflict)];

    let outcome = bench.pass();

    assert_eq!(
        (outcome.verdict, outcome.requeue),
        (Verdict::Stale, Requeue::Soon)
    );
    assert_eq!(outcome.events, []);
}

#[test]
fn a_conflict_does_not_hide_what_went_wrong_with_children() {
    let mut bench = Bench::wanting(&spec(), &[config("a", "1")]);
    let error = WriteError::Unavailable("503".to_owned());
    bench.world.errors = vec![
        (Purpose::UpdateStatus, "p", WriteError::Conflict),
        (Purpose::CreateChild, "a", error),
    ];

    let outcome = bench.pass();

    assert_eq!(outcome.requeue, Requeue::Backoff);
    assert!(told(&outcome)[0].contains("create ConfigMap ns1/a: 503"));
}

#[test]
fn a_failed_write_is_told_and_a_parent_that_is_gone_is_not() {
    let mut bench = Bench::new(&spec());
    bench.world.errors = vec![(Purpose::UpdateStatus, "p", WriteError::NotFound)];
    let gone = bench.pass();
    assert_eq!((gone.verdict, gone.events.len()), (Verdict::Gone, 0));

    let invalid = WriteError::Invalid("status.x: no".to_owned());
    bench.world.errors = vec![(Purpose::UpdateStatus, "p", invalid)];
    let text = "SyncError: Sync error: can't update status for Foo ns1/p: status.x: no";
    assert_eq!(told(&bench.pass()), [text]);
}

/// S02: the cache lags behind; the next request has the status that we wrote all the same.
#[test]
fn the_next_request_has_the_status_that_was_written_though_the_cache_has_not() {
    let mut bench = Bench::new(&spec());
    let stale = bench.world.object(FOO, "p").unwrap();
    bench.answer = answer(&json!({"children": [], "status": {"step": 1}}));
    bench.pass();

    bench.pass_from(stale, vec![vec![].into()]);

    assert_eq!(bench.calls[0].1["parent"]["status"]["step"], 1);
    assert!(bench.writes.is_empty());
}

#[test]
fn the_first_status_of_a_parent_without_one_is_written() {
    let mut bench = Bench::new(&spec());
    bench.world.edit(FOO, "p", |it| {
        drop(it.as_object_mut().unwrap().remove("status"));
    });

    bench.pass();
    assert_eq!(status(&bench), json!({"observedGeneration": 3}));
    bench.memory = Memory::default();
    bench.pass();

    assert!(bench.writes.is_empty());
}

#[test]
fn a_new_generation_is_observed() {
    let mut bench = Bench::new(&spec());
    bench.pass();
    bench.world.edit(FOO, "p", |it| it["spec"]["x"] = 1.into());

    bench.pass();

    assert_eq!(status(&bench)["observedGeneration"], 4);
}
