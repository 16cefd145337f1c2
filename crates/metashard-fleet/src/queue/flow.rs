//! One flow: its keys, in every state that a key can be in.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use metashard_api::id::TenantId;

use crate::time::MonoTime;

use super::{Causes, Counts, fair::Share};

/// Assumed cost of an attempt until one has been measured.
const FIRST_ESTIMATE: Duration = Duration::from_millis(5);

/// The keys of one controller.
#[derive(Debug)]
pub(super) struct Flow<K> {
    pub(super) tenant: TenantId,
    /// Most keys in progress at once.
    pub(super) concurrency: u32,
    /// No key of it is handed out.
    pub(super) held: bool,
    /// Removed: only waits for its keys in progress.
    pub(super) removed: bool,
    pub(super) in_progress: u32,
    pub(super) share: Share,
    /// Moving average of what an attempt costs, in nanoseconds.
    pub(super) estimate: u64,
    /// Keys that have any state at all.
    entries: BTreeMap<K, Entry>,
    /// Keys to be handed out, and since when; first come, first served.
    ready: VecDeque<(K, MonoTime)>,
    timers: BTreeSet<(MonoTime, K, Timer)>,
    /// Where the earliest timer is listed in the queue, if it is.
    pub(super) listed_timer: Option<MonoTime>,
    adds_total: u64,
    retries_total: u64,
}

/// Why a key comes again at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// Its last attempt asked for it; void once another one begins.
    Requeue,
    /// Somebody else did.
    Delayed,
}

/// State of one key.
#[derive(Debug, Default)]
struct Entry {
    ready: bool,
    progress: Option<Progress>,
    /// When each timer goes off.
    requeue: Option<MonoTime>,
    delayed: Option<MonoTime>,
    failures: u32,
    /// Why it came, since it was handed out last.
    causes: Causes,
    /// Why each timer was set.
    requeue_because: Causes,
    delayed_because: Causes,
}

/// A key that is handed out.
#[derive(Debug)]
pub(super) struct Taken<K> {
    pub(super) key: K,
    /// Since when it was ready.
    pub(super) since: MonoTime,
    /// Failures so far.
    pub(super) failures: u32,
    pub(super) causes: Causes,
}

/// A key in progress.
#[derive(Debug, Clone, Copy)]
pub(super) struct Progress {
    /// What was charged for it in advance, in nanoseconds.
    pub(super) charged: u64,
    /// Why it came.
    pub(super) causes: Causes,
    /// It was pushed meanwhile.
    again: bool,
}

impl<K: Ord + Clone> Flow<K> {
    pub(super) fn new(tenant: TenantId, concurrency: u32) -> Self {
        Self {
            tenant,
            concurrency: concurrency.max(1),
            held: false,
            removed: false,
            in_progress: 0,
            share: Share::default(),
            estimate: u64::try_from(FIRST_ESTIMATE.as_nanos()).unwrap_or(u64::MAX),
            entries: BTreeMap::new(),
            ready: VecDeque::new(),
            timers: BTreeSet::new(),
            listed_timer: None,
            adds_total: 0,
            retries_total: 0,
        }
    }

    pub(super) fn may_be_served(&self) -> bool {
        !self.held && !self.ready.is_empty() && self.in_progress < self.concurrency
    }

    pub(super) fn depth(&self) -> usize {
        self.ready.len()
    }

    pub(super) fn counts(&self, now: MonoTime) -> Counts {
        Counts {
            depth: self.ready.len(),
            in_progress: self.in_progress,
            delayed: self.timers.len(),
            oldest_wait: self
                .ready
                .front()
                .map_or(Duration::ZERO, |(_, since)| now.since(*since)),
            adds_total: self.adds_total,
            retries_total: self.retries_total,
        }
    }

    /// Makes `key` ready, or if it is in progress, ready once that ends.
    pub(super) fn push(&mut self, now: MonoTime, key: K, causes: Causes) {
        let entry = self.entries.entry(key.clone()).or_default();
        entry.causes = entry.causes | causes;
        if let Some(progress) = &mut entry.progress {
            progress.again = true;
        } else if !entry.ready {
            entry.ready = true;
            self.ready.push_back((key, now));
            self.adds_total += 1;
        }
    }

    /// Makes `key` ready at `at`, or earlier if this timer of it is set to that.
    pub(super) fn push_at(&mut self, at: MonoTime, key: K, timer: Timer, because: Causes) {
        let entry = self.entries.entry(key.clone()).or_default();
        let slot = entry.slot(timer);
        match *slot {
            Some(earlier) if earlier <= at => return,
            Some(later) => {
                self.timers.remove(&(later, key.clone(), timer));
            }
            None => {}
        }
        *slot = Some(at);
        *entry.because(timer) = because;
        self.timers.insert((at, key, timer));
    }

    pub(super) fn next_timer(&self) -> Option<MonoTime> {
        self.timers.first().map(|(at, ..)| *at)
    }

    /// Makes ready what has come due.
    pub(super) fn fire_timers(&mut self, now: MonoTime) {
        while self.next_timer().is_some_and(|at| at <= now)
            && let Some((_, key, timer)) = self.timers.pop_first()
        {
            let mut causes = Causes::NONE;
            if let Some(entry) = self.entries.get_mut(&key) {
                *entry.slot(timer) = None;
                causes = std::mem::take(entry.because(timer));
            }
            self.push(now, key, causes);
        }
    }

    /// Hands out the key that has waited longest.
    pub(super) fn take(&mut self, charged: u64) -> Option<Taken<K>> {
        let (key, since) = self.ready.pop_front()?;
        let entry = self.entries.entry(key.clone()).or_default();
        entry.ready = false;
        let failures = entry.failures;
        let causes = std::mem::take(&mut entry.causes);
        entry.progress = Some(Progress {
            charged,
            causes,
            again: false,
        });
        self.cancel_requeue(&key);
        self.in_progress += 1;
        Some(Taken {
            key,
            since,
            failures,
            causes,
        })
    }

    /// Ends the progress of `key`; `None` if it was not in progress. If it was pushed meanwhile it is ready again.
    pub(super) fn finish(&mut self, now: MonoTime, key: &K) -> Option<Progress> {
        let progress = self.entries.get_mut(key)?.progress.take()?;
        self.in_progress -= 1;
        if progress.again {
            self.push(now, key.clone(), Causes::NONE);
        }
        Some(progress)
    }

    /// Counts a failure of `key` and gives the number of those before it.
    pub(super) fn fail(&mut self, key: &K) -> u32 {
        self.retries_total += 1;
        let Some(entry) = self.entries.get_mut(key) else {
            return 0;
        };
        let before = entry.failures;
        entry.failures = before.saturating_add(1);
        before
    }

    pub(super) fn forget_failures(&mut self, key: &K) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.failures = 0;
        }
    }

    /// Drops the state of `key` if there is nothing to remember.
    pub(super) fn tidy(&mut self, key: &K) {
        if self.entries.get(key).is_some_and(Entry::is_void) {
            self.entries.remove(key);
        }
    }

    /// Drops all but what is in progress.
    pub(super) fn clear(&mut self) {
        self.ready.clear();
        self.timers.clear();
        self.entries.retain(|_, entry| entry.progress.is_some());
        for entry in self.entries.values_mut() {
            let charged = entry.progress.map(|it| Progress { again: false, ..it });
            *entry = Entry {
                progress: charged,
                ..Entry::default()
            };
        }
    }

    fn cancel_requeue(&mut self, key: &K) {
        let set = self
            .entries
            .get_mut(key)
            .and_then(|entry| entry.requeue.take());
        if let Some(at) = set {
            self.timers.remove(&(at, key.clone(), Timer::Requeue));
        }
    }
}

impl Entry {
    fn slot(&mut self, timer: Timer) -> &mut Option<MonoTime> {
        match timer {
            Timer::Requeue => &mut self.requeue,
            Timer::Delayed => &mut self.delayed,
        }
    }

    fn because(&mut self, timer: Timer) -> &mut Causes {
        match timer {
            Timer::Requeue => &mut self.requeue_because,
            Timer::Delayed => &mut self.delayed_because,
        }
    }

    fn is_void(&self) -> bool {
        !self.ready
            && self.progress.is_none()
            && self.requeue.is_none()
            && self.delayed.is_none()
            && self.failures == 0
    }
}
