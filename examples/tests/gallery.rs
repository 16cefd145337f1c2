//! Each example as a reader would run it: its hook as a process, its manifests, a replica of metashard, a real cluster.

use std::{fs, path::Path, process::Command, time::Duration};

use anyhow::{Context, ensure};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use metashard_testkit::{
    Cluster, Replica,
    cluster::{self, free_port},
    replica::{self, built},
    shipped,
    wait::eventually,
};
use serde_json::{Value, json};

const WITHIN: Duration = Duration::from_secs(30);

/// Runs example `folder` until its sample parent has the status `expected`; gives the cluster and its namespace there.
async fn play(folder: &str, plural: &str, expected: Value) -> anyhow::Result<(Cluster, String)> {
    // Not the shared one: a CompositeController is served by every installation in its cluster.
    let cluster = Cluster::start(cluster::Options::default()).await?;
    let client = cluster.admin().await?;
    let namespace = cluster.namespace(folder).await?;
    let system = cluster.namespace("system").await?;
    shipped::put_crds(&client).await?;
    let port = free_port()?;
    let program = format!("{folder}-hook");
    let mut command = Command::new(built(&program)?);
    let mut hook = cluster
        .group()
        .spawn(command.arg(format!("127.0.0.1:{port}")), &program)?;
    let options = replica::Options::new(&cluster, &format!("replica-{folder}"), &system)?;
    let mut replica = Replica::start(cluster.group(), &options)?;
    replica.ready(WITHIN).await?;

    for name in ["crd", "controller"] {
        let text = read(&format!("{folder}/manifests/{name}.yaml"))?;
        cluster
            .apply_yaml(&text.replace("127.0.0.1:8080", &format!("127.0.0.1:{port}")))
            .await?;
    }
    let sample = read(&format!("{folder}/manifests/sample.yaml"))?;
    let placed = sample.replace(
        "metadata:\n",
        &format!("metadata:\n  namespace: {namespace}\n"),
    );
    let parent = cluster.apply_yaml(&placed).await?.remove(0);

    let parents = api(
        &client,
        &namespace,
        &parent.types.context("read the sample's kind")?,
        plural,
    );
    let name = parent.metadata.name.context("read the sample's name")?;
    let outcome = eventually(WITHIN, &format!("{name} to have its status"), async || {
        let status = parents.get(&name).await?.data["status"].clone();
        ensure!(status == expected, "it is {status}");
        Ok(())
    })
    .await;
    hook.kill().context("stop the hook")?;
    hook.wait().context("stop the hook")?;
    outcome.map(|()| (cluster, namespace))
}

fn read(path: &str) -> anyhow::Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
}

fn api(
    client: &Client,
    namespace: &str,
    types: &kube::api::TypeMeta,
    plural: &str,
) -> Api<DynamicObject> {
    let (group, version) = types
        .api_version
        .split_once('/')
        .unwrap_or(("", &types.api_version));
    let gvk = GroupVersionKind::gvk(group, version, &types.kind);
    Api::namespaced_with(
        client.clone(),
        namespace,
        &ApiResource::from_gvk_with_plural(&gvk, plural),
    )
}

async fn names(
    client: &Client,
    namespace: &str,
    api_version: &str,
    kind: &str,
    plural: &str,
) -> anyhow::Result<Vec<String>> {
    let types = kube::api::TypeMeta {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
    };
    let list = api(client, namespace, &types, plural)
        .list(&ListParams::default())
        .await?;
    Ok(list.iter().map(ResourceExt::name_any).collect())
}

#[tokio::test]
async fn a_website_becomes_its_pages_and_servers() -> anyhow::Result<()> {
    let status = json!({ "observedGeneration": 1, "pages": 2, "servers": "0 of 2 ready" });

    let (cluster, namespace) = play("website", "websites", status).await?;
    let client = cluster.admin().await?;

    let pages = names(&client, &namespace, "v1", "ConfigMap", "configmaps").await?;
    let servers = names(&client, &namespace, "apps/v1", "Deployment", "deployments").await?;
    assert_eq!(
        (pages, servers),
        (vec!["bakery-pages".to_owned()], vec!["bakery".to_owned()])
    );
    Ok(())
}

#[tokio::test]
async fn a_team_becomes_a_quota_and_a_role_for_each_grade() -> anyhow::Result<()> {
    let status = json!({ "observedGeneration": 1, "members": 3, "used": {} });

    let (cluster, namespace) = play("team", "teams", status).await?;
    let client = cluster.admin().await?;

    let rbac = "rbac.authorization.k8s.io/v1";
    let quotas = names(&client, &namespace, "v1", "ResourceQuota", "resourcequotas").await?;
    let roles = names(&client, &namespace, rbac, "Role", "roles").await?;
    let bindings = names(&client, &namespace, rbac, "RoleBinding", "rolebindings").await?;
    assert_eq!(quotas, ["blue"]);
    assert_eq!(roles, ["blue-editor", "blue-viewer"]);
    assert_eq!(bindings, roles);
    Ok(())
}
