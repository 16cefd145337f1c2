//! Which of the maps seen counts: the newest by (term, seq) of one map object.

use std::{sync::Arc, time::Duration};

use metashard_api::id::{Seq, Term};
use serde::{Deserialize, Serialize};

use crate::{
    map::{Map, Seen},
    rules::{Rule, Rules},
    time::{MonoTime, Now},
    worker::Loss,
};

/// How long a lower map than one known of may be all that is seen, before a quorum read decides. A watch may lag.
const DOUBT: Duration = Duration::from_secs(2);

/// Pause before the map is read again after a read without an answer, or without a map.
const READ_AGAIN: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Maps {
    newest: Option<Arc<Map>>,
    /// The highest map that an order stood on.
    told: (Term, Seq),
    /// Since when there is a sign that the newest map seen is not the newest there was.
    doubt_since: Option<MonoTime>,
    reading: Option<Reading>,
    /// No read before.
    next_read: MonoTime,
    rules: Rules,
}

/// A read is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Reading {
    /// It was sent when this was the highest map known of.
    Expects((Term, Seq)),
    /// It was sent for an incarnation that is over.
    Stale,
}

/// What a sight of the map means.
pub(super) enum Verdict {
    /// Nothing new.
    Nothing,
    /// This is now the newest.
    Newer(Arc<Map>),
    /// No incarnation that stands on what was seen before may go on.
    Lost(Loss),
}

impl Maps {
    pub(super) fn new(now: Now, rules: Rules) -> Self {
        Self {
            newest: None,
            told: (Term(0), Seq(0)),
            doubt_since: None,
            reading: None,
            next_read: now.mono,
            rules,
        }
    }

    /// Forgets all: the next incarnation stands on what it reads itself.
    pub(super) fn reset(&mut self, now: Now) {
        *self = Self {
            reading: self.reading.map(|_| Reading::Stale),
            ..Self::new(now, self.rules)
        };
    }

    pub(super) fn newest(&self) -> Option<&Arc<Map>> {
        self.newest.as_ref()
    }

    /// The term below which no order is taken.
    pub(super) fn term(&self) -> Term {
        self.version().0
    }

    /// (term, seq) of the newest map seen.
    pub(super) fn version(&self) -> (Term, Seq) {
        self.newest
            .as_ref()
            .map_or((Term(0), Seq(0)), |map| map.version())
    }

    /// An order stands on `version`.
    pub(super) fn told(&mut self, now: Now, version: (Term, Seq)) {
        self.told = self.told.max(version);
        if self.told > self.version() {
            self.doubt_since.get_or_insert(now.mono);
        }
    }

    /// The watch showed the map. Before the first read this is only a sign that a read may succeed.
    pub(super) fn seen(&mut self, now: Now, seen: Seen) -> Verdict {
        if self.newest.is_none() {
            self.next_read = now.mono;
            return Verdict::Nothing;
        }
        match seen {
            // Whoever makes it anew first takes every Lease; until then the map as it was holds. So it does under one that
            // cannot be read: what this incarnation has, nobody gets without proof that it has given it up.
            Seen::Absent | Seen::Unreadable => Verdict::Nothing,
            Seen::Present(map) => self.compare(now, map),
        }
    }

    /// A read that [`Self::begin_read`] began has ended.
    pub(super) fn read(&mut self, now: Now, answer: Option<Seen>) -> Verdict {
        let expected = match self.reading.take() {
            Some(Reading::Expects(expected)) => expected,
            Some(Reading::Stale) | None => return Verdict::Nothing,
        };
        self.next_read = now.mono + READ_AGAIN;
        match answer {
            None => Verdict::Nothing,
            Some(Seen::Absent | Seen::Unreadable) => {
                self.doubt_since = None;
                Verdict::Nothing
            }
            Some(Seen::Present(map)) if self.newest.is_none() => {
                self.newest = Some(Arc::clone(&map));
                Verdict::Newer(map)
            }
            Some(Seen::Present(map)) => {
                if self.is_same_object(&map) && map.version() < expected {
                    return Verdict::Lost(Loss::MapWentBack);
                }
                self.doubt_since = None;
                self.compare(now, map)
            }
        }
    }

    /// When a read is due, other than the first one.
    pub(super) fn doubt_ends(&self) -> Option<MonoTime> {
        let since = self.doubt_since?;
        self.reading
            .is_none()
            .then(|| self.next_read.max(since + DOUBT))
    }

    /// When the first read is due.
    pub(super) fn first_read(&self) -> Option<MonoTime> {
        (self.reading.is_none() && self.newest.is_none()).then_some(self.next_read)
    }

    /// A read is sent.
    pub(super) fn begin_read(&mut self) {
        self.reading = Some(Reading::Expects(self.told.max(self.version())));
    }

    fn is_same_object(&self, map: &Map) -> bool {
        self.newest.as_ref().is_some_and(|it| it.uid == map.uid)
    }

    fn compare(&mut self, now: Now, map: Arc<Map>) -> Verdict {
        if !self.is_same_object(&map) {
            return Verdict::Lost(Loss::MapReplaced);
        }
        let known = self.version();
        let version = map.version();
        if version >= self.told.max(known) {
            self.doubt_since = None;
        } else {
            self.doubt_since.get_or_insert(now.mono);
        }
        let counts = version > known || (version < known && !self.rules.keep(Rule::NewestMap));
        if !counts {
            return Verdict::Nothing;
        }
        if let Some(newest) = &self.newest
            && newest.shard_count() != 0
            && newest.shard_count() != map.shard_count()
        {
            // Every controller belongs to another shard, whoever owns that: nothing held goes on under it.
            return Verdict::Lost(Loss::ShardsRenumbered);
        }
        self.newest = Some(Arc::clone(&map));
        Verdict::Newer(map)
    }
}
