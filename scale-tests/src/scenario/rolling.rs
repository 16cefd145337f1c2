//! Replicas replaced one after the other under load, each by one of another name that is ready before, as a Deployment does
//! that may be short of none.

use std::{collections::BTreeMap, time::Duration};

use anyhow::ensure;
use metashard_api::shard_map::ShardMapSpec;
use metashard_testkit::{history::HookCall, wait::eventually};
use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use super::{finish, gap, start};
use crate::{
    bed::{Bed, WITHIN},
    edits::Edits,
    flags::Settings,
    judge::number,
    outcome::{Kind, Outcome},
    talk,
};

/// How often a shard may change hands in one roll-out.
const MOVES: f64 = 2.0;

/// How long a controller may go without a call, at p99.
const GAP: Duration = Duration::from_millis(500);

/// What came of the roll-outs so far.
#[derive(Default)]
struct Rolled {
    gaps: Vec<Duration>,
    lengths: Vec<Duration>,
    /// The most that a shard moved in one of them.
    most_moves: u64,
    moves: u64,
    /// When each replica was told to end.
    marks: Vec<(Instant, String)>,
}

pub(crate) async fn run(settings: Settings) -> anyhow::Result<Outcome> {
    let weights = vec![settings.parents; settings.controllers];
    let mut bed = start(settings, &weights).await?;
    let length = bed.settings.length;
    let begin = Instant::now();
    let edits = Edits::start(&bed.things(), &weights, bed.settings.every);
    let (mut rolled, mut outcome) = (Rolled::default(), Outcome::default());
    let bar = talk::bar(usize::try_from(length.as_secs())?, "roll-outs");
    while begin.elapsed() < length {
        if let Err(error) = rolled.roll(&mut bed).await {
            outcome.found(format!("{error:#}"));
            break;
        }
        bar.set_position(begin.elapsed().as_secs());
    }
    bar.finish_and_clear();
    rolled.report(&mut outcome, begin);
    finish(bed, edits, &mut outcome, begin.elapsed()).await?;
    Ok(outcome)
}

impl Rolled {
    /// One roll-out.
    async fn roll(&mut self, bed: &mut Bed) -> anyhow::Result<()> {
        // Whoever is about to be replaced is told by age: those that were made one after the other are alike only when they
        // are older than that took.
        sleep(self.lengths.last().copied().unwrap_or_default()).await;
        let before = bed.is_at_rest().await?;
        bed.take_calls()?;
        let judged = bed.record.history.calls.len();
        let at = Instant::now();
        for slot in bed.used() {
            bed.add_one()?;
            bed.is_ready().await?;
            self.marks.push((Instant::now(), bed.name(slot)));
            bed.signal(slot, Signal::TERM)?;
            eventually(WITHIN, "a replica to end", async || {
                sleep(Duration::from_millis(50)).await;
                ensure!(bed.subject(slot)?.has_ended(), "it still runs");
                Ok(())
            })
            .await?;
            bed.retire(slot);
        }
        self.lengths.push(at.elapsed());
        let after = bed.is_at_rest().await?;
        bed.take_calls()?;
        self.count_moves(&before, &after);
        let at = bed.record.time(at.into_std());
        let mut calls: BTreeMap<&str, Vec<&HookCall>> = BTreeMap::new();
        for call in bed.record.history.calls.iter().skip(judged) {
            calls.entry(&call.controller).or_default().push(call);
        }
        self.gaps.extend(calls.values().map(|calls| gap(calls, at)));
        Ok(())
    }

    /// Each change of hands raises the epoch by one.
    fn count_moves(&mut self, before: &ShardMapSpec, after: &ShardMapSpec) {
        let pairs = before.shards.iter().zip(&after.shards);
        for (before, after) in pairs {
            let moves = after.epoch.0.saturating_sub(before.epoch.0);
            self.most_moves = self.most_moves.max(moves);
            self.moves += moves;
        }
    }

    fn report(self, outcome: &mut Outcome, begin: Instant) {
        outcome.tell("roll-outs", number(self.lengths.len()), "");
        outcome.tell("shards moved in all", number(self.moves), "");
        let most = number(self.most_moves);
        outcome.judge("most moves of a shard in a roll-out", most, "", MOVES);
        for (at, name) in self.marks {
            outcome
                .plot
                .marks
                .push((at - begin, format!("SIGTERM {name}")));
        }
        let kinds = [
            ("gap of a controller", self.gaps, Some(GAP)),
            ("until the last has ended", self.lengths, None),
        ];
        for (what, times, bound) in kinds {
            outcome.kinds.push(Kind {
                name: "roll-out".to_owned(),
                what,
                times,
                bound,
            });
        }
    }
}
