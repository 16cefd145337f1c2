//! The record of what was applied last: what it must not hold.

use metashard_reconcile::{
    memory::Memory,
    requeue::Requeue,
    sync::Verdict,
    write::{Purpose, WriteError},
};
use serde_json::{Value, json};

use crate::world::{Bench, CONFIG, config, rule, spec, told};

const ANNOTATION: &str = "metacontroller.k8s.io/last-applied-configuration";

fn record_of(object: &Value) -> Value {
    let text = object["metadata"]["annotations"][ANNOTATION].as_str();
    serde_json::from_str(text.expect("it has a record")).unwrap()
}

/// a hook that gives back what it has observed gives back the record, too; a record within a record would grow for ever.
#[test]
fn a_child_that_is_created_from_an_observed_one_has_no_record_within_its_record() {
    let mut bench = Bench::wanting(&spec(), &[config("a", "1")]);
    bench.pass();
    let mut copy = bench.child("a").clone();
    copy["metadata"]["annotations"]["note"] = "x".into();
    bench.world.delete(CONFIG, "a");
    bench.want(&[copy]);

    bench.pass();

    assert_eq!(bench.purposes(), [Purpose::CreateChild]);
    let record = record_of(bench.child("a"));
    assert_eq!(record["metadata"]["annotations"], json!({"note": "x"}));
}

fn secret(password: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"},
        "data": {"password": password, "gone": "Z29uZQ=="}, "stringData": null, "type": "Opaque",
    })
}

/// A17: annotations are printed, exported and indexed where nobody expects secrets.
#[test]
fn a_secret_is_recorded_by_its_keys_alone_and_kept_up_all_the_same() {
    for method in ["InPlace", "Recreate"] {
        let mut spec = spec();
        spec["childResources"][0] = rule("v1", "secrets", method);
        let mut bench = Bench::wanting(&spec, &[secret("aHVudGVyMg==")]);
        let stored = |bench: &Bench| bench.world.get("secrets", "ns1", "s").unwrap().clone();
        bench.pass();
        let record = record_of(&stored(&bench));
        assert_eq!(record["data"], json!({"gone": "", "password": ""}));
        assert_eq!(record["type"], "Opaque");

        bench.memory = Memory::default();
        bench.pass();
        assert!(bench.writes.is_empty(), "{method}: {:?}", bench.writes);

        let mut changed = secret("c3dvcmRmaXNo");
        changed["data"].as_object_mut().unwrap().remove("gone");
        bench.want(&[changed.clone()]);
        for _ in 0..2 {
            let outcome = bench.pass();
            let shown = format!("{:?} {:?}", told(&outcome), outcome.verdict);
            assert!(!shown.contains("c3dv"), "{shown}");
            let whys: Vec<_> = bench.writes.iter().map(|it| it.why.to_string()).collect();
            assert!(!whys.concat().contains("c3dv"), "{whys:?}");
        }
        assert_eq!(stored(&bench)["data"], changed["data"], "{method}");
    }
}

/// What Metacontroller recorded stays as it is until the Secret changes: a switch-over writes nothing.
#[test]
fn a_secret_that_metacontroller_recorded_in_full_is_not_written_for_that() {
    let mut spec = spec();
    spec["childResources"][0] = rule("v1", "secrets", "Recreate");
    let mut bench = Bench::wanting(&spec, &[secret("aHVudGVyMg==")]);
    bench.pass();
    bench.world.edit("secrets", "s", |it| {
        let mut full = record_of(it);
        full["data"] = it["data"].clone();
        it["metadata"]["annotations"][ANNOTATION] = full.to_string().into();
    });
    bench.memory = Memory::default();

    bench.pass();

    assert!(bench.writes.is_empty(), "{:?}", bench.writes);
}

/// The first time it may be that the same answer has created the namespace a moment ago.
#[test]
fn a_child_for_a_namespace_that_does_not_exist_is_told_of_when_it_is_met_twice() {
    let mut bench = Bench::wanting(&spec(), &[config("a", "1")]);
    let missing = || (Purpose::CreateChild, "a", WriteError::NotFound);
    bench.world.errors = vec![missing(), missing()];

    let first = bench.pass();
    assert_eq!(
        (first.verdict, first.requeue),
        (Verdict::Stale, Requeue::Soon)
    );
    assert!(first.events.is_empty());

    let second = bench.pass();
    let text = "SyncError: Sync error: can't reconcile children for Foo ns1/p: create ConfigMap ns1/a: not found: namespace \"ns1\" does not exist";
    assert!(told(&second)[0].starts_with(text), "{:?}", told(&second));
    assert_eq!(second.requeue, Requeue::Backoff);

    let third = bench.pass();
    assert_eq!(third.counts.created, 1);
    assert!(third.events.is_empty());
}

/// N05: Metacontroller sends the API server a path that it does not know.
#[test]
fn a_namespaced_child_of_a_cluster_scoped_parent_has_to_name_its_namespace() {
    let mut spec = spec();
    spec["parentResource"]["resource"] = "bigs".into();
    let mut bench = Bench::wanting(&spec, &[config("a", "1")]);
    bench.world.put(json!({
        "apiVersion": "ex.io/v1", "kind": "Big", "metadata": {"name": "big"}, "spec": {},
    }));
    bench.parent = ("bigs", "big");

    let outcome = bench.pass();

    let told = told(&outcome);
    assert!(
        told[0].contains("ConfigMap a") && told[0].contains("metadata.namespace"),
        "{told:?}"
    );
    assert!(bench.writes.is_empty());
}
