//! Children: created, updated, recreated, deleted, and left alone.

use metashard_reconcile::{
    memory::Memory,
    requeue::Requeue,
    sync::Verdict,
    write::{Op, Propagation, Purpose, WriteError},
};
use serde_json::{Value, json};

use crate::world::{Bench, CONFIG, answer, config, rule, spec, told};

const ANNOTATION: &str = "metacontroller.k8s.io/last-applied-configuration";

fn with_method(method: &str) -> Value {
    let mut spec = spec();
    spec["childResources"][0] = rule("v1", CONFIG, method);
    spec
}

#[test]
fn creating_n_children_and_the_status_makes_n_plus_1_writes_and_no_read() {
    let names = ["a", "b", "c", "d", "e"];
    let children = names.map(|name| config(name, "1"));
    let mut bench = Bench::wanting(&spec(), &children);

    let outcome = bench.pass();

    assert_eq!(outcome.verdict, Verdict::Changed);
    assert_eq!(bench.writes.len(), 6);
    assert_eq!(bench.reads, 0);
    assert_eq!(outcome.counts.created, 5);
    assert_eq!(outcome.written.len(), 6);
    assert_eq!(
        bench.purposes().last(),
        Some(&Purpose::UpdateStatus),
        "the status comes last"
    );
}

#[test]
fn a_created_child_has_owner_label_and_record() {
    let mut bench = Bench::wanting(&spec(), &[config("a", "<1>")]);

    bench.pass();

    let metadata = &bench.child("a")["metadata"];
    assert_eq!(
        metadata["ownerReferences"],
        json!([{
            "apiVersion": "ex.io/v1", "kind": "Foo", "name": "p", "uid": "P-1",
            "controller": true, "blockOwnerDeletion": true,
        }])
    );
    assert_eq!(metadata["labels"], json!({"controller-uid": "P-1"}));
    let record = r#"{"apiVersion":"v1","data":{"a":"\u003c1\u003e"},"kind":"ConfigMap","metadata":{"labels":{"controller-uid":"P-1"},"name":"a","namespace":"ns1"}}"#;
    assert_eq!(metadata["annotations"][ANNOTATION], record);
}

#[test]
fn a_pass_that_changes_nothing_writes_nothing_with_and_without_memory() {
    let mut bench = Bench::wanting(&spec(), &[config("a", "1"), config("b", "1")]);
    bench.pass();

    let remembered = bench.pass();
    assert_eq!(
        (remembered.verdict, bench.writes.len()),
        (Verdict::Unchanged, 0)
    );
    assert_eq!(remembered.requeue, Requeue::Await);

    bench.memory = Memory::default();
    let anew = bench.pass();
    assert_eq!((anew.verdict, bench.writes.len()), (Verdict::Unchanged, 0));
}

#[test]
fn an_update_in_place_is_fenced_and_keeps_what_others_wrote() {
    let mut bench = Bench::wanting(&spec(), &[config("a", "1")]);
    bench.pass();
    bench
        .world
        .edit(CONFIG, "a", |it| it["data"]["theirs"] = "x".into());
    bench.want(&[config("a", "2")]);

    bench.pass();

    assert_eq!(bench.purposes(), [Purpose::UpdateChild]);
    assert!(
        bench.writes[0].why.contains("data.a"),
        "{}",
        bench.writes[0].why
    );
    assert!(!bench.writes[0].why.contains('2'), "values are not told");
    assert_eq!(bench.child("a")["data"], json!({"a": "2", "theirs": "x"}));
    assert_eq!(
        bench.child("a")["metadata"]["ownerReferences"][0]["uid"],
        "P-1"
    );
}

#[test]
fn drift_in_a_desired_field_is_put_right_and_a_field_no_longer_desired_goes() {
    let mut child = config("a", "1");
    child["data"]["old"] = "x".into();
    let mut bench = Bench::wanting(&spec(), &[child]);
    bench.pass();
    bench
        .world
        .edit(CONFIG, "a", |it| it["data"]["a"] = "drifted".into());
    bench.want(&[config("a", "1")]);

    bench.pass();

    assert_eq!(bench.child("a")["data"], json!({"a": "1"}));
}

#[test]
fn a_child_no_longer_desired_is_deleted_in_the_background_with_preconditions() {
    let mut bench = Bench::wanting(&spec(), &[config("a", "1"), config("b", "1")]);
    bench.pass();
    bench.want(&[config("b", "1")]);

    let outcome = bench.pass();

    assert_eq!(outcome.counts.deleted, 1);
    let Op::Delete {
        uid, propagation, ..
    } = &bench.writes[0].op
    else {
        panic!("a delete")
    };
    assert_eq!(
        (uid.starts_with("U-a"), *propagation),
        (true, Propagation::Background)
    );
    assert!(bench.world.get(CONFIG, "ns1", "a").is_none());
    assert!(bench.world.get(CONFIG, "ns1", "b").is_some());
}

#[test]
fn recreate_deletes_in_one_pass_and_creates_in_a_later_one() {
    let mut bench = Bench::wanting(&with_method("Recreate"), &[config("a", "1")]);
    bench.pass();
    bench.want(&[config("a", "2")]);

    bench.pass();
    assert_eq!(bench.purposes(), [Purpose::RecreateChild]);
    bench.pass();
    assert_eq!(bench.purposes(), [Purpose::CreateChild]);

    assert_eq!(bench.child("a")["data"]["a"], "2");
    bench.pass();
    assert!(bench.writes.is_empty());
}

#[test]
fn on_delete_writes_only_after_somebody_deleted_the_child() {
    let mut bench = Bench::wanting(&with_method("OnDelete"), &[config("a", "1")]);
    bench.pass();
    bench.want(&[config("a", "2")]);

    bench.pass();
    assert!(bench.writes.is_empty());
    bench.world.delete(CONFIG, "a");
    bench.pass();

    assert_eq!(bench.purposes(), [Purpose::CreateChild]);
    assert_eq!(bench.child("a")["data"]["a"], "2");
}

/// Cases A03, A05 and A06 of the public bug reports: what the server adds, drops or defaults is no reason to recreate.
#[test]
fn a_child_is_not_recreated_for_what_the_api_server_makes_of_it() {
    let mut child = config("a", "1");
    child["spec"] = json!({
        "tolerations": [{"key": "mine"}],
        "items": [{"v": 1}],
        "nothing": null,
        "empty": {},
    });
    let mut bench = Bench::wanting(&with_method("Recreate"), &[child]);
    bench.world.normalize = Some(Box::new(|it| {
        if it["kind"] == "ConfigMap" {
            it["spec"]["tolerations"] = json!([{"key": "mine"}, {"key": "not-ready"}]);
            it["spec"]["items"] = json!([{"v": 1, "name": "default"}]);
            it["spec"].as_object_mut().unwrap().remove("empty");
        }
    }));
    bench.pass();
    let uid = bench.child("a")["metadata"]["uid"].clone();

    for round in 0..5 {
        bench
            .world
            .edit(CONFIG, "a", |it| it["status"]["round"] = round.into());
        if round > 2 {
            bench.memory = Memory::default();
        }
        bench.pass();
        assert!(bench.writes.is_empty(), "round {round}: {:?}", bench.writes);
    }
    assert_eq!(bench.child("a")["metadata"]["uid"], uid);
}

#[test]
fn what_the_api_server_keeps_otherwise_is_written_once_and_not_fought_over() {
    let mut child = config("a", "1");
    child["spec"] = json!({"cpu": "1000m", "list": [1]});
    let mut bench = Bench::wanting(&spec(), &[child]);
    bench.world.normalize = Some(Box::new(|it| {
        if it["kind"] == "ConfigMap" {
            it["spec"] = json!({"cpu": "1", "list": [1, 2]});
        }
    }));
    bench.pass();

    for round in 0..4 {
        bench
            .world
            .edit(CONFIG, "a", |it| it["status"]["round"] = round.into());
        bench.pass();
        assert!(bench.writes.is_empty(), "round {round}: {:?}", bench.writes);
    }
    bench
        .world
        .edit(CONFIG, "a", |it| it["data"]["a"] = "drifted".into());
    bench.pass();
    assert_eq!(
        bench.purposes(),
        [Purpose::UpdateChild],
        "other drift is still put right"
    );
}

#[test]
fn a_child_that_is_being_deleted_is_left_alone() {
    let mut bench = Bench::wanting(&spec(), &[config("a", "1"), config("b", "1")]);
    bench.pass();
    for name in ["a", "b"] {
        bench.world.edit(CONFIG, name, |it| {
            it["metadata"]["finalizers"] = json!(["x/y"]);
        });
        bench.world.delete(CONFIG, name);
    }
    bench.want(&[config("a", "2")]);

    let outcome = bench.pass();

    assert_eq!(outcome.verdict, Verdict::Unchanged);
}

#[test]
fn a_conflict_comes_back_soon_and_tells_nobody() {
    for error in [WriteError::Conflict, WriteError::NotFound] {
        let mut bench = Bench::wanting(&spec(), &[config("a", "1")]);
        bench.pass();
        bench.want(&[config("a", "2")]);
        bench.world.errors = vec![(Purpose::UpdateChild, "a", error)];

        let outcome = bench.pass();

        assert_eq!(
            (outcome.verdict, outcome.requeue),
            (Verdict::Stale, Requeue::Soon)
        );
        assert_eq!(outcome.events, []);
        bench.pass();
        assert_eq!(bench.child("a")["data"]["a"], "2");
    }
}

#[test]
fn a_delete_of_what_is_gone_already_is_done() {
    let mut bench = Bench::wanting(&spec(), &[config("a", "1")]);
    bench.pass();
    bench.want(&[]);
    bench.world.errors = vec![(Purpose::DeleteChild, "a", WriteError::NotFound)];

    let outcome = bench.pass();

    assert_eq!(outcome.verdict, Verdict::Unchanged);
    assert_eq!(outcome.events, []);
}

#[test]
fn a_failed_write_is_told_in_full_and_stops_neither_the_others_nor_the_status() {
    let mut bench = Bench::wanting(&spec(), &[config("a", "1"), config("b", "1")]);
    let denied = WriteError::Forbidden("configmaps is forbidden".to_owned());
    bench.world.errors = vec![(Purpose::CreateChild, "a", denied)];

    let outcome = bench.pass();

    let text =
        "can't reconcile children for Foo ns1/p: create ConfigMap ns1/a: configmaps is forbidden";
    assert_eq!(outcome.verdict, Verdict::Failed(text.to_owned()));
    assert_eq!(told(&outcome), [format!("SyncError: Sync error: {text}")]);
    assert_eq!(outcome.requeue, Requeue::Backoff);
    assert!(bench.world.get(CONFIG, "ns1", "b").is_some());
    assert_eq!(
        bench.world.get("foos", "ns1", "p").unwrap()["status"]["observedGeneration"],
        3
    );
}

#[test]
fn without_authority_nothing_more_is_written() {
    let mut bench = Bench::wanting(&spec(), &[config("a", "1")]);
    bench.world.errors = vec![(Purpose::CreateChild, "a", WriteError::NoAuthority)];

    let outcome = bench.pass();

    assert_eq!(outcome.verdict, Verdict::NoAuthority);
    assert_eq!(bench.writes.len(), 1, "no status after that");
    assert_eq!(outcome.events, []);
}

#[test]
fn an_ownerless_object_of_a_childs_name_is_not_taken_over_and_not_tried() {
    let mut bench = Bench::wanting(&spec(), &[config("a", "1"), config("b", "1")]);
    let mut other = config("a", "theirs");
    other["metadata"]["namespace"] = "ns1".into();
    bench.world.put(other);

    let outcome = bench.pass();

    let told = told(&outcome);
    assert_eq!(told.len(), 1);
    assert!(
        told[0].starts_with("ChildConflict: create ConfigMap ns1/a: "),
        "{}",
        told[0]
    );
    assert_eq!(outcome.requeue, Requeue::Backoff);
    assert_eq!(bench.child("a")["data"]["a"], "theirs");
    assert_eq!(outcome.counts.created, 1, "the other child is created");
}

#[test]
fn an_object_that_another_controls_is_told_of_when_it_is_met_twice() {
    let mut bench = Bench::wanting(&spec(), &[config("a", "1")]);
    let mut other = config("a", "theirs");
    other["metadata"]["namespace"] = "ns1".into();
    other["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "X", "controller": true}]);
    bench.world.put(other);

    let first = bench.pass();
    assert_eq!(
        (first.verdict, first.requeue),
        (Verdict::Stale, Requeue::Soon)
    );
    let second = bench.pass();

    assert!(told(&second)[0].starts_with("ChildConflict: create ConfigMap ns1/a: "));
    assert_eq!(second.requeue, Requeue::Backoff);
    assert_eq!(bench.child("a")["data"]["a"], "theirs");
}

#[test]
fn a_child_whose_record_cannot_be_read_is_not_touched() {
    let mut bench = Bench::wanting(&spec(), &[config("a", "1")]);
    bench.pass();
    bench.world.edit(CONFIG, "a", |it| {
        it["metadata"]["annotations"][ANNOTATION] = "{".into();
    });
    bench.want(&[config("a", "2")]);

    let outcome = bench.pass();

    assert!(
        told(&outcome)[0].contains("compare ConfigMap ns1/a"),
        "{:?}",
        told(&outcome)
    );
    assert_eq!(bench.child("a")["data"]["a"], "1");
}

#[test]
fn fields_that_only_the_api_server_writes_are_not_taken_from_a_hook() {
    let mut bench = Bench::wanting(&spec(), &[config("a", "1")]);
    bench.pass();
    let mut echoed = bench.child("a").clone();
    echoed["metadata"]["resourceVersion"] = "1".into();
    echoed["metadata"]["uid"] = "other".into();
    bench.want(&[echoed]);

    bench.pass();
    bench.pass();

    assert!(bench.writes.is_empty(), "{:?}", bench.writes);
    let record = bench.child("a")["metadata"]["annotations"][ANNOTATION]
        .as_str()
        .unwrap();
    assert!(
        !record.contains("resourceVersion") && !record.contains("last-applied"),
        "{record}"
    );
}

#[test]
fn an_annotation_text_of_another_encoder_is_no_change() {
    let mut bench = Bench::wanting(&with_method("Recreate"), &[config("a", "<")]);
    bench.pass();
    bench.world.edit(CONFIG, "a", |it| {
        let record = &mut it["metadata"]["annotations"][ANNOTATION];
        *record = record.as_str().unwrap().replace("\\u003c", "<").into();
    });
    bench.memory = Memory::default();

    bench.pass();

    assert!(bench.writes.is_empty(), "{:?}", bench.writes);
}

#[test]
fn resync_after_seconds_comes_back_then_and_a_failure_backs_off() {
    let mut bench = Bench::new(&spec());
    bench.answer = answer(&json!({"children": [], "resyncAfterSeconds": 2.5}));
    let after = Requeue::After(std::time::Duration::from_millis(2500));

    assert_eq!(bench.pass().requeue, after);
    assert_eq!(bench.pass().requeue, after, "also when nothing changed");
    assert_eq!(
        bench.pass().requeue,
        after,
        "also when the pass is remembered"
    );
}

#[test]
fn deletions_come_before_creations() {
    let mut bench = Bench::wanting(&spec(), &[config("a", "1")]);
    bench.pass();
    bench.want(&[config("b", "1")]);

    bench.pass();

    assert_eq!(
        bench.purposes(),
        [Purpose::DeleteChild, Purpose::CreateChild]
    );
}

#[test]
fn an_update_never_loses_the_parents_owner_reference() {
    let mut child = config("a", "1");
    let mut bench = Bench::wanting(&spec(), &[child.clone()]);
    bench.pass();
    let theirs = json!({"apiVersion": "v1", "kind": "X", "name": "x", "uid": "X"});
    // No key tells these apart, so that the list is replaced whole.
    child["metadata"]["ownerReferences"] = json!([theirs, theirs]);
    bench.want(&[child]);

    bench.pass();

    let owners = bench.child("a")["metadata"]["ownerReferences"]
        .as_array()
        .unwrap();
    assert_eq!(
        owners.iter().filter(|owner| owner["uid"] == "P-1").count(),
        1
    );
}

/// A16: a copy of 700 KiB does not go into an annotation.
#[test]
fn a_large_child_is_recorded_in_outline_and_settles_all_the_same() {
    for method in ["InPlace", "Recreate"] {
        let large = |letter: &str| {
            let mut child = config("a", &letter.repeat(700 << 10));
            child["data"]["small"] = "x".into();
            child
        };
        let mut bench = Bench::wanting(&with_method(method), &[large("x")]);
        bench.pass();
        let record = bench.child("a")["metadata"]["annotations"][ANNOTATION].clone();
        assert!(record.as_str().unwrap().len() < 1024, "{record}");

        bench.memory = Memory::default();
        bench.pass();
        assert!(bench.writes.is_empty(), "{method}");

        let mut changed = large("y");
        changed["data"].as_object_mut().unwrap().remove("small");
        bench.want(&[changed.clone()]);
        bench.pass();
        bench.pass();
        assert_eq!(
            bench.child("a")["data"],
            changed["data"],
            "{method}: what is left out goes"
        );
    }
}
