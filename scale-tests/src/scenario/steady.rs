//! Edits at a rate: latency, CPU and memory of syncs, requests.

use tokio::time::{Instant, sleep};

use super::{finish, start};
use crate::{
    edits::Edits,
    flags::{Name, Settings},
    outcome::Outcome,
    talk,
};

pub(crate) async fn run(settings: Settings) -> anyhow::Result<Outcome> {
    let weights = weights(&settings);
    let mut outcome = Outcome::default();
    let mut bed = start(settings, &weights).await?;
    let (length, every) = (bed.settings.length, bed.settings.every);
    let begin = Instant::now();
    let edits = Edits::start(&bed.things(), &weights, every);
    let bar = talk::bar(usize::try_from(length.as_secs())?, "edits");
    while begin.elapsed() < length {
        sleep(std::time::Duration::from_secs(1)).await;
        bed.take_calls()?;
        bar.set_position(begin.elapsed().as_secs());
    }
    bar.finish_and_clear();
    finish(bed, edits, &mut outcome, length).await?;
    Ok(outcome)
}

/// How many parents each controller has.
fn weights(settings: &Settings) -> Vec<usize> {
    let mut weights = vec![settings.parents; settings.controllers];
    if settings.scenario == Name::HotController
        && let Some((hot, others)) = weights.split_first_mut()
    {
        *hot = others.iter().sum::<usize>().max(1);
    }
    weights
}
