//! How a leader gets the proof that a worker is over: read, then `fenced`; or `evicted`, then wait.

use std::time::Duration;

use super::worker::{State, Worker};
use serde::{Deserialize, Serialize};

use crate::{
    lease::Request,
    record::{Holder, Record, Seen, Written},
    rules::{Rule, Rules},
    time::{MonoTime, Now},
};

/// Least time between two requests for one Lease of which the first came to nothing.
const PAUSE: Duration = Duration::from_millis(250);

/// What a leader wants of one worker's Lease, and the request under way.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub(super) struct Pursuit {
    wants_eviction: bool,
    request: InFlight,
    /// A quorum read has just shown the ended claim unchanged.
    is_confirmed: bool,
    /// How the last write ended is not known: read first.
    in_doubt: bool,
    /// No request before.
    not_before: MonoTime,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
enum InFlight {
    #[default]
    Nothing,
    Read,
    Write,
}

impl Pursuit {
    /// The record that was confirmed has changed.
    pub(super) fn forget_confirmation(&mut self) {
        self.is_confirmed = false;
    }

    /// Nothing more is wanted; what is under way is still waited for.
    pub(super) fn end(&mut self) {
        *self = Self {
            request: self.request,
            ..Self::default()
        };
    }
}

impl Worker {
    /// Returns whether that is new.
    pub(super) fn ask_eviction(&mut self) -> bool {
        let is_new = !self.pursuit.wants_eviction && !self.is_over();
        self.pursuit.wants_eviction = true;
        is_new
    }

    pub(super) fn is_writing(&self) -> bool {
        self.pursuit.request == InFlight::Write
    }

    /// When the next request is due, if one was put off.
    pub(super) fn retry_at(&self) -> Option<MonoTime> {
        (self.pursuit.request == InFlight::Nothing).then_some(self.pursuit.not_before)
    }

    /// The next request, if one is due.
    pub(super) fn pursue(&mut self, now: Now, has_ended: bool, rules: Rules) -> Option<Request> {
        let wants_eviction = match self.state {
            State::Joined | State::Silent | State::Taken => self.pursuit.wants_eviction,
            State::Missing => false,
            State::Evicting | State::Released | State::Fenced | State::Evicted | State::Gone => {
                return None;
            }
        };
        let is_busy = self.pursuit.request != InFlight::Nothing;
        if is_busy || now.mono < self.pursuit.not_before || !(has_ended || wants_eviction) {
            return None;
        }
        let may_write = !self.pursuit.in_doubt;
        let holder = if has_ended && self.pursuit.is_confirmed {
            Some(Holder::Fenced)
        } else if wants_eviction && !has_ended {
            Some(Holder::Evicted)
        } else {
            None
        };
        match (holder, self.record()) {
            (Some(holder), Some(record)) if may_write => {
                let request = write(record, holder, rules);
                self.pursuit.request = InFlight::Write;
                self.pursuit.is_confirmed = false;
                Some(request)
            }
            _ => {
                self.pursuit.request = InFlight::Read;
                Some(Request::Read)
            }
        }
    }

    pub(super) fn read(&mut self, now: Now, seen: Option<Seen>, renewing_since: Option<MonoTime>) {
        if self.pursuit.request != InFlight::Read {
            return;
        }
        self.pursuit.request = InFlight::Nothing;
        let Some(seen) = seen else {
            self.pursuit.not_before = now.mono + PAUSE;
            return;
        };
        self.pursuit.in_doubt = false;
        let is_absent = seen == Seen::Absent;
        let is_unchanged = !self.see(now, seen);
        let has_ended = is_unchanged
            && self
                .ends_at(renewing_since)
                .is_some_and(|end| now.mono >= end);
        if has_ended && is_absent {
            self.prove_gone(now);
        } else {
            self.pursuit.is_confirmed = has_ended;
        }
    }

    pub(super) fn written(&mut self, now: Now, written: Written<Record>) {
        if self.pursuit.request != InFlight::Write {
            return;
        }
        self.pursuit.request = InFlight::Nothing;
        match written {
            Written::Accepted(record) => {
                self.see(now, Seen::Present(record));
            }
            Written::Conflict | Written::Refused(_) | Written::Unknown => {
                self.pursuit.in_doubt = true;
                self.pursuit.not_before = now.mono + PAUSE;
            }
        }
    }
}

/// `holder` over exactly `record`, which orders it against a late renewal: one of the two gets a conflict.
fn write(record: &Record, holder: Holder, rules: Rules) -> Request {
    let mut write = record.clone();
    if holder == Holder::Fenced && !rules.keep(Rule::FenceByVersion) {
        write.uid = String::new();
        write.resource_version = String::new();
    }
    write.holder = holder;
    Request::Put(write)
}
