//! Applying manifests, and the custom resources that the kit brings.

use kube::{
    Api,
    api::{DynamicObject, ListParams},
    core::{ApiResource, GroupVersionKind},
};
use metashard_testkit::{Cluster, crds};

#[tokio::test]
async fn documents_are_applied_in_order_and_the_server_fills_in_defaults() -> anyhow::Result<()> {
    let cluster = Cluster::shared().await?;
    let client = cluster.admin().await?;
    crds::install(&client).await?;
    let namespace = cluster.namespace("apply").await?;

    let applied = cluster
        .apply_yaml(&format!(
            r"
apiVersion: v1
kind: ConfigMap
metadata: {{ name: first, namespace: {namespace} }}
data: {{ key: value }}
---
---
apiVersion: test.metashard.io/v1
kind: Defaulted
metadata: {{ name: second, namespace: {namespace} }}
spec: {{ items: [{{ path: /etc }}] }}
"
        ))
        .await?;

    assert_eq!(applied.len(), 2);
    assert_eq!(
        applied[1].data["spec"],
        serde_json::json!({
            "size": 1,
            "items": [{ "path": "/etc", "mode": "0644", "source": { "kind": "Default" } }],
        })
    );
    Ok(())
}

#[tokio::test]
async fn every_kind_of_the_kit_is_served_once_installed() -> anyhow::Result<()> {
    let cluster = Cluster::shared().await?;
    let client = cluster.admin().await?;

    crds::install(&client).await?;

    for (kind, plural, version) in [
        ("Thing", "things", "v1"),
        ("BigThing", "bigthings", "v1"),
        ("NoStatus", "nostatuses", "v1"),
        ("Multi", "multis", "v2"),
        ("Defaulted", "defaulteds", "v1"),
    ] {
        let gvk = GroupVersionKind::gvk(crds::GROUP, version, kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        api.list(&ListParams::default()).await?;
    }
    Ok(())
}
