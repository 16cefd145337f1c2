//! Applying manifests of any kind.

use std::time::Duration;

use anyhow::Context;
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
    discovery::{self, Scope},
};
use serde_json::Value;

use crate::wait::eventually;

/// Time for the kind of an object to be served, if its CustomResourceDefinition has just been applied.
const SERVED_WITHIN: Duration = Duration::from_secs(20);

/// Applies each document of a YAML text, in order, as field manager `metashard-testkit`.
///
/// # Errors
/// At the first document that is no object or that the API server refuses.
pub async fn apply_yaml(client: &Client, text: &str) -> anyhow::Result<Vec<DynamicObject>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).context("parse YAML")?;
    let mut applied = Vec::new();
    for document in documents.iter().filter(|it| !it.is_null()) {
        applied.push(apply(client, document).await?);
    }
    Ok(applied)
}

/// Applies one object as field manager `metashard-testkit`, taking fields over from other managers.
/// Without a namespace it goes to `default`.
///
/// # Errors
/// If it is no object, its kind is not served, or the API server refuses it.
pub async fn apply(client: &Client, object: &Value) -> anyhow::Result<DynamicObject> {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str);
    let api_version = text("/apiVersion").context("read apiVersion of a manifest")?;
    let kind = text("/kind").context("read kind of a manifest")?;
    let name = text("/metadata/name").context("read metadata.name of a manifest")?;
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let gvk = GroupVersionKind::gvk(group, version, kind);

    let what = format!("{kind} of {api_version} to be served");
    let (resource, capabilities) = eventually(SERVED_WITHIN, &what, async || {
        Ok(discovery::pinned_kind(client, &gvk).await?)
    })
    .await?;
    let api: Api<DynamicObject> = match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => {
            let namespace = text("/metadata/namespace").unwrap_or("default");
            Api::namespaced_with(client.clone(), namespace, &resource)
        }
    };
    let params = PatchParams::apply("metashard-testkit").force();
    api.patch(name, &params, &Patch::Apply(object))
        .await
        .with_context(|| format!("apply {kind} {name}"))
}
