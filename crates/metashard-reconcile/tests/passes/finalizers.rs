//! Finalizers: when they come, what they hold up, when they go.

use std::sync::Arc;

use metashard_reconcile::{
    finalize,
    requeue::Requeue,
    sync::{HookKind, Verdict},
    write::{Purpose, WriteError},
};
use serde_json::{Value, json};

use crate::world::{Bench, CONFIG, FOO, answer, config, hook, parse, spec, told};

const OURS: &str = "metacontroller.io/compositecontroller-c";

fn finalizing() -> Value {
    let mut spec = spec();
    spec["hooks"]["finalize"] = hook("v1");
    spec
}

fn finalizers(bench: &Bench) -> Value {
    let parent = bench
        .world
        .get(FOO, "ns1", "p")
        .expect("the parent is there");
    parent["metadata"]["finalizers"].clone()
}

/// A parent with our finalizer and a child, deleted.
fn deleted(spec: &Value) -> Bench {
    let mut bench = Bench::wanting(spec, &[config("a", "1")]);
    bench.pass();
    bench.world.delete(FOO, "p");
    bench
}

#[test]
fn the_finalizer_is_set_and_the_parent_read_again_before_the_first_call() {
    let mut bench = Bench::new(&finalizing());
    bench
        .world
        .edit(FOO, "p", |it| it["metadata"]["finalizers"] = json!(["x/y"]));

    let outcome = bench.pass();

    assert_eq!(bench.purposes()[0], Purpose::AddFinalizer);
    assert_eq!(bench.reads, 1);
    assert_eq!(finalizers(&bench), json!(["x/y", OURS]), "others' stay");
    assert_eq!(bench.calls[0].0, HookKind::Sync);
    assert_eq!(
        bench.calls[0].1["parent"]["metadata"]["finalizers"],
        json!(["x/y", OURS])
    );
    assert_eq!(outcome.verdict, Verdict::Changed);
    bench.pass();
    assert_eq!((bench.reads, bench.writes.len()), (0, 0), "it is set once");
}

/// Seen on a real API server: the write answers 200, and the object goes all the same.
#[test]
fn a_finalizer_that_came_too_late_calls_nothing() {
    let mut bench = Bench::new(&finalizing());
    bench.before_read = Some(Box::new(|world| {
        world.edit(FOO, "p", |it| it["metadata"]["finalizers"] = json!([]));
        world.delete(FOO, "p");
    }));

    let outcome = bench.pass();

    assert_eq!(outcome.verdict, Verdict::Gone);
    assert!(bench.calls.is_empty());
}

/// What is in a cache then is older than what the last pass has read.
#[test]
fn a_parent_that_was_found_gone_is_read_before_anything_is_done_for_it() {
    let mut bench = Bench::new(&finalizing());
    bench.before_read = Some(Box::new(|world| {
        world.edit(FOO, "p", |it| it["metadata"]["finalizers"] = json!([]));
        world.delete(FOO, "p");
    }));
    let mut cached = bench.world.get(FOO, "ns1", "p").unwrap().clone();
    assert_eq!(bench.pass().verdict, Verdict::Gone);
    bench.before_read = None;
    cached["metadata"]["finalizers"] = json!([OURS]);

    for _ in 0..2 {
        let controller = Arc::clone(&bench.controller);
        let candidates = bench.world.candidates(&controller, &parse(&cached));
        let outcome = bench.pass_from(parse(&cached), candidates);

        assert_eq!(outcome.verdict, Verdict::Gone);
        assert_eq!((bench.reads, bench.writes.len()), (1, 0));
        assert!(bench.calls.is_empty());
    }
}

#[test]
fn a_finalizer_that_is_not_there_when_read_again_is_set_by_a_later_pass() {
    let mut bench = Bench::new(&finalizing());
    bench.before_read = Some(Box::new(|world| {
        world.edit(FOO, "p", |it| it["metadata"]["finalizers"] = json!([]));
    }));

    let outcome = bench.pass();

    assert_eq!(
        (outcome.verdict, outcome.requeue),
        (Verdict::Stale, Requeue::Soon)
    );
    assert!(bench.calls.is_empty());
}

#[test]
fn a_conflict_while_the_finalizer_is_set_comes_back_soon() {
    let mut bench = Bench::new(&finalizing());
    bench.world.errors = vec![(Purpose::AddFinalizer, "p", WriteError::Conflict)];
    let conflict = bench.pass();
    assert_eq!(
        (conflict.verdict, conflict.requeue),
        (Verdict::Stale, Requeue::Soon)
    );
    assert_eq!(conflict.events, []);

    let denied = WriteError::Forbidden("no".to_owned());
    bench.world.errors = vec![(Purpose::AddFinalizer, "p", denied)];
    let told = told(&bench.pass());
    assert_eq!(
        told,
        ["SyncError: Sync error: can't sync finalizer for Foo ns1/p: no"]
    );
    assert!(bench.calls.is_empty());
}

#[test]
fn a_deleted_parent_is_finalized_and_its_children_are_managed_until_it_is_done() {
    let mut bench = deleted(&finalizing());
    bench.want(&[]);

    bench.pass();

    assert_eq!(bench.calls[0].0, HookKind::Finalize);
    assert_eq!(bench.calls[0].1["finalizing"], true);
    assert!(bench.purposes().contains(&Purpose::DeleteChild));
    assert_eq!(finalizers(&bench), json!([OURS]));

    bench.answer = answer(&json!({"children": [], "finalized": true}));
    let outcome = bench.pass();
    assert_eq!(
        bench.purposes(),
        [Purpose::RemoveFinalizer],
        "no status after that: it is gone"
    );
    assert_eq!(outcome.verdict, Verdict::Changed);
    assert!(bench.world.get(FOO, "ns1", "p").is_none());
}

#[test]
fn a_finalized_parents_children_are_left_to_the_garbage_collector() {
    let mut bench = deleted(&finalizing());
    bench.answer = answer(&json!({"children": [], "finalized": true}));

    bench.pass();

    assert_eq!(bench.purposes(), [Purpose::RemoveFinalizer]);
    assert!(bench.world.get(CONFIG, "ns1", "a").is_some());
}

#[test]
fn with_somebody_elses_finalizer_only_ours_goes_and_the_status_is_still_written() {
    let mut bench = deleted(&finalizing());
    bench.world.edit(FOO, "p", |it| {
        it["metadata"]["finalizers"] = json!([OURS, "x/y"]);
    });
    bench.answer = answer(&json!({"status": {"done": 1}, "children": [], "finalized": true}));

    bench.pass();

    assert_eq!(
        bench.purposes(),
        [Purpose::RemoveFinalizer, Purpose::UpdateStatus]
    );
    assert_eq!(finalizers(&bench), json!(["x/y"]));
    bench.pass();
    assert_eq!(bench.calls[0].0, HookKind::Finalize, "it is still called");
    assert!(bench.writes.is_empty());
}

/// F10: the garbage collector deletes the children then; we create nothing under its hands.
#[test]
fn with_foreground_deletion_finalize_is_called_and_children_are_left_alone() {
    for other in ["foregroundDeletion", "orphan"] {
        let mut bench = deleted(&finalizing());
        bench.world.edit(FOO, "p", |it| {
            it["metadata"]["finalizers"] = json!([OURS, other]);
        });
        bench.want(&[config("b", "1")]);

        bench.pass();

        assert_eq!(bench.calls[0].0, HookKind::Finalize);
        assert_eq!(bench.purposes(), [Purpose::UpdateStatus]);
    }
}

///
#[test]
fn finalized_in_the_answer_of_a_sync_hook_means_nothing() {
    let mut bench = Bench::new(&finalizing());
    bench.answer = answer(&json!({"children": [], "finalized": true}));

    bench.pass();

    assert_eq!(finalizers(&bench), json!([OURS]));
}

#[test]
fn a_deleted_parent_without_finalize_hook_is_synced_and_its_children_left_alone() {
    let mut bench = Bench::wanting(&spec(), &[config("a", "1")]);
    bench.pass();
    bench
        .world
        .edit(FOO, "p", |it| it["metadata"]["finalizers"] = json!(["x/y"]));
    bench.world.delete(FOO, "p");
    bench.want(&[config("b", "1")]);

    bench.pass();

    assert_eq!(bench.calls[0].0, HookKind::Sync);
    assert_eq!(bench.calls[0].1["finalizing"], false);
    assert_eq!(
        bench.purposes(),
        [Purpose::UpdateStatus],
        "the generation has moved"
    );
}

#[test]
fn a_finalizer_of_a_hook_that_is_no_more_goes() {
    let mut bench = Bench::new(&spec());
    bench.world.edit(FOO, "p", |it| {
        it["metadata"]["finalizers"] = json!([OURS, "x/y"]);
    });

    bench.pass();

    assert_eq!(
        bench.purposes(),
        [Purpose::RemoveFinalizer, Purpose::UpdateStatus]
    );
    assert_eq!(finalizers(&bench), json!(["x/y"]));
}

#[test]
fn a_parent_that_is_no_longer_selected_is_finalized_and_then_let_go() {
    let mut spec = finalizing();
    spec["parentResource"]["labelSelector"] = json!({"matchLabels": {"on": "yes"}});
    let mut bench = Bench::wanting(&spec, &[config("a", "1")]);
    bench.world.edit(FOO, "p", |it| {
        it["metadata"]["labels"] = json!({"on": "yes"});
    });
    bench.pass();
    bench.world.edit(FOO, "p", |it| {
        it["metadata"]["labels"] = json!({"on": "no"});
    });
    bench.answer = answer(&json!({"children": [], "finalized": true}));

    bench.pass();

    assert_eq!(bench.calls[0].0, HookKind::Finalize);
    let expected = [Purpose::RemoveFinalizer, Purpose::DeleteChild];
    assert_eq!(
        bench.purposes(),
        expected,
        "a living parent's children are still managed"
    );
    assert_eq!(bench.pass().verdict, Verdict::Unselected);
    assert!(bench.calls.is_empty());
}

#[test]
fn a_parent_that_is_not_selected_is_nobodys() {
    let mut spec = spec();
    spec["parentResource"]["labelSelector"] = json!({"matchLabels": {"on": "yes"}});
    let mut bench = Bench::new(&spec);

    let outcome = bench.pass();

    assert_eq!(
        (outcome.verdict, outcome.requeue),
        (Verdict::Unselected, Requeue::Await)
    );
    assert!(bench.calls.is_empty() && bench.writes.is_empty());
}

/// F04.
#[test]
fn a_controller_that_only_finalizes_sets_its_finalizer_and_calls_nothing_until_the_end() {
    let mut spec = finalizing();
    spec["hooks"].as_object_mut().unwrap().remove("sync");
    let mut bench = Bench::new(&spec);

    let outcome = bench.pass();
    assert_eq!(bench.purposes(), [Purpose::AddFinalizer]);
    assert!(bench.calls.is_empty() && outcome.events.is_empty());
    bench.world.delete(FOO, "p");
    bench.answer = answer(&json!({"children": [], "finalized": true}));
    bench.pass();

    assert_eq!(bench.calls[0].0, HookKind::Finalize);
    assert!(bench.world.get(FOO, "ns1", "p").is_none());
}

///
#[test]
fn a_deleted_controllers_finalizer_is_taken_from_its_parents_and_no_other() {
    let mut bench = Bench::new(&finalizing());
    bench.world.edit(FOO, "p", |it| {
        it["metadata"]["finalizers"] = json!([OURS, "x/y"]);
    });
    let parent = bench.world.object(FOO, "p").unwrap();
    let resource = &bench.controller.parents[0].resource;

    let write = finalize::let_go(resource, OURS, &parent).unwrap();
    bench.world.carry_out(&write).unwrap();

    assert_eq!(finalizers(&bench), json!(["x/y"]));
    let parent = bench.world.object(FOO, "p").unwrap();
    assert_eq!(finalize::let_go(resource, OURS, &parent), None);
}

#[test]
fn a_parent_that_is_finalized_adopts_nothing() {
    let mut spec = finalizing();
    spec["generateSelector"] = false.into();
    let mut bench = Bench::new(&spec);
    bench.pass();
    bench.world.delete(FOO, "p");
    let mut orphan = config("a", "1");
    orphan["metadata"]["namespace"] = "ns1".into();
    orphan["metadata"]["labels"] = json!({"app": "web"});
    bench.world.put(orphan);

    bench.pass();

    assert_eq!(bench.calls[0].0, HookKind::Finalize);
    assert_eq!(bench.calls[0].1["children"]["ConfigMap.v1"], json!({}));
    let owners = &bench.child("a")["metadata"]["ownerReferences"];
    assert_eq!(owners, &Value::Null);
}
