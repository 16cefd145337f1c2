//! Where the demo plays, and what is put there before the replicas start.

use std::{fs, path::PathBuf};

use anyhow::Context;
use kube::{Client, config::Kubeconfig};
use metashard_api::names::SYSTEM_NAMESPACE;
use metashard_testkit::{
    Cluster,
    apply::{apply, apply_yaml},
    assets::Wanted,
    cluster::{self, ADMIN, client_of},
    group::Group,
    shipped,
};
use serde_json::json;

use super::{Ground, hooks::Hooks};
use crate::{
    demo::tenants::{self, Example, TENANTS, cast},
    kubernetes,
    talk::say,
};

/// A place to play at.
pub(super) struct Setting {
    pub(super) place: String,
    pub(super) client: Client,
    pub(super) kubeconfig: PathBuf,
    pub(super) system_namespace: &'static str,
    pub(super) ground: Ground,
}

/// Starts a control plane, or takes the cluster of a kubeconfig context; then puts the kinds and namespaces there.
pub(super) async fn open(context: Option<&str>) -> anyhow::Result<Setting> {
    let mut setting = match context {
        Some(name) => lent(name).await?,
        None => own().await?,
    };
    let version = setting
        .client
        .apiserver_version()
        .await
        .context("reach the API server")?;
    setting.place = format!("Kubernetes {} on {}", version.git_version, setting.place);
    put_kinds(&setting.client, setting.system_namespace).await?;
    Ok(setting)
}

async fn own() -> anyhow::Result<Setting> {
    // The demo needs no controller manager.
    kubernetes::find_or_build(&Wanted::default())?;
    say("starting etcd and kube-apiserver");
    let cluster = Cluster::start(cluster::Options::default()).await?;
    Ok(Setting {
        place: cluster.url().to_owned(),
        client: cluster.admin().await?,
        kubeconfig: cluster.kubeconfig(ADMIN)?,
        system_namespace: SYSTEM_NAMESPACE,
        ground: Ground::Own(Box::new(cluster)),
    })
}

async fn lent(name: &str) -> anyhow::Result<Setting> {
    let mut kubeconfig = Kubeconfig::read().context("read kubeconfig")?;
    kubeconfig.current_context = Some(name.to_owned());
    let group = Group::new()?;
    // The replicas have no flag for a context.
    let path = group.folder().join("kubeconfig");
    let text = serde_json::to_string(&kubeconfig).context("write kubeconfig")?;
    fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    let client = client_of(&path)
        .await
        .with_context(|| format!("use context {name}"))?;
    Ok(Setting {
        place: format!("context {name}"),
        client,
        kubeconfig: path,
        // Not the one of an installation that may be there.
        system_namespace: "metashard-demo",
        ground: Ground::Lent(group),
    })
}

/// The kinds of metashard and of the examples, and all namespaces.
async fn put_kinds(client: &Client, system_namespace: &str) -> anyhow::Result<()> {
    shipped::put_crds(client).await?;
    for example in Example::ALL {
        apply_yaml(client, &example.manifest("crd.yaml")?).await?;
    }
    for name in TENANTS.iter().map(|it| tenants::namespace(it)) {
        apply(
            client,
            &json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }),
        )
        .await?;
    }
    shipped::put_system(client, system_namespace).await
}

/// The tenants' controllers and parents.
pub(super) async fn put_manifests(client: &Client, hooks: &Hooks) -> anyhow::Result<()> {
    for cast in cast() {
        let url = hooks.url(cast.tenant, cast.example)?;
        apply(client, &cast.manifest(&url)?).await?;
        for name in cast.parents() {
            apply(client, &cast.parent(&name)).await?;
        }
    }
    Ok(())
}
