//! Everything that guards a change. The tests come last, so that the test runner has the last word.

use std::{
    process::{Command, ExitCode, Stdio},
    time::Duration,
};

use anyhow::ensure;
use tokio::time::Instant;

use crate::{
    bench, generate, kubernetes,
    repository::{self, cargo},
    supply_chain,
    talk::{Tone, length, say, toned},
    tidy,
};

struct Step {
    name: &'static str,
    run: fn() -> anyhow::Result<()>,
}

/// In the order of what they cost.
const STEPS: &[Step] = &[
    Step {
        name: "format",
        run: || command(cargo().args(["fmt", "--all", "--check"])),
    },
    Step {
        name: "tidy",
        run: tidy::run,
    },
    Step {
        name: "supply chain",
        run: supply_chain,
    },
    Step {
        name: "generated files",
        run: || generate::run(true),
    },
    Step {
        name: "clippy",
        run: clippy,
    },
    Step {
        name: "documentation",
        run: documentation,
    },
    Step {
        name: "Kubernetes binaries",
        run: kubernetes_binaries,
    },
    Step {
        name: "programs",
        run: repository::build_programs,
    },
    Step {
        name: "instruction budgets",
        run: || bench::run(&bench::Options::default()),
    },
    Step {
        name: "examples in the documentation",
        run: || command(cargo().args(TEST).arg("--doc")),
    },
];

const TEST: [&str; 4] = ["test", "--workspace", "--all-features", "--locked"];

/// Runs all steps, says how they went, and then the tests, if all is well so far.
pub(crate) fn run() -> ExitCode {
    let report: Vec<(&str, Duration, anyhow::Result<()>)> = STEPS.iter().map(run_step).collect();
    say("");
    let mut failed = false;
    for (name, time, outcome) in &report {
        let (tone, word) = match outcome {
            Ok(()) => (Tone::Good, "ok".to_owned()),
            Err(error) => (Tone::Bad, format!("FAILED: {error:#}")),
        };
        failed |= outcome.is_err();
        say(&format!(
            "{name:<30} {:>12}  {}",
            length(*time),
            toned(tone, &word)
        ));
    }
    if failed {
        say(&toned(
            Tone::Bad,
            "the gate is shut; the tests were not run",
        ));
        return ExitCode::FAILURE;
    }
    say("");
    tests()
}

fn run_step(step: &Step) -> (&'static str, Duration, anyhow::Result<()>) {
    say(&toned(Tone::Strong, &format!("== {}", step.name)));
    let start = Instant::now();
    let outcome = (step.run)();
    (step.name, start.elapsed(), outcome)
}

/// All tests: unit, property, model, component, integration. Says nothing after them.
fn tests() -> ExitCode {
    let status = cargo()
        .args(TEST)
        .args(["--lib", "--bins", "--tests", "--no-fail-fast"])
        .status();
    match status {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("error: run cargo test: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn clippy() -> anyhow::Result<()> {
    let flags = [
        "--workspace",
        "--all-targets",
        "--all-features",
        "--locked",
        "--",
        "-D",
        "warnings",
    ];
    command(cargo().arg("clippy").args(flags))
}

fn documentation() -> anyhow::Result<()> {
    let flags = [
        "--workspace",
        "--no-deps",
        "--document-private-items",
        "--locked",
    ];
    command(
        cargo()
            .arg("doc")
            .args(flags)
            .env("RUSTDOCFLAGS", "-D warnings"),
    )
}

fn kubernetes_binaries() -> anyhow::Result<()> {
    kubernetes::run(&kubernetes::Options::default())
}

/// Our own check always, and cargo-deny, which also knows duplicate versions, where it is installed.
fn supply_chain() -> anyhow::Result<()> {
    supply_chain::run()?;
    let installed = Command::new("cargo-deny")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if installed.is_err() {
        say("cargo-deny is not installed: bans, licences and sources were checked without it");
        return Ok(());
    }
    command(cargo().args(["deny", "check", "bans", "licenses", "sources"]))
}

fn command(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status()?;
    ensure!(status.success(), "{status}");
    Ok(())
}
