//! Controllers that cannot work, and what is said about them.

use serde_json::{Value, json};

use super::*;

/// A controller that works.
fn good() -> Value {
    json!({
        "metadata": { "name": "c" },
        "apiVersion": "metacontroller.k8s.io/v1alpha1",
        "kind": "CompositeController",
        "spec": {
            "parentResource": { "apiVersion": "ex.io/v1", "resource": "foos" },
            "childResources": [{ "apiVersion": "v1", "resource": "pods" }],
            "hooks": { "sync": { "webhook": { "url": "http://hooks.example/sync" } } },
        },
    })
}

fn findings(object: Value) -> Vec<(String, Verdict)> {
    let controller = serde_json::from_value(object).unwrap();
    composite(&controller)
        .into_iter()
        .map(|it| (it.field, it.verdict))
        .collect()
}

/// The findings of a good controller with `change` merged into its spec.
fn with(change: &Value) -> Vec<(String, Verdict)> {
    let mut object = good();
    merge(&mut object["spec"], change);
    findings(object)
}

fn merge(into: &mut Value, change: &Value) {
    match change {
        Value::Object(fields) if into.is_object() => {
            for (name, value) in fields {
                merge(&mut into[name], value);
            }
        }
        Value::Null => *into = Value::Null,
        other => *into = other.clone(),
    }
}

#[test]
fn nothing_is_found_in_controllers_that_work() {
    let changes = [
        json!({}),
        json!({ "parentResource": { "apiVersion": "v1", "labelSelector": {} }, "resyncPeriodSeconds": -5 }),
        json!({ "hooks": { "finalize": {}, "customize": { "version": "v2" } } }),
        json!({ "hooks": { "sync": { "webhook": { "url": null, "service": { "name": "s", "namespace": "n" }, "path": "/x" } } } }),
        json!({ "hooks": { "sync": { "webhook": { "timeout": "-1s", "caBundle": { "inline": "x" } } } } }),
        json!({ "sharding": { "slices": 64 } }),
    ];
    for change in changes {
        assert_eq!(with(&change), [], "{change}");
    }
}

/// A change of a good controller, and the field that is then at fault.
const FAULTS: &[(&str, &str)] = &[
    (
        r#"{"parentResource":{"apiVersion":"a/b/c"}}"#,
        "spec.parentResource.apiVersion",
    ),
    (
        r#"{"parentResource":{"apiVersion":"/v1"}}"#,
        "spec.parentResource.apiVersion",
    ),
    (
        r#"{"parentResource":{"resource":"foos/status"}}"#,
        "spec.parentResource.resource",
    ),
    (
        r#"{"parentResource":{"labelSelector":{"matchLabels":{"a":"b c"}}}}"#,
        "spec.parentResource.labelSelector",
    ),
    (
        r#"{"childResources":[{"apiVersion":"v1","resource":""}]}"#,
        "spec.childResources[0].resource",
    ),
    (
        r#"{"childResources":[{"apiVersion":"v1","resource":"pods","updateStrategy":{"method":"Odd"}}]}"#,
        "spec.childResources[0].updateStrategy.method",
    ),
    (
        r#"{"childResources":[{"apiVersion":"v1","resource":"pods","adoption":"Odd"}]}"#,
        "spec.childResources[0].adoption",
    ),
    (
        r#"{"childResources":[{"apiVersion":"v1","resource":"pods","deletionPolicy":"Odd"}]}"#,
        "spec.childResources[0].deletionPolicy",
    ),
    (r#"{"hooks":null}"#, "spec.hooks"),
    (r#"{"hooks":{"sync":null}}"#, "spec.hooks.sync"),
    (r#"{"hooks":{"sync":{"webhook":null}}}"#, "spec.hooks.sync"),
    (
        r#"{"hooks":{"finalize":{"version":"v3"}}}"#,
        "spec.hooks.finalize.version",
    ),
    (
        r#"{"hooks":{"customize":{"webhook":{}}}}"#,
        "spec.hooks.customize.webhook",
    ),
    (
        r#"{"hooks":{"sync":{"webhook":{"url":"ftp://x/"}}}}"#,
        "spec.hooks.sync.webhook.url",
    ),
    (
        r#"{"hooks":{"sync":{"webhook":{"url":""}}}}"#,
        "spec.hooks.sync.webhook.url",
    ),
    (
        r#"{"hooks":{"sync":{"webhook":{"url":null,"path":"/x"}}}}"#,
        "spec.hooks.sync.webhook",
    ),
    (
        r#"{"hooks":{"sync":{"webhook":{"url":null,"path":"/x","service":{"name":"","namespace":"n"}}}}}"#,
        "spec.hooks.sync.webhook.service",
    ),
    (
        r#"{"hooks":{"sync":{"webhook":{"url":null,"path":"/x","service":{"name":"s","namespace":"n","port":70000}}}}}"#,
        "spec.hooks.sync.webhook.service.port",
    ),
    (
        r#"{"hooks":{"sync":{"webhook":{"url":null,"path":"/x","service":{"name":"s","namespace":"n","protocol":"ws"}}}}}"#,
        "spec.hooks.sync.webhook.service.protocol",
    ),
    (
        r#"{"hooks":{"sync":{"webhook":{"url":null,"path":"x","service":{"name":"s","namespace":"n"}}}}}"#,
        "spec.hooks.sync.webhook.path",
    ),
    (
        r#"{"hooks":{"sync":{"webhook":{"timeout":"10"}}}}"#,
        "spec.hooks.sync.webhook.timeout",
    ),
    (
        r#"{"hooks":{"sync":{"webhook":{"responseUnMarshallMode":"odd"}}}}"#,
        "spec.hooks.sync.webhook.responseUnMarshallMode",
    ),
    (
        r#"{"hooks":{"sync":{"webhook":{"caBundle":{}}}}}"#,
        "spec.hooks.sync.webhook.caBundle",
    ),
    (
        r#"{"hooks":{"sync":{"webhook":{"authorization":{"type":" BASIC ","secretRef":{"name":"s","namespace":"n","key":"k"}}}}}}"#,
        "spec.hooks.sync.webhook.authorization.type",
    ),
    (
        r#"{"hooks":{"sync":{"webhook":{"authorization":{"secretRef":{"name":"s","namespace":"n","key":"k"}},"basicAuth":{"secretRef":{"name":"s","namespace":"n"}}}}}}"#,
        "spec.hooks.sync.webhook.authorization",
    ),
    (
        r#"{"hooks":{"sync":{"webhook":{"caBundle":{"secretRef":{"name":"../x","namespace":"n"}}}}}}"#,
        "spec.hooks.sync.webhook.caBundle.secretRef.name",
    ),
    (
        r#"{"hooks":{"sync":{"webhook":{"caBundle":{"configMapRef":{"name":"x","namespace":""}}}}}}"#,
        "spec.hooks.sync.webhook.caBundle.configMapRef.namespace",
    ),
    (
        r#"{"hooks":{"sync":{"webhook":{"clientTLS":{"secretRef":{"name":"x,y=z","namespace":"n"}}}}}}"#,
        "spec.hooks.sync.webhook.clientTLS.secretRef.name",
    ),
    (
        r#"{"hooks":{"sync":{"webhook":{"authorization":{"secretRef":{"name":"s","namespace":"n","key":""}}}}}}"#,
        "spec.hooks.sync.webhook.authorization.secretRef.key",
    ),
    (
        r#"{"hooks":{"sync":{"webhook":{"basicAuth":{"secretRef":{"name":"s","namespace":"N"}}}}}}"#,
        "spec.hooks.sync.webhook.basicAuth.secretRef.namespace",
    ),
    (
        r#"{"endpointConfigs":[{"host":"HOOKS.example:80","caBundle":{}}]}"#,
        "spec.endpointConfigs[0].caBundle",
    ),
    (
        r#"{"serviceAccountRef":{"name":"","namespace":"n"}}"#,
        "spec.serviceAccountRef",
    ),
    (r#"{"sharding":{"slices":3}}"#, "spec.sharding.slices"),
];

#[test]
fn each_fault_is_found_at_its_field() {
    for (change, field) in FAULTS {
        let change = serde_json::from_str(change).unwrap();

        assert_eq!(
            with(&change),
            [((*field).to_owned(), Verdict::Invalid)],
            "{change}"
        );
    }
}

#[test]
fn what_has_no_effect_is_named_and_refuses_nothing() {
    let change = json!({
        "childResources": [
            { "apiVersion": "v1", "resource": "pods" },
            { "apiVersion": "v1", "resource": "pods", "updateStrategy": { "method": "InPlace", "statusChecks": {} } },
        ],
        "hooks": { "preUpdateChild": { "webhook": {} }, "postUpdateChild": {} },
    });
    let expected = [
        "spec.childResources[1]",
        "spec.childResources[1].updateStrategy.statusChecks",
        "spec.hooks.preUpdateChild",
        "spec.hooks.postUpdateChild",
    ];

    let found = with(&change);

    assert_eq!(
        found,
        expected.map(|field| (field.to_owned(), Verdict::NoEffect))
    );
}

#[test]
fn endpoint_configs_that_no_hook_uses_refuse_nothing() {
    let authorization = json!({ "secretRef": { "name": "s", "namespace": "n", "key": "k" } });
    let twice = json!({
        "host": "hooks.example",
        "authorization": authorization,
        "basicAuth": { "secretRef": { "name": "s", "namespace": "n" } },
    });
    let elsewhere = json!({ "endpointConfigs": [{ "host": "elsewhere", "caBundle": {} }] });
    let overridden = json!({
        "endpointConfigs": [twice],
        "hooks": { "sync": { "webhook": { "authorization": authorization } } },
    });
    for change in [elsewhere, overridden] {
        let found = with(&change);

        let expected = ("spec.endpointConfigs[0]".to_owned(), Verdict::NoEffect);
        assert_eq!(found, [expected], "{change}");
    }
}

#[test]
fn a_clean_up_of_what_never_ends_has_no_effect() {
    let etag = json!({ "enabled": true, "cacheCleanupSeconds": 60 });
    let change = json!({ "hooks": { "sync": { "webhook": { "etag": etag } } } });

    let field = "spec.hooks.sync.webhook.etag.cacheCleanupSeconds";
    assert_eq!(with(&change), [(field.to_owned(), Verdict::NoEffect)]);
}

#[test]
fn a_finding_reads_as_one_line_with_field_fault_and_fix() {
    let finding = Finding::invalid("spec.hooks", "no hooks defined", "give one");

    assert_eq!(
        finding.to_string(),
        "spec.hooks: no hooks defined; give one"
    );
    assert!(finding.refuses());
}

#[test]
fn a_webhook_without_a_place_is_refused_in_metacontrollers_words() {
    for (webhook, text) in [
        (
            json!({ "url": null, "path": "/x" }),
            "spec.hooks.sync.webhook: invalid webhook config: must specify either a full 'url', or both 'service' and 'path'; give one of them",
        ),
        (
            json!({ "url": null, "path": "/x", "service": { "name": "s", "namespace": "" } }),
            "spec.hooks.sync.webhook.service: invalid webhook config: 'service' must specify both 'name' and 'namespace'; give both",
        ),
    ] {
        let mut object = good();
        merge(
            &mut object["spec"],
            &json!({ "hooks": { "sync": { "webhook": webhook } } }),
        );

        let findings = composite(&serde_json::from_value(object).unwrap());

        let texts: Vec<_> = findings.iter().map(ToString::to_string).collect();
        assert_eq!(texts, [text]);
    }
}

#[test]
fn a_controller_may_name_fifty_resources_with_that_of_its_parents() {
    let children = |count: u32| {
        let rule = |number| json!({ "apiVersion": "v1", "resource": format!("kind{number}s") });
        json!({ "childResources": (0..count).map(rule).collect::<Value>() })
    };

    assert_eq!(with(&children(49)), []);
    let expected = ("spec.childResources".to_owned(), Verdict::Invalid);
    assert_eq!(with(&children(50)), [expected]);
}
