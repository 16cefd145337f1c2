//! Who is a worker and who was: derived from the workers' Leases, never from their sessions. See [`Membership`].

mod pursuit;
mod worker;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use metashard_api::id::{Incarnation, ReplicaId};

pub use self::worker::{State, Worker};
use serde::{Deserialize, Serialize};

use crate::{
    lease::{Observation, Request},
    record::{Record, Seen, Written},
    rules::Rules,
    time::{MonoTime, Now},
    witness::Witness,
};

/// How long the Lease of a worker that is over is kept, so that people can still look at it.
const KEPT: Duration = Duration::from_mins(10);

/// One request for the Lease of a worker.
pub(crate) type Requests = Vec<(Incarnation, Request)>;

/// What every candidate knows of the workers, so that a new leader needs no list.
///
/// Any candidate observes. Only a leader asks for proof ([`Self::pursue`]): it reads with a quorum and writes `fenced`
/// or `evicted`. What is over stays over: no incarnation comes back.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Membership {
    own_duration: Duration,
    rules: Rules,
    witness: Witness,
    /// Whether a list has been seen, so that what is not known does not exist.
    is_listed: bool,
    workers: BTreeMap<Incarnation, Worker>,
    /// A read has proven something since the last refresh.
    has_news: bool,
    wake: Option<MonoTime>,
}

/// More than half of the workers are silent at once; fencing waits for one more duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Postponed {
    /// How many are silent, or were fenced within the last duration.
    pub silent: usize,
    /// Of how many.
    pub workers: usize,
}

impl Membership {
    /// Knows nobody yet. `own_duration` is that of the observer's own Lease.
    pub fn new(own_duration: Duration, rules: Rules) -> Self {
        Self {
            own_duration,
            rules,
            witness: Witness::new(own_duration),
            is_listed: false,
            workers: BTreeMap::new(),
            has_news: false,
            wake: None,
        }
    }

    /// All workers whose Lease was seen, or is named by the map and missing.
    pub fn workers(&self) -> impl Iterator<Item = (&Incarnation, &Worker)> {
        self.workers.iter()
    }

    /// One of them.
    pub fn worker(&self, incarnation: &Incarnation) -> Option<&Worker> {
        self.workers.get(incarnation)
    }

    /// Whether `incarnation` may be given shards.
    pub fn is_joined(&self, incarnation: &Incarnation) -> bool {
        self.worker(incarnation)
            .is_some_and(|worker| worker.state() == State::Joined)
    }

    /// Whether it is proven that `incarnation` acts for no shard any more.
    pub fn is_over(&self, incarnation: &Incarnation) -> bool {
        self.worker(incarnation).is_some_and(Worker::is_over)
    }

    /// The longest duration of the observer's own and all workers' Leases.
    pub fn longest_duration(&self) -> Duration {
        self.workers
            .values()
            .map(Worker::longest)
            .fold(self.own_duration, Duration::max)
    }

    /// Takes what [`crate::lease::Hold::renewing_since`] said of the observer's own Lease at `now`.
    pub fn own_renewal(&mut self, now: Now, renewing_since: Option<MonoTime>) {
        self.witness.told(now, renewing_since);
    }

    /// All Leases that exist have been shown: what is not known does not exist.
    pub fn listed(&mut self) {
        self.is_listed = true;
    }

    /// Takes what an answer or event that was received at `now` shows of one Lease.
    pub fn see(&mut self, now: Now, incarnation: &Incarnation, seen: Seen) {
        if let Some(worker) = self.workers.get_mut(incarnation) {
            worker.see(now, seen);
        } else if let Seen::Present(_) = seen {
            self.insert(now, incarnation.clone(), None, seen);
        }
    }

    /// Takes notice of a member of the map. If a list did not show its Lease, its absence is seen now.
    pub fn expect(&mut self, now: Now, incarnation: &Incarnation, replica: &ReplicaId) {
        if self.is_listed && !self.workers.contains_key(incarnation) {
            let replica = Some(replica.clone());
            self.insert(now, incarnation.clone(), replica, Seen::Absent);
        }
    }

    /// Brings every state up to `now`. Returns whether one has changed.
    pub fn refresh(&mut self, now: Now) -> bool {
        self.witness.expire(now);
        let renewing_since = self.witness.renewing_since();
        let rules = self.rules;
        let mut has_changed = std::mem::take(&mut self.has_news);
        self.wake = None;
        for worker in self.workers.values_mut() {
            has_changed |= worker.refresh(now, renewing_since, rules);
            let due = worker.next_change(renewing_since);
            self.wake = earliest(self.wake, due.filter(|due| *due > now.mono));
        }
        has_changed
    }

    /// When time alone changes a state or makes a request due, as of the last [`Self::refresh`] or [`Self::pursue`].
    pub fn poll_timeout(&self) -> Option<MonoTime> {
        self.wake
    }

    /// Wants `incarnation` evicted; [`Self::pursue`] sees to it. Returns whether that is new.
    pub fn evict(&mut self, incarnation: &Incarnation) -> bool {
        self.workers
            .get_mut(incarnation)
            .is_some_and(Worker::ask_eviction)
    }

    /// Asks for the proof that each ended claim is over, and evicts who is to be evicted. For the leader only; call it
    /// after [`Self::refresh`].
    pub fn pursue(&mut self, now: Now, out: &mut Requests) -> Option<Postponed> {
        let renewing_since = self.witness.renewing_since();
        let postponed = self.count_silent(now);
        let patience = postponed.map_or(Duration::ZERO, |_| self.own_duration);
        let rules = self.rules;
        for (incarnation, worker) in &mut self.workers {
            let due = worker.ends_at(renewing_since).map(|end| end + patience);
            let has_ended = due.is_some_and(|due| now.mono >= due);
            if let Some(request) = worker.pursue(now, has_ended, rules) {
                out.push((incarnation.clone(), request));
            }
            for due in [due, worker.retry_at()] {
                self.wake = earliest(self.wake, due.filter(|due| *due > now.mono));
            }
        }
        postponed
    }

    /// Takes the answer to a read that [`Self::pursue`] asked for. `None`: there was none.
    pub fn read(&mut self, now: Now, incarnation: &Incarnation, seen: Option<Seen>) {
        let renewing_since = self.witness.renewing_since();
        if let Some(worker) = self.workers.get_mut(incarnation) {
            let before = worker.state();
            worker.read(now, seen, renewing_since);
            self.has_news |= worker.state() != before;
        }
    }

    /// Takes the answer to a write that [`Self::pursue`] asked for.
    pub fn written(&mut self, now: Now, incarnation: &Incarnation, written: Written<Record>) {
        if let Some(worker) = self.workers.get_mut(incarnation) {
            worker.written(now, written);
        }
    }

    /// Whether a write that [`Self::pursue`] asked for has not been answered yet.
    pub fn is_writing(&self) -> bool {
        self.workers.values().any(Worker::is_writing)
    }

    /// Forgets the workers without a Lease that `named`, the members of the map, does not hold, and returns the Leases
    /// that may be deleted: over for ten minutes, and not named.
    pub fn collect(
        &mut self,
        now: Now,
        named: &BTreeSet<Incarnation>,
    ) -> Vec<(Incarnation, Record)> {
        self.workers
            .retain(|it, worker| worker.record().is_some() || named.contains(it));
        self.workers
            .iter()
            .filter(|(it, _)| !named.contains(*it))
            .filter(|(_, worker)| worker.over_for(now).is_some_and(|it| it >= KEPT))
            .filter_map(|(it, worker)| Some((it.clone(), worker.record()?.clone())))
            .collect()
    }

    fn insert(
        &mut self,
        now: Now,
        incarnation: Incarnation,
        replica: Option<ReplicaId>,
        seen: Seen,
    ) {
        let observation = Observation::new(now, seen, self.own_duration, self.rules);
        let id = incarnation.clone();
        let worker = Worker::new(now, id, replica, observation, self.own_duration);
        self.workers.insert(incarnation, worker);
    }

    /// `Some` if more than half of the workers would be fenced within one duration.
    fn count_silent(&self, now: Now) -> Option<Postponed> {
        let renewing_since = self.witness.renewing_since();
        let mut counted = Postponed {
            silent: 0,
            workers: 0,
        };
        for worker in self.workers.values() {
            let has_ended = worker
                .ends_at(renewing_since)
                .is_some_and(|end| now.mono >= end);
            let is_fresh = worker.was_fenced_within(now, self.own_duration);
            counted.silent += usize::from(has_ended || is_fresh);
            counted.workers += usize::from(!worker.is_over() || is_fresh);
        }
        (counted.silent * 2 > counted.workers).then_some(counted)
    }
}

/// The earlier of two points in time that may be absent.
pub(crate) fn earliest(one: Option<MonoTime>, other: Option<MonoTime>) -> Option<MonoTime> {
    one.into_iter().chain(other).min()
}

#[cfg(test)]
mod tests;
