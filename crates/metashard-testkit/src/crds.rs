//! Small custom resources to reconcile, one for each trait of a schema that matters.
//!
//! All are in group [`GROUP`] and take any `spec` and `status`, apart from what each says.

use std::time::Duration;

use kube::Client;
use serde_json::{Value, json};

use crate::{apply::apply, wait::eventually};

/// Group of all kinds of this module.
pub const GROUP: &str = "test.metashard.io";

/// `apiVersion` of all kinds of this module.
pub const API_VERSION: &str = "test.metashard.io/v1";

/// Time for the API server to serve new kinds; in practice well under a second.
const SERVED_WITHIN: Duration = Duration::from_secs(20);

/// Installs every kind of this module and waits until they are served. May be called again.
///
/// # Errors
/// If the API server refuses one or does not serve it in time.
pub async fn install(client: &Client) -> anyhow::Result<()> {
    for crd in [thing(), big_thing(), no_status(), multi(), defaulted()] {
        install_one(client, &crd).await?;
    }
    Ok(())
}

/// Installs the CustomResourceDefinition `crd` and waits until it is served.
///
/// # Errors
/// If the API server refuses it or does not serve it in time.
pub async fn install_one(client: &Client, crd: &Value) -> anyhow::Result<()> {
    apply(client, crd).await?;
    let text = |path: &str| {
        crd.pointer(path)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let group = text("/spec/group");
    let version = text("/spec/versions/0/name");
    let plural = text("/spec/names/plural");
    let path = format!("/apis/{group}/{version}/{plural}");
    eventually(SERVED_WITHIN, &path, async || {
        let request = http::Request::get(format!("{path}?limit=1")).body(Vec::new())?;
        client.request::<Value>(request).await?;
        Ok(())
    })
    .await
}

/// `Thing`, plural `things`: namespaced, with a status subresource. The usual parent.
pub fn thing() -> Value {
    like_thing("Thing", "things")
}

/// A kind of another name that is as [`thing`] otherwise.
pub fn like_thing(kind: &str, plural: &str) -> Value {
    crd(
        kind,
        plural,
        "Namespaced",
        &[version("v1", &anything(), true)],
    )
}

/// `BigThing`, plural `bigthings`: cluster-scoped, with a status subresource.
pub fn big_thing() -> Value {
    crd(
        "BigThing",
        "bigthings",
        "Cluster",
        &[version("v1", &anything(), true)],
    )
}

/// `NoStatus`, plural `nostatuses`: namespaced, without a status subresource.
pub fn no_status() -> Value {
    crd(
        "NoStatus",
        "nostatuses",
        "Namespaced",
        &[version("v1", &anything(), false)],
    )
}

/// `Multi`, plural `multis`: namespaced, versions v1 (stored) and v2 served.
pub fn multi() -> Value {
    let mut second = version("v2", &anything(), true);
    second["storage"] = json!(false);
    crd(
        "Multi",
        "multis",
        "Namespaced",
        &[version("v1", &anything(), true), second],
    )
}

/// `Defaulted`, plural `defaulteds`: namespaced; the server fills in `spec.size` (1), and in each of `spec.items`,
/// which have no key field, `mode` ("0644") and `source.kind` ("Default").
pub fn defaulted() -> Value {
    let item = json!({
        "type": "object",
        "required": ["path"],
        "properties": {
            "path": { "type": "string" },
            "mode": { "type": "string", "default": "0644" },
            "source": {
                "type": "object",
                "default": {},
                "properties": { "kind": { "type": "string", "default": "Default" } },
            },
        },
    });
    let spec = json!({
        "type": "object",
        "properties": {
            "size": { "type": "integer", "default": 1 },
            "items": { "type": "array", "items": item },
        },
    });
    crd(
        "Defaulted",
        "defaulteds",
        "Namespaced",
        &[version("v1", &spec, true)],
    )
}

/// A CompositeController of those [Things](thing) that have a label. Its hook is at `url`, its children are ConfigMaps.
pub fn controller_of_things(name: &str, label: (&str, &str), url: &str) -> Value {
    let (key, value) = label;
    json!({
        "apiVersion": "metacontroller.k8s.io/v1alpha1",
        "kind": "CompositeController",
        "metadata": { "name": name },
        "spec": {
            "generateSelector": true,
            "parentResource": {
                "apiVersion": API_VERSION,
                "resource": "things",
                "labelSelector": { "matchLabels": { key: value } },
            },
            "childResources": [{
                "apiVersion": "v1",
                "resource": "configmaps",
                "updateStrategy": { "method": "InPlace" },
            }],
            "hooks": { "sync": { "webhook": { "url": url } } },
        },
    })
}

fn anything() -> Value {
    json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

fn version(name: &str, spec: &Value, status: bool) -> Value {
    let mut version = json!({
        "name": name,
        "served": true,
        "storage": true,
        "schema": { "openAPIV3Schema": {
            "type": "object",
            "properties": { "spec": spec, "status": anything() },
        }},
    });
    if status {
        version["subresources"] = json!({ "status": {} });
    }
    version
}

fn crd(kind: &str, plural: &str, scope: &str, versions: &[Value]) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{GROUP}") },
        "spec": {
            "group": GROUP,
            "scope": scope,
            "names": { "kind": kind, "plural": plural, "singular": kind.to_lowercase() },
            "versions": versions,
        },
    })
}
