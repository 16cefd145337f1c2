//! A count that is forgotten once nothing has been added to it for a while.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::{MonoTime, Now};

/// How long a count outlives what was counted last.
pub(crate) const REMEMBERED: Duration = Duration::from_mins(10);

/// How often something has happened lately.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub(crate) struct Recent {
    n: u32,
    /// In whole minutes: it need not be known better.
    last: MonoTime,
}

impl Recent {
    /// It has happened once more.
    pub(crate) fn count(&mut self, now: Now) {
        self.n = self.n.saturating_add(1);
        self.last = MonoTime(Duration::from_mins(now.mono.0.as_secs() / 60));
    }

    /// How often it has happened; 0 once that is forgotten.
    pub(crate) fn n(&self, now: Now) -> u32 {
        if self.is_remembered(now) { self.n } else { 0 }
    }

    /// Whether it counts still.
    pub(crate) fn is_remembered(&self, now: Now) -> bool {
        now.mono.since(self.last) < REMEMBERED
    }
}
