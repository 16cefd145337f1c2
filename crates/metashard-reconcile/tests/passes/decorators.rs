//! What a pass of a decorator changes in its target, and which attachments are its own.

use std::sync::Arc;

use bytes::Bytes;
use metashard_reconcile::{
    controller::{self, Controller},
    requeue::Requeue,
    sync::{HookKind, Verdict},
    write::{Purpose, WriteError},
};
use serde_json::{Value, json};

use crate::world::{
    self, Bench, CONFIG, FOO, World, answer, config, controller_object, hook, lookup, rule, told,
};

mod attachments;

const MARK: &str = "metacontroller.k8s.io/decorator-controller";
const OURS: &str = "metacontroller.io/decoratorcontroller-d";

/// A decorator of Foos and ConfigMaps that attaches ConfigMaps, updated in place.
fn spec() -> Value {
    json!({
        "resources": [
            {"apiVersion": "ex.io/v1", "resource": FOO},
            {"apiVersion": "ex.io/v1", "resource": "plains"},
        ],
        "attachments": [rule("v1", CONFIG, "InPlace")],
        "hooks": {"sync": hook("v1")},
    })
}

/// The same with a finalize hook, of Foos with the label `on`.
fn finalizing() -> Value {
    let mut spec = spec();
    spec["resources"][0]["labelSelector"] = json!({"matchLabels": {"on": "yes"}});
    spec["hooks"]["finalize"] = hook("v1");
    spec
}

/// Compiles a DecoratorController `d` of this spec.
fn compile_decorator(spec: &Value) -> Result<Controller, controller::Error> {
    let mut object = controller_object(spec);
    object["kind"] = "DecoratorController".into();
    object["metadata"]["name"] = "d".into();
    let raw = Bytes::from(object.to_string());
    Controller::compile_decorator(&serde_json::from_value(object).unwrap(), &raw, &lookup)
}

impl Bench {
    /// As [`Bench::new`], with a DecoratorController `d`.
    pub(crate) fn decorating(spec: &Value) -> Self {
        Self {
            controller: Arc::new(compile_decorator(spec).unwrap()),
            answer: answer(&json!({"attachments": []})),
            ..Self::new(&world::spec())
        }
    }
}

/// A bench whose target has these labels and this annotation, and no status.
fn bench(spec: &Value) -> Bench {
    let mut bench = Bench::decorating(spec);
    bench.world.edit(FOO, "p", |it| {
        it["metadata"]["labels"] = json!({"on": "yes", "theirs": "1"});
        it["metadata"]["annotations"] = json!({"theirs": "2"});
    });
    bench
}

fn answering(body: &Value) -> Bench {
    let mut bench = bench(&spec());
    bench.answer = answer(body);
    bench
}

fn target(world: &World) -> &Value {
    world.get(FOO, "ns1", "p").expect("the target is there")
}

fn labels(bench: &Bench) -> &Value {
    &target(&bench.world)["metadata"]["labels"]
}

fn finalizers(bench: &Bench) -> &Value {
    &target(&bench.world)["metadata"]["finalizers"]
}

/// A ConfigMap of the target `p`, as this decorator would have made it.
fn attached(name: &str, decorator: &str) -> Value {
    let mut object = config(name, "1");
    object["metadata"]["namespace"] = "ns1".into();
    object["metadata"]["annotations"] = json!({ MARK: decorator });
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "ex.io/v1", "kind": "Foo", "name": "p", "uid": "P-1",
        "controller": true, "blockOwnerDeletion": true,
    }]);
    object
}

/// 7.2: the answer of the compatibility file.
#[test]
fn labels_and_annotations_are_set_and_removed_and_all_others_stay() {
    let mut bench = answering(&json!({
        "labels": {"a": "b", "on": "no", "theirs": null, "absent": null},
        "annotations": {"x": "y"}, "status": null, "attachments": [],
        "resyncAfterSeconds": 0, "finalized": false,
    }));

    let outcome = bench.pass();

    assert_eq!(outcome.verdict, Verdict::Changed);
    assert_eq!(
        bench.purposes(),
        [Purpose::Decorate],
        "one write for all of it"
    );
    assert_eq!(*labels(&bench), json!({"a": "b", "on": "no"}));
    let annotations = &target(&bench.world)["metadata"]["annotations"];
    assert_eq!(*annotations, json!({"theirs": "2", "x": "y"}));
    let why = r#"metadata.labels["a"], metadata.labels["on"], metadata.labels["theirs"], metadata.annotations["x"]"#;
    assert_eq!(&*bench.writes[0].why, why);

    assert_eq!(bench.pass().verdict, Verdict::Unchanged);
    assert_eq!(bench.writes, []);
}

#[test]
fn a_target_that_is_as_wanted_is_not_written() {
    for body in [
        json!({"attachments": []}),
        json!({"labels": {"on": "yes"}, "annotations": {"theirs": "2"}, "attachments": []}),
        json!({"labels": {"absent": null}, "annotations": {"absent": null}, "attachments": []}),
        json!({"labels": null, "annotations": null, "status": null, "attachments": null}),
    ] {
        let mut bench = answering(&body);

        assert_eq!(bench.pass().verdict, Verdict::Unchanged, "{body}");
        assert_eq!(bench.writes, [], "{body}");
    }
}

#[test]
fn a_status_is_replaced_by_its_subresource_and_gets_no_observed_generation() {
    let mut bench = answering(&json!({"status": {"ready": 1}, "attachments": []}));
    bench
        .world
        .edit(FOO, "p", |it| it["status"] = json!({"old": true}));

    bench.pass();

    assert_eq!(
        bench.purposes(),
        [Purpose::UpdateStatus],
        "and nothing else"
    );
    assert_eq!(target(&bench.world)["status"], json!({"ready": 1}));
    bench.pass();
    assert_eq!(bench.writes, []);
    bench.answer = answer(&json!({"status": null, "attachments": []}));
    bench.pass();
    assert_eq!(bench.writes, [], "an absent status stays as it is");
}

#[test]
fn a_status_goes_before_the_rest_and_both_are_written_once() {
    let mut bench = answering(&json!({
        "status": {"ready": 1}, "labels": {"a": "b"}, "attachments": [],
    }));

    let outcome = bench.pass();

    assert_eq!(bench.purposes(), [Purpose::UpdateStatus, Purpose::Decorate]);
    assert_eq!(outcome.counts.parent, 2);
    assert_eq!(target(&bench.world)["status"], json!({"ready": 1}));
    assert_eq!(labels(&bench)["a"], "b");
}

/// Section 5, `decorator.TestResyncAfter`.
#[test]
fn an_empty_status_is_kept_where_there_was_none() {
    let mut bench = answering(&json!({"status": {}, "attachments": []}));

    bench.pass();

    assert_eq!(bench.purposes(), [Purpose::UpdateStatus]);
    assert_eq!(target(&bench.world)["status"], json!({}));
    bench.pass();
    assert_eq!(bench.writes, []);
}

/// A target whose resource has no subresource for the status.
fn plain(body: &Value) -> Bench {
    let mut bench = answering(body);
    bench.world.put(json!({
        "apiVersion": "ex.io/v1", "kind": "Plain",
        "metadata": {"name": "q", "namespace": "ns1", "uid": "Q-1"},
    }));
    bench.parent = ("plains", "q");
    bench
}

#[test]
fn a_status_without_a_subresource_goes_with_the_rest() {
    let mut bench = plain(&json!({
        "status": {"ready": 1}, "labels": {"a": "b"}, "attachments": [],
    }));

    bench.pass();

    assert_eq!(bench.purposes(), [Purpose::Decorate]);
    let stored = bench.world.get("plains", "ns1", "q").unwrap();
    assert_eq!(stored["status"], json!({"ready": 1}));
    assert_eq!(stored["metadata"]["labels"], json!({"a": "b"}));
    bench.pass();
    assert_eq!(bench.writes, []);
}

#[test]
fn a_status_that_is_not_kept_is_told_of_and_not_written_again() {
    let mut bench = plain(&json!({"status": {"ready": 1}, "attachments": []}));
    bench.world.normalize = Some(Box::new(|it| {
        it.as_object_mut().unwrap().remove("status");
    }));

    let outcome = bench.pass();

    assert!(told(&outcome)[0].contains("does not keep all of the status"));
    bench.pass();
    bench.pass();
    assert_eq!(bench.writes, []);
}

/// 2.5.
#[test]
fn a_request_has_object_and_attachments() {
    let mut bench = answering(&json!({"attachments": [config("a", "1")]}));
    bench.pass();
    bench.pass();

    let (kind, request) = &bench.calls[0];

    assert_eq!(*kind, HookKind::Sync);
    let fields: Vec<_> = request.as_object().unwrap().keys().collect();
    assert_eq!(
        fields,
        [
            "attachments",
            "controller",
            "finalizing",
            "object",
            "related"
        ]
    );
    assert_eq!(request["controller"]["kind"], "DecoratorController");
    assert_eq!(request["controller"]["status"], json!({}));
    assert_eq!(request["object"], *target(&bench.world));
    assert_eq!(
        request["attachments"],
        json!({"ConfigMap.v1": {"a": bench.child("a")}})
    );
    assert_eq!(
        (&request["related"], &request["finalizing"]),
        (&json!({}), &json!(false))
    );
}

#[test]
fn a_v2_hook_gets_attachments_by_namespace_and_name() {
    let mut spec = spec();
    spec["hooks"]["sync"] = hook("v2");
    let mut bench = bench(&spec);
    bench.world.put(attached("a", "d"));

    bench.pass();

    let seen = bench.calls[0].1["attachments"]["ConfigMap.v1"]
        .as_object()
        .unwrap();
    assert_eq!(seen.keys().collect::<Vec<_>>(), ["ns1/a"]);
}

/// Q-16: the target has changed between our read and our write.
#[test]
fn a_conflict_on_the_target_does_not_lose_its_attachments() {
    let body = json!({"labels": {"a": "b"}, "status": {"x": 1}, "attachments": [config("a", "1")]});
    for purpose in [Purpose::UpdateStatus, Purpose::Decorate] {
        let mut bench = answering(&body);
        bench.world.errors = vec![(purpose, "p", WriteError::Conflict)];

        let outcome = bench.pass();

        assert_eq!(
            (outcome.verdict, outcome.requeue),
            (Verdict::Stale, Requeue::Soon)
        );
        assert!(outcome.events.is_empty(), "nobody is told of a lost race");
        assert_eq!(bench.child("a")["data"]["a"], "1");
        bench.pass();
        assert_eq!(labels(&bench)["a"], "b");
        assert_eq!(target(&bench.world)["status"], json!({"x": 1}));
    }
}

#[test]
fn a_target_that_is_gone_ends_the_pass_quietly() {
    let mut bench = answering(&json!({"labels": {"a": "b"}, "attachments": []}));
    bench.world.errors = vec![(Purpose::Decorate, "p", WriteError::NotFound)];

    let outcome = bench.pass();

    assert_eq!(outcome.verdict, Verdict::Gone);
    assert!(outcome.events.is_empty());
}

#[test]
fn what_goes_wrong_is_told_in_metacontrollers_words() {
    let body = json!({"labels": {"a": "b"}, "status": {"x": 1}, "attachments": []});
    let forbidden = || WriteError::Forbidden("no".to_owned());
    for (purpose, text) in [
        (
            Purpose::UpdateStatus,
            "SyncError: Sync error: can't update status: no",
        ),
        (
            Purpose::Decorate,
            "SyncError: Sync error: can't update Foo ns1/p: no",
        ),
    ] {
        let mut bench = answering(&body);
        bench.world.errors = vec![(purpose, "p", forbidden())];

        assert_eq!(told(&bench.pass()), [text]);
    }
    let mut bench = answering(&json!([]));
    let told = told(&bench.pass());
    assert!(
        told[0].starts_with("SyncError: Sync error: sync hook failed (version=v1): "),
        "{told:?}"
    );
}

/// Q-25.
#[test]
fn only_the_answer_of_a_finalize_hook_can_finalize() {
    let mut bench = bench(&finalizing());
    bench.answer = answer(&json!({"attachments": [], "finalized": true}));

    bench.pass();

    assert_eq!(bench.purposes(), [Purpose::AddFinalizer]);
    assert_eq!(bench.calls[0].0, HookKind::Sync);
    assert_eq!(*finalizers(&bench), json!([OURS]));
}

/// Q-22.
#[test]
fn rolling_methods_of_attachments_are_their_counterparts_without_rolling() {
    use metashard_reconcile::controller::UpdateStrategy::{InPlace, OnDelete, Recreate};
    for (method, expected) in [
        ("RollingRecreate", Recreate),
        ("RollingInPlace", InPlace),
        ("Recreate", Recreate),
        ("InPlace", InPlace),
        ("OnDelete", OnDelete),
    ] {
        let mut spec = spec();
        spec["attachments"] = json!([rule("v1", CONFIG, method)]);

        let controller = compile_decorator(&spec).unwrap();

        assert_eq!(controller.children[0].update, expected, "{method}");
    }
}
