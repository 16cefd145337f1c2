//! One step of a roll-out: which revision each child is at, and which one moves to the latest next.
//!
//! At most one child is out of service because of us. So nothing moves while a child that was moved is not back and well, nor
//! while one is missing that an older revision will create again. A roll-out that is given up half-way for a newer
//! parent is mended first: a child that is not well moves before those that are.

use std::collections::BTreeMap;

use super::{Members, health};
use crate::{
    answer::Desired, children::Scope, controller::ChildRule, memory::hash_name, object::Object,
};

/// An older revision: the children that are at it, and those that its answer asks for.
pub(crate) struct Older {
    pub(crate) members: Members,
    pub(crate) desired: Vec<Desired>,
}

/// What a step comes to.
#[derive(Debug)]
pub(crate) struct Rolled {
    /// The children that should exist now, each as the revision that it is at has it.
    pub(crate) desired: Vec<Desired>,
    /// The children that are at the latest revision from now on.
    pub(crate) latest: Members,
    /// The same for each older one.
    pub(crate) older: Vec<Members>,
    pub(crate) progress: Progress,
    /// A hash of the children that older revisions miss; 0: none.
    pub(crate) missed: u64,
}

/// How far a roll-out is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// All children are at the latest revision.
    OnLatest,
    /// This child moves to it.
    Moving(String),
    /// Nothing moves, for this reason.
    Waiting(String),
}

/// The revision that a child is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Latest,
    /// An older one, by its index and that of the child in its answer.
    Older(usize, usize),
    /// None that would say what it should be like.
    Nowhere,
}

/// An observed child, as far as it can be had.
#[derive(Clone, Copy)]
enum Seen<'a> {
    Missing,
    /// It is being deleted.
    Going,
    There(&'a Object),
}

/// A child of a kind that is moved one at a time, which the latest revision asks for.
struct Item<'a> {
    rule: &'a ChildRule,
    desired: &'a Desired,
    seen: Seen<'a>,
    place: Place,
}

/// One step. `wanted`: the children that the latest revision asks for, in the hook's order; `latest`: those that are at it.
/// `missed`: what the last step found missing; it is not waited for twice, as it may be that it cannot be created.
pub(crate) fn roll(
    scope: &Scope<'_>,
    latest: &Members,
    wanted: Vec<Desired>,
    older: Vec<Older>,
    missed: u64,
) -> Rolled {
    let mut items = place(scope, latest, &wanted, &older);
    let (progress, missed) = advance(scope, &mut items, &older, missed);
    let mut rolled = Rolled {
        desired: Vec::new(),
        latest: Members::new(),
        older: older.iter().map(|_| Members::new()).collect(),
        progress,
        missed,
    };
    let mut places = BTreeMap::new();
    for Item { desired, place, .. } in items {
        let key = key(desired);
        match place {
            Place::Latest => drop(rolled.latest.insert(key.clone())),
            Place::Older(index, _) => {
                if let Some(members) = rolled.older.get_mut(index) {
                    members.insert(key.clone());
                }
            }
            Place::Nowhere => {}
        }
        places.insert(key, place);
    }
    let mut versions: Vec<Vec<_>> = older
        .into_iter()
        .map(|older| older.desired.into_iter().map(Some).collect())
        .collect();
    for mut desired in wanted {
        match places.get(&key(&desired)) {
            None | Some(Place::Latest) => {}
            Some(Place::Older(index, at)) => {
                let version = versions.get_mut(*index).and_then(|it| it.get_mut(*at));
                if let Some(version) = version.and_then(Option::take) {
                    desired = version;
                }
            }
            Some(Place::Nowhere) => desired.held = true,
        }
        rolled.desired.push(desired);
    }
    rolled
}

fn key(desired: &Desired) -> (usize, String) {
    (desired.rule, desired.name.clone())
}

/// Finds out where each child is. One that cannot be told from a child of the latest revision is at that.
fn place<'a>(
    scope: &'a Scope<'a>,
    latest: &Members,
    wanted: &'a [Desired],
    older: &[Older],
) -> Vec<Item<'a>> {
    let versions: Vec<BTreeMap<_, _>> = older
        .iter()
        .map(|older| {
            let desired = older.desired.iter().enumerate();
            desired.map(|(at, desired)| (key(desired), at)).collect()
        })
        .collect();
    let mut items = Vec::new();
    for desired in wanted {
        let rule = scope.controller.children.get(desired.rule);
        let Some(rule) = rule.filter(|rule| rule.rolling.is_some()) else {
            continue;
        };
        let seen = match scope.find(desired) {
            None => Seen::Missing,
            Some((_, child)) if scope.is_going(child) => Seen::Going,
            Some((_, child)) => Seen::There(child),
        };
        let key = key(desired);
        let version = older
            .iter()
            .zip(&versions)
            .enumerate()
            .find_map(|(index, (older, of))| {
                let at = of.get(&key)?;
                older.members.contains(&key).then_some((index, *at))
            });
        let place = if latest.contains(&key) {
            Place::Latest
        } else {
            version.map_or(Place::Nowhere, |(index, at)| Place::Older(index, at))
        };
        let mut item = Item {
            rule,
            desired,
            seen,
            place,
        };
        if item.is_latest_already(scope, older) {
            item.place = Place::Latest;
        }
        items.push(item);
    }
    items
}

/// Moves one child to the latest revision, if nothing speaks against it.
fn advance(
    scope: &Scope<'_>,
    items: &mut [Item<'_>],
    older: &[Older],
    missed: u64,
) -> (Progress, u64) {
    let is_missed = |it: &&Item<'_>| it.place != Place::Latest && matches!(it.seen, Seen::Missing);
    let missing = items.iter().filter(is_missed).fold(0, |hash, item| {
        let Desired {
            rule,
            name,
            namespace,
            ..
        } = item.desired;
        hash ^ hash_name(*rule, namespace.as_deref(), name)
    });
    if items.iter().all(|item| item.place == Place::Latest) {
        return (Progress::OnLatest, 0);
    }
    let is_patient = missing != missed;
    if let Some(why) = items
        .iter()
        .find_map(|item| item.obstacle(scope, is_patient))
    {
        return (Progress::Waiting(why), missing);
    }
    let waits = |item: &Item<'_>| item.place != Place::Latest;
    let next = items
        .iter()
        .position(|item| waits(item) && matches!(item.seen, Seen::Missing))
        .or_else(|| {
            items
                .iter()
                .position(|it| waits(it) && !it.is_well(scope, older))
        })
        .or_else(|| items.iter().position(waits));
    match next.and_then(|index| items.get_mut(index)) {
        Some(item) => {
            item.place = Place::Latest;
            (Progress::Moving(item.name()), missing)
        }
        None => (Progress::OnLatest, 0),
    }
}

impl Item<'_> {
    /// `Kind name`
    fn name(&self) -> String {
        format!("{} {}", self.rule.resource.kind, self.desired.name)
    }

    /// The version of the older revision that it is at.
    fn version<'b>(&self, older: &'b [Older]) -> Option<&'b Desired> {
        match self.place {
            Place::Older(index, at) => older.get(index)?.desired.get(at),
            Place::Latest | Place::Nowhere => None,
        }
    }

    /// Whether a child that is not at the latest revision belongs there without a move: it is new, or as the latest has it.
    fn is_latest_already(&self, scope: &Scope<'_>, older: &[Older]) -> bool {
        match (self.place, self.seen) {
            (Place::Nowhere, Seen::Missing | Seen::Going) => true,
            (Place::Latest, _) | (Place::Older(..), Seen::Missing | Seen::Going) => false,
            (_, Seen::There(child)) => {
                let other = self.version(older);
                let other = other.filter(|it| it.wish != self.desired.wish);
                // What is known to be as another wish has it needs no second look.
                !other.is_some_and(|it| scope.is_known(it, child))
                    && scope.is_current(self.desired, child)
            }
        }
    }

    /// Why no child can move, as far as this one is concerned.
    fn obstacle(&self, scope: &Scope<'_>, is_patient: bool) -> Option<String> {
        let name = self.name();
        match (self.seen, self.place) {
            (Seen::Missing, Place::Latest) => Some(format!("missing child {name}")),
            (Seen::Missing, _) => is_patient.then(|| format!("missing child {name}")),
            (Seen::Going, _) => Some(format!("child {name} is being deleted")),
            (Seen::There(child), Place::Latest) => {
                if !scope.is_current(self.desired, child) {
                    return Some(format!("child {name} is not updated yet"));
                }
                let trouble = health::trouble(self.rule, child)?;
                Some(format!("child {name} {trouble}"))
            }
            (Seen::There(_), _) => None,
        }
    }

    /// Whether a child that is not at the latest revision is there, as its own revision has it, and well.
    fn is_well(&self, scope: &Scope<'_>, older: &[Older]) -> bool {
        let Seen::There(child) = self.seen else {
            return false;
        };
        health::trouble(self.rule, child).is_none()
            && self
                .version(older)
                .is_none_or(|version| scope.is_current(version, child))
    }
}
