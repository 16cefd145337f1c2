//! `metashardctl` against a real cluster, as people run it.

mod asking;
mod counting;
mod deciding;
mod huge;
mod mistakes;
mod narrow;
mod reading;
mod secured;
mod shards;

use std::{path::PathBuf, process::Stdio};

use anyhow::Context;
use metashard_testkit::{Replica, cluster, replica};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::{OWN_REPLICA, Objects, Shared, Stage, WITHIN, shared};

/// What a run of the tool came to.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) text: String,
    pub(crate) errors: String,
}

impl Ran {
    /// What it printed, as JSON.
    pub(crate) fn json(&self) -> anyhow::Result<Value> {
        serde_json::from_str(&self.text).with_context(|| format!("read {self:?}"))
    }
}

/// A user of the tool.
pub(crate) struct User {
    kubeconfig: PathBuf,
}

impl User {
    /// Who may do everything.
    pub(crate) fn admin(shared: &Shared) -> anyhow::Result<Self> {
        Self::named(shared, cluster::ADMIN)
    }

    /// Who may do nothing but what roles that are bound to this name say.
    pub(crate) fn named(shared: &Shared, name: &str) -> anyhow::Result<Self> {
        let kubeconfig = shared.cluster.kubeconfig(name)?;
        Ok(Self { kubeconfig })
    }

    /// Whose kubeconfig this is.
    pub(crate) fn with(kubeconfig: PathBuf) -> Self {
        Self { kubeconfig }
    }

    /// The tool, ready to be started.
    pub(crate) fn command<'a>(
        &self,
        args: impl IntoIterator<Item = &'a str>,
    ) -> anyhow::Result<Command> {
        let mut command = Command::new(replica::built("metashardctl")?);
        command
            .args(args)
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .env_remove("COLUMNS")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        Ok(command)
    }

    /// Runs the tool.
    pub(crate) async fn runs<'a>(
        &self,
        args: impl IntoIterator<Item = &'a str>,
    ) -> anyhow::Result<Ran> {
        ran(self.command(args)?).await
    }
}

/// Runs the tool, made ready.
pub(crate) async fn ran(mut command: Command) -> anyhow::Result<Ran> {
    let output = command.output().await.context("run metashardctl")?;
    Ok(Ran {
        code: output.status.code().context("read the exit code")?,
        text: String::from_utf8(output.stdout)?,
        errors: String::from_utf8(output.stderr)?,
    })
}

/// A replica of a stage's own in a system namespace, with its health server open to the API server.
pub(crate) async fn start_replica(
    stage: &Stage,
    name: &str,
    system: &str,
) -> anyhow::Result<Replica> {
    let cluster = &shared().await?.cluster;
    let selector = format!("--target-label-selector={OWN_REPLICA}={}", stage.namespace);
    let options = replica::Options::new(cluster, name, system)?;
    let mut options = options.flags([selector.as_str(), "--lease-duration=2s"]);
    options.is_reachable = true;
    let mut replica = Replica::start(cluster.group(), &options)?;
    replica.ready(WITHIN).await?;
    Ok(replica)
}

/// Has a controller served by the stage's own replicas.
pub(crate) fn ours(stage: &Stage) -> impl FnOnce(&mut Value) + use<> {
    let name = stage.namespace.clone();
    move |it| it["metadata"]["labels"] = json!({ OWN_REPLICA: name })
}

/// The objects of a kind in another namespace than the stage's.
pub(crate) fn objects_in(stage: &Stage, kind: crate::support::Kind, namespace: &str) -> Objects {
    Objects::new(&stage.client, kind, namespace)
}
