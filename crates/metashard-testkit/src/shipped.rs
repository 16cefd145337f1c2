//! What `deploy/` ships, put into a cluster as users do.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;
use kube::Client;
use metashard_api::names::SYSTEM_NAMESPACE;

use crate::apply::apply_yaml;

/// The CRDs.
///
/// # Errors
/// If a file cannot be read, or the API server refuses it.
pub async fn put_crds(client: &Client) -> anyhow::Result<()> {
    let folder = deploy().join("crds");
    let entries = fs::read_dir(&folder).with_context(|| format!("list {}", folder.display()))?;
    for entry in entries {
        let path = entry.context("list deploy/crds")?.path();
        apply_yaml(client, &read(&path)?).await?;
    }
    Ok(())
}

/// The namespace of the system, under another name if need be, with the map that the first leader starts from: with it,
/// it need not wait for signs of an old one. The [CRDs](put_crds) come first.
///
/// # Errors
/// If the file cannot be read, or the API server refuses it.
pub async fn put_system(client: &Client, namespace: &str) -> anyhow::Result<()> {
    let text = read(&deploy().join("system.yaml"))?;
    apply_yaml(client, &text.replace(SYSTEM_NAMESPACE, namespace)).await?;
    Ok(())
}

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
}
