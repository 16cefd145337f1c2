//! Roll-outs, and replicas that come and go.

use std::{collections::BTreeMap, time::Duration};

use metashard_api::{id::ShardId, shard_map::ShardMapSpec};

use super::fleet::{DURATION, Fleet, N_SHARDS, lease_of, n_moved};
use crate::{
    leader::{Report, Why},
    message::FromWorker,
    record::{Holder, Seen},
    rules::{Rule, Rules},
    testing::incarnation,
};

const OLD: [&str; 4] = ["a", "b", "c", "d"];
const NEW: [&str; 4] = ["e", "f", "g", "h"];

fn leave(fleet: &mut Fleet, name: &str) {
    let grace = Duration::from_secs(30);
    fleet.say(name, FromWorker::Leaving { grace });
    fleet.run(Duration::from_secs(1));
    assert!(fleet.owned_by(name).is_empty());
    let incarnation = incarnation(name);
    fleet.worker(name).renews = false;
    let lease = lease_of(&incarnation);
    fleet.server.take(&lease, Holder::Released, DURATION);
    fleet.show_worker(&incarnation);
}

/// A fleet that is two minutes old, of which every shard holds a controller of one cost.
fn settled(rules: Rules) -> Fleet {
    let mut fleet = Fleet::new(1, rules);
    for name in OLD {
        fleet.join_as(name, name, "1.0.0");
    }
    fleet.count(1);
    fleet.costs = (0..N_SHARDS).map(|it| (ShardId(it), 50_000)).collect();
    fleet.run(Duration::from_mins(2));
    fleet.maps.clear();
    fleet.reports.clear();
    fleet
}

/// Replaces all, one after the other, each by one that joins before it leaves.
fn roll_out(fleet: &mut Fleet, version: &str) {
    for (old, new) in OLD.into_iter().zip(NEW) {
        fleet.join_as(new, new, version);
        fleet.run(Duration::from_secs(12));
        leave(fleet, old);
    }
    fleet.run(Duration::from_mins(2));
}

/// How often the shard that was moved most often was moved since `first`.
fn most_moves(first: &ShardMapSpec, maps: &[ShardMapSpec]) -> usize {
    let all: Vec<&ShardMapSpec> = std::iter::once(first).chain(maps).collect();
    let owner = |map: &ShardMapSpec, shard| map.owner(shard).map(|it| it.0.clone());
    let moves = |shard| {
        let pairs = all.windows(2);
        pairs
            .filter(|it| owner(it[0], shard) != owner(it[1], shard))
            .count()
    };
    (0..N_SHARDS)
        .map(|it| moves(ShardId(it)))
        .max()
        .unwrap_or(0)
}

#[test]
fn roll_out_moves_each_shard_at_most_twice() {
    for version in ["2.0.0", "1.0.0", "0.9.0"] {
        let mut fleet = settled(Rules::default());
        let before = fleet.server.spec().clone();

        roll_out(&mut fleet, version);

        let most = most_moves(&before, &fleet.maps);
        assert!(most <= 2, "to {version}: {most}");
        for name in NEW {
            let n_owned = fleet.owned_by(name).len();
            assert!(
                (5..=10).contains(&n_owned),
                "to {version}: {name} has {n_owned}"
            );
        }
    }
}

#[test]
fn roll_out_that_does_not_fill_the_new_first_moves_shards_again_and_again() {
    let mut fleet = settled(Rules::breaking(Rule::NewestFirst));
    let before = fleet.server.spec().clone();

    roll_out(&mut fleet, "2.0.0");

    assert!(most_moves(&before, &fleet.maps) > 2);
}

#[test]
fn shard_that_was_moved_twice_is_let_be_for_ten_minutes() {
    for rules in [Rules::default(), Rules::breaking(Rule::RestlessStay)] {
        let mut fleet = settled(rules);
        let before = fleet.server.spec().clone();
        for n in 0..7 {
            let hot = fleet.owned_by(OLD[n % 2]).into_iter();
            fleet.costs = hot.map(|claim| (claim.shard, 500_000)).collect();
            fleet.run(Duration::from_secs(75));
        }

        let most = most_moves(&before, &fleet.maps);
        assert_eq!(most > 2, !rules.keep(Rule::RestlessStay), "{most}");
    }
}

#[test]
fn what_leaves_an_old_replica_goes_to_the_new_ones() {
    let mut fleet = settled(Rules::default());
    fleet.join_as("e", "e", "2.0.0");
    fleet.run(Duration::from_secs(12));
    let kept: BTreeMap<&str, usize> = OLD
        .into_iter()
        .map(|it| (it, fleet.owned_by(it).len()))
        .collect();

    leave(&mut fleet, "a");

    for name in ["b", "c", "d"] {
        assert_eq!(fleet.owned_by(name).len(), kept[name], "{name}");
    }
    let is_roll_out = |it: &Report| {
        matches!(
            it,
            Report::ShardsAssigned {
                why: Why::RollOut,
                ..
            }
        )
    };
    assert!(fleet.reports.iter().any(is_roll_out));
}

#[test]
fn crash_of_the_only_new_replica_gives_its_shards_back_to_old_ones() {
    let mut fleet = settled(Rules::default());
    fleet.join_as("e", "e", "2.0.0");
    fleet.run(Duration::from_secs(12));

    fleet.worker("e").renews = false;
    fleet.run(Duration::from_secs(8));

    assert!(fleet.owned_by("e").is_empty());
    assert_eq!(fleet.snapshot().n_unowned, 0);
}

/// One replica joins and dies again and again; returns how many moves each life cost the fleet.
fn crash_loop(rules: Rules, n_lives: usize) -> Vec<usize> {
    let mut fleet = settled(rules);
    let mut moves = Vec::new();
    for n in 0..n_lives {
        let name = format!("crash{n}");
        let before = fleet.server.spec().clone();
        fleet.join_as(&name, "crash", "1.0.0");
        fleet.run(Duration::from_secs(8));
        moves.push(n_moved(&before, fleet.server.spec()));
        fleet.worker(&name).renews = false;
        fleet.run(Duration::from_secs(8));
        assert_eq!(fleet.snapshot().n_unowned, 0);
    }
    moves
}

#[test]
fn replica_that_crashes_again_and_again_moves_shards_twice_and_then_waits() {
    let moves = crash_loop(Rules::default(), 5);
    assert!(moves[0] > 0 && moves[1] > 0, "{moves:?}");
    assert_eq!(moves[2..], [0, 0, 0], "{moves:?}");

    let moves = crash_loop(Rules::breaking(Rule::FlapsWait), 3);
    assert!(moves[2] > 0, "{moves:?}");
}

#[test]
fn replica_that_has_waited_gets_its_share() {
    let mut fleet = settled(Rules::default());
    for n in 0..2 {
        let name = format!("crash{n}");
        fleet.join_as(&name, "crash", "1.0.0");
        fleet.run(Duration::from_secs(8));
        fleet.worker(&name).renews = false;
        fleet.run(Duration::from_secs(8));
    }

    fleet.join_as("crash2", "crash", "1.0.0");
    fleet.run(Duration::from_secs(9));
    assert!(fleet.owned_by("crash2").is_empty());

    fleet.run(Duration::from_secs(4));
    assert!(fleet.owned_by("crash2").len() >= 3);
}

#[test]
fn replica_that_was_lost_often_gets_everything_if_there_is_no_other() {
    let mut fleet = settled(Rules::default());
    for n in 0..4 {
        let name = format!("crash{n}");
        fleet.join_as(&name, "crash", "1.0.0");
        fleet.run(Duration::from_secs(3));
        fleet.worker(&name).renews = false;
        fleet.run(Duration::from_secs(8));
    }
    for name in OLD {
        fleet.worker(name).renews = false;
    }
    fleet.join_as("crash4", "crash", "1.0.0");

    fleet.run(Duration::from_secs(12));

    assert_eq!(fleet.owned_by("crash4").len(), usize::from(N_SHARDS));
}

#[test]
fn worker_that_stands_still_for_less_than_its_lease_has_lost_nothing() {
    let mut fleet = settled(Rules::default());
    let before = fleet.server.spec().clone();

    for _ in 0..6 {
        fleet.worker("a").renews = false;
        fleet.run(Duration::from_secs(3));
        fleet.worker("a").renews = true;
        fleet.run(Duration::from_secs(3));
    }

    assert_eq!(n_moved(&before, fleet.server.spec()), 0);
    assert!(
        !fleet
            .reports
            .iter()
            .any(|it| matches!(it, Report::WorkerLost { .. }))
    );
}

#[test]
fn leases_of_replicas_that_are_gone_are_removed() {
    let mut fleet = settled(Rules::default());
    for name in NEW {
        fleet.join(name);
    }
    fleet.run(Duration::from_mins(1));
    for name in NEW {
        leave(&mut fleet, name);
    }

    fleet.run(Duration::from_mins(11));

    let is_there = |name: &str| fleet.server.lease(&lease_of(&incarnation(name))) != Seen::Absent;
    assert!(OLD.into_iter().all(is_there));
    assert!(!NEW.into_iter().any(is_there));
}
