//! What is wrong with a DecoratorController.

use std::collections::BTreeSet;

use super::{
    Finding, called_hooks, child_words, most_resources, no_hooks, resource, service_account,
    sharding,
};
use crate::{
    selector::Selector,
    v1alpha1::{
        decorator::{AttachmentResource, DecoratorController, DecoratorHooks, TargetResource},
        webhook::EndpointConfig,
    },
};

/// All that is wrong with a DecoratorController, in the order of its fields.
pub fn decorator(controller: &DecoratorController) -> Vec<Finding> {
    let spec = &controller.spec;
    let mut findings = Vec::new();
    targets(&spec.resources, &mut findings);
    attachments(&spec.attachments, &mut findings);
    let targets = spec.resources.iter();
    let targets = targets.map(|it| (it.api_version.as_str(), it.resource.as_str()));
    let attached = spec.attachments.iter();
    let attached = attached.map(|it| (it.api_version.as_str(), it.resource.as_str()));
    most_resources("spec.attachments", targets.chain(attached), &mut findings);
    hooks(spec.hooks.as_ref(), &spec.endpoint_configs, &mut findings);
    service_account(spec.service_account_ref.as_ref(), &mut findings);
    sharding(spec.sharding.as_ref(), &mut findings);
    findings
}

fn targets(targets: &[TargetResource], findings: &mut Vec<Finding>) {
    if targets.is_empty() {
        findings.push(Finding::no_effect(
            "spec.resources",
            "it is empty: nothing is decorated",
            "list the resources to decorate",
        ));
    }
    for (index, target) in targets.iter().enumerate() {
        let field = format!("spec.resources[{index}]");
        resource(&field, &target.api_version, &target.resource, findings);
        let same = |it: &TargetResource| {
            (&it.api_version, &it.resource) == (&target.api_version, &target.resource)
        };
        if targets.iter().skip(index + 1).any(same) {
            findings.push(Finding::no_effect(
                &field,
                "this resource is listed again; the last entry counts",
                "keep one entry for each resource",
            ));
        }
        let labels = target.label_selector.as_ref().map(Selector::compile);
        let annotations = target
            .annotation_selector
            .as_ref()
            .map(Selector::of_annotations);
        for (name, selector) in [
            ("labelSelector", labels),
            ("annotationSelector", annotations),
        ] {
            if let Some(Err(error)) = selector {
                findings.push(Finding::invalid(
                    format!("{field}.{name}"),
                    error.to_string(),
                    "correct the selector",
                ));
            }
        }
    }
}

fn attachments(attachments: &[AttachmentResource], findings: &mut Vec<Finding>) {
    let mut seen = BTreeSet::new();
    for (index, attachment) in attachments.iter().enumerate() {
        let field = format!("spec.attachments[{index}]");
        resource(
            &field,
            &attachment.api_version,
            &attachment.resource,
            findings,
        );
        if !seen.insert((&attachment.api_version, &attachment.resource)) {
            findings.push(Finding::no_effect(
                &field,
                "this resource is listed before; the last entry counts",
                "keep one entry for each resource",
            ));
        }
        child_words(
            &field,
            attachment.update_method(),
            (attachment.adoption, attachment.deletion_policy),
            findings,
        );
    }
}

fn hooks(hooks: Option<&DecoratorHooks>, configs: &[EndpointConfig], findings: &mut Vec<Finding>) {
    let Some(hooks) = hooks else {
        findings.push(no_hooks());
        return;
    };
    let called = [
        ("spec.hooks.sync", hooks.sync.as_ref()),
        ("spec.hooks.finalize", hooks.finalize.as_ref()),
        ("spec.hooks.customize", hooks.customize.as_ref()),
    ];
    called_hooks(called, configs, findings);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::validate::Verdict;

    /// The findings in a decorator of Pods that works, with a change of its spec.
    fn found(change: &Value) -> Vec<(String, Verdict)> {
        let mut object = json!({
            "apiVersion": "metacontroller.k8s.io/v1alpha1",
            "kind": "DecoratorController",
            "metadata": { "name": "d" },
            "spec": {
                "resources": [{ "apiVersion": "v1", "resource": "pods" }],
                "attachments": [{ "apiVersion": "v1", "resource": "services" }],
                "hooks": { "sync": { "webhook": { "url": "http://hooks.example/sync" } } },
            },
        });
        for (field, value) in change.as_object().unwrap() {
            object["spec"][field] = value.clone();
        }
        decorator(&serde_json::from_value(object).unwrap())
            .into_iter()
            .map(|it| (it.field, it.verdict))
            .collect()
    }

    #[test]
    fn nothing_is_found_in_decorators_that_work() {
        let rule = |selector: Value| json!({ "resources": [{ "apiVersion": "v1", "resource": "pods", "annotationSelector": selector }] });
        let rolling = json!({ "method": "RollingInPlace" });
        let changes = [
            json!({}),
            json!({ "attachments": [] }),
            json!({ "attachments": [{ "apiVersion": "v1", "resource": "services", "updateStrategy": rolling }] }),
            rule(json!({ "matchAnnotations": { "a": "https://x/?y z" } })),
            rule(
                json!({ "matchExpressions": [{ "key": "a/b", "operator": "NotIn", "values": ["/"] }] }),
            ),
        ];
        for change in changes {
            assert_eq!(found(&change), [], "{change}");
        }
    }

    #[test]
    fn each_fault_is_found_at_its_field() {
        let rule = |field: &str, value: Value| {
            let mut rule = json!({ "apiVersion": "v1", "resource": "pods" });
            rule[field] = value;
            json!([rule])
        };
        let operator = json!({ "matchExpressions": [{ "key": "a", "operator": "Matches" }] });
        let faults = [
            (
                "resources",
                rule("apiVersion", "a/b/c".into()),
                "[0].apiVersion",
            ),
            (
                "resources",
                rule("resource", "pods/status".into()),
                "[0].resource",
            ),
            (
                "resources",
                rule("labelSelector", json!({ "matchLabels": { "a": "b c" } })),
                "[0].labelSelector",
            ),
            (
                "resources",
                rule("annotationSelector", operator),
                "[0].annotationSelector",
            ),
            ("attachments", rule("resource", "".into()), "[0].resource"),
            (
                "attachments",
                rule("updateStrategy", json!({ "method": "Odd" })),
                "[0].updateStrategy.method",
            ),
            (
                "attachments",
                rule("adoption", "Odd".into()),
                "[0].adoption",
            ),
            (
                "attachments",
                rule("deletionPolicy", "Odd".into()),
                "[0].deletionPolicy",
            ),
            ("hooks", Value::Null, ""),
            ("hooks", json!({}), ".sync"),
            (
                "endpointConfigs",
                json!([{ "host": "hooks.example", "caBundle": {} }]),
                "[0].caBundle",
            ),
            ("sharding", json!({ "slices": 3 }), ".slices"),
        ];
        for (field, value, rest) in faults {
            let change = json!({ field: value });

            let expected = (format!("spec.{field}{rest}"), Verdict::Invalid);
            assert_eq!(found(&change), [expected], "{change}");
        }
    }

    #[test]
    fn a_decorator_may_name_fifty_resources() {
        let rule = |number| json!({ "apiVersion": "v1", "resource": format!("kind{number}s") });
        let listed = |range: std::ops::Range<u32>| range.map(rule).collect::<Value>();
        // Named as target and as attachment it is one.
        let fifty = json!({ "resources": listed(0..2), "attachments": listed(0..50) });
        assert_eq!(found(&fifty), []);

        let more = json!({ "resources": listed(49..51), "attachments": listed(0..50) });

        let expected = ("spec.attachments".to_owned(), Verdict::Invalid);
        assert_eq!(found(&more), [expected]);
    }

    #[test]
    fn entries_that_do_not_count_are_named() {
        let pods = json!({ "apiVersion": "v1", "resource": "pods" });
        let twice = json!([pods, pods]);

        let none = found(&json!({ "resources": [] }));
        let both = found(&json!({ "resources": twice, "attachments": twice }));

        let no_effect = |field: &str| (field.to_owned(), Verdict::NoEffect);
        assert_eq!(none, [no_effect("spec.resources")]);
        assert_eq!(
            both,
            [
                no_effect("spec.resources[0]"),
                no_effect("spec.attachments[1]")
            ]
        );
    }
}
