//! Flags of `shards`, and of what people ask of placement: `drain`, `uncordon`, `rebalance`.

use std::{num::NonZeroU16, path::PathBuf, time::Duration};

use clap::{Args, Subcommand};

use super::{Asking, Format, Live, duration};

/// Flags of `shards`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Shards {
    /// What to do; nothing: list them.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) list: List,
}

/// What to do with shards.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Say which shard a parent belongs to, why that is where it is, and who would be next.
    Explain(Explain),
    /// Pin a shard, or that of a controller, to a replica: it moves there and stays.
    Move(Move),
    /// Take a pin away: the shard stays until there is a reason to move it.
    Unpin(Unpin),
    /// Show where shards would be with another number of replicas. Nothing is written.
    ///
    /// Exit code 1: something would move.
    Simulate(Simulate),
}

/// Flags of the list.
#[derive(Debug, Args)]
pub(crate) struct List {
    /// Also shards that hold no controller.
    #[arg(long)]
    pub(crate) all: bool,
    /// What each replica carries, in place of each shard.
    #[arg(long, conflicts_with = "all")]
    pub(crate) by_replica: bool,
    #[command(flatten)]
    pub(crate) leader: Leader,
    #[command(flatten)]
    pub(crate) live: Live,
    /// Form of the output.
    #[arg(short, long, default_value = "text")]
    pub(crate) output: Format,
}

/// How the leader is found and asked.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Leader {
    /// URL of a replica's health port, for one that is no Pod of the cluster; may be repeated: the one that leads answers.
    #[arg(long, value_name = "URL")]
    pub(crate) server: Vec<String>,
    #[command(flatten)]
    pub(crate) asking: Asking,
}

/// Flags of `shards explain`.
#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// A parent: TYPE/NAME, or TYPE and NAME.
    #[arg(required = true, num_args = 1..=2, value_name = "PARENT")]
    pub(crate) object: Vec<String>,
    /// Only of this controller.
    #[arg(long, value_name = "NAME")]
    pub(crate) controller: Option<String>,
    #[command(flatten)]
    pub(crate) leader: Leader,
    #[command(flatten)]
    pub(crate) live: Live,
    /// Form of the output.
    #[arg(short, long, default_value = "text")]
    pub(crate) output: Format,
}

/// Flags of `shards move`.
#[derive(Debug, Args)]
pub(crate) struct Move {
    /// Number of a shard, or name of a controller.
    #[arg(value_name = "SHARD|CONTROLLER")]
    pub(crate) what: String,
    /// The replica.
    #[arg(long = "to", value_name = "REPLICA")]
    pub(crate) replica: String,
    #[command(flatten)]
    pub(crate) asked: Asked,
}

/// Flags of `shards unpin`.
#[derive(Debug, Args)]
pub(crate) struct Unpin {
    /// Number of a shard, or name of a controller.
    #[arg(value_name = "SHARD|CONTROLLER")]
    pub(crate) what: String,
    #[command(flatten)]
    pub(crate) writing: Writing,
}

/// Flags of `drain`.
#[derive(Debug, Args)]
pub(crate) struct Drain {
    /// The replica.
    pub(crate) replica: String,
    #[command(flatten)]
    pub(crate) asked: Asked,
}

/// Flags of `uncordon`.
#[derive(Debug, Args)]
pub(crate) struct Uncordon {
    /// The replica.
    pub(crate) replica: String,
    #[command(flatten)]
    pub(crate) writing: Writing,
}

/// Flags of `rebalance`.
#[derive(Debug, Args)]
pub(crate) struct Rebalance {
    /// What spec.rebalance is to say. Default: the time.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// URL of a replica's health port, for one that is no Pod of the cluster; may be repeated. For --dry-run.
    #[arg(long, value_name = "URL", requires = "dry_run")]
    pub(crate) server: Vec<String>,
    /// Form of the output of --dry-run.
    #[arg(short, long, default_value = "text", requires = "dry_run")]
    pub(crate) output: Format,
    /// Wait until it is done.
    #[arg(long)]
    pub(crate) wait: bool,
    /// How long to wait: 90s, 10m, 1h.
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = duration)]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) writing: Writing,
}

/// A Placement that is written, and what comes of it.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Asked {
    /// Wait until it is done.
    #[arg(long)]
    pub(crate) wait: bool,
    /// How long to wait: 90s, 10m, 1h.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) writing: Writing,
}

/// A Placement that is written.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Writing {
    /// Only say what would be done.
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) asking: Asking,
    #[command(flatten)]
    pub(crate) live: Live,
}

/// Flags of `shards simulate`.
#[derive(Debug, Args)]
pub(crate) struct Simulate {
    /// How many replicas.
    #[arg(long, value_name = "COUNT")]
    pub(crate) replicas: NonZeroU16,
    /// File with a ShardMap, or with what `shards --all -o json` printed, in place of a cluster; - is the standard input.
    #[arg(
        short = 'f',
        long = "filename",
        value_name = "FILE",
        conflicts_with = "server"
    )]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) leader: Leader,
    #[command(flatten)]
    pub(crate) live: Live,
    /// Form of the output.
    #[arg(short, long, default_value = "text")]
    pub(crate) output: Format,
}
