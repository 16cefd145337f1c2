//! A fault every few seconds, of every kind in turn, while hooks of very different lengths are called.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, ensure};
use metashard_api::id::{Epoch, ShardId};
use metashard_testkit::{history::History, wait::eventually};
use tokio::time::{Instant, sleep, timeout};

use super::{
    fault::{Cure, Dice, Event, Fault},
    finish, meddling, start,
};
use crate::{
    bed::{Bed, WITHIN},
    edits::Edits,
    flags::Settings,
    outcome::{Kind, Outcome},
    record::Record,
    talk,
};

/// How long faults last that do not end by themselves: some heal before a Lease ends (4 s), most do not.
const LASTS: [u64; 4] = [2, 6, 8, 10];

/// Slots that may be hit at once.
const HIT_AT_ONCE: usize = 2;

/// What comes later is laid to a later fault.
const AFTER: Duration = Duration::from_secs(9);

/// How long the API server is away: for less and for more than a Lease lasts.
const AWAY: [u64; 2] = [2, 6];

/// Faults that are under way.
struct Chaos {
    bed: Bed,
    dice: Dice,
    /// What comes next, the last first.
    deck: Vec<Fault>,
    kinds: Vec<Fault>,
    /// By slot: what is to be done, and when; `None`: it was done, and the replica is not ready yet.
    hit: BTreeMap<usize, (Instant, Option<Cure>)>,
    events: Vec<Event>,
}

pub(crate) async fn run(settings: Settings) -> anyhow::Result<Outcome> {
    let weights = vec![settings.parents; settings.controllers];
    let mut kinds = Fault::CHAOS.to_vec();
    if !settings.kinds.is_empty() {
        kinds.extend(Fault::MEDDLING);
        kinds = Fault::chosen(&kinds, &settings.kinds)?;
    }
    if !settings.has_namespaces {
        kinds.retain(|kind| !kind.needs_links());
    }
    let seed = settings.seed;
    let bed = start(settings, &weights).await?;
    let (length, every) = (bed.settings.length, bed.settings.every);
    let fault_every = bed.settings.fault_every;
    let edits = Edits::start(&bed.things(), &weights, every);
    let mut chaos = Chaos {
        bed,
        dice: Dice::new(seed),
        deck: Vec::new(),
        kinds,
        hit: BTreeMap::new(),
        events: Vec::new(),
    };
    let bar = talk::bar(usize::try_from(length.as_secs())?, "chaos");
    let begin = Instant::now();
    // All have a share before the first fault.
    let mut next = begin + 2 * fault_every;
    while begin.elapsed() < length {
        chaos.heal().await?;
        if Instant::now() >= next && chaos.strike().await? {
            next += fault_every;
        }
        bar.set_position(begin.elapsed().as_secs());
        sleep(Duration::from_millis(100)).await;
    }
    bar.finish_and_clear();
    let mut outcome = Outcome::default();
    let healed = eventually(WITHIN, "all replicas to be ready again", async || {
        sleep(Duration::from_millis(100)).await;
        chaos.heal().await?;
        ensure!(chaos.hit.is_empty(), "slots {:?} are not", chaos.hit.keys());
        Ok(())
    });
    if let Err(error) = healed.await {
        outcome.found(format!("{error:#}"));
    }
    let Chaos { bed, events, .. } = chaos;
    report(bed, edits, &events, &mut outcome, begin).await?;
    Ok(outcome)
}

async fn report(
    mut bed: Bed,
    edits: Edits,
    events: &[Event],
    outcome: &mut Outcome,
    begin: Instant,
) -> anyhow::Result<()> {
    let length = begin.elapsed();
    bed.take_calls()?;
    let record = Box::pin(finish(bed, edits, outcome, length)).await?;
    outcome.tell("faults", crate::judge::number(events.len()), "");
    for event in events {
        let name = event.fault.name().to_owned();
        outcome.plot.marks.push((event.at - begin, name));
    }
    for (kind, times) in times(&record, events) {
        outcome.kinds.push(Kind {
            name: kind.0.name().to_owned(),
            what: kind.1,
            times,
            bound: None,
        });
    }
    Ok(())
}

impl Chaos {
    /// Applies cures that are due, and forgets who is well again.
    async fn heal(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        for (slot, (due, cure)) in self.hit.clone() {
            if now < due {
                continue;
            }
            match cure {
                Some(cure) => {
                    if cure.apply(&mut self.bed, slot)? {
                        self.hit.insert(slot, (now, None));
                    }
                }
                None => {
                    if self.bed.is_slot_ready(slot).await.is_ok() {
                        self.hit.remove(&slot);
                    }
                }
            }
        }
        Ok(())
    }

    /// The next fault. `false`: it has to wait, as too much is broken already.
    async fn strike(&mut self) -> anyhow::Result<bool> {
        if self.deck.is_empty() {
            self.deck = self.dice.shuffled(&self.kinds);
        }
        let fault = *self.deck.last().context("no kinds of faults")?;
        if !fault.hits_a_slot() {
            self.deck.pop();
            return self.strike_all(fault).await.map(|()| true);
        }
        if self.hit.len() >= HIT_AT_ONCE {
            return Ok(false);
        }
        let leader = timeout(Duration::from_secs(2), self.bed.leader()).await;
        let leader = leader.ok().and_then(Result::ok);
        let whole = (0..self.bed.slots()).filter(|slot| !self.hit.contains_key(slot));
        let fits = |slot: &usize| match fault {
            Fault::LeaderCutFromApi => Some(*slot) == leader,
            Fault::WorkerCutFromApi | Fault::WorkerCutFromLeader => {
                leader.is_some_and(|leader| leader != *slot)
            }
            _ => true,
        };
        let victims: Vec<usize> = whole.filter(fits).collect();
        if victims.is_empty() {
            return Ok(false);
        }
        self.deck.pop();
        let victim = victims[self.dice.below(victims.len())];
        let lasts = match fault {
            Fault::Kill | Fault::Terminate => 1,
            _ => LASTS[self.dice.below(LASTS.len())],
        };
        let at = Instant::now();
        let cure = fault.strike(&mut self.bed, victim)?;
        let due = at + Duration::from_secs(lasts);
        self.hit.insert(victim, (due, Some(cure)));
        self.events.push(Event {
            fault,
            victim: Some(self.bed.name(victim)),
            at,
            until: None,
        });
        Ok(true)
    }

    /// A fault of what all share.
    async fn strike_all(&mut self, fault: Fault) -> anyhow::Result<()> {
        let at = Instant::now();
        let (mut victim, mut until) = (None, None);
        match fault {
            Fault::ApiRestart => {
                self.restart_api().await?;
                until = Some(Instant::now());
            }
            Fault::LeadTaken => meddling::take_lead(&mut self.bed).await?,
            Fault::LeaseDeleted => {
                victim = Some(meddling::delete_lease(&self.bed, &mut self.dice).await?);
            }
            Fault::MapDeleted => meddling::delete_map(&self.bed).await?,
            Fault::Split => meddling::split(&self.bed, &mut self.dice).await?,
            _ => anyhow::bail!("{fault:?} hits a slot"),
        }
        self.events.push(Event {
            fault,
            victim,
            at,
            until,
        });
        Ok(())
    }

    async fn restart_api(&mut self) -> anyhow::Result<()> {
        let number = match self.bed.settings.api_servers {
            1 => 0,
            several => self.dice.below(several.into()),
        };
        self.bed.kill_api_server(number).await?;
        let away = AWAY.get(self.dice.below(AWAY.len()));
        sleep(Duration::from_secs(*away.context("some time")?)).await;
        self.bed.start_api_server(number).await
    }
}

/// What a time is of.
type Which = (Fault, &'static str);

/// By kind of fault: how long its controllers were not called, as far as they moved, and as far as they did not.
fn times(record: &Record, events: &[Event]) -> BTreeMap<Which, Vec<Duration>> {
    let mut times: BTreeMap<Which, Vec<Duration>> = BTreeMap::new();
    let history = &record.history;
    let controllers = by_controller(history);
    for event in events {
        let at = record.time(event.at.into_std());
        let victim = event.victim.as_ref();
        let map = history.maps.iter().rev().find(|map| map.at <= at);
        let Some(map) = map else { continue };
        let mut resumed: Vec<Duration> = Vec::new();
        let mut pause = Duration::ZERO;
        for calls in controllers.values() {
            let Some((_, shard, _)) = calls.first() else {
                continue;
            };
            let owner = map.spec.owner(*shard);
            let Some((owner, epoch)) = owner else {
                continue;
            };
            if victim.is_some_and(|victim| *victim != owner.replica) {
                continue;
            }
            let from = event.until.map_or(at, |it| record.time(it.into_std()));
            if event.until.is_some() {
                let next = calls.iter().find(|(begin, ..)| *begin >= from);
                resumed.extend(next.map(|(begin, ..)| begin.saturating_sub(from)));
                continue;
            }
            let moved = calls.iter().find(|call| call.0 >= at && call.2 > epoch);
            match moved {
                Some((begin, ..)) if *begin <= at + AFTER => resumed.push(begin.saturating_sub(at)),
                _ => pause = pause.max(longest_pause(calls, at)),
            }
        }
        if let (Some(first), Some(last)) = (resumed.iter().min(), resumed.iter().max()) {
            let mut add = |what, time| times.entry((event.fault, what)).or_default().push(time);
            add("first controller resumed", *first);
            add("last controller resumed", *last);
        } else if pause > Duration::ZERO {
            let kept = (event.fault, "nothing moved: longest pause");
            times.entry(kept).or_default().push(pause);
        }
    }
    times
}

type Calls = Vec<(Duration, ShardId, Epoch)>;

fn by_controller(history: &History) -> BTreeMap<&str, Calls> {
    let mut all: BTreeMap<&str, Calls> = BTreeMap::new();
    for call in &history.calls {
        let of = all.entry(&call.controller).or_default();
        of.push((call.begin, call.claim.shard, call.claim.epoch));
    }
    for calls in all.values_mut() {
        calls.sort_unstable();
    }
    all
}

/// The longest time without a call that touches the few seconds after `at`.
fn longest_pause(calls: &Calls, at: Duration) -> Duration {
    let near = |pair: &&[(Duration, ShardId, Epoch)]| {
        pair[1].0 >= at && pair[0].0 <= at + Duration::from_secs(5)
    };
    let pauses = calls.windows(2).filter(near);
    pauses
        .map(|pair| pair[1].0.saturating_sub(pair[0].0.max(at)))
        .max()
        .unwrap_or_default()
}
