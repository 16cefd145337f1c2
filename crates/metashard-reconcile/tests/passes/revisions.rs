//! ControllerRevisions: what is in them, whose they are, and what is done when one cannot be written.

use metashard_reconcile::{
    controller,
    sync::{HookResult, Verdict},
    write::{Purpose, WriteError},
};
use serde_json::{Value, json};

use crate::{
    rolling::{CHILD, Stage, deployment, rolling_spec},
    world::{self, REVISION, compile, told},
};

fn name_of(revision: &Value) -> String {
    revision["metadata"]["name"].as_str().unwrap().to_owned()
}

#[test]
fn a_revision_is_as_metacontroller_writes_it() {
    let stage = Stage::new(&rolling_spec("RollingInPlace"), 2);

    let [revision] = &stage.revisions()[..] else {
        panic!("there is one revision");
    };
    assert_eq!(revision["apiVersion"], "metacontroller.k8s.io/v1alpha1");
    assert_eq!(revision["kind"], "ControllerRevision");
    let metadata = &revision["metadata"];
    assert!(name_of(revision).starts_with("foos.ex.io-"));
    assert_eq!(metadata["namespace"], "ns1");
    let labels = json!({
        "controller-uid": "P-1",
        "metacontroller.k8s.io/apiGroup": "ex.io",
        "metacontroller.k8s.io/resource": "foos",
    });
    assert_eq!(metadata["labels"], labels);
    let owner = json!([{
        "apiVersion": "ex.io/v1", "kind": "Foo", "name": "p", "uid": "P-1",
        "controller": true, "blockOwnerDeletion": true,
    }]);
    assert_eq!(metadata["ownerReferences"], owner);
    let parent = stage.bench.world.get("foos", "ns1", "p").unwrap();
    assert_eq!(revision["parentPatch"], json!({"spec": parent["spec"]}));
    let children = json!([{"apiGroup": "apps", "kind": "Deployment", "names": ["c-00", "c-01"]}]);
    assert_eq!(revision["children"], children);
}

#[test]
fn only_the_fields_of_the_history_make_a_revision() {
    let mut spec = rolling_spec("RollingInPlace");
    spec["parentResource"]["revisionHistory"] = json!({"fieldPaths": ["spec.image"]});
    let mut stage = Stage::new(&spec, 2);
    let before = stage.revisions();

    stage.edit("size", &json!(3));
    stage.settle();

    let [revision] = &stage.revisions()[..] else {
        panic!("there is one revision");
    };
    assert_eq!(name_of(revision), name_of(&before[0]));
    assert_eq!(revision["parentPatch"], json!({"spec": {"image": "v1"}}));
    stage.edit("image", &json!("v2"));
    stage.pass();
    assert_eq!(stage.revisions().len(), 2);
    assert_eq!(
        stage.bench.calls[1].1["parent"]["spec"]["size"], 3,
        "the rest is as it is now"
    );
}

#[test]
fn a_path_through_a_text_fails_the_sync_and_nothing_is_written() {
    let mut spec = rolling_spec("RollingInPlace");
    spec["parentResource"]["revisionHistory"] = json!({"fieldPaths": ["spec.image.tag"]});
    let mut stage = Stage::unsynced(&spec, 2);

    let outcome = stage.pass();

    assert_eq!(stage.bench.writes, []);
    let expected = "SyncError: Sync error: can't sync revisions of Foo ns1/p: path \"spec.image.tag\" of \
                    spec.parentResource.revisionHistory: .spec.image is no object";
    assert_eq!(told(&outcome), [expected]);
}

#[test]
fn a_revision_is_known_by_its_owner_whatever_its_labels() {
    let mut spec = rolling_spec("RollingInPlace");
    spec["generateSelector"] = json!(false);
    let mut stage = Stage::unsynced(&spec, 2);
    stage.bench.answers = Some(Box::new(|request| {
        let mut child = deployment("c", &request["parent"]["spec"]["image"]);
        child["metadata"]["labels"] = json!({"app": "web"});
        json!({"children": [child]})
    }));
    stage.settle();
    let revisions = stage.revisions();
    assert_eq!(
        revisions[0]["metadata"]["labels"].get("app"),
        None,
        "the selector does not match it"
    );

    stage.edit("image", &json!("v2"));
    stage.settle();

    assert_eq!(stage.image("c"), "v2");
    assert_eq!(stage.revisions().len(), 1);
}

#[test]
fn a_revision_that_was_let_go_is_taken_back() {
    let mut stage = Stage::new(&rolling_spec("RollingInPlace"), 2);
    let name = name_of(&stage.revisions()[0]);
    // As Metacontroller leaves it where its labels do not match.
    stage.bench.world.edit(REVISION, &name, |it| {
        it["metadata"]["ownerReferences"] = Value::Null;
        it["metadata"]["labels"]["controller-uid"] = Value::Null;
    });

    let outcome = stage.pass();

    assert_eq!(
        stage.bench.reads, 1,
        "the parent is read before anything is adopted"
    );
    assert_eq!(stage.bench.purposes(), [Purpose::AdoptChild]);
    assert_eq!(outcome.counts.claimed, 1);
    assert_eq!(
        stage.revisions()[0]["metadata"]["ownerReferences"][0]["uid"],
        "P-1"
    );
}

#[test]
fn names_that_are_nobodys_are_dropped() {
    let mut stage = Stage::new(&rolling_spec("RollingInPlace"), 2);
    let name = name_of(&stage.revisions()[0]);
    let unknown = json!([
        {"apiGroup": "apps", "kind": "Deployment", "names": ["c-01", "c-00", "c-77"]},
        {"apiGroup": "", "kind": "ConfigMap", "names": ["x"]},
    ]);
    stage
        .bench
        .world
        .edit(REVISION, &name, |it| it["children"] = unknown.clone());

    stage.pass();

    assert_eq!(stage.bench.purposes(), [Purpose::UpdateRevision]);
    let children = json!([{"apiGroup": "apps", "kind": "Deployment", "names": ["c-00", "c-01"]}]);
    assert_eq!(stage.revisions()[0]["children"], children);
}

#[test]
fn no_child_is_touched_when_a_revision_cannot_be_written() {
    for error in [WriteError::Conflict, WriteError::Forbidden("no".to_owned())] {
        let mut stage = Stage::new(&rolling_spec("RollingInPlace"), 2);
        let name: &'static str = name_of(&stage.revisions()[0]).leak();
        stage.edit("image", &json!("v2"));
        stage.bench.world.errors = vec![(Purpose::UpdateRevision, name, error.clone())];

        let outcome = stage.pass();

        assert_eq!(
            stage.bench.purposes(),
            [Purpose::CreateRevision, Purpose::UpdateRevision]
        );
        let is_stale = error == WriteError::Conflict;
        assert_eq!(outcome.verdict == Verdict::Stale, is_stale, "{outcome:?}");
        assert_eq!(stage.count("v1"), 2);
        stage.settle();
        assert_eq!(stage.count("v2"), 2);
    }
}

#[test]
fn an_answer_that_fails_for_an_older_revision_changes_nothing() {
    let mut stage = Stage::new(&rolling_spec("RollingInPlace"), 2);
    stage.edit("image", &json!("v2"));
    stage.bench.answers = Some(Box::new(
        |request| match request["parent"]["spec"]["image"].as_str() {
            Some("v1") => json!({"children": "all"}),
            _ => json!({"children": []}),
        },
    ));

    let outcome = stage.pass();

    assert!(
        matches!(outcome.verdict, Verdict::AnswerRefused(_)),
        "{outcome:?}"
    );
    assert_eq!(stage.bench.writes, []);
}

#[test]
fn an_answer_without_a_status_is_one_with_an_empty_status() {
    let mut stage = Stage::unsynced(&rolling_spec("RollingInPlace"), 1);
    stage.bench.answers = Some(Box::new(
        |_| json!({"children": [deployment("c", &json!("v1"))]}),
    ));

    stage.pass();

    let parent = stage.bench.world.get("foos", "ns1", "p").unwrap();
    assert_eq!(parent["status"]["conditions"].as_array().unwrap().len(), 1);
    assert_eq!(
        parent["status"]["observedGeneration"],
        parent["metadata"]["generation"]
    );
}

#[test]
fn an_empty_revision_of_ours_is_deleted_and_strangers_stay() {
    let mut stage = Stage::new(&rolling_spec("RollingInPlace"), 1);
    let mut empty = stage.revisions()[0].clone();
    empty["metadata"]["name"] = "foos.ex.io-empty".into();
    empty["metadata"]["uid"] = "E".into();
    empty["parentPatch"] = json!({"spec": {"image": "v0"}});
    empty["children"] = json!([]);
    let mut foreign = empty.clone();
    foreign["metadata"]["name"] = "foreign".into();
    foreign["metadata"]["uid"] = "F".into();
    foreign["metadata"]["ownerReferences"][0]["uid"] = "other".into();
    stage.bench.world.put(empty);
    stage.bench.world.put(foreign);

    stage.pass();

    assert_eq!(stage.bench.purposes(), [Purpose::DeleteRevision]);
    let left: Vec<_> = stage.revisions().iter().map(name_of).collect();
    assert!(
        left.contains(&"foreign".to_owned()) && left.len() == 2,
        "{left:?}"
    );
}

#[test]
fn a_failed_call_for_an_older_revision_ends_the_pass() {
    let mut stage = Stage::new(&rolling_spec("RollingInPlace"), 2);
    stage.edit("image", &json!("v2"));
    stage.bench.answers = None;
    stage.bench.answer = HookResult::Failed("no route".to_owned());

    let outcome = stage.pass();

    assert!(matches!(outcome.verdict, Verdict::HookFailed(_)));
    assert_eq!(stage.bench.writes, []);
}

#[test]
fn a_finalize_hook_is_called_for_every_revision_and_all_must_have_finalized() {
    let mut spec = rolling_spec("RollingInPlace");
    spec["hooks"]["finalize"] = world::hook("v1");
    let mut stage = Stage::new(&spec, 2);
    stage.edit("image", &json!("v2"));
    stage.pass();
    stage.bench.world.delete("foos", "p");
    stage.bench.answers = Some(Box::new(|request| {
        let is_new = request["parent"]["spec"]["image"] == "v2";
        json!({"children": [], "finalized": is_new || request["children"]["Deployment.apps/v1"] == json!({})})
    }));

    stage.pass();
    assert_eq!(stage.bench.calls.len(), 2);
    assert_eq!(stage.children(), Vec::<String>::new());
    assert!(
        stage.bench.world.get("foos", "ns1", "p").is_some(),
        "one has not finalized"
    );
    stage.pass();

    assert!(stage.bench.world.get("foos", "ns1", "p").is_none());
}

#[test]
fn a_parent_without_a_namespace_cannot_roll() {
    let mut spec = rolling_spec("RollingInPlace");
    spec["parentResource"]["resource"] = json!("bigs");

    let refused = compile(&spec).unwrap_err();

    assert!(matches!(refused, controller::Error::Refused(_)));
    assert!(
        refused.to_string().contains("spec.parentResource"),
        "{refused}"
    );
}

#[test]
fn an_older_revision_that_has_no_version_of_a_child_leaves_it_until_its_turn() {
    let mut stage = Stage::new(&rolling_spec("RollingInPlace"), 3);
    stage.bench.answers = Some(Box::new(
        |request| match request["parent"]["spec"]["image"].as_str() {
            Some("v1") => json!({"children": []}),
            _ => crate::rolling::sized(request),
        },
    ));
    stage.edit("image", &json!("v2"));

    stage.pass();

    assert_eq!(stage.disturbed(), ["c-00"]);
    assert_eq!(stage.bench.world.all(CHILD).count(), 3);
    stage.settle();
    assert_eq!(stage.count("v2"), 3);
}
