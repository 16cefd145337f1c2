//! Where all shards are and how they stand, for people.

use std::collections::BTreeSet;

use metashard_api::id::{Incarnation, ReplicaId, ShardId};

use super::{Coordinator, Tools};
use crate::{
    leader::{
        plan::{Footing, footing},
        world::World,
    },
    membership::{State, Worker},
    shards::{Phase, Replica, Shard, Shards, UnderWay},
    time::Now,
};

impl Coordinator {
    /// All shards.
    pub(crate) fn shards(&self, now: Now, tools: &Tools<'_>) -> Shards {
        let world = self.world(tools);
        let (typical, pinned) = (world.typical_cost(), world.pinned());
        let shards = world.shards().map(|shard| Shard {
            weight: world.weight(shard, typical),
            pinned_to: pinned
                .get(&shard)
                .and_then(|index| Some(world.wishes.pins.get(*index)?.replica.clone())),
            ..self.shard(now, &world, shard)
        });
        Shards {
            term: self.map.spec.term,
            seq: self.map.spec.seq,
            replicas: world.replicas(now),
            shards: shards.collect(),
        }
    }

    fn shard(&self, now: Now, world: &World<'_>, shard: ShardId) -> Shard {
        let (owner, epoch) = world.owner(shard);
        let hand_over = self.hand_overs.get(shard);
        let phase = match (footing(world, &self.hand_overs, shard).0, hand_over) {
            (Footing::Free, Some(_)) => Phase::Released,
            (Footing::Free, None) => Phase::Unowned,
            (Footing::Stuck, _) => Phase::Silent,
            (Footing::Kept(_) | Footing::Leaving(_), Some(it)) if it.is_draining() => {
                Phase::Draining
            }
            (Footing::Kept(_) | Footing::Leaving(_), Some(_)) => Phase::Warming,
            (Footing::Kept(_) | Footing::Leaving(_), None) => Phase::Owned,
        };
        Shard {
            owner: owner.map(|it| world.name(it)),
            phase: Some(phase),
            hand_over: hand_over.map(|it| UnderWay {
                to: it.to.as_ref().map(|it| world.name(it)),
                reason: it.why.as_str().to_owned(),
                since_seconds: now.mono.since(it.since).as_secs(),
            }),
            controllers: world.n_controllers(shard),
            cost_micros: world.peers.costs.of_shard(shard),
            cached_bytes: world.peers.costs.bytes_of(shard),
            rests_seconds: self
                .hand_overs
                .cools_for(shard, now)
                .map(|left| left.as_secs()),
            ..Shard::new(shard, epoch)
        }
    }
}

impl World<'_> {
    fn replicas(&self, now: Now) -> Vec<Replica> {
        let retiring: BTreeSet<&Incarnation> = self.retiring_members(now);
        let live = self.membership.workers();
        let live = live.filter(|(_, worker)| Worker::state(worker) == State::Joined);
        live.map(|(incarnation, _)| {
            let member = self.placement_member(incarnation, retiring.contains(incarnation));
            Replica {
                replica: member.replica,
                incarnation: incarnation.clone(),
                capacity: member.capacity,
                retiring: member.retiring,
                cordoned: self.is_cordoned(incarnation),
                leaving: self.is_leaving(incarnation),
            }
        })
        .collect()
    }

    /// Name of the replica of `member`: as its Lease says, or else as the map does.
    fn name(&self, member: &Incarnation) -> ReplicaId {
        let named = self.map.spec.members.iter();
        let mut named = named.filter(|it| it.incarnation == member.as_str());
        self.replica(member)
            .cloned()
            .or_else(|| Some(ReplicaId::new(named.next()?.replica.as_str())))
            .unwrap_or_else(|| ReplicaId::new(member.as_str()))
    }
}
