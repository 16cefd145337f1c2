//! `fleet record` and `fleet replay`: the decisions of a running replica, made again by the tool.

use std::{fs, path::Path};

use anyhow::{Context, ensure};
use metashard_api::names::SYSTEM_NAMESPACE;
use metashard_testkit::replica;
use serde_json::Value;
use tokio::process::Command;

use super::{Ran, User, ran};
use crate::support::shared;

/// Records a machine of the suite's replica into a file.
async fn record(admin: &User, machine: &str, to: &Path) -> anyhow::Result<()> {
    let server = shared().await?.replica.health_url();
    let to = to.to_str().context("a path of text")?;
    let ran = admin
        .runs(["fleet", "record", machine, "--server", &server, "--to", to])
        .await?;
    ensure!(ran.code == 0, "{ran:#?}");
    ensure!(ran.errors.contains("fleet replay"), "{ran:#?}");
    Ok(())
}

/// Needs no cluster.
async fn replay(file: &Path, form: &str) -> anyhow::Result<Ran> {
    let mut command = Command::new(replica::built("metashardctl")?);
    command.args(["fleet", "replay", "-o", form]).arg(file);
    ran(command).await
}

#[tokio::test]
async fn decisions_of_a_running_leader_and_worker_are_made_again() -> anyhow::Result<()> {
    let admin = User::admin(shared().await?)?;
    let folder = tempfile::tempdir()?;

    for machine in ["leader", "worker"] {
        let file = folder.path().join(machine);
        record(&admin, machine, &file).await?;

        let told = replay(&file, "text").await?;
        ensure!(told.code == 0, "{told:#?}");
        let last = told.text.lines().last().unwrap_or_default();
        ensure!(last.ends_with("when they were recorded"), "{last}");

        let read = replay(&file, "json").await?.json()?;
        ensure!(read["calls"].as_u64() > Some(2), "{}", read["calls"]);
        ensure!(read["differ"] == 0, "{}", read["differ"]);
    }
    Ok(())
}

#[tokio::test]
async fn decisions_that_come_out_differently_are_named_and_end_with_1() -> anyhow::Result<()> {
    let admin = User::admin(shared().await?)?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("worker");
    record(&admin, "worker", &file).await?;

    let mut taken: Value = serde_json::from_slice(&fs::read(&file)?)?;
    let steps = &mut taken["of"]["worker"]["steps"];
    steps[3]["decided"] = 1.into();
    let another = folder.path().join("another");
    fs::write(&another, taken.to_string())?;
    let told = replay(&another, "text").await?;

    ensure!(told.code == 1, "{told:#?}");
    let last = told.text.lines().last().unwrap_or_default();
    ensure!(last.starts_with("1 of "), "{last}");
    Ok(())
}

#[tokio::test]
async fn what_is_no_recording_or_of_another_version_is_refused_in_words() -> anyhow::Result<()> {
    let admin = User::admin(shared().await?)?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("it");

    for (content, words) in [
        ("not even JSON", "is no recording of a fleet's machine"),
        (
            r#"{"version": "v99.0.0", "of": {}}"#,
            "was recorded by version v99.0.0",
        ),
    ] {
        fs::write(&file, content)?;
        let told = replay(&file, "text").await?;
        ensure!(told.code == 2, "{told:#?}");
        ensure!(told.errors.contains(words), "{told:#?}");
    }
    // Other tests have fleets of their own in this cluster.
    let own = ["--system-namespace", SYSTEM_NAMESPACE];
    let unnamed = [&["fleet", "record", "worker"][..], &own].concat();
    let unnamed = admin.runs(unnamed).await?;
    ensure!(unnamed.code == 2, "{unnamed:#?}");
    ensure!(unnamed.errors.contains("--replica"), "{unnamed:#?}");
    Ok(())
}
