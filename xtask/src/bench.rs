//! `bench`: what each bench costs in instructions, against the budgets in `benches/budgets.toml`.
//!
//! Instructions are counted under valgrind, so a busy machine changes nothing; compilers, C libraries and processors do, a
//! little, so a budget may be exceeded by [`SLACK`] percent before the gate says no.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    num::NonZero,
    path::PathBuf,
    process::{Command, Stdio},
    thread,
};

use anyhow::{Context, bail, ensure};
use clap::Args;
use parking_lot::Mutex;
use serde::Deserialize;

use crate::{
    repository::{self, cargo, output},
    talk::{Tone, bar, say, toned},
    tools,
};

/// Percent by which a bench may exceed its budget.
const SLACK: u64 = 10;

/// Percent of its budget under which a bench has become so cheap that the budget guards nothing any more.
const LOOSE: u64 = 80;

/// What to count.
#[derive(Debug, Args, Default)]
pub(crate) struct Options {
    /// Only the benches whose name contains this.
    filter: Option<String>,
    /// Write what was counted as the new budgets.
    #[arg(long)]
    update: bool,
    /// Print the time of each, too: the mean of this many runs, on this machine as it is.
    #[arg(long, value_name = "RUNS")]
    times: Option<u32>,
}

/// `benches/budgets.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Budgets {
    /// By name and size, such as `merge 100`.
    instructions: BTreeMap<String, u64>,
}

/// Counts, compares, and says what is above its budget.
///
/// # Errors
/// If one is, or has none, or a bench fails. Without valgrind nothing is counted: see [`tools::is_there`].
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    if !tools::is_there("valgrind", "the instruction budgets are not checked")? {
        return Ok(());
    }
    let program = build()?;
    let benches = list(&program, options.filter.as_deref())?;
    let budgets = read()?;
    let counted = count_all(&program, &benches)?;
    for bench in &benches {
        let time = options.times.map(|times| time(&program, bench, times));
        say(&line(bench, counted[bench], time.transpose()?));
    }
    if options.update {
        return write(budgets, counted);
    }
    compare(&budgets, &counted)
}

fn build() -> anyhow::Result<PathBuf> {
    let flags = [
        "--package",
        "metashard-benches",
        "--profile",
        "budget",
        "--locked",
    ];
    let messages = output(
        cargo()
            .arg("build")
            .args(flags)
            .args(["--message-format", "json-render-diagnostics"])
            .stderr(Stdio::inherit()),
    )?;
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == "metashard-benches")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .context("cargo names no program of the benches")
}

fn list(program: &PathBuf, filter: Option<&str>) -> anyhow::Result<Vec<String>> {
    let all = output(Command::new(program).arg("list"))?;
    let chosen: Vec<_> = all
        .lines()
        .filter(|bench| filter.is_none_or(|filter| bench.contains(filter)))
        .map(str::to_owned)
        .collect();
    ensure!(
        !chosen.is_empty(),
        "no bench has such a name; there are:\n{all}"
    );
    Ok(chosen)
}

/// Counts as many at once as there are processors: that changes no figure.
fn count_all(program: &PathBuf, benches: &[String]) -> anyhow::Result<BTreeMap<String, u64>> {
    let progress = bar(benches.len() as u64, "counting instructions");
    let queue: Mutex<Vec<&String>> = Mutex::new(benches.iter().collect());
    let worker = || {
        let mut counted = BTreeMap::new();
        loop {
            let Some(bench) = queue.lock().pop() else {
                return anyhow::Ok(counted);
            };
            counted.insert(bench.clone(), count(program, bench)?);
            progress.inc(1);
        }
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let counted = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers
            .into_iter()
            .map(|it| it.join().unwrap_or_else(|_| bail!("counting panicked")))
            .collect::<anyhow::Result<Vec<_>>>()
    })?;
    progress.finish_and_clear();
    Ok(counted.into_iter().flatten().collect())
}

fn count(program: &PathBuf, bench: &str) -> anyhow::Result<u64> {
    let mut command = Command::new("valgrind");
    command.args([
        "--tool=callgrind",
        "--callgrind-out-file=/dev/null",
        "--toggle-collect=*metashard_benches::measured*",
    ]);
    command.arg(program).arg("run").args(bench.split(' '));
    let output = command.output().context("run valgrind")?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "bench {bench}: {told}");
    let found = told.lines().find_map(|line| {
        let (_, count) = line.split_once("Collected : ")?;
        count.trim().parse().ok()
    });
    match found {
        Some(count) if count > 0 => Ok(count),
        _ => bail!("bench {bench}: valgrind counted nothing:\n{told}"),
    }
}

fn time(program: &PathBuf, bench: &str, times: u32) -> anyhow::Result<u64> {
    let mut command = Command::new(program);
    command.arg("run").args(bench.split(' '));
    let nanos = output(command.args(["--times", &times.to_string()]))?;
    nanos.trim().parse().context("read a time")
}

fn line(bench: &str, instructions: u64, nanos: Option<u64>) -> String {
    let size = bench.rsplit(' ').next().and_then(|size| size.parse().ok());
    let each = instructions / size.unwrap_or(1).max(1);
    let mut line = format!("{bench:<20} {instructions:>14} instructions {each:>10} each");
    if let Some(nanos) = nanos {
        let _infallible = write!(line, " {:>12} us", nanos / 1000);
    }
    line
}

fn path() -> PathBuf {
    repository::root().join("benches/budgets.toml")
}

fn read() -> anyhow::Result<Budgets> {
    let text = fs::read_to_string(path()).unwrap_or_else(|_| "[instructions]\n".to_owned());
    toml::from_str(&text).context("read benches/budgets.toml")
}

fn write(budgets: Budgets, counted: BTreeMap<String, u64>) -> anyhow::Result<()> {
    let mut all = budgets.instructions;
    all.extend(counted);
    let mut text = String::from(
        "# Instructions of each bench and number of items; written by `cargo xtask bench --update`.\n\
         # Lower a budget when the code has become cheaper; raise one only with the reason in the commit.\n\
         [instructions]\n",
    );
    for (bench, count) in all {
        let _infallible = writeln!(text, "{bench:?} = {count}");
    }
    fs::write(path(), text).context("write benches/budgets.toml")
}

fn compare(budgets: &Budgets, counted: &BTreeMap<String, u64>) -> anyhow::Result<()> {
    let mut above = Vec::new();
    for (bench, count) in counted {
        let Some(budget) = budgets.instructions.get(bench) else {
            above.push(format!("{bench} has no budget"));
            continue;
        };
        if *count > budget + budget * SLACK / 100 {
            above.push(format!(
                "{bench}: {count} instructions, the budget is {budget}"
            ));
        } else if *count < budget * LOOSE / 100 {
            let text =
                format!("{bench} is far below its budget of {budget}: lower that with --update");
            say(&toned(Tone::Strong, &text));
        }
    }
    ensure!(above.is_empty(), "{}", above.join("; "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(budget: u64, count: u64) -> bool {
        let name = "merge 1".to_owned();
        let budgets = Budgets {
            instructions: BTreeMap::from([(name.clone(), budget)]),
        };
        compare(&budgets, &BTreeMap::from([(name, count)])).is_ok()
    }

    #[test]
    fn a_bench_may_exceed_its_budget_by_the_slack_and_no_more() {
        assert!(compared(1000, 1100));
        assert!(!compared(1000, 1101));
        assert!(compared(1000, 10));
    }

    #[test]
    fn a_bench_without_a_budget_is_refused() {
        let counted = BTreeMap::from([("merge 1".to_owned(), 1)]);

        assert!(compare(&Budgets::default(), &counted).is_err());
    }
}
