//! The demo: three replicas share the controllers of two tenants on a real API server, lose a worker, and carry on.

mod board;
mod live;
mod once;
mod screen;
mod snapshot;
mod stage;
mod story;
mod takeover;
mod tenants;
mod truth;

use anyhow::Context;

use crate::{repository, talk::say};
use stage::Stage;

/// How to run the demo.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Without a person: converge, kill a worker, show the take-over, converge again, and end.
    #[arg(long)]
    once: bool,
    /// Use the cluster of this kubeconfig context in place of one started for the demo. It must not run metashard or
    /// Metacontroller already: they would serve the demo's controllers too.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

/// Runs the demo to its end. Whatever it started is stopped then, and also if this process is killed.
///
/// # Errors
/// If something cannot be built or started, or does not come about in time.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    say("building metashard and the example hooks");
    repository::build_programs()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("make a runtime")?;
    runtime.block_on(async {
        let mut stage = Stage::open(options.context.as_deref()).await?;
        let outcome = if options.once {
            once::play(&mut stage).await
        } else {
            live::play(&mut stage).await
        };
        let closed = stage.close().await;
        outcome.and(closed)
    })
}
