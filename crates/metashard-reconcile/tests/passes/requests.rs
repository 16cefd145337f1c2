//! What hooks are sent.

use std::sync::Arc;

use metashard_api::resource::Resource;
use metashard_reconcile::{
    memory::Memory,
    sync::{Candidates, HookKind, Step, SyncInput, SyncMachine},
};
use serde_json::{Value, json};

use crate::world::{Bench, CONFIG, compile, config, hook, resource_of, rule, spec};

fn with_hook(version: &str) -> Value {
    let mut spec = spec();
    spec["childResources"] = json!([
        rule("apps/v1", "deployments", "InPlace"),
        rule("v1", CONFIG, "InPlace")
    ]);
    spec["hooks"]["sync"] = hook(version);
    spec
}

/// The bench after a pass that created `a` and `b`.
fn settled(version: &str) -> Bench {
    let mut bench = Bench::wanting(&with_hook(version), &[config("b", "1"), config("a", "1")]);
    bench.pass();
    bench.pass();
    bench
}

#[test]
fn a_request_has_controller_parent_children_related_and_finalizing_in_this_order() {
    let bench = settled("v1");
    let parent = bench.world.object("foos", "p").unwrap();
    let candidates = bench.world.candidates(&bench.controller, &parent);
    let input = SyncInput {
        controller: bench.controller,
        resource: resource_of(&parent),
        parent,
        candidates,
        revisions: Candidates::default(),
        memory: bench.memory,
    };

    let Step::CallHook(call) = SyncMachine::new(input).next() else {
        panic!("a call")
    };

    assert_eq!(call.hook, HookKind::Sync);
    let text = String::from_utf8(call.body.concat()).unwrap();
    let keys = [
        r#"{"controller":{"#,
        r#"},"parent":{"#,
        r#"},"children":{"#,
        r#"}},"related":{}"#,
    ];
    let places = keys.map(|key| {
        text.find(key)
            .unwrap_or_else(|| panic!("{key} is in {text}"))
    });
    assert!(places.is_sorted(), "{text}");
    assert!(
        text.ends_with(r#""related":{},"finalizing":false}"#),
        "{text}"
    );
    let groups = ["ConfigMap.v1", "Deployment.apps/v1"].map(|key| text.find(key).unwrap());
    assert!(groups.is_sorted(), "groups are sorted by key");
}

#[test]
fn a_v1_hook_sees_children_by_name_and_every_declared_kind() {
    let bench = settled("v1");
    let children = &bench.calls[0].1["children"];

    assert_eq!(children["Deployment.apps/v1"], json!({}));
    let configs = children["ConfigMap.v1"].as_object().unwrap();
    assert_eq!(configs.keys().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(&configs["a"], bench.child("a"), "objects are sent whole");
}

#[test]
fn a_hook_still_finds_the_group_of_a_kind_that_was_served_before() {
    let mut spec = with_hook("v1");
    let gone = rule("gone.io/v1", "olds", "InPlace");
    spec["childResources"].as_array_mut().unwrap().push(gone);
    let known = |api_version: &str, plural: &str| {
        let (group, version) = api_version.split_once('/')?;
        Some(Arc::new(Resource {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: plural.to_owned(),
            kind: "Old".to_owned(),
            namespaced: true,
            has_status: true,
        }))
    };
    let mut bench = Bench::wanting(&spec, &[config("a", "1")]);
    bench.controller = Arc::new(compile(&spec).unwrap().showing(&known));

    bench.pass();

    let children = bench.calls[0].1["children"].as_object().unwrap();
    let groups: Vec<_> = children.keys().collect();
    assert_eq!(
        groups,
        ["ConfigMap.v1", "Deployment.apps/v1", "Old.gone.io/v1"]
    );
    assert_eq!(children["Old.gone.io/v1"], json!({}));
}

#[test]
fn a_v2_hook_sees_children_by_namespace_and_name() {
    let bench = settled("v2");

    let configs = bench.calls[0].1["children"]["ConfigMap.v1"]
        .as_object()
        .unwrap();

    assert_eq!(configs.keys().collect::<Vec<_>>(), ["ns1/a", "ns1/b"]);
}

#[test]
fn the_controller_is_sent_whole_with_an_empty_status() {
    let bench = settled("v1");
    let controller = &bench.calls[0].1["controller"];

    assert_eq!(controller["kind"], "CompositeController");
    assert_eq!(controller["metadata"]["uid"], "C-1");
    assert_eq!(controller["spec"], with_hook("v1"));
    assert_eq!(controller["status"], json!({}));
}

#[test]
fn a_controller_without_child_rules_sends_no_groups() {
    let mut spec = spec();
    spec["childResources"] = json!([]);
    let mut bench = Bench::new(&spec);

    bench.pass();

    assert_eq!(bench.calls[0].1["children"], json!({}));
    assert_eq!(bench.calls[0].1["related"], json!({}));
}

#[test]
fn children_of_a_cluster_scoped_parent_are_keyed_with_their_namespaces_in_both_versions() {
    for version in ["v1", "v2"] {
        let mut spec = with_hook(version);
        spec["parentResource"]["resource"] = "bigs".into();
        spec["childResources"] = json!([
            rule("v1", CONFIG, "InPlace"),
            rule("rbac.authorization.k8s.io/v1", "clusterroles", "InPlace"),
        ]);
        let mut first = config("x", "1");
        first["metadata"]["namespace"] = "ns1".into();
        let mut second = config("x", "1");
        second["metadata"]["namespace"] = "ns2".into();
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "r:x"},
        });
        let mut bench = Bench::wanting(&spec, &[first, second, role]);
        bench.world.put(json!({
            "apiVersion": "ex.io/v1", "kind": "Big", "metadata": {"name": "big"}, "spec": {},
        }));
        bench.parent = ("bigs", "big");

        let outcome = bench.pass();
        assert_eq!(outcome.counts.created, 3, "{:?}", outcome.events);
        bench.pass();

        let children = &bench.calls[0].1["children"];
        let configs = children["ConfigMap.v1"].as_object().unwrap();
        assert_eq!(configs.keys().collect::<Vec<_>>(), ["ns1/x", "ns2/x"]);
        let roles = children["ClusterRole.rbac.authorization.k8s.io/v1"]
            .as_object()
            .unwrap();
        assert_eq!(roles.keys().collect::<Vec<_>>(), ["r:x"]);
        assert!(bench.writes.is_empty());
        let owner = &bench.child("x")["metadata"]["ownerReferences"][0];
        assert_eq!(
            (&owner["kind"], &owner["name"]),
            (&json!("Big"), &json!("big"))
        );
    }
}

#[test]
fn the_fixed_parts_of_a_request_are_allocated_once() {
    let bodies = [(); 2].map(|()| {
        let bench = settled("v1");
        let parent = bench.world.object("foos", "p").unwrap();
        let controller = bench.controller;
        [(); 2].map(|()| {
            let input = SyncInput {
                controller: Arc::clone(&controller),
                resource: resource_of(&parent),
                parent: Arc::clone(&parent),
                candidates: vec![],
                revisions: Candidates::default(),
                memory: Memory::default(),
            };
            let Step::CallHook(call) = SyncMachine::new(input).next() else {
                panic!("a call")
            };
            call.body
        })
    });

    for [first, second] in &bodies {
        for (one, other) in first.iter().zip(second) {
            assert_eq!(one.as_ptr(), other.as_ptr());
        }
    }
}
