//! One fault at a time, each on a fleet at rest, and how long its controllers are not called.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context, ensure};
use metashard_api::shard_map::ShardMapSpec;
use metashard_testkit::{history::HookCall, wait::eventually};
use tokio::time::{Instant, sleep};

use super::{
    fault::{Dice, Event, Fault},
    finish, gap,
    meddling::take_lead,
    start,
};
use crate::{
    bed::{Bed, WITHIN},
    edits::Edits,
    flags::Settings,
    outcome::{Kind, Outcome},
    talk,
};

const KINDS: [Fault; 5] = [
    Fault::Terminate,
    Fault::Kill,
    Fault::LeadTaken,
    Fault::Freeze,
    Fault::ApiRestart,
];

/// How long a replica stands still.
const FROZEN: Duration = Duration::from_secs(30);

/// How long the API server is away.
const AWAY: Duration = Duration::from_mins(1);

/// Calls of a controller after which it counts as served again.
const SERVED: usize = 3;

/// Hooks that take as long as this are cut off when their shards are drained.
const LONG: Duration = Duration::from_secs(5);

/// The most that the calls of long hooks may go on when their replica is told to end: `--drain-hook-grace`, and a little more.
const CUT_WITHIN: Duration = Duration::from_millis(2200);

/// Faults under way.
struct Failover {
    bed: Bed,
    dice: Dice,
    /// By kind of fault and of time.
    times: BTreeMap<(Fault, &'static str), Vec<Duration>>,
    moves: BTreeMap<Fault, f64>,
    events: Vec<Event>,
    /// The number of calls that were looked at before.
    judged: usize,
}

pub(crate) async fn run(settings: Settings) -> anyhow::Result<Outcome> {
    let weights = vec![settings.parents; settings.controllers];
    let kinds = Fault::chosen(&KINDS, &settings.kinds)?;
    let dice = Dice::new(settings.seed);
    let bed = start(settings, &weights).await?;
    let events = bed.settings.events;
    let begin = Instant::now();
    let edits = Edits::start(&bed.things(), &weights, bed.settings.every);
    let mut this = Failover {
        bed,
        dice,
        times: BTreeMap::new(),
        moves: BTreeMap::new(),
        events: Vec::new(),
        judged: 0,
    };
    let mut outcome = Outcome::default();
    for kind in kinds {
        // Those that take a minute each come less often, unless they were asked for.
        let is_long = matches!(kind, Fault::Freeze | Fault::ApiRestart);
        let asked = this.bed.settings.kinds.iter().any(|it| it == kind.word());
        let events = if is_long && !asked {
            events.div_ceil(10)
        } else {
            events
        };
        let bar = talk::bar(events, kind.name());
        for _ in 0..events {
            if begin.elapsed() > this.bed.settings.length {
                break;
            }
            if let Err(error) = this.event(kind).await {
                // A fleet that does not come to rest again is a finding; what was measured before is kept.
                outcome.found(format!("{}: {error:#}", kind.name()));
                break;
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        for line in this.lines(kind) {
            talk::say(&line);
        }
    }
    this.report(&mut outcome, begin);
    finish(this.bed, edits, &mut outcome, begin.elapsed()).await?;
    Ok(outcome)
}

impl Failover {
    async fn event(&mut self, fault: Fault) -> anyhow::Result<()> {
        let before = self.bed.is_at_rest().await?;
        if self.has_long_hooks() {
            self.are_all_called().await?;
        }
        self.bed.take_calls()?;
        self.judged = self.bed.record.history.calls.len();
        self.bed.scraper.once().await;
        let moves = self.bed.scraper.seen().moves();
        let victim = fault.hits_a_slot().then(|| self.victim(&before));
        let victim = victim.transpose()?;
        let at = Instant::now();
        let mut back = None;
        match fault {
            Fault::LeadTaken => take_lead(&mut self.bed).await?,
            Fault::ApiRestart => {
                self.bed.kill_api_server(0).await?;
                sleep(AWAY).await;
                self.bed.start_api_server(0).await?;
                back = Some(Instant::now());
            }
            _ => {
                let slot = victim.context("it hits somebody")?;
                let cure = fault.strike(&mut self.bed, slot)?;
                self.is_left_by(slot).await?;
                if fault == Fault::Freeze {
                    tokio::time::sleep_until(at + FROZEN).await;
                }
                eventually(WITHIN, "the victim to come back", async || {
                    ensure!(cure.apply(&mut self.bed, slot)?, "it has not ended");
                    Ok(())
                })
                .await?;
            }
        }
        let victim = victim.map(|slot| self.bed.name(slot));
        self.events.push(Event {
            fault,
            victim: victim.clone(),
            at,
            until: back,
        });
        if self.has_long_hooks() {
            return self.measure_long(&before, fault, victim, at).await;
        }
        self.is_served().await?;
        self.measure(&before, fault, victim, (at, back), moves)
            .await
    }

    /// One of those that serve a controller. A replica that was lost several times has to wait for its share.
    fn victim(&mut self, map: &ShardMapSpec) -> anyhow::Result<usize> {
        let calls = &self.bed.record.history.calls;
        let recent = calls.iter().rev().take(100 * self.bed.settings.controllers);
        let under_way = self.bed.calls_now()?;
        let owners = recent
            .chain(&under_way)
            .filter_map(|call| map.owner(call.claim.shard));
        let names: BTreeSet<&str> = owners.map(|(owner, _)| owner.replica.as_str()).collect();
        let slots = 0..self.bed.slots();
        let slots = slots.filter(|slot| names.contains(self.bed.name(*slot).as_str()));
        let slots: Vec<usize> = slots.collect();
        let place = self.dice.below(slots.len());
        slots.get(place).copied().context("nobody serves")
    }

    async fn is_left_by(&self, slot: usize) -> anyhow::Result<()> {
        let name = self.bed.name(slot);
        eventually(WITHIN, "others to take over", async || {
            sleep(Duration::from_millis(200)).await;
            let map = self.bed.map().await?;
            let owners = map.shards.iter().filter_map(|it| it.owner);
            let mut owners = owners.filter_map(|it| map.members.get(usize::from(it)));
            ensure!(!owners.any(|it| it.replica == name), "{name} owns shards");
            Ok(())
        })
        .await
    }

    fn has_long_hooks(&self) -> bool {
        self.bed.settings.hook.0 >= LONG
    }

    /// Waits until a call of each controller is under way.
    async fn are_all_called(&self) -> anyhow::Result<()> {
        eventually(WITHIN, "every controller to be called", async || {
            let calls = self.bed.calls_now()?;
            let calls = calls.iter().filter(|call| call.end.is_none());
            let called: BTreeSet<&str> = calls.map(|it| it.controller.as_str()).collect();
            let wanted = self.bed.settings.controllers;
            ensure!(called.len() == wanted, "{} are", called.len());
            Ok(())
        })
        .await
    }

    /// Where hooks take long, the pause between two calls says little. Measured is when calls that the fault hit end, and when
    /// each of their controllers is called by somebody else.
    async fn measure_long(
        &mut self,
        before: &ShardMapSpec,
        fault: Fault,
        victim: Option<String>,
        at: Instant,
    ) -> anyhow::Result<()> {
        let victim = victim.context("only replicas are hit while hooks take long")?;
        let at = self.bed.record.time(at.into_std());
        let is_victims = |call: &HookCall| {
            let owner = before.owner(call.claim.shard);
            owner.is_some_and(|it| it.0.replica == victim && it.1 == call.claim.epoch)
        };
        let (cut, called) = eventually(WITHIN, "others to call", async || {
            self.bed.take_calls()?;
            let mut calls = self.bed.record.history.calls[self.judged..].to_vec();
            calls.extend(self.bed.calls_now()?);
            let hit = calls.iter().filter(|call| is_victims(call));
            let hit = hit.filter(|call| call.begin <= at && call.end.is_none_or(|end| end > at));
            let (mut cut, mut called) = (Duration::ZERO, Duration::ZERO);
            for call in hit {
                let end = call.end.context("a call goes on")?;
                let next = calls.iter().filter(|it| {
                    it.controller == call.controller && it.claim.epoch > call.claim.epoch
                });
                let next = next.map(|it| it.begin).min();
                let next = next.with_context(|| call.controller.clone())?;
                cut = cut.max(end.saturating_sub(at));
                called = called.max(next.saturating_sub(at));
            }
            ensure!(cut > Duration::ZERO, "no call was under way");
            Ok((cut, called))
        })
        .await?;
        self.add(fault, "calls cut off", cut);
        self.add(fault, "called by others", called);
        Ok(())
    }

    /// Waits until each controller has been called some times from now on.
    async fn is_served(&mut self) -> anyhow::Result<()> {
        self.bed.take_calls()?;
        let begin = self.bed.record.history.calls.len();
        let controllers = self.bed.settings.controllers;
        eventually(WITHIN, "every controller to be called", async || {
            sleep(Duration::from_millis(100)).await;
            self.bed.take_calls()?;
            let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
            for call in self.bed.record.history.calls.iter().skip(begin) {
                *counts.entry(&call.controller).or_default() += 1;
            }
            let served = counts.values().filter(|it| **it >= SERVED).count();
            ensure!(served == controllers, "{served} of {controllers} are");
            Ok(())
        })
        .await
    }

    async fn measure(
        &mut self,
        before: &ShardMapSpec,
        fault: Fault,
        name: Option<String>,
        (at, back): (Instant, Option<Instant>),
        moves: f64,
    ) -> anyhow::Result<()> {
        let at = self.bed.record.time(back.unwrap_or(at).into_std());
        let mut calls: BTreeMap<&str, Vec<&HookCall>> = BTreeMap::new();
        for call in self.bed.record.history.calls.iter().skip(self.judged) {
            calls.entry(&call.controller).or_default().push(call);
        }
        let (mut hit, mut others) = (Vec::new(), Duration::ZERO);
        for calls in calls.values() {
            let Some(first) = calls.first() else { continue };
            let owner = before
                .owner(first.claim.shard)
                .map(|it| it.0.replica.clone());
            let gap = if back.is_some() {
                let next = calls.iter().find(|call| call.begin >= at);
                next.map(|call| call.begin.saturating_sub(at))
                    .unwrap_or_default()
            } else {
                gap(calls, at)
            };
            if name.is_none() || name == owner {
                hit.push(gap);
            } else {
                others = others.max(gap);
            }
        }
        let what = if back.is_some() {
            "all controllers called again"
        } else {
            "gap of its controllers"
        };
        if let Some(longest) = hit.iter().max() {
            self.add(fault, what, *longest);
        }
        if name.is_some() {
            self.add(fault, "gap of others", others);
        } else {
            self.bed.scraper.once().await;
            let more = self.bed.scraper.seen().moves() - moves;
            *self.moves.entry(fault).or_default() += more;
        }
        Ok(())
    }

    fn add(&mut self, fault: Fault, what: &'static str, time: Duration) {
        self.times.entry((fault, what)).or_default().push(time);
    }

    fn lines(&self, fault: Fault) -> Vec<String> {
        let of = self.times.iter().filter(|(which, _)| which.0 == fault);
        of.map(|((fault, what), times)| {
            let kind = Kind {
                times: times.clone(),
                ..Kind::default()
            };
            let (p50, p99, max) = (kind.at(50), kind.at(99), kind.at(100));
            let n = times.len();
            format!(
                "{}: {what}: {n} events, {p50:?} {p99:?} {max:?}",
                fault.name()
            )
        })
        .collect()
    }

    fn report(&mut self, outcome: &mut Outcome, begin: Instant) {
        for ((fault, what), times) in std::mem::take(&mut self.times) {
            outcome.kinds.push(Kind {
                name: fault.name().to_owned(),
                what,
                times,
                bound: bound(fault, what),
            });
        }
        for (fault, moves) in &self.moves {
            let name = format!("shards moved by: {}", fault.name());
            outcome.judge(&name, *moves, "", 0.0);
        }
        for event in &self.events {
            let name = event.fault.name().to_owned();
            outcome.plot.marks.push((event.at - begin, name));
        }
    }
}

/// The most that p99 may be.
fn bound(fault: Fault, what: &str) -> Option<Duration> {
    let hand_over = Duration::from_millis(500);
    match (fault, what) {
        (Fault::Terminate, "gap of its controllers") => Some(hand_over),
        (Fault::Terminate, "calls cut off") => Some(CUT_WITHIN),
        (Fault::Terminate, "called by others") => Some(CUT_WITHIN + hand_over),
        (Fault::Kill | Fault::Freeze, "gap of its controllers") => Some(Duration::from_secs(5)),
        (Fault::ApiRestart, _) => Some(Duration::from_secs(2)),
        _ => None,
    }
}
