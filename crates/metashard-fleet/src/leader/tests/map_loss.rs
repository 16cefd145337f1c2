//! A map that is deleted, replaced or set back.

use std::time::Duration;

use metashard_api::{
    id::{Incarnation, Term},
    shard_map::ShardMapSpec,
};

use super::fleet::{DURATION, Fleet, LEADER_LEASE, MapWrites, N_SHARDS};
use crate::{
    invariants::Invariant,
    leader::{Input, Report},
    map,
    record::Holder,
    rules::Rules,
    testing::incarnation,
};

fn delete_map(fleet: &mut Fleet) {
    fleet.server.delete_map();
    fleet.tell(0, Input::MapSeen(map::Seen::Absent));
}

#[test]
fn deleted_map_is_made_anew_only_when_every_worker_has_been_evicted_and_waited_out() {
    let mut fleet = Fleet::running(&["a", "b"]);

    delete_map(&mut fleet);
    fleet.run(Duration::from_millis(200));
    for name in ["a", "b"] {
        assert_eq!(fleet.worker_holder(name), Holder::Evicted);
    }
    fleet.run(Duration::from_millis(3_600));
    assert_eq!(fleet.server.map(), map::Seen::Absent);

    fleet.run_until(DURATION, |it| it.server.map() != map::Seen::Absent);
    let spec = fleet.server.spec();
    assert_eq!(spec.shard_count, N_SHARDS);
    assert!(spec.members.is_empty());
    assert!(fleet.reports.contains(&Report::MapLost));
}

#[test]
fn numbers_of_a_map_made_anew_are_above_all_that_were_given_out_and_above_the_clock() {
    let mut fleet = Fleet::running(&["a"]);

    delete_map(&mut fleet);
    fleet.run(Duration::from_secs(10));

    let spec = fleet.server.spec();
    assert!(spec.term >= Term(1_000_000), "{}", spec.term);
    assert!(spec.shards.iter().all(|it| it.epoch.0 >= 1_000_000));
}

#[test]
fn second_loss_goes_on_above_the_first() {
    let mut fleet = Fleet::running(&["a"]);
    let mut spec = fleet.server.spec().clone();
    for entry in &mut spec.shards {
        entry.epoch.0 = 5_000_000;
    }
    spec.seq = spec.seq.next();
    let map = fleet.server.put_map(Some("map-1".to_owned()), spec);
    fleet.tell(0, Input::MapSeen(map::Seen::Present(map)));

    delete_map(&mut fleet);
    fleet.run(Duration::from_secs(10));

    let spec = fleet.server.spec();
    assert!(spec.shards.iter().all(|it| it.epoch.0 > 5_000_000));
}

#[test]
fn workers_that_joined_after_the_loss_are_left_alone() {
    let mut fleet = Fleet::running(&["a"]);
    delete_map(&mut fleet);
    fleet.run(Duration::from_secs(1));

    fleet.join("b");
    fleet.run(Duration::from_secs(8));

    assert!(matches!(fleet.worker_holder("b"), Holder::Member(..)));
    assert_eq!(fleet.owned_by("b").len(), usize::from(N_SHARDS));
}

#[test]
fn empty_map_in_the_place_of_a_lost_one_is_not_trusted() {
    let mut fleet = Fleet::running(&["a", "b"]);
    let term = fleet.server.spec().term;

    let map = fleet.server.put_map(None, ShardMapSpec::default());
    fleet.tell(0, Input::MapSeen(map::Seen::Present(map)));
    fleet.run(Duration::from_secs(1));

    assert_eq!(fleet.worker_holder("a"), Holder::Evicted);
    assert_eq!(fleet.server.spec().term, Term(0));
    fleet.run(Duration::from_secs(6));
    assert!(fleet.server.spec().term > term);
}

#[test]
fn map_that_was_set_back_is_not_trusted() {
    let mut fleet = Fleet::running(&["a", "b"]);
    let old = fleet.server.spec().clone();
    fleet.worker("b").renews = false;
    fleet.run(Duration::from_secs(6));
    assert_eq!(fleet.owned_by("a").len(), usize::from(N_SHARDS));
    let newest = fleet.server.spec().version();

    fleet.server.put_map(Some("map-1".to_owned()), old);
    fleet.join("c");
    fleet.run(Duration::from_secs(3));

    assert_eq!(fleet.worker_holder("a"), Holder::Evicted);
    fleet.run(Duration::from_secs(6));
    assert!(fleet.server.spec().version() > newest);
}

#[test]
fn candidate_that_saw_a_loss_mended_by_another_does_not_mend_it_again() {
    let mut fleet = Fleet::new(2, Rules::default());
    for name in ["a", "b"] {
        fleet.join(name);
    }
    fleet.run(Duration::from_secs(3));
    let leader = fleet.leaders()[0];
    fleet.server.delete_map();
    for n in [leader, 1 - leader] {
        fleet.tell(n, Input::MapSeen(map::Seen::Absent));
    }
    fleet.run(Duration::from_secs(8));
    fleet.join("c");
    fleet.run(Duration::from_secs(3));
    fleet.reports.clear();

    fleet.replicas[leader].is_alive = false;
    fleet.run(Duration::from_secs(8));

    assert_eq!(fleet.leaders(), [1 - leader]);
    assert!(!fleet.reports.contains(&Report::MapLost));
    assert!(matches!(fleet.worker_holder("c"), Holder::Member(..)));
}

#[test]
fn candidate_that_no_watch_shows_a_map_reads_that_there_is_none() {
    let mut fleet = Fleet::new(1, Rules::default());
    fleet.server.delete_map();
    fleet.restart(0);

    fleet.run(Duration::from_secs(6));

    assert_eq!(fleet.leaders(), [0]);
    assert_eq!(fleet.server.spec().shard_count, N_SHARDS);
}

#[test]
fn installation_without_any_map_waits_one_duration_and_makes_it() {
    let mut fleet = Fleet::new(1, Rules::default());
    fleet.server.delete_map();
    fleet.tell(0, Input::MapSeen(map::Seen::Absent));

    let took = fleet.run_until(Duration::from_secs(10), |it| {
        it.server.map() != map::Seen::Absent
    });

    assert!(took >= DURATION, "{took:?}");
    assert!(took <= DURATION + Duration::from_millis(500), "{took:?}");
    let leader = fleet.replicas[0].leader.election().incarnation();
    let named = fleet.server.spec().leader.clone();
    let named = named.map(|it| it.incarnation);
    assert_eq!(named.as_deref(), leader.map(Incarnation::as_str));
    assert_ne!(leader, Some(&incarnation("nobody")));
}

#[test]
fn map_that_was_only_labelled_by_hand_is_written_on() {
    let mut fleet = Fleet::running(&["a"]);
    let spec = fleet.server.spec().clone();
    let map = fleet.server.put_map(Some("map-1".to_owned()), spec);
    fleet.tell(0, Input::MapSeen(map::Seen::Present(map)));

    fleet.join("b");
    fleet.run(Duration::from_secs(30));

    assert!(!fleet.owned_by("b").is_empty());
    assert!(!fleet.reports.contains(&Report::MapEdited));
    assert!(!fleet.reports.contains(&Report::MapLost));
}

#[test]
fn map_that_was_edited_under_its_own_numbers_is_written_as_it_was() {
    let mut fleet = Fleet::running(&["a", "b"]);
    fleet.broken_by_hand = [Invariant::EpochMonotonic, Invariant::OneTerm].into();
    let before = fleet.server.spec().clone();
    let mut edited = before.clone();
    for entry in &mut edited.shards {
        entry.owner = Some(0);
        entry.epoch.0 += 1;
    }
    edited.shard_count = 7;
    let map = fleet.server.put_map(Some("map-1".to_owned()), edited);
    fleet.tell(0, Input::MapSeen(map::Seen::Present(map)));
    fleet.run(Duration::from_secs(1));

    let after = fleet.server.spec();
    assert_eq!(after.shards, before.shards);
    assert_eq!(after.shard_count, N_SHARDS);
    assert_eq!(after.version(), (before.term, before.seq.next()));
    let n_told = fleet.reports.iter().filter(|it| **it == Report::MapEdited);
    assert_eq!(n_told.count(), 1);
    assert!(matches!(fleet.worker_holder("b"), Holder::Member(..)));
}

#[test]
fn map_that_was_edited_under_the_next_numbers_is_as_good_as_lost() {
    let mut fleet = Fleet::running(&["a", "b"]);
    fleet.broken_by_hand = [Invariant::EpochMonotonic].into();
    let mut edited = fleet.server.spec().clone();
    for entry in &mut edited.shards {
        entry.owner = Some(0);
        entry.epoch.0 += 1;
    }
    edited.shard_count = 7;
    edited.shards.truncate(7);
    edited.seq = edited.seq.next();
    let (edited, version) = (edited.clone(), edited.version());
    let map = fleet.server.put_map(Some("map-1".to_owned()), edited);
    fleet.tell(0, Input::MapSeen(map::Seen::Present(map)));
    fleet.run(Duration::from_millis(200));

    for name in ["a", "b"] {
        assert_eq!(fleet.worker_holder(name), Holder::Evicted);
    }
    assert_eq!(fleet.server.spec().version(), version);
    fleet.run(Duration::from_secs(10));
    let after = fleet.server.spec();
    assert!(after.version() > version);
    assert_eq!(after.shard_count, N_SHARDS);
    assert_eq!(after.shards.len(), usize::from(N_SHARDS));
    assert!(fleet.reports.contains(&Report::MapLost));
}

#[test]
fn map_that_cannot_be_read_is_led_by_nobody_and_nothing_moves() {
    let mut fleet = Fleet::running(&["a", "b"]);
    let before = fleet.server.spec().clone();
    fleet.server.is_unreadable = true;
    fleet.tell(0, Input::MapSeen(map::Seen::Unreadable));
    fleet.run(Duration::from_secs(20));

    assert!(fleet.leaders().is_empty());
    assert_eq!(fleet.holder(LEADER_LEASE), Holder::Released);
    assert_eq!(*fleet.server.spec(), before);
    let n_told = fleet.reports.iter();
    let n_told = n_told.filter(|it| **it == Report::MapUnreadable).count();
    assert_eq!(n_told, 1);

    // No watch tells that this is over.
    fleet.server.is_unreadable = false;
    fleet.run(Duration::from_secs(10));

    assert_eq!(fleet.leaders(), [0]);
    assert_eq!(fleet.server.spec().shards, before.shards);
    for name in ["a", "b"] {
        assert!(matches!(fleet.worker_holder(name), Holder::Member(..)));
    }
}

#[test]
fn write_of_the_map_whose_answer_is_lost_is_no_edit() {
    let mut fleet = Fleet::running(&["a"]);
    fleet.map_writes = MapWrites::AnswerLost;
    fleet.join("b");
    fleet.run(Duration::from_secs(2));
    fleet.map_writes = MapWrites::Answered;
    fleet.run(Duration::from_secs(30));

    assert!(!fleet.owned_by("b").is_empty());
    assert!(!fleet.reports.contains(&Report::MapEdited));
    assert!(!fleet.reports.contains(&Report::MapLost));
}
