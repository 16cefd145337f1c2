//! Flags of `fleet`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{Asking, Format, Live};

/// What to do with the decisions of a fleet.
#[derive(Debug, Subcommand)]
pub(crate) enum Fleet {
    /// Take what a replica's machine was told lately, to be replayed or to be sent to who knows the code.
    Record(Record),
    /// Make the decisions of a recording again, and say what each followed from.
    ///
    /// Exit code 1: this version of the program decides otherwise.
    Replay(Replay),
}

/// Flags of `fleet record`.
#[derive(Debug, Args)]
pub(crate) struct Record {
    /// Which machine: who leads the fleet, or what one worker may do.
    #[arg(default_value = "leader")]
    pub(crate) machine: Machine,
    /// Whose; of the leader, the one that leads if no other is named.
    #[arg(long, value_name = "NAME")]
    pub(crate) replica: Option<String>,
    /// URL of the replica's health port, if it is no Pod of the cluster.
    #[arg(long, value_name = "URL", conflicts_with = "replica")]
    pub(crate) server: Option<String>,
    /// File that it goes to. Default: the standard output.
    #[arg(long = "to", value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) asking: Asking,
    #[command(flatten)]
    pub(crate) live: Live,
}

/// A machine of the fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Machine {
    /// Elects, places and hands over.
    Leader,
    /// Holds what it was given while its Lease is its own.
    Worker,
}

/// Flags of `fleet replay`.
#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// File of a recording; - is the standard input.
    pub(crate) file: PathBuf,
    /// Also calls from which nothing followed but renewals.
    #[arg(long)]
    pub(crate) all: bool,
    /// Form of the output: yaml and json are complete.
    #[arg(short, long, default_value = "text")]
    pub(crate) output: Format,
}
