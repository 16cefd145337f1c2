//! The hot-loop guard: a child that is put right again and again is let be for a while, and people are told who changes it.
//!
//! Only repairs count: writes of a child whose desired state has not changed since it was last found or made as desired.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use crate::write::Write;

/// So many repairs of one child within [`WINDOW`] are a fight.
pub const REPAIRS: u32 = 10;

/// The time in which repairs are counted.
pub const WINDOW: Duration = Duration::from_mins(1);

/// How long a child is let be at first; the time doubles with each further repair.
pub const FIRST_HOLD: Duration = Duration::from_secs(5);

/// The longest time for which a child is let be.
pub const LONGEST_HOLD: Duration = Duration::from_mins(5);

/// The children of one parent that were repaired lately. Empty for nearly all parents.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(from = "Vec<Fight>", into = "Vec<Fight>")]
pub(crate) struct Fights(BTreeMap<u64, Fight>);

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Fight {
    /// Hash of the child's name.
    name: u64,
    /// Hash of what is desired of it.
    wish: u64,
    /// In this window, or in all while the child is fought over.
    repairs: u32,
    /// When the window began, or the last repair was made.
    since: Duration,
    /// Set once it is a fight.
    hot: Option<Hot>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Hot {
    until: Duration,
    hold: Duration,
    text: Box<str>,
}

impl From<Vec<Fight>> for Fights {
    fn from(all: Vec<Fight>) -> Self {
        Self(all.into_iter().map(|fight| (fight.name, fight)).collect())
    }
}

impl From<Fights> for Vec<Fight> {
    fn from(fights: Fights) -> Self {
        fights.0.into_values().collect()
    }
}

impl Fights {
    /// How long a child is still to be let be.
    pub(crate) fn hold(&self, name: u64, wish: u64, now: Duration) -> Option<Duration> {
        let hot = self.find(name, wish)?.hot.as_ref()?;
        hot.until.checked_sub(now).filter(|left| !left.is_zero())
    }

    /// Whether one more repair of this child is one too many: then its text is to be made up.
    pub(crate) fn is_next_too_many(&self, name: u64, wish: u64, now: Duration) -> bool {
        self.find(name, wish).is_some_and(|fight| {
            let in_window = now.saturating_sub(fight.since) <= WINDOW;
            fight.hot.is_some() || in_window && fight.repairs + 1 >= REPAIRS
        })
    }

    /// Notes a repair. `text` is told of the child if this was one too many; whether it was.
    pub(crate) fn repaired(
        &mut self,
        name: u64,
        wish: u64,
        now: Duration,
        text: Option<&str>,
    ) -> bool {
        let new = || Fight {
            name,
            wish,
            repairs: 0,
            since: now,
            hot: None,
        };
        let fight = self.0.entry(name).or_insert_with(new);
        if fight.wish != wish {
            *fight = new();
        }
        if fight.hot.is_none() && now.saturating_sub(fight.since) > WINDOW {
            fight.repairs = 0;
            fight.since = now;
        }
        fight.repairs += 1;
        let Some(text) = text.filter(|_| fight.repairs >= REPAIRS) else {
            return false;
        };
        let hold = fight.hot.as_ref().map_or(FIRST_HOLD, |hot| hot.hold * 2);
        let hold = hold.min(LONGEST_HOLD);
        fight.hot = Some(Hot {
            until: now + hold,
            hold,
            text: text.into(),
        });
        true
    }

    /// After a pass that looked at all children: what was let be and needed no repair any more is no fight.
    pub(crate) fn settle(&mut self, now: Duration) {
        self.0.retain(|_, fight| match &fight.hot {
            Some(hot) => hot.until > now,
            None => now.saturating_sub(fight.since) <= WINDOW,
        });
    }

    /// What is told of the children that are fought over.
    pub(crate) fn texts(&self) -> Vec<Box<str>> {
        let hot = self.0.values().filter_map(|fight| fight.hot.as_ref());
        hot.map(|hot| hot.text.clone()).collect()
    }

    /// When the first of the fights is to be looked at again.
    pub(crate) fn next(&self, now: Duration) -> Option<Duration> {
        let hot = self.0.values().filter_map(|fight| fight.hot.as_ref());
        hot.map(|hot| hot.until.saturating_sub(now)).min()
    }

    fn find(&self, name: u64, wish: u64) -> Option<&Fight> {
        self.0.get(&name).filter(|fight| fight.wish == wish)
    }
}

/// What is told of a child that is fought over. `how` it is changed, and who does it, if that can be told.
pub(crate) fn text(write: &Write, how: &str, rival: Option<String>) -> String {
    let Write {
        resource,
        namespace,
        name,
        ..
    } = write;
    let slash = if namespace.is_some() { "/" } else { "" };
    let namespace = namespace.as_deref().unwrap_or_default();
    let by = rival.map_or_else(
        || "somebody".to_owned(),
        |rival| format!("manager {rival:?}"),
    );
    format!(
        "{} {namespace}{slash}{name}: {how} by {by} each time it is put right; it is let be for a while; let only one of the two decide that",
        resource.kind
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: fn(u64) -> Duration = Duration::from_secs;

    /// A child with as many repairs as are no fight yet, made at this time.
    fn nearly(now: u64) -> Fights {
        let mut fights = Fights::default();
        for _ in 1..REPAIRS {
            assert!(!fights.is_next_too_many(1, 7, AT(now)));
            assert!(!fights.repaired(1, 7, AT(now), None));
        }
        fights
    }

    #[test]
    fn one_repair_too_many_holds_the_child() {
        let mut fights = nearly(10);

        assert!(fights.is_next_too_many(1, 7, AT(20)));
        assert!(fights.repaired(1, 7, AT(20), Some("a is fought over")));

        assert_eq!(fights.hold(1, 7, AT(20)), Some(FIRST_HOLD));
        assert_eq!(fights.hold(1, 7, AT(20) + FIRST_HOLD), None);
        assert_eq!(fights.hold(2, 7, AT(20)), None, "another child");
        assert_eq!(fights.hold(1, 8, AT(20)), None, "something else is desired");
        assert_eq!(fights.texts(), ["a is fought over".into()]);
    }

    #[test]
    fn repairs_over_a_longer_time_are_no_fight() {
        let mut fights = nearly(10);
        let late = AT(11) + WINDOW;

        assert!(!fights.is_next_too_many(1, 7, late));
        assert!(!fights.repaired(1, 7, late, Some("text")));
        fights.settle(late + WINDOW + AT(1));
        assert!(fights.0.is_empty());
    }

    #[test]
    fn each_further_repair_doubles_the_hold_up_to_a_limit() {
        let mut fights = nearly(10);
        let mut now = AT(10);
        let mut holds = Vec::new();
        for _ in 0..8 {
            assert!(fights.repaired(1, 7, now, Some("text")));
            let hold = fights.hold(1, 7, now).unwrap();
            holds.push(hold.as_secs());
            now += hold;
        }
        assert_eq!(holds, [5, 10, 20, 40, 80, 160, 300, 300]);
    }

    #[test]
    fn a_fight_is_over_when_a_hold_ends_and_nothing_is_to_be_repaired() {
        let mut fights = nearly(10);
        fights.repaired(1, 7, AT(10), Some("text"));

        fights.settle(AT(12));
        assert_eq!(fights.next(AT(12)), Some(AT(3)));
        fights.settle(AT(15));

        assert_eq!((fights.next(AT(15)), fights.texts().len()), (None, 0));
    }
}
