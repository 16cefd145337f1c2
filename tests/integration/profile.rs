//! `--pprof-address`: what Go's own tool makes of the profile.

use std::{net::TcpListener, process::Command};

use anyhow::ensure;
use metashard_testkit::{Replica, loopback, replica};

use crate::{
    languages::is_missing,
    support::{WITHIN, shared},
};

#[tokio::test]
async fn gos_pprof_reads_what_memory_is_used_for() -> anyhow::Result<()> {
    shown_by_go(
        "gos_pprof_reads_what_memory_is_used_for",
        "heap",
        "everything else",
    )
    .await
}

#[tokio::test]
async fn gos_pprof_reads_where_the_cpu_goes() -> anyhow::Result<()> {
    shown_by_go(
        "gos_pprof_reads_where_the_cpu_goes",
        "profile?seconds=5",
        "flat%",
    )
    .await
}

/// A replica answers `profile`, and Go's tool shows `expected` of it.
async fn shown_by_go(test: &str, profile: &str, expected: &str) -> anyhow::Result<()> {
    let cluster = &shared().await?.cluster;
    let namespace = cluster.namespace("profile").await?;
    let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
    let options = replica::Options::new(cluster, &namespace, &namespace)?.flags([
        "--target-label-selector=served-by=nobody",
        format!("--pprof-address=127.0.0.1:{port}").as_str(),
    ]);
    let mut replica = Replica::start(cluster.group(), &options)?;
    replica.ready(WITHIN).await?;

    let (status, index) = loopback::get(port, "/debug/pprof/").await?;
    ensure!(status == 200 && index.contains("heap"), "{status} {index}");
    if is_missing("go", "version", test)? {
        return Ok(());
    }
    let shown = Command::new("go")
        .args(["tool", "pprof", "-top", "-timeout=60"])
        .arg(format!("http://127.0.0.1:{port}/debug/pprof/{profile}"))
        .env("GOTOOLCHAIN", "local")
        .env("PPROF_TMPDIR", cluster.group().folder())
        .output()?;

    let stdout = String::from_utf8_lossy(&shown.stdout);
    ensure!(
        shown.status.success() && stdout.contains(expected),
        "{shown:?}"
    );
    Ok(())
}
