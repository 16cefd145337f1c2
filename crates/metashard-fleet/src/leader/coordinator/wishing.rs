//! What people ask, as it is carried out: at what pace, how far it has come, and what they are told.

mod telling;

use std::collections::{BTreeMap, VecDeque};

use metashard_api::id::{Incarnation, ShardId};
use serde::{Deserialize, Serialize};

use super::{
    Coordinator, Tools,
    planning::{PLAN_EVERY, SETTLE},
};
use crate::{
    leader::{Action, plan::Plan, world::World},
    membership::earliest,
    placement::{Level, wishes::Denied},
    time::{MonoTime, Now},
    wishes::{Told, Wishes},
};

/// What a coordinator keeps of what people ask.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub(super) struct Wished {
    /// When shards were moved because somebody asked, and how many.
    moved: VecDeque<(MonoTime, usize)>,
    /// Pins that the last plan did not honour.
    denied: BTreeMap<ShardId, Denied>,
    /// The last levelling that was done in this term.
    levelled: Option<String>,
    telling: Telling,
    /// Something has happened since it was last looked whether there is news.
    is_news: bool,
}

/// How far people have been told.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
enum Telling {
    /// Not in this term, or it was not written.
    #[default]
    Nothing,
    /// It is being written.
    UnderWay(Told),
    /// It is written.
    Done(Told),
}

impl Wished {
    /// A hand-over that somebody asked for begins.
    pub(super) fn moved(&mut self, now: Now) {
        match self.moved.back_mut() {
            Some((at, n)) if *at == now.mono => *n += 1,
            Some(_) | None => self.moved.push_back((now.mono, 1)),
        }
    }
}

impl World<'_> {
    /// Most shards that change hands for one member that comes or goes, in good order.
    pub(super) fn share(&self) -> usize {
        let n_members = self.eligible().count().max(1);
        self.shards().count().div_ceil(n_members) + 2
    }
}

impl Coordinator {
    /// People ask something else than `before`.
    pub(crate) fn wishes_changed(&mut self, now: Now, before: &Wishes, tools: &Tools<'_>) {
        self.want_plan(now);
        self.is_dirty = true;
        self.wished.is_news = true;
        let world = self.world(tools);
        let was_cordoned = |it: &&Incarnation| {
            let replica = world.replica(it);
            replica.is_some_and(|it| before.cordoned.contains(it)) && !world.is_cordoned(it)
        };
        let free: Vec<Incarnation> = world.eligible().filter(was_cordoned).cloned().collect();
        if !free.is_empty() {
            // They get their share as those do that join.
            self.newcomers.extend(free);
            self.share_at = earliest(self.share_at, Some(now.mono + SETTLE));
        }
    }

    /// Whether the last thing to tell was written. If it was not, it is told at the next plan, or when the Placement is seen
    /// to be another.
    pub(crate) fn wishes_told(&mut self, is_told: bool) {
        let telling = std::mem::take(&mut self.wished.telling);
        if let (Telling::UnderWay(told), true) = (telling, is_told) {
            self.wished.telling = Telling::Done(told);
        }
    }

    /// How many shards may be moved now because somebody asked: a share in the time between two plans.
    pub(super) fn asked_budget(&mut self, now: Now, tools: &Tools<'_>) -> usize {
        let share = self.world(tools).share();
        let moved = &mut self.wished.moved;
        while moved
            .front()
            .is_some_and(|(at, _)| now.mono.since(*at) >= PLAN_EVERY)
        {
            moved.pop_front();
        }
        share.saturating_sub(moved.iter().map(|(_, n)| n).sum())
    }

    /// How even the load is to be.
    pub(super) fn level(&self, tools: &Tools<'_>) -> Level {
        if self.is_levelling(tools.wishes) {
            Level::Fine
        } else {
            Level::Rest
        }
    }

    /// The map gives shards to others.
    pub(super) fn shards_moved(&mut self) {
        self.wished.is_news = true;
    }

    /// Looks at how far `plan` comes. A levelling that had all it needed and found nothing to move is done.
    pub(super) fn judge_wishes(
        &mut self,
        now: Now,
        plan: &Plan,
        has_budget: bool,
        tools: &Tools<'_>,
    ) {
        self.wished.denied.clone_from(&plan.denied);
        self.wished.is_news = true;
        if has_budget
            && self.is_levelling(tools.wishes)
            && plan.begins.is_empty()
            && self.hand_overs.is_at_rest(now)
        {
            self.wished.levelled = Some(tools.wishes.rebalance.clone());
        }
    }

    fn is_levelling(&self, wishes: &Wishes) -> bool {
        !wishes.rebalance.is_empty()
            && wishes.rebalance != wishes.observed_rebalance
            && self.wished.levelled.as_ref() != Some(&wishes.rebalance)
    }

    /// Tells what became of what was asked, if that is news.
    pub(super) fn tell_wishes(&mut self, tools: &Tools<'_>, out: &mut Vec<Action>) {
        let is_quiet = !matches!(self.wished.telling, Telling::UnderWay(_));
        if tools.wishes.generation == 0 || !is_quiet || !std::mem::take(&mut self.wished.is_news) {
            return;
        }
        let told = self.told(tools);
        if self.wished.telling != Telling::Done(told.clone()) {
            self.wished.telling = Telling::UnderWay(told.clone());
            out.push(Action::TellWishes(told));
        }
    }
}
