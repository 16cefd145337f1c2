//! Many histories, each in a process of its own, so that nothing of one is left for the next.
//!
//! The child is this program again, told by its environment which history to run. It prints what came of it as one line.

use std::{
    collections::BTreeSet,
    env, fmt,
    num::NonZero,
    ops::Range,
    process::{Command, Stdio},
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use mad_turmoil::time::SimClocksGuard;
use parking_lot::Mutex;
use rand::{SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use tracing_subscriber::fmt::{format::Writer, time::FormatTime};

use crate::{
    plan::{Mutant, Plan},
    run,
};

/// One seed: its whole history is printed.
pub(crate) const SEED: &str = "METASHARD_SEED";
/// How many seeds, from 0.
const SEEDS: &str = "METASHARD_SEEDS";
/// What a child is told.
const CHILD: &str = "METASHARD_SIMULATION_CHILD";

/// What came of a history, as its process said.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    pub(crate) seed: u64,
    pub(crate) hash: u64,
    pub(crate) steps: u64,
    pub(crate) calls: u64,
    pub(crate) writes: u64,
    pub(crate) moves: u64,
    pub(crate) terms: u64,
    /// Short names of broken invariants, and how.
    pub(crate) broken: Vec<(String, String)>,
}

impl Report {
    fn read(line: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(line).ok()?;
        let number = |name: &str| value[name].as_u64();
        let broken = value["broken"].as_object()?.iter();
        Some(Self {
            seed: number("seed")?,
            hash: number("hash")?,
            steps: number("steps")?,
            calls: number("calls")?,
            writes: number("writes")?,
            moves: number("moves")?,
            terms: number("terms")?,
            broken: broken
                .map(|(id, how)| (id.clone(), how.to_string()))
                .collect(),
        })
    }

    /// Whether it breaks one of these invariants.
    pub(crate) fn breaks(&self, ids: &[&str]) -> bool {
        self.broken.iter().any(|(id, _)| ids.contains(&id.as_str()))
    }
}

/// How many seeds to run: `usual`, or what the environment says.
pub(crate) fn n_seeds(usual: u64) -> u64 {
    let asked = env::var_os(SEEDS).and_then(|it| it.to_str()?.parse().ok());
    asked.unwrap_or(usual)
}

/// The seed to be replayed, if one is asked for.
pub(crate) fn asked_seed() -> Option<u64> {
    env::var_os(SEED).and_then(|it| it.to_str()?.parse().ok())
}

/// What a child has to run: a seed, the number of a mutant, and whether to print all.
pub(crate) fn child() -> Option<(u64, Option<usize>, bool)> {
    let told = env::var_os(CHILD)?;
    let parts: Vec<&str> = told.to_str()?.split(' ').collect();
    let [seed, mutant, talks] = parts.as_slice() else {
        return None;
    };
    Some((seed.parse().ok()?, mutant.parse().ok(), *talks == "true"))
}

/// Runs one history in this process, which does so once.
pub(crate) fn happen(seed: u64, mutant: Option<Mutant>, talks: bool) {
    mad_turmoil::rand::set_rng(StdRng::seed_from_u64(seed));
    // In a thread of its own, which has not hashed anything with other keys yet.
    let history = thread::spawn(move || {
        let clocks = SimClocksGuard::init();
        let plan = Plan::new(seed, mutant, talks);
        if talks {
            println!("\n{plan:#?}");
            let log = tracing_subscriber::fmt().with_timer(SimulatedTime);
            log.with_ansi(false)
                .with_max_level(tracing::Level::DEBUG)
                .init();
        }
        let outcome = run::run(plan);
        drop(clocks);
        outcome
    });
    let outcome = history.join().expect("it comes to its end");
    let facts = &outcome.facts;
    let broken = facts.broken.iter();
    let mut broken: serde_json::Map<String, Value> = broken
        .map(|(invariant, how)| (invariant.id().to_owned(), how.as_str().into()))
        .collect();
    for it in &outcome.seen {
        broken.insert(format!("seen {}", it.id()), "by a replica itself".into());
    }
    if let Some(how) = facts.lost_updates.first() {
        broken.insert("lost".to_owned(), how.as_str().into());
    }
    let report = json!({
        "seed": seed, "hash": outcome.hash, "steps": outcome.steps,
        "calls": facts.calls, "writes": facts.writes, "moves": facts.moves, "terms": facts.terms,
        "broken": broken,
    });
    println!("{report}");
}

/// Stamps lines of the log as those of the history.
struct SimulatedTime;

impl FormatTime for SimulatedTime {
    fn format_time(&self, w: &mut Writer<'_>) -> fmt::Result {
        let now = turmoil::sim_elapsed().unwrap_or_default();
        write!(w, "{:>6}", now.as_millis())
    }
}

/// Runs one history in a process of its own; `Err` is what that printed, if it failed.
pub(crate) fn spawn(seed: u64, mutant: Option<usize>, talks: bool) -> Result<Report, String> {
    let program = env::current_exe().map_err(|error| error.to_string())?;
    let mutant = mutant.map_or_else(|| "none".to_owned(), |it| it.to_string());
    let child = Command::new(program)
        .env(CHILD, format!("{seed} {mutant} {talks}"))
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&child.stdout);
    if talks {
        println!("{text}");
    }
    let report = text.lines().filter(|line| line.starts_with('{'));
    report.filter_map(Report::read).next_back().ok_or_else(|| {
        let errors = String::from_utf8_lossy(&child.stderr);
        format!("seed {seed} failed: {text}\n{errors}")
    })
}

/// Runs many histories, as many at once as there are processors. `goes_on` says after each whether to go on.
pub(crate) fn spawn_all(
    seeds: Range<u64>,
    mutant: Option<usize>,
    goes_on: impl Fn(&Result<Report, String>) -> bool + Sync,
) -> Vec<Result<Report, String>> {
    let next = AtomicU64::new(seeds.start);
    let results = Mutex::new(Vec::new());
    let n_threads = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        for _ in 0..n_threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let result = spawn(seed, mutant, false);
                    if !goes_on(&result) {
                        next.store(seeds.end, Ordering::Relaxed);
                    }
                    results.lock().push(result);
                }
            });
        }
    });
    results.into_inner()
}

/// The time of processors that ended children have used.
pub(crate) fn used() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = text.rsplit_once(')').map_or("", |(_, after)| after);
    // Fields 16 and 17 of the line, in hundredths of a second on every Linux.
    let fields = after.split_whitespace().skip(13).take(2);
    let ticks: u64 = fields.filter_map(|it| it.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// Prints the seeds that failed, and how to see one again.
pub(crate) fn tell_failures(failures: &[&Report]) {
    for report in failures {
        println!("seed {}: {:?}", report.seed, report.broken);
    }
    let seeds: BTreeSet<u64> = failures.iter().map(|it| it.seed).collect();
    if let Some(seed) = seeds.first() {
        println!("seeds {seeds:?}; see one again:");
        println!(
            "{SEED}={seed} cargo test -p metashard-tests --test simulation seed_that -- --nocapture"
        );
    }
}
