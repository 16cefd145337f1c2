//! The commands: each reads what it is given, asks a library, and prints what comes out.

mod diff;
mod files;
mod lint;
mod manual;
mod migrate;
mod render;
mod status;
mod test;
mod tree;
mod why;

use crate::{
    Found,
    argv::{Cli, Command, Migrate},
    output::Output,
};

/// Runs the command that was asked for.
pub(crate) async fn run(cli: Cli, output: &mut Output) -> anyhow::Result<Found> {
    let found = match cli.command {
        Command::Render(flags) => render::run(&flags, output).await,
        Command::Test(flags) => test::run(&flags, output).await,
        Command::Lint(flags) => lint::run(&flags, output).await,
        Command::Status(flags) => status::run(&flags, output).await,
        Command::Tree(flags) => tree::run(&flags, output).await,
        Command::Why(flags) => why::run(&flags, output).await,
        Command::Diff(flags) => diff::run(&flags, output).await,
        Command::Migrate {
            command: Migrate::Plan(flags),
        } => migrate::plan(&flags, output).await,
        Command::Completions { shell } => manual::completions(shell, output),
        Command::Man { folder } => manual::pages(&folder, output),
    }?;
    output.flush()?;
    Ok(found)
}

/// Type and name of an object, from `TYPE/NAME` or `TYPE NAME`.
fn object(words: &[String]) -> anyhow::Result<(&str, &str)> {
    match words {
        [one] => one
            .split_once('/')
            .ok_or_else(|| anyhow::anyhow!("name an object as TYPE/NAME, not {one:?}")),
        [kind, name] => Ok((kind, name)),
        _ => anyhow::bail!("name an object as TYPE/NAME"),
    }
}
