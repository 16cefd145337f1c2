//! The observer's side of one Lease: has another's claim ended?

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    record::{Holder, Seen},
    rules::{Rule, Rules},
    time::{MonoTime, Now},
};

/// What one observer has seen of one Lease of another.
///
/// A claim has ended when this observer has seen its record unchanged for the duration written in it, counted from
/// the receipt of the first answer or event that showed it, over a time in which every renewal of the observer's own
/// Lease succeeded: who cannot write may not judge others who cannot either.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Observation {
    seen: Seen,
    since: MonoTime,
    /// The longest of the observer's own duration and those seen here: how long an absent Lease is waited out.
    longest: Duration,
    /// Whether it was present in one of the sights.
    was_present: bool,
    rules: Rules,
}

impl Observation {
    /// The first sight, received at `now`, by an observer whose own Lease lasts for `own_duration`.
    pub fn new(now: Now, seen: Seen, own_duration: Duration, rules: Rules) -> Self {
        let longest = own_duration.max(duration_of(&seen));
        Self {
            was_present: seen != Seen::Absent,
            seen,
            since: now.mono,
            longest,
            rules,
        }
    }

    /// Takes what an answer or event that was received at `now` shows. Returns whether it differs from the last sight.
    pub fn see(&mut self, now: Now, seen: Seen) -> bool {
        if is_same(&self.seen, &seen) {
            return false;
        }
        self.longest = self.longest.max(duration_of(&seen));
        self.since = now.mono;
        self.was_present |= seen != Seen::Absent;
        self.seen = seen;
        true
    }

    /// What was seen last.
    pub fn seen(&self) -> &Seen {
        &self.seen
    }

    /// Whether nobody held it in any sight: one that vanished may still be acted on.
    pub fn was_never_present(&self) -> bool {
        !self.was_present
    }

    /// Whether the claim has ended. `renewing_since` is [`super::Hold::renewing_since`] of the observer's own Lease.
    ///
    /// What says of itself that it is over needs no wait: an empty holder, and `fenced`. An absent Lease is waited out
    /// like any other record; that a map of term 0 excuses from the wait is for the caller to know.
    pub fn has_ended(&self, now: Now, renewing_since: Option<MonoTime>) -> bool {
        self.ends_at(renewing_since)
            .is_some_and(|end| now.mono >= end)
    }

    /// When the claim ends if nothing changes; `None` while the observer cannot judge.
    pub fn ends_at(&self, renewing_since: Option<MonoTime>) -> Option<MonoTime> {
        let wait = match &self.seen {
            Seen::Absent => self.longest,
            Seen::Present(record) => match record.holder {
                Holder::Released | Holder::Fenced => return Some(self.since),
                Holder::Evicted | Holder::Member(..) | Holder::Foreign(_) => record.duration,
            },
        };
        let since = if self.rules.keep(Rule::JudgeWhileRenewing) {
            self.since.max(renewing_since?)
        } else {
            self.since
        };
        Some(since + wait)
    }
}

/// Two records of one Lease are the same exactly if uid and resourceVersion are.
fn is_same(one: &Seen, other: &Seen) -> bool {
    match (one, other) {
        (Seen::Absent, Seen::Absent) => true,
        (Seen::Present(one), Seen::Present(other)) => {
            one.uid == other.uid && one.resource_version == other.resource_version
        }
        (Seen::Absent, Seen::Present(_)) | (Seen::Present(_), Seen::Absent) => false,
    }
}

fn duration_of(seen: &Seen) -> Duration {
    match seen {
        Seen::Present(record) => record.duration,
        Seen::Absent => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests;
