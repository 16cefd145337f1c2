//! The scenarios. Each builds its bed, does something to it, and says what came of it.

use std::time::Duration;

use metashard_testkit::history::HookCall;

use crate::{
    bed::Bed,
    edits::Edits,
    flags::{Name, Settings},
    judge::judge,
    outcome::Outcome,
    record::Record,
    talk,
};

mod burst;
mod chaos;
mod failover;
mod fault;
mod meddling;
mod rolling;
mod steady;

/// Runs a scenario.
///
/// # Errors
/// If it could not be run; what it found is in the outcome.
pub(crate) async fn run(settings: Settings) -> anyhow::Result<Outcome> {
    match settings.scenario {
        Name::Chaos => Box::pin(chaos::run(settings)).await,
        Name::Failover => Box::pin(failover::run(settings)).await,
        Name::Burst => Box::pin(burst::run(settings)).await,
        Name::RollingUpdate => Box::pin(rolling::run(settings)).await,
        Name::Steady | Name::ManyControllers | Name::HotController => {
            Box::pin(steady::run(settings)).await
        }
    }
}

/// Starts a bed and says so.
async fn start(settings: Settings, weights: &[usize]) -> anyhow::Result<Bed> {
    let name = settings.scenario.text();
    talk::say(&format!(
        "{name}: {} processes, {} controllers, {} parents",
        settings.replicas,
        weights.len(),
        weights.iter().sum::<usize>()
    ));
    Box::pin(Bed::start(settings, weights)).await
}

/// The end of every scenario: edits end, every one of them has to be carried out, all processes end, and all is judged.
async fn finish(
    mut bed: Bed,
    mut edits: Edits,
    outcome: &mut Outcome,
    length: Duration,
) -> anyhow::Result<Record> {
    talk::say("edits end; waiting until all are carried out");
    edits.stop().await;
    if let Err(error) = bed.is_settled(&edits).await {
        outcome.found(format!("not settled: {error:#}"));
    }
    for name in bed.stop().await? {
        outcome.found(format!("{name} did not end after SIGTERM and was killed"));
    }
    talk::say("reading what was recorded");
    judge(&mut bed, &edits, outcome, length)?;
    keep_logs(&bed)?;
    Ok(bed.record)
}

/// Keeps the logs of all processes, for whoever wants to know why.
fn keep_logs(bed: &Bed) -> anyhow::Result<()> {
    let folder = bed.settings.out.join("logs");
    std::fs::create_dir_all(&folder)?;
    for name in bed.names() {
        let log = bed.cluster.group().log(name);
        std::fs::copy(log, folder.join(format!("{name}.log")))?;
    }
    Ok(())
}

/// The longest time between two calls of a controller, the latter of which is after `at`.
fn gap(calls: &[&HookCall], at: Duration) -> Duration {
    let mut begins: Vec<Duration> = calls.iter().map(|call| call.begin).collect();
    begins.sort_unstable();
    let pairs = begins.windows(2).filter(|pair| pair[1] >= at);
    let gaps = pairs.map(|pair| pair[1].saturating_sub(pair[0]));
    gaps.max().unwrap_or_default()
}
