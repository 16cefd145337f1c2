//! What a worker can see of the invariants.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "it picks out what shows an invariant; it has no state that another input could change"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use metashard_api::id::{Epoch, Incarnation, ShardId};

use super::{Begun, maps::Maps};
use crate::{
    invariants::Invariant,
    lease,
    map::{self, Map},
    message::{FromLeader, FromWorker, Order},
    record::{Holder, Seen},
    time::Now,
    worker::{Action, Held, Input, Standing},
};

/// Watches one worker machine, call by call.
///
/// It sees I1 (the map gives to another what this worker may act for), I3 and I4 (the order of maps), I5 (it acts for what no
/// map gave it), I6 (it acts for what it has given up) and O1 (its Lease was fenced before its claim had ended).
#[derive(Debug, Default)]
pub struct WorkerMonitor {
    maps: Maps,
    incarnation: Option<Incarnation>,
    /// The newest epoch of each shard that a map has given to this incarnation.
    published: BTreeMap<ShardId, Epoch>,
    /// The newest epoch of each shard that this incarnation has given up.
    given_up: BTreeMap<ShardId, Epoch>,
    /// `None`: something else may be broken of what is held by now.
    looked: Option<Looked>,
    begun: Begun,
}

/// What was held when that was looked at last, and what of it is broken.
#[derive(Debug)]
struct Looked {
    table: Arc<BTreeMap<ShardId, Held>>,
    broken: BTreeSet<Invariant>,
}

impl WorkerMonitor {
    /// Looks at one call: what the machine was told at `now`, what it does, and what it might do before and after.
    /// Returns what is broken from here on.
    pub fn look(
        &mut self,
        now: Now,
        inputs: &[Input],
        before: &Standing,
        actions: &[Action],
        after: &Standing,
    ) -> BTreeSet<Invariant> {
        let mut broken = BTreeSet::new();
        for input in inputs {
            self.hear(now, input, before, &mut broken);
        }
        let is_new = after.incarnation() != self.incarnation.as_ref();
        if is_new {
            self.incarnation = after.incarnation().cloned();
            self.given_up.clear();
            self.published.clear();
            self.looked = None;
        }
        // A map is long, and most calls bring none.
        if is_new || inputs.iter().any(gives) {
            self.publish(inputs);
        }
        for action in actions {
            let (Action::Send(FromWorker::Released { claim: over, .. }) | Action::Drop(over)) =
                action
            else {
                continue;
            };
            let newest = self.given_up.entry(over.shard).or_default();
            *newest = over.epoch.max(*newest);
            self.looked = None;
        }
        if now.boot < after.deadline() {
            broken.extend(self.held_wrongly(after));
        }
        self.begun.of(broken)
    }

    /// What is broken of what is held. Most calls change nothing of it, and a worker may hold thousands of shards.
    fn held_wrongly(&mut self, standing: &Standing) -> BTreeSet<Invariant> {
        let table = standing.table();
        match &self.looked {
            Some(looked) if Arc::ptr_eq(&looked.table, table) => looked.broken.clone(),
            Some(_) | None => {
                let mut broken = BTreeSet::new();
                for (shard, held) in table.iter() {
                    let at_most = |of: &BTreeMap<ShardId, Epoch>| of.get(shard).copied();
                    if at_most(&self.published).is_none_or(|epoch| epoch < held.epoch) {
                        broken.insert(Invariant::TableFirst);
                    }
                    if at_most(&self.given_up).is_some_and(|epoch| held.epoch <= epoch) {
                        broken.insert(Invariant::NoResurrection);
                    }
                }
                self.looked = Some(Looked {
                    table: Arc::clone(table),
                    broken: broken.clone(),
                });
                broken
            }
        }
    }

    fn hear(
        &mut self,
        now: Now,
        input: &Input,
        before: &Standing,
        broken: &mut BTreeSet<Invariant>,
    ) {
        match input {
            Input::MapSeen(map::Seen::Present(map))
            | Input::MapRead(Some(map::Seen::Present(map))) => {
                broken.extend(self.maps.see(map));
                if now.boot < before.deadline() && gives_away(map, before) {
                    broken.insert(Invariant::Exclusive);
                }
            }
            Input::LeaseAnswered {
                incarnation,
                answer: lease::Input::Read(Some(Seen::Present(record))),
            } if before.incarnation() == Some(incarnation)
                && record.holder == Holder::Fenced
                && now.boot < before.deadline() =>
            {
                broken.insert(Invariant::OutageFencesNobody);
            }
            _ => {}
        }
    }

    /// Notes what this incarnation was given: by the newest map, or by an order that stands on one not seen yet.
    fn publish(&mut self, inputs: &[Input]) {
        let Some(own) = &self.incarnation else {
            return;
        };
        self.looked = None;
        let ordered = inputs.iter().filter_map(|input| match input {
            Input::OrderReceived(FromLeader {
                order: Order::Assign { claim, .. },
                ..
            }) => Some((claim.shard, claim.epoch)),
            _ => None,
        });
        let named = self
            .maps
            .newest()
            .into_iter()
            .flat_map(|map| owned(map, own));
        for (shard, epoch) in named.chain(ordered) {
            let newest = self.published.entry(shard).or_default();
            *newest = epoch.max(*newest);
        }
    }
}

/// Whether an input may give something to this worker.
fn gives(input: &Input) -> bool {
    matches!(
        input,
        Input::MapSeen(_) | Input::MapRead(_) | Input::OrderReceived(_)
    )
}

/// Whether a map names another owner, at a newer epoch, for something that is held.
fn gives_away(map: &Arc<Map>, standing: &Standing) -> bool {
    standing.shards().any(|(shard, held)| {
        map.spec.owner(shard).is_some_and(|(owner, epoch)| {
            let is_other = standing
                .incarnation()
                .is_none_or(|own| own.as_str() != owner.incarnation);
            is_other && epoch > held.epoch
        })
    })
}

fn owned<'a>(map: &'a Map, own: &'a Incarnation) -> impl Iterator<Item = (ShardId, Epoch)> + 'a {
    let member = map
        .spec
        .members
        .iter()
        .position(|it| it.incarnation == own.as_str());
    let member = member.and_then(|it| u16::try_from(it).ok());
    (0..)
        .zip(&map.spec.shards)
        .filter_map(move |(shard, entry)| {
            let is_own = member.is_some() && entry.owner == member;
            is_own.then_some((ShardId(shard), entry.epoch))
        })
}
