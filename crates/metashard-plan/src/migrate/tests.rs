//! Metacontrollers and controllers as they are met.

use super::*;

fn workload(container: &Value) -> Value {
    json!({
        "kind": "StatefulSet", "metadata": {"namespace": "ops", "name": "mc"},
        "spec": {"replicas": 2, "template": {"spec": {"containers": [{"image": "other"}, container]}}},
    })
}

fn peer_with(args: &[&str]) -> Peer {
    let image = "ghcr.io/metacontroller/metacontroller:v4.17.2";
    let container = json!({"image": image, "command": ["/usr/bin/metacontroller"], "args": args});
    peers(&[workload(&container)]).remove(0)
}

#[test]
fn a_metacontroller_is_known_by_its_image_or_program_whatever_it_is_called() {
    let found = peer_with(&["--workers=3"]);
    assert_eq!(
        (found.workload.as_str(), found.replicas),
        ("StatefulSet ops/mc", 2)
    );

    let by_program = json!({"image": "registry/own@sha256:1", "command": ["/app/metacontroller"]});
    assert_eq!(peers(&[workload(&by_program)]).len(), 1);
    let stranger = json!({"image": "metacontroller-hooks:1"});
    assert!(peers(&[workload(&stranger)]).is_empty());
}

#[test]
fn its_flags_are_read_in_every_form() {
    let peer = peer_with(&[
        "-workers",
        "7",
        "--leader-election",
        "--apply-strategy=server-side-apply",
    ]);

    assert_eq!(peer.flag("workers").as_deref(), Some("7"));
    assert_eq!(
        peer.flag("apply-strategy").as_deref(),
        Some("server-side-apply")
    );
    assert_eq!(peer.flag("nothing"), None);
    assert!(peer.elects() && !peer_with(&["--leader-election=false"]).elects());
}

#[test]
fn a_flag_of_an_older_version_is_told_with_what_takes_its_place() {
    let problems = peer_with(&["--debug-addr=:9999", "--zap-devel", "--worker=3"]).flag_problems();

    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems[0].contains("use --metrics-address"));
    assert!(problems[1].contains("did you mean --workers?"));
}

#[test]
fn a_controller_is_told_what_differs_for_it_and_no_more() {
    let mut controller = json!({
        "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "CompositeController", "metadata": {"name": "c"},
        "spec": {
            "parentResource": {"apiVersion": "apps/v1", "resource": "deployments"},
            "childResources": [{"apiVersion": "v1", "resource": "pods", "updateStrategy": {"method": "InPlace"}}],
            "hooks": {"sync": {"webhook": {"service": {"name": "h", "namespace": "n", "protocol": "https"}, "path": "/"}}},
        },
    });
    let moved = |controller: &Value| plan(controller, &Resources::default(), None);

    let first = moved(&controller);
    controller["spec"]["hooks"]["sync"]["webhook"] = json!({"url": "http://h/"});
    controller["spec"]["parentResource"]["resource"] = json!("deploymens");
    let second = moved(&controller);

    assert!(first.refusals.is_empty(), "{first:?}");
    assert_eq!(first.differences.len(), 2, "{first:?}");
    assert!(first.differences[0].contains("443"));
    assert!(second.refusals[0].contains("deploymens"), "{second:?}");
    assert!(second.differences.is_empty(), "{second:?}");
}
