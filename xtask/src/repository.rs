//! The repository and its cargo.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, ensure};
use serde_json::Value;

/// The repository's root.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap_or_else(|| Path::new("."))
}

/// The cargo that runs this chore, in the root.
pub(crate) fn cargo() -> Command {
    let program = env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from);
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// Runs a program to its end and gives its standard output.
///
/// # Errors
/// If it cannot be run or fails; the text has what it said on standard error.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let shown = format!("{command:?}");
    let output = command.output().with_context(|| format!("run {shown}"))?;
    ensure!(
        output.status.success(),
        "run {shown}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).with_context(|| format!("read the output of {shown}"))
}

/// Builds all programs, with cargo's own progress, as they are in production: without the features of tests.
///
/// # Errors
/// If one does not compile; cargo has said why.
pub(crate) fn build_programs() -> anyhow::Result<()> {
    let status = cargo()
        .args(["build", "--workspace", "--bins", "--locked"])
        .status()
        .context("run cargo")?;
    ensure!(status.success(), "build the programs: {status}");
    Ok(())
}

/// The packages of `cargo metadata`: our own, and all that they use unless `own_only`.
pub(crate) fn packages(own_only: bool) -> anyhow::Result<Vec<Value>> {
    let mut command = cargo();
    command.args(["metadata", "--format-version", "1", "--locked"]);
    if own_only {
        command.arg("--no-deps");
    }
    let mut metadata: Value =
        serde_json::from_str(&output(&mut command)?).context("parse cargo's metadata")?;
    match metadata["packages"].take() {
        Value::Array(packages) => Ok(packages),
        _ => anyhow::bail!("parse cargo's metadata: no packages"),
    }
}
