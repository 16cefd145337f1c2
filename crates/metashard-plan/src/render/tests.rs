//! Passes from objects as people write them.

use metashard_reconcile::{controller::Apply, sync::Verdict};
use serde_json::{Value, json};

use super::*;
use crate::{resources::Resources, show};

fn resources() -> Resources {
    let mut resources = Resources::default();
    resources.add_crd(json!({"kind": "CustomResourceDefinition", "spec": {
        "group": "ex.io", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"},
        "versions": [{"name": "v1", "served": true, "subresources": {"status": {}}}],
    }}));
    resources
}

fn controller(finalizes: bool) -> Value {
    let hook = json!({"webhook": {"url": "http://127.0.0.1:1/"}});
    let mut hooks = json!({"sync": hook});
    if finalizes {
        hooks["finalize"] = hook;
    }
    json!({
        "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "CompositeController",
        "metadata": {"name": "c"},
        "spec": {
            "generateSelector": true,
            "parentResource": {"apiVersion": "ex.io/v1", "resource": "foos"},
            "childResources": [{"apiVersion": "v1", "resource": "configmaps", "updateStrategy": {"method": "InPlace"}}],
            "hooks": hooks,
        },
    })
}

fn config(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": value}})
}

/// From objects as people write them.
fn input(finalizes: bool, children: Vec<Value>) -> Input {
    let resources = resources();
    let controller = input::controller(&controller(finalizes), &resources).unwrap();
    let foo =
        json!({"apiVersion": "ex.io/v1", "kind": "Foo", "metadata": {"name": "p"}, "spec": {}});
    let (resource, parent) = input::parent(foo, &controller, "ns").unwrap();
    let others = input::others(children, &controller, &parent, &resources).unwrap();
    Input {
        controller,
        resource,
        parent,
        others,
        resources: Arc::new(resources),
    }
}

fn answer(children: &[Value]) -> Hook {
    Hook::recorded(json!({"status": {"n": 1}, "children": children}).to_string())
}

fn told(rendered: &Rendered) -> Vec<String> {
    rendered.writes.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn children_that_are_written_by_hand_belong_to_the_parent_and_are_compared() {
    let there = vec![config("a", "old"), config("gone", "x")];

    let rendered = render(
        input(false, there),
        &answer(&[config("a", "new"), config("b", "x")]),
    )
    .await;

    assert_eq!(
        told(&rendered),
        [
            "delete ConfigMap ns/gone",
            "update ConfigMap ns/a",
            "create ConfigMap ns/b",
            "update status of Foo ns/p"
        ]
    );
    assert_eq!(rendered.outcome.verdict, Verdict::Changed);
    let text = show::text(&[rendered]);
    assert!(text.contains(r#"~ data.k: "old" -> "new""#), "{text}");
    assert!(
        text.ends_with(
            "would write 4 objects in 1 namespace: 1 create, 1 update, 1 delete, 1 status\n"
        ),
        "{text}"
    );
}

#[tokio::test]
async fn what_only_an_api_server_knows_is_said_to_be_so() {
    let rendered = render(input(true, Vec::new()), &answer(&[])).await;

    assert_eq!(
        told(&rendered),
        ["add finalizer to Foo ns/p", "update status of Foo ns/p"]
    );
    let status = show::write_value(&rendered.writes[1]);
    assert_eq!(status["method"], "PUT");
    assert_eq!(status["path"], "/apis/ex.io/v1/namespaces/ns/foos/p/status");
    assert_eq!(
        status["body"]["metadata"]["resourceVersion"],
        "<set by write 1>"
    );
}

#[tokio::test]
async fn an_answer_that_is_no_json_writes_nothing_and_says_why() {
    let rendered = render(input(false, Vec::new()), &Hook::recorded("<html>")).await;

    assert!(rendered.writes.is_empty());
    let value = show::value(&rendered);
    assert_eq!(value["verdict"], "answer_refused");
    assert_eq!(value["requeue"], "backoff");
    assert!(value["message"].is_string());
}

#[tokio::test]
async fn a_command_answers_on_its_standard_output() {
    let words = [
        "sh",
        "-c",
        r#"grep -q '"kind":"Foo"' && echo "{\"status\":{\"hook\":\"$METASHARD_HOOK\"},\"children\":[]}""#,
    ];
    let hook = |words: &[&str]| Hook::Command {
        words: words.iter().map(|it| (*it).to_owned()).collect(),
        limit: std::time::Duration::from_secs(20),
    };

    let rendered = render(input(false, Vec::new()), &hook(&words)).await;
    let failed = render(input(false, Vec::new()), &hook(&["false"])).await;

    let body = &show::write_value(&rendered.writes[0])["body"];
    assert_eq!(body["status"]["hook"], "sync");
    assert!(
        matches!(failed.outcome.verdict, Verdict::HookFailed(_)),
        "{:?}",
        failed.outcome.verdict
    );
}

#[test]
fn thousands_are_told_apart() {
    let radius = BlastRadius {
        objects: 1240,
        namespaces: 12,
        creates: 1240,
        ..BlastRadius::default()
    };

    assert_eq!(
        radius.to_string(),
        "would write 1,240 objects in 12 namespaces: 1,240 creates"
    );
    assert_eq!(grouped(1_234_567), "1,234,567");
}

#[tokio::test]
async fn server_side_apply_is_rendered_as_what_a_replica_with_that_flag_sends() {
    let apply = Apply::of_flags("server-side-apply", "boss").unwrap();
    let resources = resources();
    let mut input = input(false, vec![config("a", "old")]);
    input.controller = input::controller_applying(&controller(false), &resources, apply).unwrap();

    let rendered = render(input, &answer(&[config("a", "new"), config("b", "x")])).await;

    let writes: Vec<_> = rendered.writes.iter().map(show::write_value).collect();
    for write in &writes[..2] {
        assert_eq!(write["method"], "PATCH", "{write:#}");
        assert_eq!(write["contentType"], "application/apply-patch+yaml");
        assert_eq!(write["fieldManager"], "boss");
    }
    let text = show::text(&[rendered]);
    assert!(text.contains(r#"~ data.k: "old" -> "new""#), "{text}");
    assert!(text.contains("+ create ConfigMap ns/b"), "{text}");
}
