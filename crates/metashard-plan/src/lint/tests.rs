//! What is found in a controller, and what is not.

use serde_json::json;

use super::*;
use crate::document::Place;

fn document(value: Value) -> Document {
    let place = Place {
        file: "f.yaml".to_owned(),
        number: 0,
    };
    Document { place, value }
}

fn controller() -> Value {
    json!({
        "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "CompositeController",
        "metadata": {"name": "c"},
        "spec": {
            "generateSelector": true,
            "parentResource": {"apiVersion": "ex.io/v1", "resource": "foos"},
            "childResources": [{"apiVersion": "v1", "resource": "configmaps"}],
            "hooks": {"sync": {"webhook": {"url": "http://hook.ns/"}}},
        },
    })
}

fn crd(status: &Value, spec: &Value) -> Value {
    json!({"kind": "CustomResourceDefinition", "spec": {
        "group": "ex.io", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"},
        "versions": [{
            "name": "v1", "served": true, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}},
        }],
    }})
}

fn good_crd() -> Value {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    crd(&open, &open)
}

fn problems(values: Vec<Value>) -> Vec<String> {
    let documents: Vec<_> = values.into_iter().map(document).collect();
    let report = lint(&documents, &Resources::default());
    report.problems.iter().map(ToString::to_string).collect()
}

#[test]
fn a_good_controller_has_no_problems() {
    assert_eq!(problems(vec![controller(), good_crd()]), [""; 0]);
}

#[test]
fn a_misspelt_field_is_found_with_what_was_meant() {
    let mut controller = controller();
    controller["spec"]["childResource"] = json!([]);
    controller["spec"]["childResources"][0]["updateStrategy"] = json!({"metod": "InPlace"});

    let found = problems(vec![controller, good_crd()]);

    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(
        found[0].contains("spec.childResource: ")
            && found[0].contains("did you mean childResources?")
    );
    assert!(
        found[1].contains("spec.childResources[0].updateStrategy.metod: ")
            && found[1].contains("did you mean method?")
    );
}

#[test]
fn a_kind_without_a_status_is_named_with_the_exact_fix() {
    let mut crd = good_crd();
    crd["spec"]["versions"][0]
        .as_object_mut()
        .unwrap()
        .remove("subresources");

    let found = problems(vec![controller(), crd]);

    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(
        found[0].contains(
            "add `subresources: {status: {}}` to version v1 of CustomResourceDefinition foos.ex.io"
        ),
        "{found:?}"
    );
}

#[test]
fn fields_that_the_schema_drops_are_found() {
    let mut controller = controller();
    controller["spec"]["generateSelector"] = json!(false);
    let status = json!({"type": "object", "properties": {"phase": {"type": "string"}}});
    let spec = json!({"type": "object", "properties": {"selector": {"type": "object"}}});

    let found = problems(vec![controller, crd(&status, &spec)]).join("\n");

    assert!(found.contains("drops status.observedGeneration"), "{found}");
    assert!(found.contains("drops spec.selector.matchLabels"), "{found}");
}

#[test]
fn a_parent_kind_that_is_not_there_is_found_with_what_was_meant() {
    let mut controller = controller();
    controller["spec"]["parentResource"] =
        json!({"apiVersion": "apps/v1", "resource": "deployment"});

    let found = problems(vec![controller]).join("\n");

    assert!(
        found.contains("did you mean deployments in apps/v1?"),
        "{found}"
    );
}

#[test]
fn a_hook_on_the_workers_own_host_is_odd() {
    let mut controller = controller();
    controller["spec"]["hooks"]["sync"]["webhook"]["url"] = json!("http://localhost:8080/");

    let found = problems(vec![controller, good_crd()]).join("\n");

    assert!(
        found.contains("warning") && found.contains("localhost is the Pod of the worker"),
        "{found}"
    );
}
