//! What is known of one worker.

use std::time::Duration;

use metashard_api::id::{Incarnation, ReplicaId};

use super::pursuit::Pursuit;
use serde::{Deserialize, Serialize};

use crate::{
    lease::Observation,
    record::{About, Holder, Record, Seen},
    rules::{Rule, Rules},
    time::{MonoTime, Now},
};

/// What a worker's Lease says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum State {
    /// It holds its Lease.
    Joined,
    /// Its claim has ended as far as we have seen; it is not fenced yet.
    Silent,
    /// Its Lease is missing, and the wait for it is not over.
    Missing,
    /// Somebody else has written another holder into its Lease.
    Taken,
    /// A leader wrote `evicted`, and its duration has not passed yet.
    Evicting,
    /// It wrote an empty holder: it has released all that it held.
    Released,
    /// A leader wrote `fenced`.
    Fenced,
    /// A leader wrote `evicted`, and its duration has passed.
    Evicted,
    /// Its Lease was still missing after the wait, in a quorum read.
    Gone,
}

impl State {
    /// Whether it is proven that the worker acts no more.
    pub const fn is_over(self) -> bool {
        match self {
            Self::Joined | Self::Silent | Self::Missing | Self::Taken | Self::Evicting => false,
            Self::Released | Self::Fenced | Self::Evicted | Self::Gone => true,
        }
    }

    /// The word for logs and metric labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Joined => "joined",
            Self::Silent => "silent",
            Self::Missing => "missing",
            Self::Taken => "taken",
            Self::Evicting => "evicting",
            Self::Released => "released",
            Self::Fenced => "fenced",
            Self::Evicted => "evicted",
            Self::Gone => "gone",
        }
    }
}

/// One worker, in one incarnation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Worker {
    incarnation: Incarnation,
    replica: Option<ReplicaId>,
    pub(super) observation: Observation,
    /// When the present sight was first seen.
    since: MonoTime,
    /// When the worker itself was first seen.
    first_seen: MonoTime,
    /// The longest duration seen in its Lease or of the observer's own.
    longest: Duration,
    pub(super) state: State,
    over_since: Option<MonoTime>,
    /// When it was fenced before our eyes.
    fenced_at: Option<MonoTime>,
    pub(super) pursuit: Pursuit,
}

impl Worker {
    pub(super) fn new(
        now: Now,
        incarnation: Incarnation,
        replica: Option<ReplicaId>,
        observation: Observation,
        own_duration: Duration,
    ) -> Self {
        let longest = own_duration.max(duration_of(&observation));
        Self {
            incarnation,
            replica,
            observation,
            since: now.mono,
            first_seen: now.mono,
            longest,
            state: State::Missing,
            over_since: None,
            fenced_at: None,
            pursuit: Pursuit::default(),
        }
    }

    /// What its Lease says, as of the last refresh.
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether it is proven that it acts no more.
    pub fn is_over(&self) -> bool {
        self.state.is_over()
    }

    /// Name of its replica, as far as it is known.
    pub fn replica(&self) -> Option<&ReplicaId> {
        match self.record().map(|record| &record.holder) {
            Some(Holder::Member(replica, incarnation)) if *incarnation == self.incarnation => {
                Some(replica)
            }
            _ => self.replica.as_ref(),
        }
    }

    /// What it says of itself.
    pub fn about(&self) -> Option<&About> {
        self.record().map(|record| &record.about)
    }

    /// Its Lease as seen last.
    pub fn record(&self) -> Option<&Record> {
        match self.observation.seen() {
            Seen::Present(record) => Some(record),
            Seen::Absent => None,
        }
    }

    /// When it was first seen.
    pub fn first_seen(&self) -> MonoTime {
        self.first_seen
    }

    pub(super) fn longest(&self) -> Duration {
        self.longest
    }

    /// For how long it has been proven that it acts no more.
    pub(crate) fn over_for(&self, now: Now) -> Option<Duration> {
        self.over_since.map(|since| now.mono.since(since))
    }

    pub(super) fn was_fenced_within(&self, now: Now, length: Duration) -> bool {
        self.fenced_at
            .is_some_and(|fenced| now.mono.since(fenced) < length)
    }

    pub(super) fn see(&mut self, now: Now, seen: Seen) -> bool {
        if let Some(replica) = self.replica() {
            self.replica = Some(replica.clone());
        }
        if !self.observation.see(now, seen) {
            return false;
        }
        self.since = now.mono;
        self.longest = self.longest.max(duration_of(&self.observation));
        self.pursuit.forget_confirmation();
        if let Some(Holder::Fenced) = self.record().map(|record| &record.holder)
            && !self.is_over()
        {
            self.fenced_at = Some(now.mono);
        }
        true
    }

    /// Brings the state up to `now`. Returns whether it has changed.
    pub(super) fn refresh(
        &mut self,
        now: Now,
        renewing_since: Option<MonoTime>,
        rules: Rules,
    ) -> bool {
        if self.is_over() {
            return false;
        }
        let state = self.judge(now, renewing_since, rules);
        self.set(now, state)
    }

    /// It is missing in a quorum read, after the wait.
    pub(super) fn prove_gone(&mut self, now: Now) {
        self.fenced_at = Some(now.mono);
        self.set(now, State::Gone);
    }

    /// When its claim ends if nothing changes; `None` if that is not known, or it is over or being evicted.
    pub(super) fn ends_at(&self, renewing_since: Option<MonoTime>) -> Option<MonoTime> {
        match self.state {
            State::Joined | State::Silent | State::Missing => {
                self.observation.ends_at(renewing_since)
            }
            // What another wrote there bounds nothing: the worker may act on its own last renewal.
            State::Taken => self
                .observation
                .ends_at(renewing_since)
                .map(|end| end.max(self.since + self.longest)),
            State::Evicting | State::Released | State::Fenced | State::Evicted | State::Gone => {
                None
            }
        }
    }

    /// When time alone will change the state.
    pub(super) fn next_change(&self, renewing_since: Option<MonoTime>) -> Option<MonoTime> {
        match self.state {
            State::Evicting => Some(self.evicted_at()),
            State::Joined | State::Silent | State::Missing | State::Taken => {
                self.ends_at(renewing_since)
            }
            State::Released | State::Fenced | State::Evicted | State::Gone => None,
        }
    }

    fn judge(&self, now: Now, renewing_since: Option<MonoTime>, rules: Rules) -> State {
        let Some(record) = self.record() else {
            return State::Missing;
        };
        match &record.holder {
            Holder::Released => State::Released,
            Holder::Fenced => State::Fenced,
            Holder::Evicted if now.mono >= self.evicted_at() => State::Evicted,
            Holder::Evicted if !rules.keep(Rule::EvictionWaits) => State::Evicted,
            Holder::Evicted => State::Evicting,
            Holder::Member(_, incarnation) if *incarnation == self.incarnation => {
                if self.observation.has_ended(now, renewing_since) {
                    State::Silent
                } else {
                    State::Joined
                }
            }
            Holder::Member(..) | Holder::Foreign(_) => State::Taken,
        }
    }

    fn evicted_at(&self) -> MonoTime {
        self.since + self.longest
    }

    fn set(&mut self, now: Now, state: State) -> bool {
        let has_changed = self.state != state;
        self.state = state;
        if has_changed && state.is_over() {
            self.over_since = Some(now.mono);
            self.pursuit.end();
        }
        has_changed
    }
}

fn duration_of(observation: &Observation) -> Duration {
    match observation.seen() {
        Seen::Present(record) => record.duration,
        Seen::Absent => Duration::ZERO,
    }
}
