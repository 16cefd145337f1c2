//! Joins, balance, budgets and the cool-down.

use std::{collections::BTreeMap, time::Duration};

use metashard_api::id::ShardId;

use super::fleet::{Fleet, N_SHARDS, n_moved};
use crate::rules::{Rule, Rules};

/// ceil(K/N) + 2.
fn share(n_workers: u16) -> usize {
    usize::from(N_SHARDS.div_ceil(n_workers)) + 2
}

#[test]
fn newcomer_gets_its_share_and_no_more_is_moved() {
    let mut fleet = Fleet::running(&["a", "b"]);
    fleet.count(1);
    let before = fleet.server.spec().clone();

    fleet.join("c");
    fleet.run(Duration::from_secs(3));

    let n_moved = n_moved(&before, fleet.server.spec());
    let n_got = fleet.owned_by("c").len();
    assert!((9..=11).contains(&n_got), "{n_got}");
    assert_eq!(n_moved, n_got, "only to the newcomer");
    assert!(n_moved <= share(3), "{n_moved}");
}

#[test]
fn newcomers_that_come_one_after_the_other_get_equal_shares() {
    let mut fleet = Fleet::running(&["a"]);
    let busy: BTreeMap<ShardId, u32> = (0..8).map(|it| (ShardId(it), 1)).collect();
    fleet.count_each(&busy);
    fleet.run(Duration::from_secs(11));

    fleet.join("b");
    fleet.run(Duration::from_millis(500));
    fleet.join("c");
    fleet.run(Duration::from_secs(3));

    for name in ["a", "b", "c"] {
        let owned = fleet.owned_by(name);
        let n_busy = owned.iter().filter(|it| it.shard.0 < 8).count();
        assert!((2..=3).contains(&n_busy), "{name} has {n_busy}");
    }
}

#[test]
fn newcomer_without_a_session_is_given_nothing_that_others_serve() {
    let mut fleet = Fleet::running(&["a", "b"]);
    let before = fleet.server.spec().clone();

    fleet.join("c");
    fleet.worker("c").has_session = false;
    fleet.run(Duration::from_mins(1));

    assert_eq!(fleet.server.spec(), &before);
}

/// The shards of `name` cost 100 ms each second, all others nothing.
fn heat(fleet: &mut Fleet, name: &str) {
    let hot = fleet.owned_by(name).into_iter();
    fleet.costs = hot.map(|claim| (claim.shard, 100_000)).collect();
}

#[test]
fn restless_load_moves_at_most_four_shards_in_ten_seconds() {
    let mut fleet = Fleet::running(&["a", "b"]);
    fleet.count(1);
    fleet.run(Duration::from_secs(16));
    let before = fleet.server.spec().clone();

    heat(&mut fleet, "a");
    fleet.run(Duration::from_secs(10));
    let first = n_moved(&before, fleet.server.spec());
    fleet.run(Duration::from_secs(10));
    let second = n_moved(&before, fleet.server.spec());

    assert!(first <= 4, "{first}");
    assert!((first + 1..=8).contains(&second), "{first}, {second}");
}

#[test]
fn new_leader_moves_nothing_for_costs_before_it_knows_those_of_all() {
    for rules in [Rules::default(), Rules::breaking(Rule::CostsKnown)] {
        let mut fleet = Fleet::new(2, rules);
        fleet.join("a");
        fleet.join("b");
        fleet.run(Duration::from_secs(3));
        fleet.count(1);
        let leader = fleet.leaders()[0];
        let before = fleet.server.spec().clone();
        for shard in 0..N_SHARDS {
            fleet.costs.insert(ShardId(shard), 100_000);
        }
        // b does not reach the new leader for a while.
        fleet.replicas[leader].is_alive = false;
        fleet.run_until(Duration::from_secs(10), |it| {
            it.leaders().first() == Some(&(1 - leader))
        });
        fleet.run(Duration::from_millis(100));
        let quiet = fleet.owned_by("b").into_iter().map(|it| it.shard);
        let quiet: Vec<ShardId> = quiet.collect();
        for shard in &quiet {
            fleet.costs.remove(shard);
        }
        fleet.run(Duration::from_millis(11_500));
        let n_early = n_moved(&before, fleet.server.spec());
        fleet.run(Duration::from_secs(15));
        let n_late = n_moved(&before, fleet.server.spec());

        let is_mutant = !rules.keep(Rule::CostsKnown);
        assert_eq!(n_early > 0, is_mutant, "{n_early}");
        assert!(n_late > 0, "once all is known, the difference counts");
    }
}

#[test]
fn shard_that_was_moved_for_balance_stays_for_a_minute() {
    let mut fleet = Fleet::running(&["a", "b"]);
    let mut counts = BTreeMap::from([(ShardId(0), 1), (ShardId(1), 1)]);
    let home = fleet.owned_by("a");
    counts.clear();
    counts.insert(home[0].shard, 10);
    counts.insert(home[1].shard, 10);
    fleet.count_each(&counts);
    fleet.run(Duration::from_secs(30));
    let (moved, kept) = match (fleet.owner(home[0].shard.0), fleet.owner(home[1].shard.0)) {
        (Some((first, _)), Some((second, _))) if first != second => {
            let is_first = first == crate::testing::incarnation("b");
            if is_first {
                (home[0].shard, home[1].shard)
            } else {
                (home[1].shard, home[0].shard)
            }
        }
        owners => panic!("one of the two should have moved: {owners:?}"),
    };
    let epoch = fleet.owner(moved.0).map(|it| it.1);

    // Now b is hot: the one that was moved may not go back, though that would be best.
    let other = fleet.owned_by("b").into_iter().find(|it| it.shard != moved);
    counts.remove(&kept);
    counts.insert(other.unwrap().shard, 10);
    fleet.count_each(&counts);
    fleet.run(Duration::from_secs(50));

    assert_eq!(fleet.owner(moved.0).map(|it| it.1), epoch);
}

#[test]
fn fleet_at_rest_moves_nothing_and_writes_nothing() {
    let mut fleet = Fleet::running(&["a", "b", "c"]);
    fleet.count(1);
    fleet.run(Duration::from_secs(15));
    fleet.maps.clear();
    fleet.told.clear();

    fleet.run(Duration::from_mins(5));

    assert!(fleet.maps.is_empty());
    assert!(fleet.told.is_empty());
}

#[test]
fn replicas_of_one_crash_come_back_without_more_moves_than_their_share() {
    let mut fleet = Fleet::running(&["a", "b", "c"]);
    fleet.count(1);
    fleet.worker("c").renews = false;
    fleet.run(Duration::from_secs(6));
    let before = fleet.server.spec().clone();

    fleet.join("c2");
    fleet.run(Duration::from_secs(5));

    let n_moved = n_moved(&before, fleet.server.spec());
    assert!(n_moved <= share(3), "{n_moved}");
    assert!(fleet.owned_by("c2").len() >= 9);
}
