//! The map as a candidate knows it and a leader writes it: one write at a time, and no write in doubt.

use std::{sync::Arc, time::Duration};

use metashard_api::{
    id::{Epoch, Seq, Term},
    shard_map::ShardMapSpec,
};
use serde::{Deserialize, Serialize};

use crate::{
    leader::Action,
    map::{Map, Seen, Write},
    record::Written,
    time::{MonoTime, Now},
};

/// Least time between two requests of which the first came to nothing.
const PAUSE: Duration = Duration::from_millis(250);

/// The same where the server refuses: somebody has to mend that first.
const LONG_PAUSE: Duration = Duration::from_secs(1);

/// What is known of the map, and the request under way.
///
/// Watch events only ever bring it forward. After a write without an answer, or one that was refused, and whenever a
/// watch event shows something strange, it is in doubt: a quorum read comes before anything else.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub(crate) struct Table {
    newest: Option<Seen>,
    /// The highest numbers of any map seen: one that is made anew goes on above them.
    highest: (Term, Seq),
    highest_epoch: Epoch,
    /// Number of shards of the last map that had any.
    shard_count: u16,
    request: InFlight,
    sight: Sight,
    not_before: MonoTime,
    /// The newest map is lower than one that was seen before: it was deleted and an empty one put in its place, or etcd
    /// was set back. Or it was edited by hand. Who acts on the other one may still do so.
    is_lower: bool,
    /// The newest map was edited by hand under its own numbers.
    is_edited: bool,
    /// What was written last, until something newer is seen: of its term and leader nobody else writes anything.
    sent: Option<Arc<ShardMapSpec>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
enum InFlight {
    #[default]
    Nothing,
    Read,
    Write,
}

/// Whether what is known of the map is what there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
enum Sight {
    #[default]
    Clear,
    /// It is to be read before anything else.
    InDoubt,
    /// So it is, and what was seen last is one that this version cannot read.
    Unreadable,
}

impl Table {
    /// The newest map; `None`: not known, or there is none.
    pub(crate) fn map(&self) -> Option<&Arc<Map>> {
        match &self.newest {
            Some(Seen::Present(map)) => Some(map),
            Some(Seen::Absent | Seen::Unreadable) | None => None,
        }
    }

    /// Whether the map is there, and cannot be read.
    pub(crate) fn is_unreadable(&self) -> bool {
        self.sight == Sight::Unreadable
    }

    /// Whether neither a map nor its absence has been seen.
    pub(crate) fn is_unknown(&self) -> bool {
        self.newest.is_none()
    }

    /// Whether, as far as is known, nobody has led yet.
    pub(crate) fn nobody_led_yet(&self) -> bool {
        match &self.newest {
            Some(Seen::Absent) => self.highest.0 == Term(0),
            Some(Seen::Present(map)) => map.spec.term == Term(0) && self.highest.0 == Term(0),
            Some(Seen::Unreadable) | None => false,
        }
    }

    /// Whether a map has been lost and not been made anew.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lower || self.newest == Some(Seen::Absent)
    }

    /// Number of shards of the last map that had any; 0: none had.
    pub(crate) fn shard_count(&self) -> u16 {
        self.shard_count
    }

    /// The highest term and epoch of any map seen.
    pub(crate) fn highest(&self) -> (Term, Epoch) {
        (self.highest.0, self.highest_epoch)
    }

    /// Whether nothing is under way and nothing in doubt.
    pub(crate) fn is_settled(&self) -> bool {
        self.request == InFlight::Nothing && !self.is_in_doubt() && self.newest.is_some()
    }

    /// Whether no write is under way.
    pub(crate) fn is_quiet(&self) -> bool {
        self.request != InFlight::Write
    }

    /// Asks for a quorum read before anything else.
    pub(crate) fn doubt(&mut self) {
        if self.sight == Sight::Clear {
            self.sight = Sight::InDoubt;
        }
    }

    fn is_in_doubt(&self) -> bool {
        self.sight != Sight::Clear
    }

    /// The request that a leader needs before it may write, if one is due.
    pub(crate) fn advance(&mut self, now: Now) -> Option<Action> {
        let wants_read = self.is_in_doubt() || self.newest.is_none();
        let is_due = self.request == InFlight::Nothing && now.mono >= self.not_before;
        (wants_read && is_due).then(|| {
            self.request = InFlight::Read;
            Action::ReadMap
        })
    }

    /// When [`Self::advance`] has something to do.
    pub(crate) fn poll_timeout(&self) -> Option<MonoTime> {
        (self.is_in_doubt() && self.request == InFlight::Nothing).then_some(self.not_before)
    }

    /// Writes `spec` over `base`. Only if [`Self::is_settled`].
    pub(crate) fn write(&mut self, base: Option<Arc<Map>>, spec: ShardMapSpec) -> Action {
        self.request = InFlight::Write;
        self.sent = Some(Arc::new(spec.clone()));
        Action::WriteMap(Write { base, spec })
    }

    /// The newest map is to be written as it was before somebody edited it.
    pub(crate) fn mend(&mut self) {
        self.is_edited = true;
    }

    /// Whether it is.
    pub(crate) fn is_edited(&self) -> bool {
        self.is_edited
    }

    /// Takes a watch event.
    pub(crate) fn see(&mut self, seen: Seen) {
        if self.is_unreadable() {
            self.sight = Sight::InDoubt;
        }
        match (&self.newest, &seen) {
            (_, Seen::Unreadable) => {
                self.sight = Sight::Unreadable;
                return;
            }
            (None, Seen::Absent | Seen::Present(_)) => {}
            (Some(Seen::Absent), Seen::Absent) => return,
            (Some(Seen::Present(old)), Seen::Present(new)) if old.uid == new.uid => {
                let is_edited = new.version() == old.version() && new.spec != old.spec;
                if is_edited {
                    // Only a leader cares, and looks again.
                    self.doubt();
                    return;
                }
                if new.version() <= old.version() {
                    return;
                }
            }
            // As a leader we look again before we believe any of these.
            (Some(Seen::Present(_) | Seen::Unreadable), Seen::Absent)
            | (Some(_), Seen::Present(_)) => self.doubt(),
        }
        self.take(seen);
    }

    /// Takes the answer to a read; `None`: there was none.
    pub(crate) fn read(&mut self, now: Now, seen: Option<Seen>) {
        if self.request != InFlight::Read {
            return;
        }
        self.request = InFlight::Nothing;
        match seen {
            Some(Seen::Unreadable) => {
                // It is read again until it can be.
                self.sight = Sight::Unreadable;
                self.not_before = now.mono + LONG_PAUSE;
            }
            Some(seen) => {
                self.sight = Sight::Clear;
                self.take(seen);
            }
            None => {
                self.doubt();
                self.not_before = now.mono + PAUSE;
            }
        }
    }

    /// Takes the answer to a write.
    pub(crate) fn written(&mut self, now: Now, written: Written<Arc<Map>>) {
        if self.request != InFlight::Write {
            return;
        }
        self.request = InFlight::Nothing;
        match written {
            Written::Accepted(map) => {
                // A CRD of an older version drops fields that it does not know: what is there now is what we wrote.
                if self.sent.as_deref().is_some_and(|sent| *sent != map.spec) {
                    self.sent = Some(Arc::new(map.spec.clone()));
                }
                self.take(Seen::Present(map));
            }
            Written::Conflict => self.doubt(),
            Written::Unknown => {
                self.doubt();
                self.not_before = now.mono + PAUSE;
            }
            Written::Refused(_) => {
                self.doubt();
                self.not_before = now.mono + LONG_PAUSE;
            }
        }
    }

    /// Whether somebody has put `map` into the place of what we wrote.
    fn is_forged(&mut self, map: &Map) -> bool {
        if self.map().is_some_and(|old| map.version() <= old.version()) {
            return false;
        }
        let sent = self.sent.take_if(|sent| sent.version() <= map.version());
        sent.is_some_and(|sent| {
            let is_of_our_term = sent.term == map.spec.term && sent.leader == map.spec.leader;
            let is_it = *sent == map.spec;
            if is_it {
                self.sent = Some(sent);
            }
            is_of_our_term && !is_it
        })
    }

    fn take(&mut self, seen: Seen) {
        if let Seen::Present(map) = &seen {
            self.is_edited &= self.map().is_some_and(|old| map.version() == old.version());
            let is_known = self.map().is_some_and(|old| {
                old.uid == map.uid && old.resource_version == map.resource_version
            });
            self.is_lower =
                (self.is_lower && is_known) || map.version() < self.highest || self.is_forged(map);
            self.highest = self.highest.max(map.version());
            let epochs = map.spec.shards.iter().map(|entry| entry.epoch);
            self.highest_epoch = epochs.fold(self.highest_epoch, Epoch::max);
            let is_same = matches!(&self.newest, Some(Seen::Present(old)) if old.uid == map.uid);
            // Of one map it never changes, but by hand.
            if map.spec.shard_count > 0 && (self.shard_count == 0 || !is_same) {
                self.shard_count = map.spec.shard_count;
            }
        }
        self.newest = Some(seen);
    }
}
