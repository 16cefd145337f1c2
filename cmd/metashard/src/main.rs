//! The metashard daemon: one replica.

mod argv;
mod calendar;
mod config;
mod health;
mod lifecycle;
mod memory;
mod options;
mod peer;
mod prepare;
mod rules;
mod wire;

use std::{
    env,
    io::{self, Write},
    process::ExitCode,
};

use anyhow::Context;
use metashard_runtime::{build_info, fault, log, tls};
use tracing::{error, info, warn};

use crate::{config::Config, options::Environment};

/// As in `sysexits.h`: the command was used incorrectly.
const EX_USAGE: u8 = 64;

fn main() -> ExitCode {
    let options = match argv::parse(env::args_os()) {
        Ok(options) => options,
        Err(answer) if argv::is_answer(&answer) => return print(&answer.to_string()),
        Err(mistake) => return usage(&mistake.to_string()),
    };
    let print_config = options.print_config;
    let config = match options.check(&Environment::read()) {
        Ok(config) => config,
        Err(mistake) => return usage(&argv::mistake(&mistake.to_string())),
    };
    if print_config {
        return print(&config.to_string());
    }
    match run(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(config: Config) -> anyhow::Result<()> {
    log::init(&config.log)?;
    info!(version = build_info::VERSION, revision = build_info::REVISION, replica = %config.fleet.replica, "starting");
    // In Metacontroller's words, which people look for.
    info!(
        version = build_info::VERSION,
        flags = config.line(),
        "Configuration information"
    );
    for warning in &config.warnings {
        warn!("{warning}");
    }
    tls::install_provider();
    fault::plant(&faults());
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("start the runtime")?
        .block_on(wire::run(config))
}

/// What a test plants.
#[expect(
    clippy::disallowed_methods,
    reason = "it configures nothing: a build that is shipped has no faults"
)]
fn faults() -> String {
    env::var("METASHARD_FAULTS").unwrap_or_default()
}

fn print(text: &str) -> ExitCode {
    match write!(io::stdout(), "{text}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn usage(text: &str) -> ExitCode {
    // Nowhere is left to complain to.
    drop(write!(io::stderr(), "{text}"));
    ExitCode::from(EX_USAGE)
}
