//! Replicas that join and are lost again and again: each time they get their share later, so that one that crashes over
//! and over does not move the others' shards around.
//!
//! Only the end of a membership counts. A worker that is suspended and goes on, or whose session breaks, has lost
//! nothing. A new leader begins to count anew.

use std::{collections::BTreeMap, time::Duration};

use metashard_api::id::ReplicaId;
use serde::{Deserialize, Serialize};

use crate::{leader::recent::Recent, membership::State, time::Now};

/// A replica that leaves in good order sooner than this after it joined counts as lost all the same.
const SHORT_LIFE: Duration = Duration::from_mins(1);

/// How long a replica waits for its share after its second loss; twice as long after each further one.
const FIRST_WAIT: Duration = Duration::from_secs(10);

/// Longest wait.
const LONGEST_WAIT: Duration = Duration::from_mins(5);

/// Losses of replicas, by name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub(crate) struct Flaps {
    replicas: BTreeMap<ReplicaId, Recent>,
}

impl Flaps {
    /// A membership of `replica` that lasted for `lived` has ended.
    pub(crate) fn lost(&mut self, now: Now, replica: &ReplicaId, lived: Duration, how: State) {
        self.replicas.retain(|_, it| it.is_remembered(now));
        if how == State::Released && lived >= SHORT_LIFE {
            return;
        }
        self.replicas.entry(replica.clone()).or_default().count(now);
    }

    /// How long `replica`, which joins now, waits for its share. The first loss is free.
    pub(crate) fn wait(&self, now: Now, replica: &ReplicaId) -> Duration {
        let n_losses = self.replicas.get(replica).map_or(0, |it| it.n(now));
        match n_losses.checked_sub(2) {
            None => Duration::ZERO,
            Some(more) => FIRST_WAIT
                .saturating_mul(1 << more.min(8))
                .min(LONGEST_WAIT),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Now {
        Now::default().after(Duration::from_secs(seconds))
    }

    fn replica() -> ReplicaId {
        ReplicaId::new("r")
    }

    #[test]
    fn wait_doubles_with_each_loss_and_has_an_end() {
        let mut flaps = Flaps::default();
        let mut waits = Vec::new();
        for n in 0..9 {
            waits.push(flaps.wait(at(n), &replica()).as_secs());
            flaps.lost(at(n), &replica(), Duration::from_secs(1), State::Fenced);
        }

        assert_eq!(waits, [0, 0, 10, 20, 40, 80, 160, 300, 300]);
    }

    #[test]
    fn replica_that_leaves_in_good_order_after_a_while_is_not_counted() {
        let mut flaps = Flaps::default();

        for n in 0..5 {
            flaps.lost(at(n), &replica(), SHORT_LIFE, State::Released);
        }
        assert_eq!(flaps.wait(at(5), &replica()), Duration::ZERO);

        for n in 0..5 {
            flaps.lost(at(n), &replica(), SHORT_LIFE / 2, State::Released);
        }
        assert!(flaps.wait(at(5), &replica()) > Duration::ZERO);
    }

    #[test]
    fn losses_are_forgotten() {
        let mut flaps = Flaps::default();
        for n in 0..5 {
            flaps.lost(at(n), &replica(), Duration::ZERO, State::Gone);
        }

        assert_eq!(flaps.wait(at(601), &replica()), Duration::ZERO);
    }
}
