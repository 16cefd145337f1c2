//! Benches of the pure crates: what one pass, one placement, one turn of the queue costs.
//!
//! `list` names them; `run NAME SIZE` does one, which `cargo xtask bench` counts under valgrind, in instructions: the same on
//! a busy machine as on a quiet one.

#![expect(
    clippy::unnecessary_wraps,
    reason = "all benches are prepared by functions of one type"
)]

mod fleet;
mod objects;
mod reconcile;
mod rolling;

use std::{
    hint::black_box,
    io::{self, Write as _},
    time::Instant,
};

use anyhow::{Context, ensure};
use clap::{Parser, Subcommand};

/// How many items each bench is run with.
const SIZES: [usize; 3] = [1, 100, 10_000];

/// One bench, ready to be run as often as one likes.
pub(crate) struct Bench {
    /// What is counted. Gives a figure of the result, which shows that the work was done.
    work: Box<dyn FnMut() -> anyhow::Result<usize>>,
    /// The figure that it must give.
    expected: usize,
}

/// A bench by name, prepared for a number of items.
struct Named {
    name: &'static str,
    prepare: fn(usize) -> anyhow::Result<Bench>,
}

const BENCHES: &[Named] = &[
    Named {
        name: "merge",
        prepare: reconcile::merge,
    },
    Named {
        name: "diff",
        prepare: reconcile::diff,
    },
    Named {
        name: "parse",
        prepare: reconcile::parse,
    },
    Named {
        name: "claim",
        prepare: reconcile::claim,
    },
    Named {
        name: "request",
        prepare: reconcile::request,
    },
    Named {
        name: "answer",
        prepare: reconcile::answer,
    },
    Named {
        name: "create",
        prepare: reconcile::create,
    },
    Named {
        name: "update",
        prepare: reconcile::update,
    },
    Named {
        name: "carry-out",
        prepare: reconcile::carry_out,
    },
    Named {
        name: "no-op",
        prepare: reconcile::no_op,
    },
    Named {
        name: "roll-out",
        prepare: rolling::roll_out,
    },
    Named {
        name: "placement",
        prepare: fleet::placement,
    },
    Named {
        name: "join",
        prepare: fleet::join,
    },
    Named {
        name: "queue",
        prepare: fleet::queue,
    },
];

/// Benches of the pure crates.
#[derive(Debug, Parser)]
struct Menu {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// One line for each bench and size: its name and the size.
    List,
    /// Do one bench: once to check its result, and then the part that is counted.
    Run {
        /// As `list` has it.
        name: String,
        /// Number of items.
        size: usize,
        /// How often the counted part is done; its mean time is printed, in nanoseconds.
        #[arg(long, default_value_t = 1)]
        times: u32,
    },
}

fn main() -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match Menu::parse().task {
        Task::List => {
            for bench in BENCHES {
                for size in SIZES {
                    writeln!(out, "{} {size}", bench.name)?;
                }
            }
        }
        Task::Run { name, size, times } => {
            let named = BENCHES.iter().find(|it| it.name == name);
            let named = named.with_context(|| format!("there is no bench {name:?}"))?;
            let mut bench = (named.prepare)(size)?;
            check(&mut bench)?;
            let nanos = timed(&mut bench, times)?;
            writeln!(out, "{nanos}")?;
        }
    }
    Ok(())
}

fn check(bench: &mut Bench) -> anyhow::Result<()> {
    let found = (bench.work)()?;
    let expected = bench.expected;
    ensure!(
        found == expected,
        "the result is {found} and not {expected}"
    );
    Ok(())
}

#[expect(
    clippy::disallowed_methods,
    reason = "a bench measures; nothing is decided by it"
)]
fn timed(bench: &mut Bench, times: u32) -> anyhow::Result<u128> {
    let start = Instant::now();
    for _ in 0..times {
        measured(bench)?;
    }
    Ok(start.elapsed().as_nanos() / u128::from(times.max(1)))
}

/// What valgrind counts: it knows this function by its name.
#[inline(never)]
fn measured(bench: &mut Bench) -> anyhow::Result<()> {
    let found = black_box((bench.work)()?);
    ensure!(found == bench.expected, "another result at the second time");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bench_gives_the_result_that_it_should() {
        for bench in BENCHES {
            for size in [1, 100] {
                let mut prepared = (bench.prepare)(size).unwrap();
                check(&mut prepared)
                    .unwrap_or_else(|error| panic!("{} {size}: {error}", bench.name));
                measured(&mut prepared).unwrap();
            }
        }
    }
}
