//! The commands: each reads what it is given, asks a library, and prints what comes out.

mod diff;
mod drain;
mod files;
mod fleet;
mod lint;
mod manual;
mod migrate;
mod placement;
mod rebalance;
mod render;
mod shards;
mod status;
mod test;
mod tree;
mod why;

use std::sync::Arc;

use metashard_plan::{document, suggest};
use metashard_reconcile::object::Object;

use crate::{
    Found,
    argv::{Cli, Command, Fleet, Migrate},
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
        Command::Shards(flags) => shards::run(&flags, output).await,
        Command::Drain(flags) => drain::drain(&flags, output).await,
        Command::Uncordon(flags) => drain::uncordon(&flags, output).await,
        Command::Rebalance(flags) => rebalance::run(&flags, output).await,
        Command::Migrate { command } => match command {
            Migrate::Plan(flags) => migrate::plan(&flags, output).await,
            Migrate::Apply(flags) => migrate::apply(&flags, output).await,
            Migrate::Rollback(flags) => migrate::rollback(&flags, output).await,
        },
        Command::Fleet { command } => match command {
            Fleet::Record(flags) => fleet::record::run(&flags, output).await,
            Fleet::Replay(flags) => fleet::replay::run(&flags, output),
        },
        Command::Completions { shell } => manual::completions(shell, output),
        Command::Man { folder } => manual::pages(&folder, output),
    }?;
    output.flush()?;
    Ok(found)
}

/// That there is no controller of this name, with the one that was probably meant.
fn no_controller(word: &str, all: &[Arc<Object>]) -> anyhow::Error {
    if let Some((kind, _)) = word.split_once('/')
        && !kind.to_lowercase().contains("controller")
    {
        return anyhow::anyhow!(
            "{word:?} is no controller: name one, as NAME or as compositecontroller/NAME; `tree` and `why` take other objects"
        );
    }
    let hint = suggest::hint(bare(word), all.iter().map(|it| it.name()));
    anyhow::anyhow!("controller {word:?} not found{hint}")
}

/// Whether a controller is meant by this word: NAME, or KIND/NAME.
fn is_called(controller: &Object, word: &str) -> bool {
    document::is_called(controller.kind(), controller.name(), word)
}

/// The name in what may be given as `-o name` prints it.
fn bare(controller: &str) -> &str {
    controller
        .rsplit_once('/')
        .map_or(controller, |(_, name)| name)
}

/// As `kubectl -o name` prints an object: `configmap/a`, `foo.ex.io/a`.
fn full_name(object: &Object) -> String {
    let kind = object.kind().to_lowercase();
    let name = object.name();
    match object.api_version().split_once('/') {
        Some((group, _)) => format!("{kind}.{group}/{name}"),
        None => format!("{kind}/{name}"),
    }
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
