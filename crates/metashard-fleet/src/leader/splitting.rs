//! Which controllers should be split otherwise: because their spec says so, or for what they cost.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use metashard_api::{
    id::ControllerUid,
    shard_map::{MAX_SLICES, can_be_slices},
};
use serde::{Deserialize, Serialize};

use crate::{
    leader::{cost::Costs, world::World},
    shard::{Layout, Recut},
    time::{MonoTime, Now},
};

/// All controllers, and into how many slices their spec asks them to be split.
pub(crate) type Asked = BTreeMap<ControllerUid, Option<u16>>;

/// How long a controller has to be hot before it is split for it: a first sync of all parents is hot, and over soon.
const HOT_FOR: Duration = Duration::from_secs(15);

/// How long a split controller has to be cold before it is merged again.
pub(crate) const MERGE_AFTER: Duration = Duration::from_mins(30);

/// How long a controller that was split or merged is not so for what it costs; nor at all, if that failed.
const LET_BE: Duration = Duration::from_mins(1);

/// A controller that costs less, in microseconds for each second, is not split for it.
const LEAST: u64 = 50_000;

/// Slices are to cost at most this part of the mean of a worker: placement then can be as even as it should be.
const SLICES_OF_MEAN: u64 = 8;

/// What has been noticed of controllers so far.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub(crate) struct Splitting {
    /// Since when a controller, or a slice of it, costs too much.
    hot: BTreeMap<ControllerUid, MonoTime>,
    /// Since when a split one costs little.
    cold: BTreeMap<ControllerUid, MonoTime>,
    /// Until when one is let be that was split or merged.
    resting: BTreeMap<ControllerUid, MonoTime>,
    /// Until when one is let be for which that failed.
    failed: BTreeMap<ControllerUid, MonoTime>,
}

/// What decisions are made from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look<'a> {
    pub(crate) asked: &'a Asked,
    pub(crate) layout: &'a Layout,
    /// Nothing is on its way: what things cost can be trusted.
    pub(crate) is_calm: bool,
    /// How long a controller has to be cold.
    pub(crate) merge_after: Duration,
}

/// What one controller costs.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    total: u64,
    /// Of its heaviest slice.
    heaviest: u64,
}

impl Splitting {
    /// The controllers that should be split otherwise.
    pub(crate) fn decide(
        &mut self,
        now: Now,
        world: &World<'_>,
        look: &Look<'_>,
    ) -> BTreeMap<ControllerUid, Recut> {
        self.resting.retain(|_, until| now.mono < *until);
        self.failed.retain(|_, until| now.mono < *until);
        let asked: BTreeMap<_, _> = look.asked_otherwise().collect();
        let mut by_cost = self.by_cost(now, world, look);
        by_cost.retain(|(controller, _)| !self.resting.contains_key(controller));
        let changes = asked.into_iter().chain(by_cost);
        changes
            .filter(|(controller, _)| !self.failed.contains_key(controller))
            .collect()
    }

    /// `controller` was split or merged.
    pub(crate) fn done(&mut self, now: Now, controller: &ControllerUid) {
        self.hot.remove(controller);
        self.cold.remove(controller);
        self.resting.insert(controller.clone(), now.mono + LET_BE);
    }

    /// `controller` could not be split or merged.
    pub(crate) fn failed(&mut self, now: Now, controller: &ControllerUid) {
        self.failed.insert(controller.clone(), now.mono + LET_BE);
    }

    fn by_cost(
        &mut self,
        now: Now,
        world: &World<'_>,
        look: &Look<'_>,
    ) -> Vec<(ControllerUid, Recut)> {
        let n_workers = world.eligible().count() as u64;
        if !look.is_calm || n_workers == 0 || !world.knows_costs() {
            self.hot.clear();
            return Vec::new();
        }
        let mean = world.total_cost() / n_workers;
        let costs = of_controllers(&world.peers.costs, look.layout);
        let mut changes = Vec::new();
        let (mut hot, mut cold) = (BTreeSet::new(), BTreeSet::new());
        for (controller, _) in look.asked.iter().filter(|(_, asked)| asked.is_none()) {
            let before = look.layout.slices(controller);
            let cost = costs.get(controller).copied().unwrap_or_default();
            let (since, length, after) = if n_workers > 1 && cost.is_hot(mean, before) {
                hot.insert(controller);
                let after = slices_for(cost.total, mean).max(before * 2);
                (&mut self.hot, HOT_FOR, after.min(MAX_SLICES))
            } else if before > 1 && cost.is_cold(mean) {
                cold.insert(controller);
                (&mut self.cold, look.merge_after, 1)
            } else {
                continue;
            };
            let since = *since.entry(controller.clone()).or_insert(now.mono);
            if now.mono.since(since) >= length {
                changes.push((controller.clone(), Recut { before, after }));
            }
        }
        self.hot.retain(|controller, _| hot.contains(controller));
        self.cold.retain(|controller, _| cold.contains(controller));
        changes
    }
}

impl Look<'_> {
    /// What specs ask for and is not so, and what is left of controllers that are gone.
    fn asked_otherwise(&self) -> impl Iterator<Item = (ControllerUid, Recut)> {
        let present = self.asked.iter().filter_map(|(controller, asked)| {
            Some((controller, (*asked).filter(|it| can_be_slices(*it))?))
        });
        let split = self.layout.split().map(|(controller, _)| controller);
        let gone = split.filter(|it| !self.asked.contains_key(*it));
        let wanted = present.chain(gone.map(|controller| (controller, 1)));
        let changes = wanted.map(|(controller, after)| {
            let before = self.layout.slices(controller);
            (controller.clone(), Recut { before, after })
        });
        changes.filter(|(_, it)| it.before != it.after)
    }
}

impl Cost {
    fn is_hot(self, mean: u64, slices: u16) -> bool {
        slices < MAX_SLICES && self.heaviest > (mean / 2).max(LEAST)
    }

    fn is_cold(self, mean: u64) -> bool {
        self.total < (mean / 4).max(LEAST / 2)
    }
}

/// The least number of slices of which none costs more than it should.
fn slices_for(cost: u64, mean: u64) -> u16 {
    let slices = (cost * SLICES_OF_MEAN).div_ceil(mean.max(1)).max(2);
    let slices = u16::try_from(slices).unwrap_or(MAX_SLICES);
    slices.min(MAX_SLICES).next_power_of_two()
}

/// What each controller costs that is known to cost something.
fn of_controllers<'a>(costs: &'a Costs, layout: &Layout) -> BTreeMap<&'a ControllerUid, Cost> {
    let mut all: BTreeMap<_, Cost> = BTreeMap::new();
    for (controller, slice, cost) in costs.controllers() {
        if slice.0 < layout.slices(controller) {
            let sum = all.entry(controller).or_default();
            sum.total = sum.total.saturating_add(cost);
            sum.heaviest = sum.heaviest.max(cost);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_costs_at_most_an_eighth_of_the_mean_of_a_worker() {
        for (cost, mean, slices) in [
            (2_000, 1_000, 16),
            (501, 1_000, 8),
            (1, 1_000, 2),
            (9_000_000, 1, 64),
            (1_000, 0, 64),
        ] {
            assert_eq!(slices_for(cost, mean), slices, "{cost} of {mean}");
        }
    }

    #[test]
    fn between_hot_and_cold_a_controller_stays_as_it_is() {
        let cost = |total| Cost {
            total,
            heaviest: total,
        };
        let mean = 1_000_000;

        let states = [240_000, 260_000, 490_000, 510_000].map(|total| {
            let cost = cost(total);
            (cost.is_cold(mean), cost.is_hot(mean, 1))
        });

        assert_eq!(
            states,
            [(true, false), (false, false), (false, false), (false, true)]
        );
        assert!(!cost(LEAST).is_hot(0, 1), "too little to be split");
        assert!(!cost(mean).is_hot(mean, MAX_SLICES), "no more slices");
    }
}
