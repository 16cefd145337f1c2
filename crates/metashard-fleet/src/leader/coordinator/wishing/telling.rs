//! The conditions of a Placement: what became of each thing that is asked, by the field that asks it.

use std::collections::BTreeSet;

use metashard_api::{
    id::{ReplicaId, ShardId},
    names::{condition, reason},
};

use super::{super::Tools, Coordinator};
use crate::{
    leader::world::World,
    membership::State,
    placement::wishes::Denied,
    wishes::{Finding, Pin, Pinned, Told},
};

/// Most things that one message names.
const MOST: usize = 5;

impl Coordinator {
    /// The status as it should be.
    pub(super) fn told(&self, tools: &Tools<'_>) -> Told {
        let world = self.world(tools);
        let wishes = tools.wishes;
        let is_levelling = self.is_levelling(wishes);
        let observed = if is_levelling {
            &wishes.observed_rebalance
        } else {
            &wishes.rebalance
        };
        Told {
            generation: wishes.generation,
            observed_rebalance: observed.clone(),
            findings: vec![
                world.accepted(),
                world.resolved(),
                world.drained(),
                self.pins_honoured(&world),
                levelled(&wishes.rebalance, is_levelling),
            ],
        }
    }

    fn pins_honoured(&self, world: &World<'_>) -> Finding {
        let mut missing = Vec::new();
        let mut is_waiting = false;
        for (shard, index) in world.pinned() {
            let Some(pin) = world.wishes.pins.get(index) else {
                continue;
            };
            let replica = &pin.replica;
            let owner = world.owner(shard).0;
            let is_there = owner.is_some_and(|it| world.replica(it) == Some(replica));
            let denied = self.wished.denied.get(&shard);
            let is_alive = world
                .eligible()
                .any(|it| world.replica(it) == Some(replica));
            let why = match denied {
                _ if is_there => continue,
                _ if !is_alive => format!("waits for replica {replica}"),
                Some(Denied::Cordoned) => format!("replica {replica} is cordoned"),
                Some(Denied::NoRoom) => {
                    format!("replica {replica} has no room for the caches that it needs")
                }
                Some(Denied::Held) => "cannot leave its owner, which has no session".to_owned(),
                Some(Denied::Unknown) | None => {
                    missing.push(format!(
                        "spec.pins[{index}]: shard {shard} is on its way to {replica}"
                    ));
                    continue;
                }
            };
            is_waiting = true;
            missing.push(format!("spec.pins[{index}]: shard {shard} {why}"));
        }
        if world.wishes.pins.is_empty() {
            return not_asked(condition::PINNED, "nothing is pinned");
        }
        let reason = if is_waiting {
            reason::WAITING
        } else {
            reason::IN_PROGRESS
        };
        finding(
            condition::PINNED,
            &missing,
            (
                reason::DONE,
                "all shards that are pinned are where they should be",
            ),
            reason,
        )
    }
}

impl World<'_> {
    /// Whether what is asked makes sense.
    fn accepted(&self) -> Finding {
        let mut wrong = Vec::new();
        let n_shards = self.map.spec.shard_count;
        for (index, pin) in self.wishes.pins.iter().enumerate() {
            match &pin.what {
                Pinned::Unclear => {
                    wrong.push(format!("spec.pins[{index}]: name one of shard and controller"));
                }
                Pinned::Shard(shard) if *shard >= n_shards => wrong.push(format!(
                    "spec.pins[{index}].shard: {shard} is not below {n_shards}, the number of shards"
                )),
                Pinned::Shard(_) | Pinned::Controller(..) => {}
            }
        }
        let first = self.pinned();
        for (index, pin) in self.wishes.pins.iter().enumerate() {
            for shard in self.shards_pinned_by(index) {
                wrong.extend(self.contradiction(index, pin, shard, first.get(&shard).copied()));
            }
        }
        finding(
            condition::ACCEPTED,
            &wrong,
            (reason::VALID, "everything that is asked can be done"),
            reason::INVALID_SPEC,
        )
    }

    fn contradiction(
        &self,
        index: usize,
        pin: &Pin,
        shard: ShardId,
        first: Option<usize>,
    ) -> Option<String> {
        let before = first.filter(|it| *it != index)?;
        let other = &self.wishes.pins.get(before)?.replica;
        (*other != pin.replica).then(|| {
            format!("spec.pins[{index}]: shard {shard} is pinned to {other} by spec.pins[{before}]")
        })
    }

    /// Whether all names are of something that is there.
    fn resolved(&self) -> Finding {
        let known: BTreeSet<&ReplicaId> = self
            .membership
            .workers()
            .filter(|(_, worker)| worker.state() == State::Joined)
            .filter_map(|(_, worker)| worker.replica())
            .collect();
        let mut missing = Vec::new();
        let cordoned = self.wishes.cordoned.iter().enumerate();
        let cordoned = cordoned.map(|(index, it)| (format!("spec.cordoned[{index}]"), it));
        let pins = self.wishes.pins.iter().enumerate();
        let pins = pins.map(|(index, it)| (format!("spec.pins[{index}].replica"), &it.replica));
        let replicas = cordoned.chain(pins).filter(|(_, it)| !known.contains(it));
        missing.extend(replicas.map(|(field, it)| format!("{field}: no replica {it} lives")));
        for (index, pin) in self.wishes.pins.iter().enumerate() {
            if let Pinned::Controller(name, uids) = &pin.what
                && uids.is_empty()
            {
                missing.push(format!(
                    "spec.pins[{index}].controller: there is no controller {name}"
                ));
            }
        }
        finding(
            condition::RESOLVED,
            &missing,
            (reason::FOUND, "all that is named is there"),
            reason::NOT_FOUND,
        )
    }

    /// Whether replicas that are cordoned have no shard.
    fn drained(&self) -> Finding {
        if self.wishes.cordoned.is_empty() {
            return not_asked(condition::DRAINED, "no replica is cordoned");
        }
        let owners: BTreeSet<&ReplicaId> = self
            .shards()
            .filter_map(|shard| self.replica(self.owner(shard).0?))
            .collect();
        let cordoned = self.wishes.cordoned.iter().enumerate();
        let full: Vec<String> = cordoned
            .filter(|(_, it)| owners.contains(it))
            .map(|(index, it)| format!("spec.cordoned[{index}]: replica {it} still has shards"))
            .collect();
        let why = if self.is_closed() {
            reason::NOWHERE_TO_GO
        } else {
            reason::IN_PROGRESS
        };
        finding(
            condition::DRAINED,
            &full,
            (reason::DONE, "replicas that are cordoned have no shard"),
            why,
        )
    }
}

fn levelled(asked: &str, is_levelling: bool) -> Finding {
    if asked.is_empty() {
        return not_asked(condition::LEVELLED, "no levelling was asked for");
    }
    let under_way = is_levelling.then(|| format!("spec.rebalance: {asked} is being carried out"));
    let under_way: Vec<String> = under_way.into_iter().collect();
    finding(
        condition::LEVELLED,
        &under_way,
        (
            reason::DONE,
            "the last levelling that was asked for is done",
        ),
        reason::IN_PROGRESS,
    )
}

fn not_asked(condition: &'static str, message: &str) -> Finding {
    finding(
        condition,
        &[],
        (reason::NOT_ASKED, message),
        reason::NOT_ASKED,
    )
}

/// A condition that holds unless something is `wrong`.
fn finding(
    condition: &'static str,
    wrong: &[String],
    (good, message): (&'static str, &str),
    bad: &'static str,
) -> Finding {
    let mut named = wrong.get(..MOST).unwrap_or(wrong).join("; ");
    if let Some(more) = wrong.len().checked_sub(MOST).filter(|it| *it > 0) {
        named = format!("{named}; and {more} more");
    }
    let holds = wrong.is_empty();
    Finding {
        condition: condition.into(),
        holds,
        reason: if holds { good } else { bad }.into(),
        message: if holds { message.to_owned() } else { named },
    }
}
