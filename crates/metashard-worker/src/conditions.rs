//! What a controller object says of itself: its conditions, computed from the health of the instance that serves it.

use std::fmt;

use metashard_api::{
    id::{Epoch, ReplicaId, ShardId},
    names::{ANNOTATION_OBSERVE, condition, reason},
};
use metashard_kube::status::Known;

/// One part of a controller's health.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    /// Whether all is well; `None` while it is not known yet.
    pub(crate) holds: Option<bool>,
    /// CamelCase, from `names::reason`.
    pub(crate) reason: &'static str,
    /// For people: object, field and fix.
    pub(crate) message: String,
}

impl Part {
    /// All is well.
    pub(crate) fn good(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            holds: Some(true),
            reason,
            message: message.into(),
        }
    }

    /// Something is wrong.
    pub(crate) fn bad(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            holds: Some(false),
            reason,
            message: message.into(),
        }
    }

    /// Not known yet.
    pub(crate) fn unknown(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            holds: None,
            reason,
            message: message.into(),
        }
    }

    /// The condition of this type that says so.
    pub(crate) fn known(&self, type_: &'static str) -> Known {
        Known {
            type_,
            is_true: self.holds,
            reason: self.reason,
            message: self.message.clone(),
        }
    }
}

/// The health of one controller as the worker that serves it knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Health {
    /// The spec is valid and served.
    pub(crate) accepted: Part,
    /// Parents and children are watched.
    pub(crate) watches: Part,
    /// The last hook call.
    pub(crate) hooks: Part,
    /// What it asks to be written is only observed.
    pub(crate) observes: bool,
    /// What stands in the way of writes, by type of condition: nothing, mostly.
    pub(crate) troubles: Vec<(&'static str, Part)>,
}

/// Who serves a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// The shard that the controller belongs to.
    pub(crate) shard: ShardId,
    /// This replica.
    pub(crate) replica: ReplicaId,
    /// Which ownership of the shard.
    pub(crate) epoch: Epoch,
    /// Into how many slices the controller is split; the shard is that of the first.
    pub(crate) slices: u16,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            shard,
            replica,
            epoch,
            slices,
        } = self;
        write!(f, "shard {shard} is served by {replica} at epoch {epoch}")?;
        if *slices > 1 {
            write!(
                f,
                "; this is the first of {slices} slices, and the conditions tell of its parents"
            )?;
        }
        Ok(())
    }
}

impl Health {
    /// Whether a controller with this health needs nobody's attention.
    pub(crate) fn is_ready(&self) -> bool {
        [&self.accepted, &self.watches]
            .iter()
            .all(|part| part.holds == Some(true))
            && self.hooks.holds != Some(false)
            && self.refusal().is_none()
    }

    /// Whether there is a trouble of this type.
    pub(crate) fn tells(&self, type_: &str) -> bool {
        self.troubles.iter().any(|(told, _)| *told == type_)
    }

    /// The refusal that somebody must do something about.
    fn refusal(&self) -> Option<(&'static str, &Part)> {
        let is_refusal = |type_: &str| matches!(type_, condition::AUTHORIZED | condition::STALLED);
        let mut troubles = self.troubles.iter();
        let found = troubles.find(|(type_, _)| is_refusal(type_))?;
        Some((found.0, &found.1))
    }

    /// The conditions that say so.
    pub(crate) fn known(&self, place: &Place) -> Vec<Known> {
        let assigned = Part::good(reason::OWNED, place.to_string());
        let mut known = vec![
            self.accepted.known(condition::ACCEPTED),
            self.watches.known(condition::WATCHES_READY),
            self.hooks.known(condition::HOOKS_READY),
            assigned.known(condition::ASSIGNED),
            self.ready().known(condition::READY),
        ];
        known.extend(self.troubles.iter().map(|(type_, part)| part.known(type_)));
        known
    }

    fn ready(&self) -> Part {
        let first_wrong = [
            (condition::ACCEPTED, &self.accepted),
            (condition::WATCHES_READY, &self.watches),
            (condition::HOOKS_READY, &self.hooks),
        ]
        .into_iter()
        .find(|(_, part)| part.holds == Some(false))
        .or_else(|| self.refusal());
        match first_wrong {
            Some((_, part)) if part.reason == reason::PAUSED => part.clone(),
            Some((type_, part)) => {
                Part::bad(reason::NOT_READY, format!("{type_}: {}", part.message))
            }
            None if self.is_ready() && self.observes => Part::good(
                reason::OBSERVING,
                format!(
                    "all conditions hold; hooks are called, and nothing is written but this ({ANNOTATION_OBSERVE})"
                ),
            ),
            None if self.is_ready() => Part::good(reason::READY, "all conditions hold"),
            None => Part::unknown(reason::NOT_READY, "the first lists have not come in yet"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place {
        Place {
            shard: ShardId(7),
            replica: ReplicaId::new("replica-0"),
            epoch: Epoch(3),
            slices: 1,
        }
    }

    fn healthy() -> Health {
        Health {
            accepted: Part::good(reason::VALID, ""),
            watches: Part::good(reason::SYNCED, ""),
            hooks: Part::unknown(reason::NOT_CALLED, "no parent yet"),
            observes: false,
            troubles: Vec::new(),
        }
    }

    fn find(health: &Health, type_: &str) -> Known {
        let mut known = health.known(&place()).into_iter();
        known.find(|known| known.type_ == type_).unwrap()
    }

    #[test]
    fn a_split_controller_says_what_its_conditions_tell_of() {
        let assigned = |slices| {
            let place = Place { slices, ..place() };
            let mut known = healthy().known(&place).into_iter();
            let assigned = known.find(|known| known.type_ == condition::ASSIGNED);
            assigned.unwrap().message
        };

        assert_eq!(assigned(1), "shard 7 is served by replica-0 at epoch 3");
        assert!(
            assigned(4).contains("the first of 4 slices"),
            "{}",
            assigned(4)
        );
    }

    #[test]
    fn a_controller_without_parents_is_ready() {
        assert_eq!(find(&healthy(), condition::READY).is_true, Some(true));
        assert_eq!(find(&healthy(), condition::HOOKS_READY).is_true, None);
    }

    #[test]
    fn ready_names_the_first_condition_that_does_not_hold() {
        let mut health = healthy();
        health.watches = Part::bad(reason::FORBIDDEN, "may not list v1/secrets");
        health.hooks = Part::bad(reason::CALL_FAILED, "connection refused");

        let ready = find(&health, condition::READY);

        assert_eq!(ready.is_true, Some(false));
        assert_eq!(ready.message, "WatchesReady: may not list v1/secrets");
    }

    #[test]
    fn ready_says_that_a_controller_is_paused_or_only_observes() {
        let mut health = healthy();
        health.observes = true;
        assert_eq!(find(&health, condition::READY).is_true, Some(true));
        assert_eq!(find(&health, condition::READY).reason, reason::OBSERVING);

        health.accepted = Part::bad(reason::PAUSED, "spec.paused is set");
        assert_eq!(find(&health, condition::READY).is_true, Some(false));
        assert_eq!(find(&health, condition::READY).reason, reason::PAUSED);
    }

    #[test]
    fn a_refused_write_makes_a_controller_unready_and_a_fight_does_not() {
        let mut health = healthy();
        health.troubles = vec![(condition::HOT_LOOP, Part::good(reason::FOUGHT_OVER, "a"))];
        assert_eq!(find(&health, condition::READY).is_true, Some(true));
        assert_eq!(find(&health, condition::HOT_LOOP).is_true, Some(true));

        let refused = Part::bad(reason::FORBIDDEN, "create Pod a: no");
        health.troubles.push((condition::AUTHORIZED, refused));

        let ready = find(&health, condition::READY);
        assert_eq!(ready.is_true, Some(false));
        assert_eq!(ready.message, "Authorized: create Pod a: no");
    }

    #[test]
    fn a_controller_whose_first_lists_are_out_is_not_ready_yet() {
        let mut health = healthy();
        health.watches = Part::unknown(reason::SYNCING, "");

        assert_eq!(find(&health, condition::READY).is_true, None);
    }
}
