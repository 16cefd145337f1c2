//! Load and chaos on real processes: named scenarios, each judged by bounds.
//!
//! `cargo run -p scale-tests -- chaos --for 5m`. Needs the binaries of `cargo xtask kubernetes`; cuts of links need root
//! and iproute2. What is started ends with this process, and so do the network namespaces.
//! It ends with 0 if all bounds were kept, with 1 if one was broken, with 2 if the scenario could not be run.

use std::process::ExitCode;

use clap::Parser;

mod bed;
mod edits;
mod flags;
mod judge;
mod network;
mod objects;
mod outcome;
mod plot;
mod record;
mod scenario;
mod scrape;
mod subject;
mod talk;

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            talk::say(&format!("{error:#}"));
            ExitCode::from(2)
        }
    }
}

/// Whether all bounds were kept.
fn run() -> anyhow::Result<bool> {
    let settings = flags::Flags::parse().settings()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(Box::pin(scenario::run(settings.clone())))?;
    talk::say(&format!("{}\n", settings.scenario.text()));
    talk::say(&outcome.table()?);
    let path = outcome.write(&settings)?;
    talk::say(&format!("  written: {}", path.display()));
    Ok(outcome.is_good())
}
