//! The command line.

mod fleet;
mod leading;
pub(crate) mod shards;

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use metashard_api::names::{FIELD_MANAGER, SYSTEM_NAMESPACE};
use metashard_reconcile::controller::Apply;

pub(crate) use self::fleet::{Fleet, Machine, Record, Replay};

/// What a kubectl plug-in is called.
const PLUGIN: &str = "kubectl-metashard";

/// Sees what metashard would write, why it wrote, and what is wrong with a controller.
///
/// Exit codes: 0 same, 1 differs, above 1 error.
#[derive(Debug, Parser)]
#[command(name = "metashardctl", bin_name = "metashardctl", version)]
#[command(
    propagate_version = true,
    infer_subcommands = true,
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what a sync would write, from files, without a cluster.
    Render(Render),
    /// Run cases of syncs and compare what is written with what is expected.
    Test(Test),
    /// Tell what is wrong with controllers before they are applied.
    Lint(Lint),
    /// Show the controllers of a cluster, and how they are.
    Status(Status),
    /// Show what belongs to an object, and how it is.
    Tree(Tree),
    /// Show what the last syncs of an object did, and what made them run.
    Why(Why),
    /// Show what the next sync would write to the cluster.
    Diff(Diff),
    /// Show the shards: who has each, how it stands, what it costs; or explain, move, simulate.
    Shards(shards::Shards),
    /// Have a replica hand over all that it has, and get nothing more.
    Drain(shards::Drain),
    /// Let a replica get shards again.
    Uncordon(shards::Uncordon),
    /// Level the load once, or show what would move.
    Rebalance(shards::Rebalance),
    /// Move from Metacontroller.
    Migrate {
        /// What to do.
        #[command(subcommand)]
        command: Migrate,
    },
    /// Look at what the machines of the fleet decided, and why.
    Fleet {
        /// What to do.
        #[command(subcommand)]
        command: Fleet,
    },
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write man pages.
    Man {
        /// Folder that they go to.
        folder: PathBuf,
    },
}

/// Flags of `render`.
#[derive(Debug, Args)]
pub(crate) struct Render {
    /// Files with the controller, its parents, what else is there, and CustomResourceDefinitions; - is the standard input.
    ///
    /// An object without a uid that names no owner is a child of the parent.
    #[arg(
        short = 'f',
        long = "filename",
        value_name = "FILE",
        required_unless_present = "recordings"
    )]
    pub(crate) files: Vec<PathBuf>,
    /// Syncs that a replica has recorded (--record-dir), run again with what they saw and what they were answered.
    #[arg(long = "recorded", value_name = "FILE", num_args = 1.., conflicts_with_all = ["files", "controller", "answers"])]
    pub(crate) recordings: Vec<PathBuf>,
    /// The controller, if the files hold several.
    #[arg(long, value_name = "NAME")]
    pub(crate) controller: Option<String>,
    #[command(flatten)]
    pub(crate) answer: Answer,
    #[command(flatten)]
    pub(crate) applying: Applying,
    /// Namespace of objects that name none.
    #[arg(short, long, default_value = "default")]
    pub(crate) namespace: String,
    /// Form of the output: yaml and json are exact.
    #[arg(short, long, default_value = "text")]
    pub(crate) output: Format,
}

/// Who answers for the hook. Default: the hook itself, where the controller says.
#[derive(Debug, Args)]
#[group(id = "answers", multiple = false)]
pub(crate) struct Answer {
    /// File with what the hook answers.
    #[arg(long = "answer", value_name = "FILE")]
    pub(crate) recorded: Option<PathBuf>,
    /// URL of the hook, in place of the controller's.
    #[arg(long, value_name = "URL")]
    pub(crate) hook: Option<String>,
    /// A program that reads the request and writes the answer; after `--`.
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) exec: Vec<String>,
}

/// How the replicas write children.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Applying {
    /// How the replicas update children: dynamic-apply or server-side-apply, as their flag says.
    #[arg(long, value_name = "STRATEGY", default_value = "dynamic-apply")]
    apply_strategy: String,
    /// Their field manager of server-side apply.
    #[arg(long, value_name = "NAME", default_value = FIELD_MANAGER)]
    apply_strategy_ssa_field_manager: String,
}

impl Applying {
    /// What the flags say.
    ///
    /// # Errors
    /// Where a replica would refuse them.
    pub(crate) fn read(&self) -> anyhow::Result<Apply> {
        Apply::of_flags(&self.apply_strategy, &self.apply_strategy_ssa_field_manager)
            .map_err(|error| anyhow::anyhow!("--{}: {error}", error.flag()))
    }
}

/// Flags of `test`.
#[derive(Debug, Args)]
pub(crate) struct Test {
    /// Files of cases; of a folder: all *.test.yaml in it.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Also write the results to this file, as JUnit XML.
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,
    /// Take what comes out as what is expected from now on.
    #[arg(long)]
    pub(crate) update: bool,
}

/// Flags of `lint`.
#[derive(Debug, Args)]
pub(crate) struct Lint {
    /// Files with controllers and CustomResourceDefinitions, and with the Secrets and ConfigMaps of hooks; - is the standard
    /// input.
    #[arg(
        short = 'f',
        long = "filename",
        value_name = "FILE",
        required_unless_present = "cluster"
    )]
    pub(crate) files: Vec<PathBuf>,
    /// Take what the files lack from the cluster: kinds, and the Secrets and ConfigMaps of hooks; without files also the
    /// controllers, those with the labels of -l.
    #[arg(long)]
    pub(crate) cluster: bool,
    #[command(flatten)]
    pub(crate) live: Live,
    /// Also connect to each hook, and do the TLS handshake.
    #[arg(long)]
    pub(crate) connect: bool,
    /// Take warnings for errors.
    #[arg(long)]
    pub(crate) strict: bool,
    /// Form of the output.
    #[arg(short, long, default_value = "text")]
    pub(crate) output: Format,
}

/// Which cluster, and which part of it.
#[derive(Debug, Args)]
pub(crate) struct Live {
    /// The kubeconfig file.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig.
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// The namespace. Default: that of the context.
    #[arg(short, long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// All namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,
    /// Only objects with these labels.
    #[arg(short = 'l', long, value_name = "SELECTOR", default_value = "")]
    pub(crate) selector: String,
}

/// Flags of `status`.
#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Names of controllers; none: all.
    #[arg(value_name = "CONTROLLER")]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) live: Live,
    #[command(flatten)]
    pub(crate) asking: Asking,
    /// Go on, and print what changes.
    #[arg(short, long)]
    pub(crate) watch: bool,
    /// Form of the output.
    #[arg(short, long, default_value = "text")]
    pub(crate) output: Format,
}

/// Flags of `tree`.
#[derive(Debug, Args)]
pub(crate) struct Tree {
    /// The object: TYPE/NAME, or TYPE and NAME; TYPE alone for all of them, or those with the labels of -l.
    #[arg(required = true, num_args = 1..=2, value_name = "OBJECT")]
    pub(crate) object: Vec<String>,
    #[command(flatten)]
    pub(crate) live: Live,
    /// Go on, and print it again when it changes.
    #[arg(short, long)]
    pub(crate) watch: bool,
    /// Look among all kinds, and not only among those of controllers and of workloads.
    #[arg(long)]
    pub(crate) all_kinds: bool,
    /// Form of the output.
    #[arg(short, long, default_value = "text")]
    pub(crate) output: Format,
}

/// Flags of `why`.
#[derive(Debug, Args)]
pub(crate) struct Why {
    /// A parent or a child: TYPE/NAME, or TYPE and NAME.
    #[arg(required = true, num_args = 1..=2, value_name = "OBJECT")]
    pub(crate) object: Vec<String>,
    /// URL of a replica's health port, for one that is no Pod of the cluster; may be repeated.
    #[arg(long, value_name = "URL")]
    pub(crate) server: Vec<String>,
    /// Only syncs of this controller.
    #[arg(long, value_name = "NAME")]
    pub(crate) controller: Option<String>,
    /// How many syncs.
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) asking: Asking,
    #[command(flatten)]
    pub(crate) live: Live,
    /// Go on, and print further syncs as they come.
    #[arg(short, long)]
    pub(crate) watch: bool,
    /// Form of the output.
    #[arg(short, long, default_value = "text")]
    pub(crate) output: Format,
}

/// How replicas are found and asked.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Asking {
    /// System namespace of the replicas. Default: found by their ShardMap.
    #[arg(long, value_name = "NAME")]
    pub(crate) system_namespace: Option<String>,
    /// Health port of the replicas. Default: as the Pod says, else 8081.
    #[arg(long, value_name = "PORT")]
    pub(crate) health_port: Option<u16>,
}

/// Steps of a move from Metacontroller.
#[derive(Debug, Subcommand)]
pub(crate) enum Migrate {
    /// Find running Metacontrollers, and say for each controller what will differ.
    Plan(Plan),
    /// Move: observe, stop Metacontroller, let metashard act on one controller after the other.
    ///
    /// May be interrupted at any time: called again, it goes on.
    Apply(MigrateApply),
    /// Go back, from wherever the move has come to: metashard writes nothing any more, Metacontroller is started.
    Rollback(Rollback),
}

/// Which move, and how it is made.
#[derive(Debug, Args)]
pub(crate) struct Way {
    /// The kubeconfig file.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig.
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Namespace of metashard; the record of the move is kept there.
    #[arg(long, value_name = "NAMESPACE", default_value = SYSTEM_NAMESPACE)]
    pub(crate) system_namespace: String,
    /// Only say what would be done.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask.
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// How long to wait where nothing goes on: 90s, 10m, 1h.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration)]
    pub(crate) timeout: Duration,
    /// Form of the output: json and yaml are one document at the end, and what is told meanwhile goes to the standard error.
    #[arg(short, long, default_value = "text")]
    pub(crate) output: Format,
}

/// Flags of `migrate apply`.
#[derive(Debug, Args)]
pub(crate) struct MigrateApply {
    #[command(flatten)]
    pub(crate) way: Way,
    /// Move only this controller now: NAME, or KIND/NAME; may be repeated. Default: all.
    #[arg(long = "controller", value_name = "NAME")]
    pub(crate) controllers: Vec<String>,
    /// With --controller: leave the others without anybody who acts on them until the next time.
    #[arg(long, requires = "controllers")]
    pub(crate) let_others_rest: bool,
    /// Go on although metashard would write something.
    #[arg(long)]
    pub(crate) accept_writes: bool,
    /// End once everything is observed; Metacontroller goes on.
    #[arg(long)]
    pub(crate) only_observe: bool,
}

/// Flags of `migrate rollback`.
#[derive(Debug, Args)]
pub(crate) struct Rollback {
    #[command(flatten)]
    pub(crate) way: Way,
}

fn duration(text: &str) -> Result<Duration, String> {
    let units = [('s', 1), ('m', 60), ('h', 3600)];
    let mut found = units.iter();
    let found = found.find_map(|(unit, seconds)| Some((text.strip_suffix(*unit)?, seconds)));
    let (number, seconds) = found.ok_or_else(|| "must be a number with s, m or h".to_owned())?;
    let count: u32 = number
        .parse()
        .map_err(|_| "must be a whole number with s, m or h".to_owned())?;
    Ok(Duration::from_secs(u64::from(count) * seconds))
}

/// Flags of `migrate plan`.
#[derive(Debug, Args)]
pub(crate) struct Plan {
    #[command(flatten)]
    pub(crate) live: Live,
    /// Form of the output.
    #[arg(short, long, default_value = "text")]
    pub(crate) output: Format,
}

/// Flags of `diff`.
#[derive(Debug, Args)]
pub(crate) struct Diff {
    /// Name of the controller in the cluster; not with -f.
    #[arg(value_name = "CONTROLLER", required_unless_present = "files")]
    pub(crate) controller: Option<String>,
    /// File with the controller as it is to be.
    #[arg(
        short = 'f',
        long = "filename",
        value_name = "FILE",
        conflicts_with = "controller"
    )]
    pub(crate) files: Vec<PathBuf>,
    /// Only the parent of this name.
    #[arg(long, value_name = "NAME")]
    pub(crate) parent: Option<String>,
    #[command(flatten)]
    pub(crate) answer: Answer,
    #[command(flatten)]
    pub(crate) applying: Applying,
    #[command(flatten)]
    pub(crate) live: Live,
    /// Form of the output.
    #[arg(short, long, default_value = "text")]
    pub(crate) output: Format,
}

/// Form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// For people with a wide terminal.
    Wide,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// Names only.
    Name,
}

/// Reads the command line; the first argument is the program's name.
///
/// # Errors
///
/// Where it is wrong. Help and version come as errors too.
pub(crate) fn parse(args: impl Iterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let args = leading::moved(args.collect());
    let mut command = command(args.first().map(OsString::as_os_str));
    let matches = command.try_get_matches_from_mut(args)?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// The command, by the name that its user knows: that of a kubectl plug-in is `kubectl metashard`.
pub(crate) fn command(program: Option<&OsStr>) -> clap::Command {
    let is_plugin = program
        .map(Path::new)
        .and_then(Path::file_stem)
        .is_some_and(|it| it == PLUGIN);
    let command = Cli::command();
    if is_plugin {
        command.bin_name("kubectl metashard")
    } else {
        command
    }
}

#[cfg(test)]
mod tests;
