//! One shard from its owner to the next: warm, drain, released, and then the map. See [`HandOvers`].

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use metashard_api::id::{Epoch, Incarnation, ShardId};
use serde::{Deserialize, Serialize};

use crate::{
    leader::{Took, Why},
    message::{Claim, LastWritten, Order},
    time::{MonoTime, Now},
};

/// How long a target has to fill its caches before another one is tried.
pub const WARM_TIMEOUT: Duration = Duration::from_secs(10);

/// How long after its deadline a worker that has not released a shard is evicted.
pub const EVICT_AFTER: Duration = Duration::from_mins(1);

/// How long a shard that was moved for balance is left alone.
pub const COOL_DOWN: Duration = Duration::from_mins(1);

/// One hand-over to begin.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Begin {
    /// The ownership that is to end.
    pub claim: Claim,
    /// Its owner.
    pub from: Incarnation,
    /// The target; `None`: there is none, the owner only has to stop.
    pub to: Option<Incarnation>,
    /// Why.
    pub why: Why,
    /// How long the target has to fill its caches; `None`: it has nothing to fill.
    pub warm: Option<Duration>,
}

/// One hand-over under way, until the map gives the shard to its new owner.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HandOver {
    /// The owner that is to stop.
    pub from: Incarnation,
    /// The ownership that is to end.
    pub epoch: Epoch,
    /// The target; `None`: it went away, and the next plan finds another.
    pub to: Option<Incarnation>,
    /// Why.
    pub why: Why,
    /// When it was decided.
    pub since: MonoTime,
    step: Step,
    /// When its owner was told to stop first.
    told_at: Option<MonoTime>,
    /// When its owner was seen to have stopped.
    released_at: Option<MonoTime>,
    has_retried: bool,
    /// It holds no controller: nobody waits for it.
    is_light: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Step {
    /// The target fills its caches, for at most `patience` from when it was asked.
    Warming {
        patience: Duration,
        asked: Option<MonoTime>,
    },
    /// The owner is to stop. `told`: it was told on its present session.
    Draining { told: bool },
}

/// An ownership that its owner has given up for good.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Release {
    /// The ownership's number.
    pub epoch: Epoch,
    /// Its owner.
    pub by: Incarnation,
    /// Where its writes ended; empty if not known.
    pub last_written: Vec<LastWritten>,
}

/// What [`HandOvers::advance`] found to do.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Due {
    /// Orders to send.
    pub orders: Vec<(Incarnation, Order)>,
    /// Shards whose target did not answer in time: [`HandOvers::retarget`] each.
    pub unanswered: Vec<ShardId>,
    /// Owners that did not release in time: to be evicted.
    pub overdue: BTreeSet<Incarnation>,
}

/// All hand-overs under way, and what was released. Several run at once; nothing here needs the map but its epochs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct HandOvers {
    moves: BTreeMap<ShardId, HandOver>,
    releases: BTreeMap<ShardId, Release>,
    cooling: BTreeMap<ShardId, MonoTime>,
}

impl HandOvers {
    /// Begins one, unless the shard is on its way already.
    pub fn begin(&mut self, now: Now, begin: Begin) {
        let step = match begin.warm {
            Some(patience) if begin.to.is_some() => Step::Warming {
                patience,
                asked: None,
            },
            Some(_) | None => Step::Draining { told: false },
        };
        let is_light = begin.warm.is_none();
        self.moves.entry(begin.claim.shard).or_insert(HandOver {
            is_light,
            from: begin.from,
            epoch: begin.claim.epoch,
            to: begin.to,
            why: begin.why,
            since: now.mono,
            step,
            told_at: None,
            released_at: None,
            has_retried: false,
        });
    }

    /// Number of those under way.
    pub fn len(&self) -> usize {
        self.moves.len()
    }

    /// Whether none is under way.
    pub fn is_empty(&self) -> bool {
        self.moves.is_empty()
    }

    /// The one of `shard`.
    pub fn get(&self, shard: ShardId) -> Option<&HandOver> {
        self.moves.get(&shard)
    }

    /// What its owner said of giving up `claim`, if it did.
    pub fn release(&self, claim: Claim, owner: &Incarnation) -> Option<&Release> {
        self.releases
            .get(&claim.shard)
            .filter(|release| release.epoch == claim.epoch && release.by == *owner)
    }

    /// Whether `shard` was moved for balance within the cool-down.
    pub fn is_cooling(&self, shard: ShardId, now: Now) -> bool {
        self.cools_for(shard, now).is_some()
    }

    /// How much of its cool-down `shard` still has.
    pub fn cools_for(&self, shard: ShardId, now: Now) -> Option<Duration> {
        let until = self.cooling.get(&shard)?;
        (now.mono < *until).then(|| until.since(now.mono))
    }

    /// Whether nothing is on its way, and nothing in its cool-down.
    pub fn is_at_rest(&self, now: Now) -> bool {
        self.moves.is_empty() && self.cooling.values().all(|until| now.mono >= *until)
    }

    /// The caches of `shard` are filled at `target`.
    pub fn warm_ready(&mut self, shard: ShardId, target: &Incarnation) {
        if let Some(hand_over) = self.moves.get_mut(&shard)
            && hand_over.to.as_ref() == Some(target)
            && matches!(hand_over.step, Step::Warming { .. })
        {
            hand_over.drain();
        }
    }

    /// `by` has given up `claim`. The newest such fact of a shard is kept until the map shows a newer epoch; one that
    /// is repeated without `last_written` does not take away what the first one said.
    pub fn released(&mut self, claim: Claim, by: &Incarnation, last_written: Vec<LastWritten>) {
        let known = self.releases.get(&claim.shard);
        let is_older = known.is_some_and(|known| known.epoch > claim.epoch);
        let is_repeated = last_written.is_empty() && self.release(claim, by).is_some();
        if !is_older && !is_repeated {
            let release = Release {
                epoch: claim.epoch,
                by: by.clone(),
                last_written,
            };
            self.releases.insert(claim.shard, release);
        }
    }

    /// `incarnation` has a new session: what it was told on an older one may be lost.
    pub fn session_opened(&mut self, incarnation: &Incarnation) {
        for hand_over in self.moves.values_mut() {
            match &mut hand_over.step {
                Step::Warming { asked, .. } if hand_over.to.as_ref() == Some(incarnation) => {
                    *asked = None;
                }
                Step::Draining { told } if hand_over.from == *incarnation => *told = false,
                Step::Warming { .. } | Step::Draining { .. } => {}
            }
        }
    }

    /// Forgets what no longer makes sense: a target that `may_own` refuses is let go, and a hand-over whose drain has
    /// not begun ends with its target, or with its owner's session. Returns whether there was any.
    pub fn settle(
        &mut self,
        may_own: impl Fn(&Incarnation) -> bool,
        has_session: impl Fn(&Incarnation) -> bool,
    ) -> bool {
        let mut has_changed = false;
        self.moves.retain(|_, hand_over| {
            if hand_over.to.as_ref().is_some_and(|to| !may_own(to)) {
                hand_over.to = None;
                has_changed = true;
            }
            let keep = hand_over.was_told()
                || (has_session(&hand_over.from)
                    && (hand_over.to.is_some()
                        || matches!(hand_over.why, Why::Leaving | Why::Split)));
            has_changed |= !keep;
            keep
        });
        has_changed
    }

    /// Gives `shard` another target, that is warmed next; `None`: there is no other, drain without.
    pub fn retarget(&mut self, shard: ShardId, to: Option<Incarnation>) {
        let Some(hand_over) = self.moves.get_mut(&shard) else {
            return;
        };
        match (&mut hand_over.step, to) {
            (Step::Warming { asked, .. }, Some(to)) => {
                *asked = None;
                hand_over.to = Some(to);
                hand_over.has_retried = true;
            }
            (Step::Warming { .. }, None) => hand_over.drain(),
            (Step::Draining { .. }, Some(to)) => hand_over.to = Some(to),
            (Step::Draining { .. }, None) => {}
        }
    }

    /// Whether an owner that was told to stop has not done so yet: more is about to become free. `with_light`: also if
    /// what it gives up holds no controller.
    pub fn awaits_release(&self, with_light: bool) -> bool {
        self.unreleased()
            .any(|hand_over| hand_over.was_told() && (with_light || !hand_over.is_light))
    }

    /// Takes each hand-over a step further. `grace` is for running hook calls.
    ///
    /// Of one owner, the shards that hold controllers go first: the many that hold none must not stand in their way.
    pub fn advance(
        &mut self,
        now: Now,
        grace: Duration,
        has_session: impl Fn(&Incarnation) -> bool,
    ) -> Due {
        let busy: BTreeSet<Incarnation> = self
            .unreleased()
            .filter(|hand_over| !hand_over.is_light)
            .map(|hand_over| hand_over.from.clone())
            .collect();
        let mut due = Due::default();
        for (shard, hand_over) in &mut self.moves {
            let waits =
                hand_over.is_light && !hand_over.was_told() && busy.contains(&hand_over.from);
            if !waits {
                hand_over.advance(now, *shard, grace, &has_session, &mut due);
            }
            let release = self.releases.get(shard);
            if release.is_some_and(|it| it.epoch == hand_over.epoch && it.by == hand_over.from) {
                hand_over.released_at.get_or_insert(now.mono);
            }
        }
        self.cooling.retain(|_, until| now.mono < *until);
        due
    }

    /// When [`Self::advance`] may find something next; in the future of `now`.
    pub fn poll_timeout(&self, now: Now, grace: Duration) -> Option<MonoTime> {
        self.moves
            .values()
            .filter_map(|hand_over| hand_over.due(grace))
            .filter(|due| *due > now.mono)
            .min()
    }

    /// The map gives `shard` to its new owner: it is done.
    pub fn finish(&mut self, now: Now, shard: ShardId) {
        self.releases.remove(&shard);
        if let Some(hand_over) = self.moves.remove(&shard)
            && hand_over.why.is_voluntary()
        {
            self.cooling.insert(shard, now.mono + COOL_DOWN);
        }
    }

    fn unreleased(&self) -> impl Iterator<Item = &HandOver> {
        self.moves.iter().filter_map(|(shard, hand_over)| {
            let claim = Claim {
                shard: *shard,
                epoch: hand_over.epoch,
            };
            let is_released = self.release(claim, &hand_over.from).is_some();
            (!is_released).then_some(hand_over)
        })
    }
}

impl HandOver {
    /// Whether the owner was told to stop: that cannot be recalled.
    pub fn is_draining(&self) -> bool {
        matches!(self.step, Step::Draining { .. })
    }

    /// How long it took, if the map says so now.
    pub fn took(&self, now: Now) -> Took {
        let stopped = self.released_at.or(self.told_at);
        Took {
            warm: (!self.is_light)
                .then(|| self.told_at.map(|told| told.since(self.since)))
                .flatten(),
            drain: self
                .told_at
                .and_then(|told| Some(self.released_at?.since(told))),
            assign: now.mono.since(stopped.unwrap_or(self.since)),
            total: now.mono.since(self.since),
        }
    }

    /// Whether the owner was told to stop, on whatever session.
    fn was_told(&self) -> bool {
        self.told_at.is_some()
    }

    fn drain(&mut self) {
        self.step = Step::Draining { told: false };
    }

    fn advance(
        &mut self,
        now: Now,
        shard: ShardId,
        grace: Duration,
        has_session: &impl Fn(&Incarnation) -> bool,
        due: &mut Due,
    ) {
        if let Step::Warming { patience, asked } = &mut self.step
            && let Some(to) = &self.to
        {
            match *asked {
                None => {
                    if has_session(to) {
                        due.orders.push((to.clone(), Order::Warm { shard }));
                    }
                    *asked = Some(now.mono);
                }
                Some(asked) if now.mono < asked + *patience => {}
                Some(_) if self.has_retried => self.drain(),
                Some(_) => due.unanswered.push(shard),
            }
        }
        if let Step::Draining { told } = &mut self.step {
            if !*told && has_session(&self.from) {
                let claim = Claim {
                    shard,
                    epoch: self.epoch,
                };
                let order = Order::Drain { claim, grace };
                due.orders.push((self.from.clone(), order));
                *told = true;
                self.told_at.get_or_insert(now.mono);
            }
            if self
                .told_at
                .is_some_and(|sent| now.mono >= sent + grace + EVICT_AFTER)
            {
                due.overdue.insert(self.from.clone());
            }
        }
    }

    fn due(&self, grace: Duration) -> Option<MonoTime> {
        match self.step {
            Step::Warming { patience, asked } => asked.map(|asked| asked + patience),
            Step::Draining { .. } => self.told_at.map(|sent| sent + grace + EVICT_AFTER),
        }
    }
}

#[cfg(test)]
mod tests;
