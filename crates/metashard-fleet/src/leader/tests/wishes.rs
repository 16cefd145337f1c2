//! What people ask: cordons, pins, levelling.

use std::{collections::BTreeMap, time::Duration};

use metashard_api::{
    id::{ReplicaId, ShardId},
    names::{condition, reason},
};

use super::fleet::{Fleet, N_SHARDS, n_moved, wishes::pin};
use crate::{
    leader::{Report, Why},
    message::Order,
    rules::{Rule, Rules},
    wishes::Pinned,
};

const A_WHILE: Duration = Duration::from_mins(2);

fn cordon(fleet: &mut Fleet, names: &[&str]) {
    let names: Vec<ReplicaId> = names.iter().copied().map(ReplicaId::new).collect();
    fleet.wish(|it| it.cordoned = names);
}

fn reasons(fleet: &Fleet) -> BTreeMap<Why, usize> {
    let mut reasons = BTreeMap::new();
    for report in &fleet.reports {
        if let Report::ShardsAssigned { why, claims, .. } = report {
            *reasons.entry(*why).or_default() += claims.len();
        }
    }
    reasons
}

#[test]
fn cordoned_replica_hands_over_what_it_has_and_gets_nothing_new() {
    let mut fleet = Fleet::running(&["a", "b", "c"]);
    fleet.count(1);
    let n_before = fleet.owned_by("a").len();

    cordon(&mut fleet, &["a"]);
    let took = fleet.run_until(A_WHILE, |it| it.owned_by("a").is_empty());
    fleet.run(Duration::from_secs(1));

    assert!(took < Duration::from_secs(15), "{took:?}");
    assert_eq!(reasons(&fleet), BTreeMap::from([(Why::Drain, n_before)]));
    let warms = |it: &&Order| matches!(it, Order::Warm { .. });
    let n_warms = fleet.orders("b").into_iter().filter(warms).count()
        + fleet.orders("c").into_iter().filter(warms).count();
    assert_eq!(n_warms, n_before, "each target fills its caches first");
    assert!(fleet.finding(condition::DRAINED).holds);

    // Others that end leave it nothing either, as long as somebody else is there.
    fleet.worker("b").renews = false;
    fleet.run(Duration::from_secs(20));
    assert_eq!(fleet.owned_by("c").len(), usize::from(N_SHARDS));
}

#[test]
fn cordon_without_its_rule_leaves_everything_where_it_is() {
    let mut fleet = Fleet::new(1, Rules::breaking(Rule::CordonedGetNothing));
    fleet.join("a");
    fleet.join("b");
    fleet.run(Duration::from_secs(3));

    cordon(&mut fleet, &["a"]);
    fleet.run(Duration::from_secs(30));

    assert!(!fleet.owned_by("a").is_empty());
}

#[test]
fn drain_moves_no_more_than_a_share_between_two_plans() {
    for rules in [Rules::default(), Rules::breaking(Rule::AskedByShares)] {
        let mut fleet = Fleet::new(1, rules);
        for name in ["a", "b", "c"] {
            fleet.join(name);
        }
        fleet.run(Duration::from_secs(3));
        // More than two shares.
        fleet.worker("c").renews = false;
        fleet.run(Duration::from_secs(10));
        cordon(&mut fleet, &["b"]);
        fleet.run(Duration::from_secs(30));
        assert!(fleet.owned_by("b").is_empty());
        fleet.join("d");
        fleet.join("e");
        fleet.run(Duration::from_mins(2));
        let before = fleet.server.spec().clone();

        // Of five, one has most.
        cordon(&mut fleet, &["a", "d"]);
        fleet.run(Duration::from_secs(9));

        let n_moved = n_moved(&before, fleet.server.spec());
        let n_asked = usize::from(N_SHARDS) * 2 / 3;
        let share = usize::from(N_SHARDS).div_ceil(4) + 2;
        assert!(n_asked > share);
        let is_mutant = !rules.keep(Rule::AskedByShares);
        assert_eq!(n_moved > share, is_mutant, "{n_moved} of {share}");
    }
}

#[test]
fn nothing_moves_while_all_are_cordoned_and_orphans_are_served_all_the_same() {
    let mut fleet = Fleet::running(&["a", "b"]);
    fleet.count(1);
    let before = fleet.server.spec().clone();

    cordon(&mut fleet, &["a", "b"]);
    fleet.run(Duration::from_secs(30));

    assert_eq!(n_moved(&before, fleet.server.spec()), 0);
    assert_eq!(
        fleet.finding(condition::DRAINED).reason,
        reason::NOWHERE_TO_GO
    );

    fleet.worker("b").renews = false;
    fleet.run(Duration::from_secs(20));
    assert_eq!(fleet.owned_by("a").len(), usize::from(N_SHARDS));
}

#[test]
fn replica_that_is_uncordoned_gets_its_share_like_one_that_joins() {
    let mut fleet = Fleet::running(&["a", "b", "c"]);
    fleet.count(1);
    cordon(&mut fleet, &["a"]);
    fleet.run_until(A_WHILE, |it| it.owned_by("a").is_empty());
    // What was just moved rests for a minute.
    fleet.run(Duration::from_secs(70));

    cordon(&mut fleet, &[]);
    let took = fleet.run_until(A_WHILE, |it| it.owned_by("a").len() >= 9);

    assert!(took < Duration::from_secs(5), "{took:?}");
    assert!(reasons(&fleet).contains_key(&Why::Join));
    assert_eq!(fleet.finding(condition::DRAINED).reason, reason::NOT_ASKED);
}

#[test]
fn target_that_is_cordoned_on_the_way_is_given_up() {
    let mut fleet = Fleet::running(&["a", "b", "c"]);
    fleet.count(1);
    fleet.worker("b").warms = false;
    fleet.worker("c").warms = false;
    cordon(&mut fleet, &["a"]);
    fleet.run(Duration::from_secs(2));

    cordon(&mut fleet, &["a", "b"]);
    fleet.worker("c").warms = true;
    fleet.run(Duration::from_secs(100));

    assert_eq!(fleet.owned_by("c").len(), usize::from(N_SHARDS));
}

#[test]
fn pinned_shard_moves_to_its_replica_and_stays_there() {
    let mut fleet = Fleet::running(&["a", "b", "c"]);
    fleet.count(1);
    let shard = fleet.owned_by("a")[0].shard;

    fleet.wish(|it| it.pins = vec![pin(Pinned::Shard(shard.0), "b")]);
    fleet.run(Duration::from_secs(3));

    assert_eq!(reasons(&fleet), BTreeMap::from([(Why::Pin, 1)]));
    assert!(fleet.owned_by("b").iter().any(|it| it.shard == shard));
    assert!(fleet.finding(condition::PINNED).holds);

    // Nor is it taken away when b is hot.
    for claim in fleet.owned_by("b") {
        fleet.costs.insert(claim.shard, 100_000);
    }
    fleet.run(Duration::from_mins(3));
    assert!(fleet.owned_by("b").iter().any(|it| it.shard == shard));
}

#[test]
fn pin_and_drain_move_a_shard_that_was_moved_a_moment_ago() {
    let mut fleet = Fleet::running(&["a", "b", "c"]);
    fleet.count(1);
    let shard = fleet.owned_by("a")[0].shard;
    fleet.wish(|it| it.pins = vec![pin(Pinned::Shard(shard.0), "b")]);
    fleet.run(Duration::from_secs(3));

    fleet.wish(|it| it.pins = vec![pin(Pinned::Shard(shard.0), "c")]);
    fleet.run(Duration::from_secs(3));
    assert!(fleet.owned_by("c").iter().any(|it| it.shard == shard));
    assert!(fleet.finding(condition::PINNED).holds);

    fleet.wish(|it| it.pins.clear());
    cordon(&mut fleet, &["c"]);
    fleet.run_until(Duration::from_secs(15), |it| it.owned_by("c").is_empty());
}

#[test]
fn pin_to_a_replica_that_is_away_waits_for_it_and_the_shard_is_served_meanwhile() {
    let mut fleet = Fleet::running(&["a", "b"]);
    fleet.count(1);
    let shard = fleet.owned_by("a")[0].shard;

    fleet.wish(|it| it.pins = vec![pin(Pinned::Shard(shard.0), "c")]);
    fleet.run(Duration::from_secs(3));

    assert!(fleet.owned_by("a").iter().any(|it| it.shard == shard));
    let pinned = fleet.finding(condition::PINNED);
    assert!(
        !pinned.holds && pinned.reason == reason::WAITING,
        "{pinned:?}"
    );
    assert!(pinned.message.starts_with("spec.pins[0]: "), "{pinned:?}");
    let resolved = fleet.finding(condition::RESOLVED);
    assert_eq!(resolved.message, "spec.pins[0].replica: no replica c lives");

    fleet.join("c");
    fleet.run_until(A_WHILE, |it| {
        it.owned_by("c").iter().any(|it| it.shard == shard)
    });
    fleet.run(Duration::from_secs(1));
    assert!(fleet.finding(condition::PINNED).holds);
    assert!(fleet.finding(condition::RESOLVED).holds);
}

#[test]
fn what_cannot_be_is_told_by_its_field_and_the_rest_is_done() {
    let mut fleet = Fleet::running(&["a", "b"]);
    fleet.count(1);
    let shard = fleet.owned_by("a")[0].shard;

    fleet.wish(|it| {
        it.cordoned = vec![ReplicaId::new("z")];
        it.pins = vec![
            pin(Pinned::Shard(shard.0), "b"),
            pin(Pinned::Shard(N_SHARDS), "b"),
            pin(Pinned::Unclear, "b"),
            pin(Pinned::Shard(shard.0), "a"),
            pin(Pinned::Controller("nobody".to_owned(), Vec::new()), "a"),
        ];
    });
    fleet.run(Duration::from_secs(3));

    let accepted = fleet.finding(condition::ACCEPTED);
    assert_eq!(accepted.reason, reason::INVALID_SPEC);
    assert_eq!(
        accepted.message,
        format!(
            "spec.pins[1].shard: 30 is not below 30, the number of shards; \
             spec.pins[2]: name one of shard and controller; \
             spec.pins[3]: shard {shard} is pinned to b by spec.pins[0]"
        )
    );
    let resolved = fleet.finding(condition::RESOLVED);
    assert_eq!(
        resolved.message,
        "spec.cordoned[0]: no replica z lives; spec.pins[4].controller: there is no controller nobody"
    );
    assert!(
        fleet.owned_by("b").iter().any(|it| it.shard == shard),
        "the first pin counts"
    );
}

#[test]
fn levelling_goes_below_what_is_let_be_at_rest_and_is_asked_once() {
    let mut fleet = Fleet::running(&["a", "b"]);
    fleet.count(1);
    // a is at 1.08 of the mean: nothing to do at rest.
    for (name, cost) in [("a", 108_000), ("b", 92_000)] {
        for claim in fleet.owned_by(name) {
            fleet.costs.insert(claim.shard, cost);
        }
    }
    fleet.run(Duration::from_mins(2));
    assert!((106..=110).contains(&fleet.snapshot().hottest_percent));
    let before = fleet.server.spec().clone();

    fleet.wish(|it| it.rebalance = "monday".to_owned());
    fleet.run_until(Duration::from_mins(5), |it| {
        it.wishes.observed_rebalance == "monday"
    });

    assert!(n_moved(&before, fleet.server.spec()) > 0);
    let hottest = fleet.snapshot().hottest_percent;
    assert!(hottest <= 105, "{hottest}");
    assert!(fleet.finding(condition::LEVELLED).holds);

    // It is not levelled again of itself.
    let after = fleet.server.spec().clone();
    for (name, cost) in [("a", 93_000), ("b", 107_000)] {
        let owned = fleet.owned_by(name);
        for claim in &owned {
            let cost = cost * 15 / owned.len() as u64;
            fleet.costs.insert(claim.shard, cost);
        }
    }
    fleet.run(Duration::from_mins(3));
    assert_eq!(n_moved(&after, fleet.server.spec()), 0);
}

#[test]
fn next_leader_goes_on_with_what_was_asked() {
    let mut fleet = Fleet::new(2, Rules::default());
    for name in ["a", "b", "c"] {
        fleet.join(name);
    }
    fleet.run(Duration::from_secs(3));
    fleet.count(1);
    let leader = fleet.leaders()[0];
    for name in ["b", "c"] {
        fleet.worker(name).warms = false;
    }
    cordon(&mut fleet, &["a"]);
    fleet.run(Duration::from_secs(1));
    let shard = ShardId(fleet.owned_by("a")[0].shard.0);

    fleet.replicas[leader].is_alive = false;
    for name in ["b", "c"] {
        fleet.worker(name).warms = true;
    }
    fleet.run_until(A_WHILE, |it| it.owned_by("a").is_empty());

    assert!(fleet.owner(shard.0).is_some());
}

#[test]
fn who_asks_nothing_is_told_nothing() {
    let mut fleet = Fleet::running(&["a", "b"]);
    fleet.count(1);
    fleet.run(Duration::from_mins(1));

    assert!(fleet.answers.is_empty());
}
