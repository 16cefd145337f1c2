//! Repository chores, in Rust: the menu.

mod bench;
mod compatibility;
mod demo;
mod gate;
mod generate;
mod kubernetes;
mod repository;
mod supply_chain;
mod talk;
mod tidy;
mod tools;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Chores of the metashard repository.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Menu {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Run everything that guards a change; the tests come last.
    Gate,
    /// Watch three replicas share controllers on a real API server, lose a worker, and carry on.
    Demo(demo::Options),
    /// Write the files that are made from code, such as deploy/crds.
    Generate {
        /// Write nothing; fail if a file differs.
        #[arg(long)]
        check: bool,
    },
    /// Count what the benches cost, in instructions, and compare with their budgets.
    Bench(bench::Options),
    /// Check the house rules: layers, pure crates, files.
    Tidy,
    /// Build etcd, kube-apiserver and kube-controller-manager for the tests, unless they are there.
    Kubernetes(kubernetes::Options),
}

fn main() -> ExitCode {
    let outcome = match Menu::parse_from(arguments()).task {
        Task::Gate => return gate::run(),
        Task::Demo(options) => demo::run(&options),
        Task::Generate { check } => generate::run(check),
        Task::Bench(options) => bench::run(&options),
        Task::Tidy => tidy::run(),
        Task::Kubernetes(options) => kubernetes::run(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            talk::say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// The arguments without the `--` of `cargo demo -- --once`: the alias brings one of its own, and cargo hands this one on.
fn arguments() -> impl Iterator<Item = std::ffi::OsString> {
    let mut is_first = true;
    std::env::args_os().filter(move |argument| argument != "--" || !std::mem::take(&mut is_first))
}
