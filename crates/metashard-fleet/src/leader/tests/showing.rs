//! What a leader shows of all shards.

use std::time::Duration;

use metashard_api::id::{ReplicaId, ShardId};

use super::fleet::{Fleet, N_SHARDS, wishes::pin};
use crate::{
    placement::Level,
    rules::Rules,
    shards::{Phase, Reason, Shard, Shards},
    wishes::Pinned,
};

fn shown(fleet: &Fleet) -> Shards {
    let mut leader = fleet.replicas[fleet.leaders()[0]].leader.clone();
    leader.shards(fleet.now).expect("it leads")
}

fn shard(shards: &Shards, shard: ShardId) -> &Shard {
    shards.get(shard).expect("it is there")
}

#[test]
fn leader_shows_owners_costs_and_replicas_and_others_show_nothing() {
    let mut fleet = Fleet::new(2, Rules::default());
    for name in ["a", "b", "c"] {
        fleet.join(name);
    }
    fleet.run(Duration::from_secs(3));
    fleet.count(1);
    for number in 0..N_SHARDS {
        fleet.costs.insert(ShardId(number), 80_000);
    }
    fleet.run(Duration::from_secs(40));

    let shards = shown(&fleet);

    assert_eq!(shards.replicas.len(), 3);
    assert_eq!(shards.shards.len(), usize::from(N_SHARDS));
    let first = shard(&shards, ShardId(0));
    assert_eq!(first.phase, Some(Phase::Owned));
    assert_eq!(first.controllers, 1);
    assert_eq!(first.weight, first.cost_micros.expect("it was told"));
    assert!((70_000..=80_000).contains(&first.weight), "{first:?}");
    let owner = fleet.owner(0).expect("it is owned").0;
    let owner = shards.replicas.iter().find(|it| it.incarnation == owner);
    assert_eq!(first.owner.as_ref(), owner.map(|it| &it.replica));
    assert_eq!(shards.simulated(None, Level::Rest).moves, []);
    let (now, leader) = (fleet.now, fleet.leaders()[0]);
    assert_eq!(fleet.replicas[1 - leader].leader.shards(now), None);
}

#[test]
fn hand_over_is_shown_while_it_goes_on_and_the_rest_after_it() {
    let mut fleet = Fleet::running(&["a", "b"]);
    fleet.count(1);
    fleet.worker("b").warms = false;
    let moved = fleet.owned_by("a")[0].shard;
    fleet.wish(|it| it.pins = vec![pin(Pinned::Shard(moved.0), "b")]);
    fleet.run(Duration::from_secs(2));

    let warming = shown(&fleet);
    let warming = shard(&warming, moved);
    assert_eq!(warming.phase, Some(Phase::Warming));
    assert_eq!(warming.pinned_to, Some(ReplicaId::new("b")));
    let under_way = warming.hand_over.as_ref().expect("it is under way");
    assert_eq!(under_way.to, Some(ReplicaId::new("b")));
    assert_eq!(under_way.reason, "pin");

    fleet.worker("b").warms = true;
    fleet.worker("b").drains = true;
    fleet.run(Duration::from_secs(30));
    let shards = shown(&fleet);
    let there = shard(&shards, moved);
    assert_eq!(there.owner, Some(ReplicaId::new("b")));
    assert_eq!(there.phase, Some(Phase::Owned));
    assert!(there.rests_seconds.is_some_and(|it| it < 60), "{there:?}");
    let explained = shards.explain(moved).expect("it is there");
    assert_eq!(explained.reason, Some(Reason::Pinned));
    assert_eq!(explained.next, Some(ReplicaId::new("a")));
}
