//! `fleet record`: what a machine was told lately.

use std::fs;

use anyhow::Context;
use bytes::Bytes;

use crate::{
    Found,
    argv::{Machine, Record},
    cluster::Cluster,
    fleet::Fleet,
    output::{self, Output},
    replica,
};

pub(in crate::commands) async fn run(flags: &Record, output: &mut Output) -> anyhow::Result<Found> {
    let target = match flags.machine {
        Machine::Leader => "/api/v1/fleet/leader",
        Machine::Worker => "/api/v1/fleet/worker",
    };
    let taken = match &flags.server {
        Some(server) => replica::ask(server, target).await?,
        None => by_cluster(flags, target).await?,
    };
    match &flags.file {
        Some(file) => {
            fs::write(file, &taken).with_context(|| format!("write {}", file.display()))?;
            let file = file.display();
            output::complain(&format!(
                "{} bytes written; read them by: metashardctl fleet replay {file}",
                taken.len()
            ));
        }
        None => output.line(&String::from_utf8_lossy(&taken))?,
    }
    Ok(Found::Same)
}

async fn by_cluster(flags: &Record, target: &str) -> anyhow::Result<Bytes> {
    let cluster = Cluster::connect(&flags.live).await?;
    let fleet = Fleet::one(&cluster, &flags.asking).await?;
    let replica = match (&flags.replica, flags.machine) {
        (Some(name), _) => fleet.named(name)?.clone(),
        (None, Machine::Leader) => fleet.leader().context("nobody has led this fleet yet")?,
        (None, Machine::Worker) => {
            let all = fleet.replicas().iter().map(|it| it.name.as_str());
            let all = all.collect::<Vec<_>>().join(", ");
            anyhow::bail!("say whose by --replica: {all}")
        }
    };
    fleet.ask(&cluster, &replica, target).await
}
