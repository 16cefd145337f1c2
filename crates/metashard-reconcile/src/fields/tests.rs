//! Desired objects against managed fields as a real API server wrote them.

use serde_json::{Value, json};

use super::{compare, set, set::Set};

/// A Deployment as it was applied.
fn wanted() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "namespace": "ns"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {
                    "hostNetwork": false,
                    "containers": [{
                        "name": "c", "image": "x",
                        "ports": [{"containerPort": 53}, {"containerPort": 53, "protocol": "UDP"}],
                        "volumeMounts": [{"name": "v", "mountPath": "/a"}],
                    }],
                    "volumes": [{"name": "v", "emptyDir": {}}],
                },
            },
        },
    })
}

/// What the API server made of it.
fn observed() -> Value {
    let mut object = wanted();
    object["spec"]["strategy"] = json!({"type": "RollingUpdate"});
    let spec = &mut object["spec"]["template"]["spec"];
    spec.as_object_mut().unwrap().remove("hostNetwork");
    spec["dnsPolicy"] = "ClusterFirst".into();
    spec["containers"][0]["imagePullPolicy"] = "Always".into();
    spec["containers"][0]["ports"][0]["protocol"] = "TCP".into();
    object
}

fn own() -> Set {
    let ports = json!({
        r#"k:{"containerPort":53,"protocol":"TCP"}"#: {".": {}, "f:containerPort": {}},
        r#"k:{"containerPort":53,"protocol":"UDP"}"#: {".": {}, "f:containerPort": {}, "f:protocol": {}},
    });
    let container = json!({
        ".": {}, "f:name": {}, "f:image": {}, "f:ports": ports,
        "f:volumeMounts": {r#"k:{"mountPath":"/a"}"#: {".": {}, "f:mountPath": {}, "f:name": {}}},
    });
    set_of(json!({
        "f:spec": {
            "f:replicas": {},
            "f:selector": {},
            "f:template": {
                "f:metadata": {"f:labels": {"f:a": {}}},
                "f:spec": {
                    "f:hostNetwork": {},
                    "f:containers": {r#"k:{"name":"c"}"#: container},
                    "f:volumes": {r#"k:{"name":"v"}"#: {".": {}, "f:name": {}, "f:emptyDir": {}}},
                },
            },
        },
    }))
}

fn set_of(value: Value) -> Set {
    serde_json::from_value(value).unwrap()
}

/// The paths at which the object is otherwise, and those that are not ours.
fn found(wanted: &Value, own: &Set, observed: &Value) -> (Vec<String>, Vec<String>) {
    let found = compare(wanted, own, observed);
    let paths = |found: &[(String, _)]| found.iter().map(|(path, _)| path.clone()).collect();
    (paths(&found.values), paths(&found.unowned))
}

fn nothing() -> (Vec<String>, Vec<String>) {
    (vec![], vec![])
}

#[test]
fn what_the_api_server_adds_is_no_difference() {
    assert_eq!(found(&wanted(), &own(), &observed()), nothing());
}

#[test]
fn what_another_manager_adds_is_no_difference() {
    let mut observed = observed();
    observed["metadata"]["labels"] = json!({"theirs": "x"});
    observed["spec"]["template"]["spec"]["containers"]
        .as_array_mut()
        .unwrap()
        .insert(0, json!({"name": "sidecar", "image": "y"}));

    assert_eq!(found(&wanted(), &own(), &observed), nothing());
}

#[test]
fn a_field_that_is_wanted_otherwise_is_found_in_the_item_of_its_name() {
    let mut wanted = wanted();
    wanted["spec"]["template"]["spec"]["containers"][0]["ports"][1]["name"] = "dns".into();
    wanted["spec"]["replicas"] = 2.into();

    let (values, unowned) = found(&wanted, &own(), &observed());

    assert_eq!(
        values,
        [
            "spec.replicas",
            "spec.template.spec.containers[0].ports[1].name"
        ]
    );
    assert_eq!(unowned, [""; 0]);
}

#[test]
fn a_field_that_another_manager_has_taken_is_found_by_its_owner_alone() {
    let mut own = own();
    own["f:spec"].as_object_mut().unwrap().remove("f:replicas");

    assert_eq!(
        found(&wanted(), &own, &observed()),
        (vec![], vec!["spec.replicas".to_owned()])
    );
}

#[test]
fn what_is_owned_and_no_longer_wanted_is_found_while_it_is_there() {
    let mut fewer = wanted();
    let container = &mut fewer["spec"]["template"]["spec"]["containers"][0];
    container["ports"].as_array_mut().unwrap().remove(0);
    fewer["spec"].as_object_mut().unwrap().remove("replicas");
    let (wanted, mut observed) = (fewer, observed());

    let (values, _) = found(&wanted, &own(), &observed);
    assert_eq!(
        values,
        ["spec.template.spec.containers[0].ports[1]", "spec.replicas"]
    );
    assert!(compare(&wanted, &own(), &observed).has_unwanted);

    observed["spec"].as_object_mut().unwrap().remove("replicas");
    let (values, _) = found(&wanted, &own(), &observed);
    assert_eq!(values, ["spec.template.spec.containers[0].ports[1]"]);
}

#[test]
fn an_item_that_says_less_is_not_taken_for_one_that_says_all() {
    let wanted = json!({"ports": [{"port": 53}, {"port": 53, "protocol": "TCP", "name": "t"}]});
    let own = set_of(json!({"f:ports": {
        r#"k:{"port":53,"protocol":"TCP"}"#: {".": {}, "f:port": {}, "f:protocol": {}, "f:name": {}},
    }}));
    let observed = json!({"ports": [{"port": 53, "protocol": "TCP", "name": "t"}]});

    // The first is an item more, as far as is known; the second is owned as it is.
    let (values, unowned) = found(&wanted, &own, &observed);
    assert_eq!(
        (values, unowned),
        (vec![], vec!["ports[0].port".to_owned()])
    );
}

#[test]
fn a_set_of_texts_is_compared_by_its_members() {
    let wanted = json!({"metadata": {"finalizers": ["a", "b"]}});
    let own = set_of(json!({"f:metadata": {"f:finalizers": {"v:\"a\"": {}, "v:\"c\"": {}}}}));
    let observed = json!({"metadata": {"finalizers": ["c", "a", "x"]}});

    let (values, _) = found(&wanted, &own, &observed);

    assert_eq!(values, ["metadata.finalizers[2]", "metadata.finalizers[1]"]);
}

#[test]
fn sets_are_joined_and_subtracted_by_their_members() {
    let left = set_of(json!({"f:a": {".": {}, "f:b": {}}, "f:c": {}}));
    let right = set_of(json!({"f:a": {"f:b": {}, "f:d": {}}, "f:e": {}}));

    assert_eq!(
        Value::Object(set::union(left.clone(), &right)),
        json!({"f:a": {".": {}, "f:b": {}, "f:d": {}}, "f:c": {}, "f:e": {}})
    );
    assert_eq!(
        Value::Object(set::minus(&left, &right)),
        json!({"f:c": {}}),
        "a map whose parts are gone goes too"
    );
    assert!(set::minus(&left, &left).is_empty());
    assert_eq!(set::union(left.clone(), &left), left);
}

#[test]
fn the_part_of_a_set_within_an_object_is_what_the_object_has() {
    let mut wanted = wanted();
    let whole = set::within(&own(), &wanted);
    assert_eq!(whole, own(), "all of it was applied from this object");

    wanted["spec"].as_object_mut().unwrap().remove("template");
    let part = set::within(&own(), &wanted);
    assert_eq!(
        Value::Object(part),
        json!({"f:spec": {"f:replicas": {}, "f:selector": {}}})
    );
}

#[test]
fn what_was_applied_is_read_back_out_of_an_object() {
    let mut applied = set::extract(&observed(), &own());

    applied["apiVersion"] = "apps/v1".into();
    applied["kind"] = "Deployment".into();
    applied["metadata"] = wanted()["metadata"].clone();
    let mut expected = wanted();
    let spec = &mut expected["spec"]["template"]["spec"];
    spec.as_object_mut().unwrap().remove("hostNetwork");
    spec["containers"][0]["ports"][0]["protocol"] = "TCP".into();
    assert_eq!(applied, expected);
}
