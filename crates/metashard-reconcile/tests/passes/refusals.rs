//! Writes of the parent, of revisions and of owners that the API server refuses: each is told until it succeeds.

use metashard_reconcile::{
    requeue::Requeue,
    sync::Verdict,
    write::{Purpose, WriteError},
};
use serde_json::{Value, json};

use crate::{
    rolling::{Stage, rolling_spec},
    world::{Bench, CONFIG, FOO, REVISION, answer, config, hook, spec, told},
};

fn finalizing() -> Value {
    let mut spec = spec();
    spec["hooks"]["finalize"] = hook("v1");
    spec
}

/// A deleted parent whose hook has finalized.
fn finalized() -> Bench {
    let mut bench = Bench::new(&finalizing());
    bench.pass();
    bench.world.delete(FOO, "p");
    bench.answer = answer(&json!({ "children": [], "finalized": true }));
    bench
}

/// A parent with an object that it adopts, or a child that it lets go.
fn claiming(labels: &Value, owners: &Value) -> Bench {
    let mut spec = spec();
    spec["generateSelector"] = false.into();
    let mut bench = Bench::new(&spec);
    let mut object = config("a", "1");
    object["metadata"]["namespace"] = "ns1".into();
    object["metadata"]["labels"] = labels.clone();
    object["metadata"]["ownerReferences"] = owners.clone();
    bench.world.put(object);
    bench
}

fn released() -> Bench {
    let owner = json!({
        "apiVersion": "ex.io/v1", "kind": "Foo", "name": "p", "uid": "P-1", "controller": true,
    });
    claiming(&json!({ "app": "other" }), &json!([owner]))
}

/// A target that a decorator labels.
fn decorated() -> Bench {
    let spec = json!({
        "resources": [{ "apiVersion": "ex.io/v1", "resource": FOO }],
        "hooks": { "sync": hook("v1") },
    });
    let mut bench = Bench::decorating(&spec);
    bench.answer = answer(&json!({ "labels": { "a": "b" }, "attachments": [] }));
    bench
}

/// A parent whose children roll, before its first revision is written, and the name of that revision.
fn rolling() -> (Bench, &'static str) {
    let spec = rolling_spec("RollingInPlace");
    let settled = Stage::new(&spec, 1);
    let name = settled.bench.world.all(REVISION).next().unwrap()["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    (Stage::unsynced(&spec, 1).bench, name.leak())
}

fn refusals() -> [WriteError; 3] {
    [
        WriteError::Forbidden("no right".to_owned()),
        WriteError::Invalid("no sense".to_owned()),
        WriteError::Unavailable("no answer".to_owned()),
    ]
}

/// Each of `refusals` of this write is told by outcome and event, is tried again, and is told no more once it succeeds.
fn is_told(purpose: Purpose, name: &'static str, what: &str, of: impl Fn() -> Bench) {
    for error in refusals() {
        let mut bench = of();
        bench.world.errors = vec![(purpose, name, error.clone())];

        let outcome = bench.pass();

        let [refused] = &outcome.refused[..] else {
            panic!("{purpose}: {outcome:?}");
        };
        assert_eq!(refused.write, what);
        assert_eq!(refused.purpose, Some(purpose));
        assert_eq!(refused.error, error);
        assert!(matches!(outcome.verdict, Verdict::Failed(_)), "{outcome:?}");
        assert_eq!(outcome.requeue, Requeue::Backoff);
        let told = told(&outcome);
        assert!(
            told.iter()
                .any(|it| it.starts_with("SyncError: ") && it.contains(&error.to_string())),
            "{told:?}"
        );
        assert!(bench.world.errors.is_empty(), "it was tried");

        let again = bench.pass();
        assert!(again.refused.is_empty(), "{again:?}");
        assert!(bench.purposes().contains(&purpose), "it is tried again");
    }
}

#[test]
fn a_refused_status_is_told_until_it_is_written() {
    let of = || Bench::new(&spec());
    is_told(Purpose::UpdateStatus, "p", "update status of Foo ns1/p", of);
}

#[test]
fn a_refused_finalizer_is_told_until_it_is_set() {
    let of = || Bench::new(&finalizing());
    is_told(Purpose::AddFinalizer, "p", "add finalizer to Foo ns1/p", of);
}

#[test]
fn a_finalizer_that_cannot_be_taken_away_is_told_until_it_is() {
    let what = "remove finalizer from Foo ns1/p";
    is_told(Purpose::RemoveFinalizer, "p", what, finalized);
}

#[test]
fn a_target_that_cannot_be_decorated_is_told_until_it_is() {
    is_told(Purpose::Decorate, "p", "decorate Foo ns1/p", decorated);
}

#[test]
fn a_refused_revision_is_told_until_it_is_written_and_no_child_is_before() {
    let (bench, name) = rolling();
    drop(bench);
    let what = format!("create ControllerRevision ns1/{name}");
    is_told(Purpose::CreateRevision, name, &what, || rolling().0);

    let (mut bench, name) = rolling();
    bench.world.errors = vec![(Purpose::CreateRevision, name, refusals()[0].clone())];
    bench.pass();
    assert_eq!(bench.purposes(), [Purpose::CreateRevision]);
}

#[test]
fn a_refused_adoption_or_release_is_told_until_it_succeeds() {
    let adopted = || claiming(&json!({ "app": "web" }), &json!([]));
    is_told(Purpose::AdoptChild, "a", "adopt ConfigMap ns1/a", adopted);
    let what = "release ConfigMap ns1/a";
    is_told(Purpose::ReleaseChild, "a", what, released);
}

/// It ends before the claims, and says nothing of what it did not get at.
#[test]
fn of_one_refusal_nothing_else_is_told() {
    let mut bench = Bench::new(&finalizing());
    bench.want(&[config("a", "1")]);
    bench.world.errors = vec![(Purpose::AddFinalizer, "p", refusals()[0].clone())];

    let outcome = bench.pass();

    assert_eq!(outcome.refused.len(), 1);
    assert!(bench.calls.is_empty() && bench.world.all(CONFIG).next().is_none());
}
