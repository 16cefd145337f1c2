//! The map is gone: evict every worker, wait until none can act any more, and only then make it anew.

use std::{collections::BTreeSet, time::Duration};

use metashard_api::id::Incarnation;
use serde::{Deserialize, Serialize};

use crate::{
    membership::{Membership, State, Worker},
    time::{MonoTime, Now},
};

/// Least time between two lists of which the first came to nothing.
const PAUSE: Duration = Duration::from_millis(250);

/// The way to a new map. Its numbers begin above all that were ever given out.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Recovery {
    /// Who may still act on the old map: all whose Lease a list showed that was made after its loss was certain. `None`:
    /// that list has not come yet. Who joins later has read the new map, or none.
    suspects: Option<BTreeSet<Incarnation>>,
    /// The later of the list and the last eviction.
    since: MonoTime,
    is_listing: bool,
}

impl Recovery {
    /// Nothing done yet.
    pub(crate) fn begin(now: Now) -> Self {
        Self {
            suspects: None,
            since: now.mono,
            is_listing: false,
        }
    }

    /// Whether a list is to be asked for now.
    pub(crate) fn wants_list(&mut self, now: Now) -> bool {
        let wants = self.suspects.is_none() && !self.is_listing && now.mono >= self.since;
        self.is_listing |= wants;
        wants
    }

    /// The list has come, and `membership` has taken it; or there was no answer.
    pub(crate) fn listed(&mut self, now: Now, has_come: bool, membership: &Membership) {
        if !std::mem::take(&mut self.is_listing) {
            return;
        }
        if !has_come {
            self.since = now.mono + PAUSE;
        } else if self.suspects.is_none() {
            let suspects = membership
                .workers()
                .filter(|(_, worker)| !worker.is_over())
                .map(|(it, _)| it.clone());
            self.suspects = Some(suspects.collect());
            self.since = now.mono;
        }
    }

    /// Evicts who may still act. Returns whether nobody can any more.
    pub(crate) fn advance(&mut self, now: Now, membership: &mut Membership) -> bool {
        let Some(suspects) = &self.suspects else {
            return false;
        };
        for suspect in suspects {
            membership.evict(suspect);
        }
        let states = suspects.iter().filter_map(|it| membership.worker(it));
        let mut states = states.map(Worker::state);
        if states.any(|state| !state.is_over() && state != State::Evicting) {
            self.since = now.mono;
        }
        now.mono >= self.since + membership.longest_duration()
    }

    /// When the wait may be over; in the future of `now`.
    pub(crate) fn poll_timeout(&self, now: Now, membership: &Membership) -> Option<MonoTime> {
        let due = match &self.suspects {
            None => self.since,
            Some(_) => self.since + membership.longest_duration(),
        };
        (due > now.mono).then_some(due)
    }
}
