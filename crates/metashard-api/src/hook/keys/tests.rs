//! Keys as Metacontroller writes and reads them.

use serde_json::Value;

use super::*;

const VECTORS: &str = include_str!("../../../../../tests/vectors/hookkeys.jsonl");

#[test]
fn every_recorded_key_is_written_and_read_the_same() {
    let (mut written, mut read) = (0, 0);
    for line in VECTORS.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        match case["op"].as_str() {
            Some("key") => {
                written += 1;
                check_written(&case);
            }
            Some("parse") => {
                read += 1;
                check_read(&case);
            }
            other => panic!("{other:?}"),
        }
    }

    println!("hookkeys.jsonl: {written} written, {read} read");
    assert_eq!((written, read), (49, 14));
}

fn check_written(case: &Value) {
    let text = |object: &Value, path: &str| {
        object
            .pointer(path)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let object = &case["object"];
    let (namespace, name) = (
        text(object, "/metadata/namespace"),
        text(object, "/metadata/name"),
    );
    let parent_namespace = text(&case["parent"], "/metadata/namespace");
    let key = |version| inner_key(version, &parent_namespace, &namespace, &name).map(Value::from);

    let outer = outer_key_of(&text(object, "/apiVersion"), &text(object, "/kind"));
    assert_eq!(outer, text(case, "/outer"), "{case}");
    assert_eq!(key(Version::V1).unwrap_or_default(), case["v1"], "{case}");
    assert_eq!(key(Version::V2).unwrap_or_default(), case["v2"], "{case}");
    let desired = relative_key(&parent_namespace, &namespace, &name);
    assert_eq!(desired, text(case, "/desiredKeyV1"), "{case}");
}

fn check_read(case: &Value) {
    let text = case["text"].as_str().unwrap();
    match Kind::parse(text) {
        Ok(kind) => {
            assert_eq!(case["ok"], true, "{case}");
            assert_eq!(case["group"], kind.group.as_str(), "{case}");
            assert_eq!(case["version"], kind.version.as_str(), "{case}");
            assert_eq!(case["kind"], kind.kind.as_str(), "{case}");
            assert_eq!(case["back"], kind.to_key().as_str(), "{case}");
        }
        Err(_) => assert_eq!(case["ok"], false, "{case}"),
    }
}

#[test]
fn a_resource_has_the_key_of_its_kind() {
    let resource = Resource {
        group: "apps".to_owned(),
        version: "v1".to_owned(),
        plural: "deployments".to_owned(),
        kind: "Deployment".to_owned(),
        namespaced: true,
        has_status: true,
    };

    assert_eq!(outer_key(&resource), "Deployment.apps/v1");
    assert_eq!(
        Kind::parse("Deployment.apps/v1").unwrap().to_key(),
        "Deployment.apps/v1"
    );
}
