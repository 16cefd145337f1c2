//! Children that the API server applies: what is written, what is left alone, and the way from and to dynamic apply.

use std::sync::Arc;

use metashard_reconcile::{
    memory::Memory,
    requeue::Requeue,
    sync::Verdict,
    write::{Aim, Op, Purpose, WriteError},
};
use serde_json::{Value, json};

use crate::world::{Bench, CONFIG, compile, compile_server_side, config, rule, spec, told};

const ANNOTATION: &str = "metacontroller.k8s.io/last-applied-configuration";

fn with_method(method: &str) -> Value {
    let mut spec = spec();
    spec["childResources"][0] = rule("v1", CONFIG, method);
    spec
}

/// A bench with a child `a` of `data.a`, made by one pass.
fn one_child(method: &str) -> Bench {
    let mut bench = Bench::applying(&with_method(method), &[config("a", "1")]);
    bench.pass();
    bench
}

/// The same, made by dynamic apply; from now on children are applied by the server.
fn from_dynamic(method: &str, child: Value) -> Bench {
    let mut bench = Bench::wanting(&with_method(method), &[child]);
    bench.world.manages_fields = true;
    bench.pass();
    bench.controller = Arc::new(compile_server_side(&with_method(method)));
    bench
}

fn owners(bench: &Bench) -> Vec<String> {
    let managers = bench.child("a")["metadata"]["managedFields"].as_array();
    let line = |entry: &Value| {
        let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
        format!("{} {}", text("manager"), text("operation"))
    };
    managers.into_iter().flatten().map(line).collect()
}

#[test]
fn a_child_is_created_by_one_apply_that_leaves_no_record() {
    let mut bench = Bench::applying(&spec(), &[config("a", "1"), config("b", "1")]);

    let outcome = bench.pass();

    assert_eq!((outcome.counts.created, bench.writes.len()), (2, 3));
    assert_eq!(bench.reads, 0);
    let Op::Apply { manager, aim, .. } = &bench.writes[0].op else {
        panic!("an apply")
    };
    assert_eq!((&**manager, *aim), ("metacontroller", Aim::Create));
    let metadata = &bench.child("a")["metadata"];
    assert_eq!(metadata["ownerReferences"][0]["uid"], "P-1");
    assert_eq!(metadata["labels"], json!({"controller-uid": "P-1"}));
    assert_eq!(metadata.get("annotations"), None);
    assert_eq!(owners(&bench), ["metacontroller Apply"]);
}

#[test]
fn a_pass_that_changes_nothing_writes_nothing_with_and_without_memory() {
    for method in ["InPlace", "Recreate", "OnDelete"] {
        let mut bench = one_child(method);

        let remembered = bench.pass();
        assert_eq!(
            (remembered.verdict, bench.writes.len()),
            (Verdict::Unchanged, 0)
        );

        bench.memory = Memory::default();
        let anew = bench.pass();
        assert_eq!((anew.verdict, bench.writes.len()), (Verdict::Unchanged, 0));
    }
}

#[test]
fn drift_of_what_is_ours_is_put_right_and_nothing_else() {
    let mut bench = one_child("InPlace");
    bench.world.edit(CONFIG, "a", |it| {
        it["data"] = json!({"a": "drifted", "theirs": "x"});
        it["metadata"]["labels"]["theirs"] = "x".into();
    });

    bench.pass();

    assert_eq!(bench.purposes(), [Purpose::UpdateChild]);
    assert_eq!(bench.writes[0].why.as_ref(), "data.a");
    assert_eq!(bench.child("a")["data"], json!({"a": "1", "theirs": "x"}));
    bench
        .world
        .edit(CONFIG, "a", |it| it["data"]["theirs"] = "y".into());
    bench.pass();
    assert_eq!(bench.purposes(), [], "it is not ours");
}

#[test]
fn a_field_that_is_no_longer_desired_goes() {
    let mut child = config("a", "1");
    child["data"]["old"] = "x".into();
    let mut bench = Bench::applying(&spec(), &[child]);
    bench.pass();
    bench.memory = Memory::default();
    bench.want(&[config("a", "1")]);

    bench.pass();

    assert_eq!(bench.purposes(), [Purpose::UpdateChild]);
    assert_eq!(bench.child("a")["data"], json!({"a": "1"}));
}

#[test]
fn a_null_is_as_good_as_nothing() {
    let mut child = config("a", "1");
    child["data"]["b"] = Value::Null;
    child["immutable"] = Value::Null;
    let mut bench = Bench::applying(&spec(), &[child]);
    bench.pass();
    bench.memory = Memory::default();

    bench.pass();

    assert_eq!(bench.purposes(), []);
}

#[test]
fn on_delete_nothing_is_written_whatever_differs() {
    let mut bench = one_child("OnDelete");
    bench.want(&[config("a", "2")]);

    bench.pass();

    assert_eq!(bench.purposes(), []);
}

#[test]
fn a_child_is_recreated_once_the_api_server_says_that_it_would_change() {
    let mut bench = one_child("Recreate");
    bench.want(&[config("a", "2")]);

    let outcome = bench.pass();

    assert_eq!(
        bench.purposes(),
        [Purpose::TryChild, Purpose::RecreateChild]
    );
    assert_eq!(outcome.counts.deleted, 1);
    bench.pass();
    assert_eq!(bench.purposes(), [Purpose::CreateChild]);
    assert_eq!(bench.child("a")["data"], json!({"a": "2"}));
    bench.pass();
    assert_eq!(bench.purposes(), []);
}

#[test]
fn a_child_that_a_second_manager_adds_to_is_not_recreated() {
    let mut bench = one_child("Recreate");
    bench.world.edit(CONFIG, "a", |it| {
        it["metadata"]["labels"]["theirs"] = "x".into();
        it["data"]["side-effect"] = "injected".into();
    });

    bench.pass();

    assert_eq!(bench.purposes(), [], "not even a question");
}

#[test]
fn what_the_api_server_writes_otherwise_is_asked_about_once_and_never_recreated() {
    let mut bench = Bench::applying(&with_method("Recreate"), &[config("a", "1000m")]);
    bench.world.normalize = Some(Box::new(|object| {
        if object["data"]["a"] == "1000m" {
            object["data"]["a"] = "1".into();
        }
    }));
    bench.pass();
    bench.pass();
    assert_eq!(bench.purposes(), []);

    bench.memory = Memory::default();
    bench.pass();
    assert_eq!(bench.purposes(), [Purpose::TryChild]);

    bench
        .world
        .edit(CONFIG, "a", |it| it["data"]["theirs"] = "x".into());
    bench.pass();
    assert_eq!(
        bench.purposes(),
        [],
        "its version is new, and the answer the same"
    );
}

#[test]
fn an_immutable_field_makes_a_child_anew() {
    let mut bench = one_child("Recreate");
    bench.want(&[config("a", "2")]);
    let immutable = WriteError::Invalid("data: field is immutable when `immutable` is set".into());
    bench.world.errors = vec![(Purpose::TryChild, "a", immutable)];

    bench.pass();

    assert_eq!(
        bench.purposes(),
        [Purpose::TryChild, Purpose::TryChild, Purpose::RecreateChild]
    );
    assert!(matches!(bench.writes[1].op, Op::TryCreate { .. }));
}

#[test]
fn a_child_that_could_not_be_created_again_is_not_deleted() {
    let mut bench = one_child("Recreate");
    bench.want(&[config("a", "2")]);
    let invalid = || WriteError::Invalid("data: is wrong in itself".into());
    bench.world.errors = vec![
        (Purpose::TryChild, "a", invalid()),
        (Purpose::TryChild, "a", invalid()),
    ];

    let outcome = bench.pass();

    assert_eq!(bench.purposes(), [Purpose::TryChild, Purpose::TryChild]);
    assert!(matches!(outcome.verdict, Verdict::Failed(_)));
    assert_eq!(bench.child("a")["data"], json!({"a": "1"}));
}

#[test]
fn an_object_that_is_nobodys_is_not_taken_over() {
    let mut bench = Bench::applying(&spec(), &[config("a", "1")]);
    let mut theirs = config("a", "theirs");
    theirs["metadata"]["namespace"] = "ns1".into();
    bench.world.put(theirs);
    let parent = bench.world.object(bench.parent.0, bench.parent.1).unwrap();

    let outcome = bench.pass();
    assert_eq!(bench.purposes(), [Purpose::UpdateStatus]);
    assert_eq!(outcome.requeue, Requeue::Backoff);
    assert!(told(&outcome)[0].starts_with("ChildConflict: create ConfigMap ns1/a"));

    // Nor if the cache does not show it.
    bench.memory = Memory::default();
    bench.pass_from(parent, vec![vec![].into()]);
    assert_eq!(bench.purposes()[0], Purpose::CreateChild);
    assert_eq!(bench.child("a")["data"], json!({"a": "theirs"}));
}

#[test]
fn from_dynamic_apply_a_child_changes_hands_in_one_write_and_loses_nothing() {
    for method in ["InPlace", "Recreate", "OnDelete"] {
        let mut child = config("a", "1");
        child["data"]["old"] = "x".into();
        let mut bench = from_dynamic(method, child.clone());
        bench
            .world
            .edit(CONFIG, "a", |it| it["data"]["theirs"] = "t".into());

        bench.pass();

        assert_eq!(bench.purposes(), [Purpose::HandOverChild], "{method}");
        assert_eq!(
            bench.child("a")["metadata"]["annotations"].get(ANNOTATION),
            None
        );
        assert_eq!(
            bench.child("a")["data"],
            json!({"a": "1", "old": "x", "theirs": "t"})
        );
        assert_eq!(owners(&bench), ["kubectl Update", "metacontroller Apply"]);
        bench.memory = Memory::default();
        bench.pass();
        assert_eq!(bench.purposes(), [], "{method}: once is enough");
    }
}

#[test]
fn what_dynamic_apply_wrote_goes_when_it_is_no_longer_desired() {
    let mut child = config("a", "1");
    child["data"]["old"] = "x".into();
    let mut bench = from_dynamic("InPlace", child);
    bench.want(&[config("a", "2")]);

    let outcome = bench.pass();
    assert_eq!(outcome.requeue, Requeue::Soon, "it has changed hands only");
    bench.pass();

    assert_eq!(bench.child("a")["data"], json!({"a": "2"}));
    bench.memory = Memory::default();
    bench.pass();
    assert_eq!(bench.purposes(), []);
}

#[test]
fn what_was_written_to_a_child_for_another_purpose_does_not_change_hands() {
    let mut bench = from_dynamic("InPlace", config("a", "1"));
    let finalizer = "metacontroller.io/compositecontroller-other";
    bench.world.edit_as("metashard", CONFIG, "a", |it| {
        it["metadata"]["finalizers"] = json!([finalizer]);
    });
    bench.pass();
    bench.want(&[config("a", "2")]);

    bench.pass();

    let metadata = &bench.child("a")["metadata"];
    assert_eq!(metadata["finalizers"], json!([finalizer]));
    assert_eq!(owners(&bench), ["metashard Update", "metacontroller Apply"]);
}

#[test]
fn a_field_that_an_old_update_owns_too_goes_all_the_same() {
    // As Metacontroller leaves it after its own switch to server-side apply: both own what it wants.
    let mut child = config("a", "1");
    child["data"]["old"] = "x".into();
    let mut bench = Bench::applying(&spec(), &[child]);
    bench.pass();
    bench.world.edit_as("metacontroller", CONFIG, "a", |it| {
        let applied = it["metadata"]["managedFields"][0].clone();
        let mut updated = applied.clone();
        updated["operation"] = "Update".into();
        it["metadata"]["managedFields"] = json!([updated, applied]);
    });
    bench.memory = Memory::default();
    bench.pass();
    assert_eq!(
        bench.purposes(),
        [],
        "nothing is written until something changes"
    );
    bench.want(&[config("a", "1")]);

    bench.pass();
    bench.pass();

    assert_eq!(bench.child("a")["data"], json!({"a": "1"}));
}

#[test]
fn back_to_dynamic_apply_nothing_is_written_until_something_changes() {
    for method in ["InPlace", "Recreate", "OnDelete"] {
        let mut child = config("a", "1");
        child["data"]["old"] = "x".into();
        let mut bench = Bench::applying(&with_method(method), &[child]);
        bench.pass();
        bench.controller = Arc::new(compile(&with_method(method)).unwrap());

        bench.pass();
        assert_eq!(bench.purposes(), [], "{method}");

        bench.want(&[config("a", "1")]);
        bench.pass();
        let expected: &[Purpose] = match method {
            "InPlace" => &[Purpose::UpdateChild],
            "Recreate" => &[Purpose::RecreateChild],
            _ => &[],
        };
        assert_eq!(bench.purposes(), expected, "{method}");
        if method == "InPlace" {
            assert_eq!(bench.child("a")["data"], json!({"a": "1"}));
            assert!(bench.child("a")["metadata"]["annotations"][ANNOTATION].is_string());
        }
    }
}
