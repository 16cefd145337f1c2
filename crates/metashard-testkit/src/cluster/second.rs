//! A second API server on the same etcd, as a cluster has that must not depend on one machine.

use std::{fs, path::PathBuf, process::Child};

use anyhow::{Context, ensure};
use serde_json::json;

use super::{Cluster, READY_WITHIN, client_of, free_port, servers};
use crate::wait::eventually;

/// Name of its process.
const NAME: &str = "kube-apiserver-2";

/// A second API server. Its process ends with the cluster.
#[derive(Debug)]
pub struct SecondServer {
    port: u16,
    url: String,
    audit_log: PathBuf,
    /// `None` while it is stopped.
    process: Option<Child>,
}

impl SecondServer {
    /// Starts one beside that of `cluster`, with the same options, and waits until it is ready.
    ///
    /// # Errors
    /// If it is not ready in time.
    pub async fn start(cluster: &Cluster) -> anyhow::Result<Self> {
        let port = free_port()?;
        let mut this = Self {
            port,
            url: format!("https://127.0.0.1:{port}"),
            audit_log: cluster.folder().join("audit-2.log"),
            process: None,
        };
        this.resume(cluster).await?;
        Ok(this)
    }

    /// Its URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Path of a kubeconfig file for `user` that leads to it.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn kubeconfig(&self, cluster: &Cluster, user: &str) -> anyhow::Result<PathBuf> {
        let path = cluster.folder().join(format!("{user}-2.kubeconfig"));
        let files = cluster.user_files(user)?;
        let user = json!({ "client-certificate": files.certificate, "client-key": files.key });
        let text = servers::kubeconfig(&self.url, &cluster.authority(), &user);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        Ok(path)
    }

    /// Its audit log, in the form of [`Cluster::audit_events`].
    pub fn audit_log(&self) -> &std::path::Path {
        &self.audit_log
    }

    /// Ends it as a crash would.
    ///
    /// # Errors
    /// If it cannot be killed.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        if let Some(mut process) = self.process.take() {
            process.kill().context("kill an API server")?;
            process.wait().context("wait for an API server")?;
        }
        Ok(())
    }

    /// Starts it after [`Self::kill`], and waits until it is ready.
    ///
    /// # Errors
    /// If it is not ready in time.
    pub async fn resume(&mut self, cluster: &Cluster) -> anyhow::Result<()> {
        if self.process.is_none() {
            let (servers, certificates) = (&cluster.servers, &cluster.certificates);
            let mut server = servers.api_server_at(self.port, &self.audit_log, certificates);
            self.process = Some(cluster.group().spawn(&mut server, NAME)?);
        }
        let kubeconfig = cluster.folder().join("admin-2.kubeconfig");
        fs::write(&kubeconfig, cluster.admin_kubeconfig(&self.url))
            .context("write a kubeconfig file")?;
        let client = client_of(&kubeconfig).await?;
        eventually(READY_WITHIN, "a second API server", async || {
            let request = http::Request::get("/readyz").body(Vec::new())?;
            let answer = client.request_text(request).await?;
            ensure!(answer == "ok", "it says {answer}");
            Ok(())
        })
        .await
    }
}

impl Drop for SecondServer {
    fn drop(&mut self) {
        drop(self.kill());
    }
}
