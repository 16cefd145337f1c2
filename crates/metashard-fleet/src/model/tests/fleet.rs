//! Hand-over: a leader or two, two workers, one shard or two.

use super::{Found, explore};
use crate::{
    invariants::Invariant,
    model::{
        budget::{Budget, NONE},
        fleet::{Fault, Fleet, Scene},
    },
    rules::{Rule, Rules},
};

/// One leader, two workers, one shard.
fn settled(ticks: u8, budget: Budget) -> Fleet {
    Fleet {
        n_leaders: 1,
        n_workers: 2,
        n_shards: 1,
        scene: Scene::Settled,
        ticks,
        budget,
        rules: Rules::default(),
        fault: None,
        looks_at: None,
    }
}

fn pause() -> Fleet {
    settled(
        6,
        Budget {
            slow: 1,
            pauses: 1,
            ..NONE
        },
    )
}

fn suspend() -> Fleet {
    settled(
        6,
        Budget {
            slow: 1,
            suspends: 1,
            ..NONE
        },
    )
}

fn deletion() -> Fleet {
    settled(
        6,
        Budget {
            pauses: 1,
            deletions: 1,
            ..NONE
        },
    )
}

fn outage() -> Fleet {
    settled(
        8,
        Budget {
            pauses: 1,
            outages: 1,
            ..NONE
        },
    )
}

fn leave() -> Fleet {
    settled(
        4,
        Budget {
            slow: 2,
            leaves: 1,
            writes: 1,
            ..NONE
        },
    )
}

fn writes() -> Fleet {
    settled(
        4,
        Budget {
            slow: 1,
            pauses: 1,
            writes: 2,
            ..NONE
        },
    )
}

fn join() -> Fleet {
    let budget = Budget { slow: 1, ..NONE };
    Fleet {
        n_shards: 2,
        scene: Scene::Joining,
        ..settled(6, budget)
    }
}

fn eviction() -> Fleet {
    let budget = Budget {
        slow: 1,
        pauses: 1,
        ..NONE
    };
    Fleet {
        scene: Scene::Evicting,
        ..settled(6, budget)
    }
}

fn two_leaders() -> Fleet {
    let budget = Budget {
        slow: 1,
        pauses: 1,
        leaves: 1,
        ..NONE
    };
    Fleet {
        n_leaders: 2,
        ..settled(4, budget)
    }
}

/// Each worker has one of two shards, and a controller is split over both.
fn split(budget: Budget) -> Fleet {
    Fleet {
        n_shards: 2,
        ..settled(
            3,
            Budget {
                splits: 1,
                ..budget
            },
        )
    }
}

fn split_with_slow_watches() -> Fleet {
    split(Budget { slow: 2, ..NONE })
}

fn split_with_a_pause() -> Fleet {
    split(Budget {
        slow: 1,
        pauses: 1,
        ..NONE
    })
}

fn run(name: &str, fleet: Fleet) -> Found {
    explore(name, fleet, |state| &state.history.broken)
}

fn assert_holds(name: &str, fleet: Fleet) {
    let found = run(name, fleet);
    assert_eq!(found.broken, [].into(), "{name}");
    assert!(found.is_meaningful, "{name}: no shard ever changes hands");
}

/// `fleet` without `rule` breaks `invariant`.
fn assert_breaks(rule: Rule, fleet: Fleet, invariant: Invariant) {
    let name = format!("fleet, {rule:?}");
    let mutant = Fleet {
        rules: Rules::breaking(rule),
        looks_at: Some(invariant),
        ..fleet
    };
    assert_eq!(run(&name, mutant).broken, [invariant].into(), "{name}");
}

/// `fleet` with `fault` breaks `invariant`.
fn assert_fault_breaks(fault: Fault, fleet: Fleet, invariant: Invariant) {
    let name = format!("fleet, {fault:?}");
    let mutant = Fleet {
        fault: Some(fault),
        looks_at: Some(invariant),
        ..fleet
    };
    assert_eq!(run(&name, mutant).broken, [invariant].into(), "{name}");
}

#[test]
fn rules_hold_with_a_pause() {
    assert_holds("fleet, a pause", pause());
}

#[test]
fn rules_hold_with_a_suspended_machine() {
    assert_holds("fleet, a suspended machine", suspend());
}

#[test]
fn rules_hold_with_a_deleted_lease() {
    assert_holds("fleet, a deleted Lease", deletion());
}

#[test]
fn rules_hold_in_an_outage() {
    assert_holds("fleet, an outage", outage());
}

#[test]
fn rules_hold_when_a_worker_leaves() {
    assert_holds("fleet, a worker leaves", leave());
}

#[test]
fn rules_hold_with_writes_of_a_child() {
    assert_holds("fleet, writes", writes());
}

#[test]
fn rules_hold_when_a_worker_joins() {
    assert_holds("fleet, a worker joins", join());
}

#[test]
fn rules_hold_with_an_eviction() {
    assert_holds("fleet, an eviction", eviction());
}

#[test]
fn rules_hold_with_two_leaders() {
    assert_holds("fleet, two leaders", two_leaders());
}

#[test]
fn rules_hold_when_a_controller_is_split() {
    for (name, fleet) in [
        ("fleet, a split and slow watches", split_with_slow_watches()),
        ("fleet, a split and a pause", split_with_a_pause()),
    ] {
        let found = run(name, fleet);
        assert_eq!(found.broken, [].into(), "{name}");
        assert!(found.is_split, "{name}: no controller is ever split");
    }
}

#[test]
fn split_that_takes_effect_at_once_serves_a_parent_twice() {
    assert_breaks(
        Rule::SplitWhenReleased,
        split_with_slow_watches(),
        Invariant::Exclusive,
    );
}

#[test]
fn ownership_that_starts_without_its_map_serves_a_parent_twice() {
    assert_breaks(
        Rule::CutOfItsMap,
        split_with_slow_watches(),
        Invariant::Exclusive,
    );
}

#[test]
fn deadline_counted_from_the_answers_receipt_makes_two_owners() {
    assert_breaks(Rule::DeadlineFromSending, pause(), Invariant::Exclusive);
}

#[test]
fn deadline_beyond_the_duration_makes_two_owners() {
    assert_breaks(Rule::DeadlineWithinDuration, pause(), Invariant::Exclusive);
}

#[test]
fn renewal_without_resource_version_makes_two_owners() {
    assert_breaks(Rule::RenewByVersion, pause(), Invariant::Exclusive);
}

#[test]
fn renewal_without_uid_makes_two_owners() {
    assert_breaks(Rule::RenewByUid, deletion(), Invariant::Exclusive);
}

#[test]
fn judging_without_renewing_fences_in_an_outage() {
    assert_breaks(
        Rule::JudgeWhileRenewing,
        outage(),
        Invariant::OutageFencesNobody,
    );
}

#[test]
fn worker_without_tombstones_takes_up_again_what_it_released() {
    assert_breaks(Rule::Tombstones, join(), Invariant::NoResurrection);
}

#[test]
fn release_with_a_write_in_flight_is_not_honest() {
    assert_breaks(Rule::ReleaseWhenDrained, leave(), Invariant::HonestRelease);
}

#[test]
fn order_before_the_map_lets_a_worker_act_without_one() {
    assert_breaks(Rule::TableFirst, join(), Invariant::TableFirst);
}

#[test]
fn new_owner_without_proof_makes_two_owners() {
    assert_breaks(Rule::ProofBeforeOwner, leave(), Invariant::Exclusive);
}

#[test]
fn fence_without_resource_version_makes_two_owners() {
    assert_breaks(Rule::FenceByVersion, pause(), Invariant::Exclusive);
}

#[test]
fn eviction_without_the_wait_makes_two_owners() {
    assert_breaks(Rule::EvictionWaits, eviction(), Invariant::Exclusive);
}

#[test]
fn map_written_without_resource_version_takes_back_a_term() {
    assert_breaks(Rule::MapByVersion, two_leaders(), Invariant::OneTerm);
}

#[test]
fn clock_that_stops_in_suspend_makes_two_owners() {
    assert_fault_breaks(Fault::ClockThatStops, suspend(), Invariant::Exclusive);
}

#[test]
fn observation_stamped_at_sending_makes_two_owners() {
    assert_fault_breaks(Fault::StampedAtSending, pause(), Invariant::Exclusive);
}

#[test]
fn child_written_without_resource_version_lets_an_older_epoch_write_last() {
    assert_fault_breaks(
        Fault::ChildWithoutVersion,
        writes(),
        Invariant::WriteInEpoch,
    );
}
