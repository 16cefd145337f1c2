//! The holder's side of one Lease: take it, renew it, and know until when one may act on it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    lease::{Config, Request, margin},
    record::{Holder, Record, Seen, Written},
    rules::Rule,
    time::{BootTime, MonoTime, Now},
};

/// What happened to one's own Lease.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Input {
    /// How the last [`Request::Create`] or [`Request::Put`] ended.
    Written(Written<Record>),
    /// What the last [`Request::Read`] showed; `None` if there was no answer.
    Read(Option<Seen>),
    /// The holder wants it no more and acts on it no more: write an empty holder into it.
    ReleaseAsked,
}

/// Where a [`Hold`] stands.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Status {
    /// No write of it was confirmed yet.
    Taking,
    /// Ours; [`Hold::deadline`] says for how long it may be acted on.
    Held,
    /// An empty holder was written.
    Released,
    /// Another's, fenced, evicted, gone, or never obtained; what a read showed instead.
    Lost(Seen),
}

/// One's own claim on one Lease, from its first write to its end.
///
/// Each attempt has a number. After a conflict or a missing answer the Lease is read, and if it shows one of our own
/// attempts whose answer never came, that is where the next one goes on from; the read itself extends nothing. So a
/// single slow call never costs a Lease, and anything else that the read shows ends the claim.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Hold {
    config: Config,
    status: Status,
    /// What the next write replaces.
    base: Base,
    /// Number of the last attempt sent.
    attempt: u64,
    /// Number of the last attempt of ours that an answer or a read showed to be in the Lease.
    known_attempt: u64,
    /// The last confirmed write.
    confirmed: Option<Confirmed>,
    request: InFlight,
    /// The next request is a read: how the last write ended is not known.
    in_doubt: bool,
    /// A create of ours met a Lease. If that one is gone by the time of the read, another may have led with it and may
    /// do so again: we did not get it.
    met_another: bool,
    releasing: bool,
    /// When the next request is due.
    next: MonoTime,
    /// No write before, so that conflicts in a row cannot become a storm.
    next_write: MonoTime,
    /// Since when every write of ours succeeded.
    renewing_since: Option<MonoTime>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Base {
    /// Nothing: the Lease does not exist.
    Nothing,
    /// The record of a claim that has ended.
    Ended(Record),
    /// A record of our own.
    Own(Record),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Confirmed {
    sent: Now,
    until: Now,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum InFlight {
    Nothing,
    Write { sent: Now },
    Read,
}

impl Hold {
    /// Takes a Lease that does not exist, by `POST`. Call [`Self::handle_timeout`] for the first request.
    pub fn create(now: Now, config: Config) -> Self {
        Self::new(now, config, Base::Nothing)
    }

    /// Takes a Lease over from a claim that has ended, by `PUT` over exactly that record.
    /// Call [`Self::handle_timeout`] for the first request.
    pub fn take_over(now: Now, config: Config, ended: Record) -> Self {
        Self::new(now, config, Base::Ended(ended))
    }

    fn new(now: Now, config: Config, base: Base) -> Self {
        Self {
            config,
            status: Status::Taking,
            base,
            attempt: 0,
            known_attempt: 0,
            confirmed: None,
            request: InFlight::Nothing,
            in_doubt: false,
            met_another: false,
            releasing: false,
            next: now.mono,
            next_write: now.mono,
            renewing_since: None,
        }
    }

    /// Where it stands.
    pub fn status(&self) -> &Status {
        &self.status
    }

    /// What it writes into the Lease.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Until when one may act on it: sending of the last confirmed write + the duration confirmed there - margin.
    /// `None`: not at all (not held yet or any more, or being released).
    pub fn deadline(&self) -> Option<BootTime> {
        self.acting_until().map(|until| until.boot)
    }

    /// When [`Self::deadline`] is reached on the clock of timers, if the machine is not suspended before.
    pub fn deadline_timer(&self) -> Option<MonoTime> {
        self.acting_until().map(|until| until.mono)
    }

    /// Since when every write of this Lease succeeded in time, as seen at `now`; `None` if the last one did not, or
    /// is overdue. Observations of others count only from there.
    pub fn renewing_since(&self, now: Now) -> Option<MonoTime> {
        let confirmed = self.confirmed?;
        (now.mono.since(confirmed.sent.mono) <= self.late_after())
            .then_some(self.renewing_since)
            .flatten()
    }

    /// Takes one input at `now`. Sends nothing itself: call [`Self::handle_timeout`] afterwards.
    pub fn handle(&mut self, now: Now, input: Input) {
        let request = std::mem::replace(&mut self.request, InFlight::Nothing);
        match input {
            Input::ReleaseAsked => {
                self.request = request;
                self.release(now);
            }
            Input::Written(written) => match request {
                InFlight::Write { sent } => self.written(now, sent, written),
                InFlight::Nothing | InFlight::Read => self.request = request,
            },
            Input::Read(seen) => match request {
                InFlight::Read => self.read(now, seen),
                InFlight::Nothing | InFlight::Write { .. } => self.request = request,
            },
        }
    }

    /// When to call [`Self::handle_timeout`] next; `None` while a request is in flight, and at the end.
    pub fn poll_timeout(&self) -> Option<MonoTime> {
        (self.request == InFlight::Nothing && !self.is_over()).then_some(self.next)
    }

    /// Sends the next request if it is due. Early or repeated calls do nothing.
    pub fn handle_timeout(&mut self, now: Now, out: &mut Vec<Request>) {
        if self.poll_timeout().is_none_or(|due| now.mono < due) {
            return;
        }
        self.next = now.mono + self.pause();
        if self.in_doubt {
            self.request = InFlight::Read;
            out.push(Request::Read);
        } else if self.releasing && !matches!(self.base, Base::Own(_)) {
            self.status = Status::Released;
        } else {
            self.attempt += 1;
            self.request = InFlight::Write { sent: now };
            self.next_write = self.next;
            out.push(self.write());
        }
    }

    fn release(&mut self, now: Now) {
        if self.is_over() {
            return;
        }
        self.releasing = true;
        if !self.in_doubt {
            self.next = now.mono;
        }
    }

    fn written(&mut self, now: Now, sent: Now, written: Written<Record>) {
        match written {
            Written::Accepted(record) => self.accepted(now, sent, record),
            Written::Conflict => {
                self.met_another = self.base == Base::Nothing;
                self.fail();
                self.next = now.mono;
            }
            // The pause since the sending, set there, keeps failures that come at once from becoming a storm.
            Written::Refused(_) | Written::Unknown => self.fail(),
        }
    }

    fn fail(&mut self) {
        self.in_doubt = true;
        self.renewing_since = None;
    }

    fn accepted(&mut self, now: Now, sent: Now, record: Record) {
        let was_renewing = self.renewing_since(now);
        let counted = if self.config.rules.keep(Rule::DeadlineFromSending) {
            sent
        } else {
            now
        };
        let acting = if self.config.rules.keep(Rule::DeadlineWithinDuration) {
            record.duration.saturating_sub(margin(record.duration))
        } else {
            record.duration * 2
        };
        self.known_attempt = self.attempt;
        self.renewing_since = was_renewing.or(Some(now.mono));
        self.status = match record.holder {
            Holder::Released => Status::Released,
            Holder::Fenced | Holder::Evicted | Holder::Member(..) | Holder::Foreign(_) => {
                Status::Held
            }
        };
        self.confirmed = Some(Confirmed {
            sent,
            until: counted.after(acting),
        });
        self.next = if self.releasing {
            now.mono
        } else {
            sent.mono + self.config.duration / 4
        };
        self.base = Base::Own(record);
    }

    fn read(&mut self, now: Now, seen: Option<Seen>) {
        let Some(seen) = seen else {
            return;
        };
        match self.judge(&seen) {
            Sight::Unchanged => {}
            Sight::OwnAttempt(record) => {
                self.known_attempt = record.attempt;
                self.base = Base::Own(record);
            }
            Sight::OwnRelease => {
                self.status = Status::Released;
                return;
            }
            Sight::Other => {
                self.renewing_since = None;
                self.status = Status::Lost(seen);
                return;
            }
        }
        self.in_doubt = false;
        self.next = self.next_write.max(now.mono);
    }

    fn judge(&self, seen: &Seen) -> Sight {
        match (seen, &self.base) {
            (Seen::Absent, Base::Nothing) if !self.met_another => Sight::Unchanged,
            (Seen::Absent, Base::Nothing | Base::Ended(_) | Base::Own(_)) => Sight::Other,
            (Seen::Present(record), Base::Nothing) => self.judge_attempt(record),
            (Seen::Present(record), Base::Ended(base) | Base::Own(base)) => {
                if record.uid != base.uid {
                    Sight::Other
                } else if record.resource_version == base.resource_version {
                    Sight::Unchanged
                } else {
                    self.judge_attempt(record)
                }
            }
        }
    }

    /// Is `record`, which is not the one that we knew, one of our own attempts whose answer never came?
    fn judge_attempt(&self, record: &Record) -> Sight {
        let unanswered = record.attempt > self.known_attempt && record.attempt <= self.attempt;
        if !unanswered {
            return Sight::Other;
        }
        match &record.holder {
            Holder::Member(_, incarnation) if *incarnation == self.config.incarnation => {
                Sight::OwnAttempt(record.clone())
            }
            Holder::Released if self.releasing => Sight::OwnRelease,
            Holder::Released
            | Holder::Fenced
            | Holder::Evicted
            | Holder::Member(..)
            | Holder::Foreign(_) => Sight::Other,
        }
    }

    fn write(&self) -> Request {
        let holder = if self.releasing {
            Holder::Released
        } else {
            self.config.holder()
        };
        let content = |uid: &str, resource_version: &str| Record {
            uid: uid.to_owned(),
            resource_version: resource_version.to_owned(),
            holder: holder.clone(),
            duration: self.config.duration,
            attempt: self.attempt,
            about: self.config.about.clone(),
        };
        match &self.base {
            Base::Nothing => Request::Create(content("", "")),
            Base::Ended(base) | Base::Own(base) => {
                let rules = self.config.rules;
                let uid = if rules.keep(Rule::RenewByUid) {
                    base.uid.as_str()
                } else {
                    ""
                };
                let version = if rules.keep(Rule::RenewByVersion) {
                    base.resource_version.as_str()
                } else {
                    ""
                };
                Request::Put(content(uid, version))
            }
        }
    }

    fn acting_until(&self) -> Option<Now> {
        match self.status {
            Status::Held if !self.releasing => self.confirmed.map(|confirmed| confirmed.until),
            Status::Held | Status::Taking | Status::Released | Status::Lost(_) => None,
        }
    }

    fn is_over(&self) -> bool {
        match self.status {
            Status::Released | Status::Lost(_) => true,
            Status::Taking | Status::Held => false,
        }
    }

    /// Least time between the sendings of two requests of which the first failed.
    fn pause(&self) -> Duration {
        self.config.duration / 16
    }

    /// A renewal is sent each quarter of the duration and answered within another: after half of it, it is late.
    fn late_after(&self) -> Duration {
        self.config.duration / 2
    }
}

/// What a read of our own Lease means.
enum Sight {
    /// The very record that our next write replaces.
    Unchanged,
    /// One of our own attempts whose answer never came.
    OwnAttempt(Record),
    /// Our own release, whose answer never came.
    OwnRelease,
    /// Not ours any more, or not obtained.
    Other,
}

#[cfg(test)]
mod tests;
