//! How the coordinator splits controllers and merges them: it drains every shard concerned, and changes the map once all are
//! free.
//!
//! The parents of an ownership never change while it lives. What a worker has to know of a split is in the map that gives it
//! the ownership, so no two workers can follow two different ones for the same parent.

use std::{collections::BTreeMap, time::Duration};

use metashard_api::{
    id::{ControllerUid, ShardId},
    shard_map::Member,
};

use super::{Coordinator, Tools};
use crate::{
    handover::Begin,
    leader::{
        Action, Report, Why,
        plan::{self, Footing},
        recutting::{Expected, Recutting},
        splitting::Look,
        world::World,
    },
    message::Claim,
    rules::Rule,
    shard::{Layout, Recut},
    time::{MonoTime, Now},
};

impl Coordinator {
    /// Decides whether controllers should be split otherwise, and begins to drain for it. Returns whether that is under way.
    pub(super) fn recut_if_due(&mut self, now: Now, tools: &Tools<'_>) -> bool {
        if self.recutting.is_some() {
            return true;
        }
        let Some(asked) = tools.asked else {
            return false;
        };
        let layout = Layout::of(&self.map.spec);
        let mut splitting = std::mem::take(&mut self.splitting);
        let world = self.world(tools);
        if world.eligible().next().is_none() {
            // Nobody to give anything to.
            self.splitting = splitting;
            return false;
        }
        let look = Look {
            asked,
            layout: &layout,
            is_calm: self.is_calm(now, &world),
            merge_after: tools.merge_after,
        };
        let mut changes = splitting.decide(now, &world, &look);
        changes.retain(|controller, recut| {
            let mut shards = layout.concerned(controller, *recut).into_iter();
            shards.all(|shard| self.can_be_freed(&world, shard))
        });
        let recutting =
            (!changes.is_empty()).then(|| Recutting::begin(now, &world, &layout, changes));
        self.splitting = splitting;
        if let Some(recutting) = &recutting {
            let begins = self.drains(&self.world(tools), recutting);
            for begin in begins {
                self.hand_overs.begin(now, begin);
            }
        }
        self.recutting = recutting;
        self.recutting.is_some()
    }

    /// Gives up what takes too long: whatever was drained for it goes on as it was split before.
    pub(super) fn give_up_recutting(&mut self, now: Now, tools: &Tools<'_>) {
        let Some(recutting) = &self.recutting else {
            return;
        };
        let world = self.world(tools);
        let is_stuck =
            |shard: &ShardId| plan::footing(&world, &self.hand_overs, *shard).0 == Footing::Stuck;
        let is_over = now.mono >= recutting.ends(tools.config.drain_hook_grace);
        if is_over || recutting.shards.keys().any(is_stuck) {
            let controllers: Vec<_> = recutting.changes.keys().cloned().collect();
            for controller in &controllers {
                self.splitting.failed(now, controller);
            }
            self.recutting = None;
            self.plan_at = now.mono;
            self.is_dirty = true;
        }
    }

    /// When the next step of a split may be due, other than by a plan.
    pub(super) fn recut_timeout(&self, grace: Duration) -> Option<MonoTime> {
        let recutting = self.recutting.as_ref()?;
        Some(recutting.ends(grace))
    }

    /// What is to be changed together with `owners`, if all is free that it concerns.
    pub(super) fn recuts(
        &self,
        owners: &BTreeMap<ShardId, Member>,
        tools: &Tools<'_>,
    ) -> Option<&BTreeMap<ControllerUid, Recut>> {
        let recutting = self.recutting.as_ref()?;
        let is_free = recutting.shards.keys().all(|it| owners.contains_key(it));
        let is_ready = is_free || !tools.config.rules.keep(Rule::SplitWhenReleased);
        is_ready.then_some(&recutting.changes)
    }

    /// The map is another: if it splits controllers otherwise, they are so from here on.
    pub(super) fn take_splits(
        &mut self,
        now: Now,
        changes: &BTreeMap<ControllerUid, Recut>,
        out: &mut Vec<Action>,
    ) {
        if changes.is_empty() {
            return;
        }
        self.plan_at = now.mono;
        for (controller, recut) in changes {
            self.splitting.done(now, controller);
            out.push(Action::Report(Report::ControllerSplit {
                controller: controller.clone(),
                before: recut.before,
                after: recut.after,
            }));
        }
        if let Some(recutting) = self.recutting.take_if(|it| it.changes == *changes) {
            recutting.settle(now, &mut self.peers.costs);
        }
    }

    /// Whether nothing is on its way, so that what things cost is not the price of a move.
    fn is_calm(&self, now: Now, world: &World<'_>) -> bool {
        self.hand_overs.is_empty()
            && self.targets.is_empty()
            && self.newcomers.is_empty()
            && self.held_back.is_empty()
            && world.retiring(now).is_empty()
    }

    /// Whether `shard` has nobody, or somebody who can be told to stop.
    fn can_be_freed(&self, world: &World<'_>, shard: ShardId) -> bool {
        match plan::footing(world, &self.hand_overs, shard).0 {
            Footing::Free => true,
            Footing::Kept(owner) | Footing::Leaving(owner) => world.has_session(owner),
            Footing::Stuck => false,
        }
    }

    fn drains(&self, world: &World<'_>, recutting: &Recutting) -> Vec<Begin> {
        let begin = |(shard, expected): (&ShardId, &Expected)| {
            let (footing, epoch) = plan::footing(world, &self.hand_overs, *shard);
            let (Footing::Kept(from) | Footing::Leaving(from)) = footing else {
                return None;
            };
            let is_light = expected.n_controllers == 0 && world.n_controllers(*shard) == 0;
            Some(Begin {
                claim: Claim {
                    shard: *shard,
                    epoch,
                },
                from: from.clone(),
                to: None,
                why: Why::Split,
                // Its new owner cannot fill caches before the map says what for.
                warm: (!is_light).then_some(Duration::ZERO),
            })
        };
        recutting.shards.iter().filter_map(begin).collect()
    }
}
