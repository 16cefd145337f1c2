//! Tests of the predicates: each one holds for what is right and fails for what it is there to find.

use super::*;

fn hold(worker: u8, shard: u16, epoch: u64) -> Hold<u8> {
    Hold {
        claim: Claim {
            shard: ShardId(shard),
            epoch: Epoch(epoch),
        },
        worker,
    }
}

/// Worker 1 acts for shard 0 at epoch 3 as a map gave it; it released epoch 1, and worker 2 released epoch 2.
fn sound() -> World<u8> {
    World {
        acting: [hold(1, 0, 3), hold(2, 1, 1)].into(),
        parents: [("a".into(), 1), ("b".into(), 1), ("c".into(), 2)].into(),
        in_flight: [hold(1, 0, 3)].into(),
        published: [hold(1, 0, 1), hold(2, 0, 2), hold(1, 0, 3), hold(2, 1, 1)].into(),
        released: [hold(1, 0, 1), hold(2, 0, 2)].into(),
        given_up: [((1, ShardId(0)), Epoch(1)), ((2, ShardId(0)), Epoch(2))].into(),
        leading: [1].into(),
    }
}

fn table(term: u64, seq: u64, leader: u8, shards: &[(u8, u64)]) -> Table<u8> {
    Table {
        term: Term(term),
        seq: Seq(seq),
        leader: Some(leader),
        shards: shards
            .iter()
            .map(|(owner, epoch)| (Some(*owner), Epoch(*epoch)))
            .collect(),
    }
}

fn change(object: &str, epoch: u64, verb: Verb) -> Applied<&str> {
    Applied {
        object,
        epoch: Epoch(epoch),
        verb,
    }
}

#[test]
fn sound_world_breaks_nothing() {
    assert_eq!(sound().broken(), [].into());
}

#[test]
fn two_workers_for_one_parent_break_exclusive() {
    let mut world = sound();

    world.parents.insert(("b".into(), 2));

    assert_eq!(world.broken(), [Invariant::Exclusive].into());
}

#[test]
fn two_workers_on_one_shard_break_exclusive() {
    let mut world = sound();
    world.published.insert(hold(2, 0, 4));

    world.acting.insert(hold(2, 0, 4));

    assert_eq!(world.broken(), [Invariant::Exclusive].into());
}

#[test]
fn acting_without_a_map_breaks_table_first() {
    let mut world = sound();

    world.acting.insert(hold(1, 2, 1));

    assert_eq!(world.broken(), [Invariant::TableFirst].into());
}

#[test]
fn holding_what_was_given_up_breaks_no_resurrection() {
    let mut world = sound();

    world.given_up.insert((2, ShardId(1)), Epoch(1));

    assert_eq!(world.broken(), [Invariant::NoResurrection].into());
}

#[test]
fn write_in_flight_after_a_release_breaks_honest_release() {
    let mut world = sound();

    world.in_flight.insert(hold(2, 0, 2));

    assert_eq!(world.broken(), [Invariant::HonestRelease].into());
}

#[test]
fn second_leader_breaks_one_leader() {
    let mut world = sound();

    world.leading.insert(2);

    assert_eq!(world.broken(), [Invariant::OneLeader].into());
}

#[test]
fn new_owner_needs_a_new_epoch() {
    let before = table(1, 1, 1, &[(1, 3), (2, 1)]);

    let broken_by = |next: &Table<u8>| before.broken_by(next, true);

    assert_eq!(broken_by(&table(1, 2, 1, &[(2, 4), (2, 2)])), [].into());
    assert_eq!(
        broken_by(&table(1, 2, 1, &[(2, 3), (2, 1)])),
        [Invariant::EpochMonotonic].into()
    );
    assert_eq!(
        broken_by(&table(1, 2, 1, &[(1, 2), (2, 1)])),
        [Invariant::EpochMonotonic].into()
    );
    assert_eq!(
        broken_by(&table(1, 2, 1, &[(1, 3)])),
        [Invariant::EpochMonotonic].into()
    );
}

#[test]
fn another_leader_needs_a_higher_term() {
    let before = table(2, 5, 1, &[]);

    let broken_by = |next: &Table<u8>| before.broken_by(next, true);

    assert_eq!(broken_by(&before), [].into());
    assert_eq!(broken_by(&table(2, 6, 1, &[])), [].into());
    assert_eq!(broken_by(&table(3, 1, 2, &[])), [].into());
    for wrong in [
        table(2, 6, 2, &[]),
        table(1, 9, 1, &[]),
        table(2, 4, 1, &[]),
    ] {
        assert_eq!(broken_by(&wrong), [Invariant::OneTerm].into());
    }
}

#[test]
fn change_of_owner_without_a_coordinator_breaks_static_stability() {
    let before = table(1, 1, 1, &[(1, 3)]);
    let next = table(1, 2, 1, &[(2, 4)]);

    assert_eq!(
        before.broken_by(&next, false),
        [Invariant::StaticStability].into()
    );
    assert_eq!(before.broken_by(&next, true), [].into());
}

#[test]
fn write_of_an_older_epoch_may_only_make_a_deleted_object_anew() {
    use Verb::{Change, Create, Delete};

    assert!(are_in_epoch([
        change("a", 1, Create),
        change("a", 2, Change),
        change("b", 1, Create)
    ]));
    assert!(are_in_epoch([
        change("a", 2, Create),
        change("a", 2, Delete),
        change("a", 1, Create)
    ]));
    assert!(!are_in_epoch([
        change("a", 2, Change),
        change("a", 1, Change)
    ]));
    assert!(!are_in_epoch([
        change("a", 2, Change),
        change("a", 1, Delete)
    ]));
    assert!(!are_in_epoch([
        change("a", 2, Create),
        change("a", 1, Create)
    ]));
}

#[test]
fn claim_ended_within_an_outage_did_not_have_its_duration() {
    assert!(had_its_duration(
        Duration::from_secs(4),
        Duration::from_secs(4)
    ));
    assert!(!had_its_duration(
        Duration::from_secs(3),
        Duration::from_secs(4)
    ));
}

#[test]
fn shard_that_nobody_acts_for_is_not_covered() {
    let acting = [hold(1, 0, 3), hold(2, 1, 1)].into();

    assert!(are_covered(&acting, 2));
    assert!(!are_covered(&acting, 3));
}

#[test]
fn cache_from_before_the_last_write_is_not_fresh() {
    assert!(is_fresh(7, 7));
    assert!(!is_fresh(6, 7));
}
