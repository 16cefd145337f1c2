//! Flags: Metacontroller's with its meanings and defaults, and our own.
//!
//! Flags of one part are together; [`Options::check`] turns all of them into a [`Config`] without texts to parse.

mod environment;
mod fleet;
mod kube;
mod later;
mod log;
mod value;
mod worker;

use clap::Parser;
use metashard_status::options::Options as StatusOptions;

pub(crate) use self::{environment::Environment, fleet::Role, value::Error};
use crate::config::Config;

/// Hosts webhook-defined Kubernetes controllers; a drop-in for Metacontroller.
#[derive(Debug, Parser)]
#[command(
    name = "metashard",
    version,
    next_line_help = true,
    disable_help_subcommand = true
)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) kube: kube::Options,
    #[command(flatten)]
    pub(crate) worker: worker::Options,
    #[command(flatten)]
    pub(crate) fleet: fleet::Options,
    #[command(flatten)]
    pub(crate) status: StatusOptions,
    #[command(flatten)]
    pub(crate) log: log::Options,
    #[command(flatten)]
    pub(crate) later: later::Options,
    /// Print the configuration that these flags give, and exit.
    #[arg(long)]
    pub(crate) print_config: bool,
}

impl Options {
    /// Checks every flag.
    ///
    /// # Errors
    ///
    /// Where one has a value that cannot be used; names the flag.
    pub(crate) fn check(self, environment: &Environment) -> Result<Config, Error> {
        let Self {
            kube,
            worker,
            fleet,
            status,
            log,
            later,
            print_config: _,
        } = self;
        let worker = worker.check()?;
        Ok(Config {
            warnings: later.check()?,
            kube: kube.check()?,
            fleet: fleet.check(environment, worker.observe)?,
            worker,
            status: status
                .check()
                .map_err(|(flag, error)| Error::new(flag, error.to_string()))?,
            log: log.check(),
        })
    }
}

#[cfg(test)]
mod tests;
