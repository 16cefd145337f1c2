//! A change of splits under way: all shards concerned are drained, then one write of the map changes it.

use std::{collections::BTreeMap, time::Duration};

use metashard_api::id::{ControllerUid, ShardId, Slice};
use serde::{Deserialize, Serialize};

use crate::{
    leader::{cost::Costs, world::World},
    shard::{Layout, Recut},
    time::{MonoTime, Now},
};

/// How long it may take, beyond the grace of hook calls: after that the shards go on as they were split before.
const PATIENCE: Duration = Duration::from_secs(10);

/// Controllers that are about to be split otherwise, all in one write.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Recutting {
    /// When it was decided.
    pub(crate) since: MonoTime,
    /// The controllers.
    pub(crate) changes: BTreeMap<ControllerUid, Recut>,
    /// Every shard concerned, and what is expected of it.
    pub(crate) shards: BTreeMap<ShardId, Expected>,
}

/// What a shard is expected to be like afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Expected {
    /// What it costs; `None`: not known.
    pub(crate) cost: Option<u64>,
    /// How many controllers, and slices of split ones, it holds.
    pub(crate) n_controllers: u32,
}

impl Recutting {
    /// Begins to make `changes`.
    pub(crate) fn begin(
        now: Now,
        world: &World<'_>,
        layout: &Layout,
        changes: BTreeMap<ControllerUid, Recut>,
    ) -> Self {
        let costs = &world.peers.costs;
        let concerned = changes.iter();
        let concerned = concerned.flat_map(|(it, recut)| layout.concerned(it, *recut));
        let mut shards: BTreeMap<ShardId, Expected> = concerned
            .map(|shard| {
                let expected = Expected {
                    cost: costs.of_shard(shard),
                    n_controllers: world.n_controllers(shard),
                };
                (shard, expected)
            })
            .collect();
        for (controller, recut) in &changes {
            let total = costs.of_controller(controller, recut.before);
            for (slice, cost) in (0..).map(Slice).zip(&total) {
                if let Some(it) = shards.get_mut(&layout.shard(controller, slice)) {
                    it.take_out(*cost);
                }
            }
            let each = total.iter().sum::<u64>() / u64::from(recut.after.max(1));
            for slice in (0..recut.after).map(Slice) {
                if let Some(it) = shards.get_mut(&layout.shard(controller, slice)) {
                    it.put_in(each);
                }
            }
        }
        Self {
            since: now.mono,
            changes,
            shards,
        }
    }

    /// When it has taken too long, with `grace` for hook calls.
    pub(crate) fn ends(&self, grace: Duration) -> MonoTime {
        self.since + grace + PATIENCE
    }

    /// Whether it concerns `shard`.
    pub(crate) fn concerns(&self, shard: ShardId) -> bool {
        self.shards.contains_key(&shard)
    }

    /// The map has changed all of it: what is known of costs is known of other slices now.
    pub(crate) fn settle(&self, now: Now, costs: &mut Costs) {
        for (shard, expected) in &self.shards {
            if let Some(cost) = expected.cost {
                costs.expect(*shard, cost);
            }
        }
        for (controller, recut) in &self.changes {
            costs.recut(now, controller, *recut);
        }
    }
}

impl Expected {
    fn take_out(&mut self, cost: u64) {
        self.cost = self.cost.map(|it| it.saturating_sub(cost));
        self.n_controllers = self.n_controllers.saturating_sub(1);
    }

    fn put_in(&mut self, cost: u64) {
        let known = if self.n_controllers == 0 {
            self.cost.or(Some(0))
        } else {
            self.cost
        };
        self.cost = known.map(|it| it.saturating_add(cost));
        self.n_controllers += 1;
    }
}
