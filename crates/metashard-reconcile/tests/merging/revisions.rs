//! Every recorded revision: its patch, its name, its labels, and the parent at it.

use std::path::Path;

use metashard_api::resource::Resource;
use metashard_reconcile::{
    diff,
    revision::patch::{self, Error},
};
use serde_json::{Map, Value};

/// The live parent has 1.0 where the stored patch has 1: to us the same, so that the revision is found again.
const SAME_BY_VALUE: [&str; 2] = ["v038", "v039"];

fn paths(case: &Value) -> Vec<String> {
    let given = case["fieldPaths"].as_array().map(Vec::as_slice);
    match given.unwrap_or_default() {
        [] => vec!["spec".to_owned()],
        given => given
            .iter()
            .map(|path| path.as_str().unwrap().to_owned())
            .collect(),
    }
}

fn resource(case: &Value) -> Resource {
    let text = |field: &str| case["resource"][field].as_str().unwrap().to_owned();
    Resource {
        group: text("group"),
        version: "v1".to_owned(),
        plural: text("name"),
        kind: "Foo".to_owned(),
        namespaced: true,
        has_status: true,
    }
}

fn labels(case: &Value, uid: &str) -> Result<Map<String, Value>, Error> {
    let generate = case["generateSelector"] == true;
    patch::labels(&resource(case), generate, &case["parent"], uid)
}

#[test]
fn every_recorded_revision_is_cut_named_and_labelled_alike() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors/revisions.jsonl");
    let text = std::fs::read_to_string(path).expect("the vectors are in the repository");
    let mut count = 0;
    for line in text.lines() {
        let case: Value = serde_json::from_str(line).expect("each line is a case");
        check(&case);
        count += 1;
    }
    assert_eq!(count, 65);
}

fn check(case: &Value) {
    let id = case["id"].as_str().unwrap();
    let uid = case["parent"]["metadata"]["uid"].as_str();
    let uid = uid.unwrap_or_default();
    let cut = patch::cut(&case["parent"], &paths(case));
    if case.get("patchError").is_some() {
        assert!(cut.is_err(), "{id}: {cut:?}");
        return;
    }
    let cut = cut.unwrap();
    assert!(diff::equal(&cut, &case["patch"]), "{id}: {cut}");
    let labels = labels(case, uid);
    if case.get("revisionError").is_some() {
        assert!(labels.is_err(), "{id}: {labels:?}");
        return;
    }
    assert_eq!(Value::Object(labels.unwrap()), case["labels"], "{id}");
    let name = patch::name(&resource(case), uid, &cut);
    assert_eq!(name, case["name"].as_str().unwrap(), "{id}");
    if case.get("current").is_some() {
        check_later(case, id);
    }
}

/// A later state of the parent, and the stored patch.
fn check_later(case: &Value, id: &str) {
    let stored = match case.get("storedPatch") {
        Some(stored) => stored.clone(),
        None => serde_json::from_str(case["patchText"].as_str().unwrap()).unwrap(),
    };
    let mut parent = case["current"].clone();
    let latest = patch::cut(&parent, &paths(case));
    if let Some(is_latest) = case["isLatest"].as_bool() {
        let ours = diff::equal(&latest.unwrap(), &stored);
        assert_eq!(ours, is_latest || SAME_BY_VALUE.contains(&id), "{id}");
    }
    let laid = patch::lay_over(&mut parent, &stored, &paths(case));
    if case.get("materialiseError").is_some() {
        assert!(laid.is_err(), "{id}: {parent}");
    } else {
        assert!(laid.is_ok(), "{id}: {laid:?}");
        assert!(
            diff::equal(&parent, &case["materialised"]),
            "{id}: {parent}"
        );
    }
}
