//! Workers that die, fall silent or are cut off.

use std::time::Duration;

use super::fleet::{DURATION, Fleet, LEADER_LEASE, MapWrites, N_SHARDS, lease_of, n_moved};
use crate::{
    leader::{Input, Report},
    message::Order,
    record::{Holder, Seen},
    rules::Rules,
    testing::incarnation,
};

#[test]
fn orphans_of_a_dead_worker_are_all_placed_in_one_map_write() {
    let mut fleet = Fleet::running(&["a", "b", "c"]);
    let before = fleet.server.spec().clone();
    let n_orphans = fleet.owned_by("c").len();

    fleet.worker("c").renews = false;
    let took = fleet.run_until(Duration::from_secs(10), |it| it.owned_by("c").is_empty());

    assert!(took <= DURATION + Duration::from_millis(200), "{took:?}");
    assert_eq!(fleet.worker_holder("c"), Holder::Fenced);
    assert_eq!(fleet.maps.len(), 1);
    assert_eq!(n_moved(&before, fleet.server.spec()), n_orphans);
    let assigns = [fleet.orders("a"), fleet.orders("b")].concat();
    assert_eq!(assigns.len(), n_orphans);
}

#[test]
fn every_new_ownership_has_a_higher_epoch() {
    let mut fleet = Fleet::running(&["a", "b", "c"]);
    let orphans = fleet.owned_by("c");

    fleet.worker("c").renews = false;
    fleet.run(Duration::from_secs(6));

    for orphan in orphans {
        let (_, epoch) = fleet.owner(orphan.shard.0).unwrap();
        assert_eq!(epoch, orphan.epoch.next());
    }
}

#[test]
fn worker_that_renews_late_but_in_time_keeps_its_shards() {
    let mut fleet = Fleet::running(&["a", "b", "c"]);
    let before = fleet.server.spec().clone();

    fleet.worker("c").renews = false;
    fleet.run(Duration::from_secs(3));
    fleet.worker("c").renews = true;
    fleet.run(Duration::from_secs(10));

    assert_eq!(fleet.server.spec(), &before);
}

#[test]
fn more_than_half_of_the_workers_silent_at_once_get_one_more_duration() {
    let mut fleet = Fleet::running(&["a", "b", "c"]);

    for name in ["b", "c"] {
        fleet.worker(name).renews = false;
    }
    let took = fleet.run_until(Duration::from_secs(20), |it| it.owned_by("c").is_empty());

    assert!(took >= Duration::from_secs(7), "{took:?}");
    assert!(
        took <= DURATION * 2 + Duration::from_millis(500),
        "{took:?}"
    );
    let postponed = Report::FencingPostponed {
        silent: 2,
        workers: 3,
    };
    assert!(fleet.reports.contains(&postponed), "{:?}", fleet.reports);
    assert_eq!(fleet.owned_by("a").len(), usize::from(N_SHARDS));
}

#[test]
fn leader_that_could_not_write_itself_fences_nobody() {
    let mut fleet = Fleet::running(&["a", "b", "c"]);

    fleet.worker("c").renews = false;
    fleet.replicas[0].renewing_since = None;
    fleet.run(Duration::from_secs(30));
    assert_eq!(fleet.owned_by("c").len(), 10);

    fleet.replicas[0].renewing_since = Some(fleet.now.mono);
    fleet.run(Duration::from_millis(3_900));
    assert_eq!(fleet.owned_by("c").len(), 10);
    fleet.run(Duration::from_millis(300));
    assert_eq!(fleet.owned_by("c").len(), 0);
}

#[test]
fn fence_loses_against_a_renewal_that_came_first() {
    let mut fleet = Fleet::running(&["a", "b", "c"]);
    fleet.worker("c").renews = false;
    fleet.run(Duration::from_secs(3));
    // A renewal that the watch has not shown yet.
    let name = lease_of(&incarnation("c"));
    let mut record = super::fleet::present(fleet.server.lease(&name));
    record.attempt += 1;
    fleet.server.put(&name, record);

    fleet.run(Duration::from_secs(2));

    assert_ne!(fleet.worker_holder("c"), Holder::Fenced);
    assert!(!fleet.owned_by("c").is_empty());
}

#[test]
fn empty_holder_is_the_release_of_all_that_it_held() {
    let mut fleet = Fleet::running(&["a", "b", "c"]);
    let incarnation = incarnation("c");
    fleet.worker("c").renews = false;

    fleet
        .server
        .take(&lease_of(&incarnation), Holder::Released, DURATION);
    fleet.show_worker(&incarnation);

    assert_eq!(fleet.owned_by("c").len(), 0);
    assert_eq!(fleet.maps.len(), 1);
}

#[test]
fn absent_lease_is_proof_only_after_its_wait_and_a_quorum_read() {
    let mut fleet = Fleet::running(&["a", "b", "c"]);
    let incarnation = incarnation("c");
    fleet.worker("c").renews = false;
    fleet.server.delete(&lease_of(&incarnation));
    fleet.show_worker(&incarnation);

    fleet.run(Duration::from_millis(3_800));
    assert_eq!(fleet.owned_by("c").len(), 10);

    fleet.run(Duration::from_millis(400));
    assert_eq!(fleet.owned_by("c").len(), 0);
}

#[test]
fn worker_of_the_map_whose_lease_no_list_shows_is_waited_out() {
    let mut fleet = Fleet::running(&["a", "b", "c"]);
    fleet.server.delete(&lease_of(&incarnation("c")));
    fleet.worker("c").renews = false;
    // A new leader that never saw the Lease.
    let mut other = Fleet::new(1, Rules::default());
    std::mem::swap(&mut other.server, &mut fleet.server);
    other.server.delete(LEADER_LEASE);
    let names = ["a", "b"];
    for name in names {
        other.join(name);
    }
    let map = other.server.map();
    other.tell(0, Input::MapSeen(map));

    other.run(Duration::from_millis(7_900));
    assert_eq!(other.leaders(), [0]);
    assert_eq!(other.owned_by("c").len(), 10);

    other.run(Duration::from_millis(500));
    assert_eq!(other.owned_by("c").len(), 0);
}

#[test]
fn worker_without_a_session_keeps_its_shards() {
    let mut fleet = Fleet::running(&["a", "b", "c"]);
    let before = fleet.server.spec().clone();

    fleet.disconnect("c");
    fleet.run(Duration::from_mins(2));

    assert_eq!(fleet.server.spec(), &before);
}

#[test]
fn dead_worker_is_taken_over_by_the_map_alone_where_no_session_works() {
    let mut fleet = Fleet::running(&["a", "b", "c"]);
    for name in ["a", "b", "c"] {
        fleet.disconnect(name);
    }

    fleet.worker("c").renews = false;
    fleet.run(Duration::from_secs(6));

    assert_eq!(fleet.owned_by("c").len(), 0);
    let n_owned = fleet.owned_by("a").len() + fleet.owned_by("b").len();
    assert_eq!(n_owned, usize::from(N_SHARDS));
}

#[test]
fn orphans_wait_for_a_map_that_can_be_written_and_then_go_at_once() {
    let mut fleet = Fleet::running(&["a", "b", "c"]);
    fleet.worker("c").renews = false;
    fleet.map_writes = MapWrites::Lost;
    fleet.run(Duration::from_secs(10));
    assert_eq!(fleet.owned_by("c").len(), 10);
    assert_eq!(fleet.snapshot().n_unowned, 10);

    fleet.map_writes = MapWrites::Answered;
    fleet.run(Duration::from_millis(300));

    assert_eq!(fleet.owned_by("c").len(), 0);
    assert_eq!(fleet.snapshot().n_unowned, 0);
}

#[test]
fn first_worker_after_all_have_died_gets_everything() {
    let mut fleet = Fleet::running(&["a", "b"]);
    for name in ["a", "b"] {
        fleet.worker(name).renews = false;
    }
    fleet.run(Duration::from_secs(12));
    assert_eq!(fleet.snapshot().n_unowned, usize::from(N_SHARDS));
    assert!(fleet.snapshot().unowned_for >= Duration::from_secs(3));

    fleet.join("d");
    fleet.run(Duration::from_millis(200));

    assert_eq!(fleet.owned_by("d").len(), usize::from(N_SHARDS));
}

#[test]
fn lease_of_a_worker_that_is_over_is_deleted_after_ten_minutes() {
    let mut fleet = Fleet::running(&["a", "b", "c"]);
    fleet.worker("c").renews = false;
    let name = lease_of(&incarnation("c"));

    fleet.run(Duration::from_secs(595));
    assert!(matches!(fleet.server.lease(&name), Seen::Present(_)));

    fleet.run(Duration::from_secs(25));
    assert_eq!(fleet.server.lease(&name), Seen::Absent);
}

#[test]
fn lease_of_a_worker_that_the_map_names_is_never_deleted() {
    let mut fleet = Fleet::running(&["a"]);
    fleet.worker("a").renews = false;
    let name = lease_of(&incarnation("a"));

    fleet.run(Duration::from_mins(15));

    assert_eq!(fleet.worker_holder("a"), Holder::Fenced);
    assert!(matches!(fleet.server.lease(&name), Seen::Present(_)));
}

#[test]
fn worker_whose_lease_another_took_is_fenced_after_its_own_duration() {
    let mut fleet = Fleet::running(&["a", "b", "c"]);
    let name = lease_of(&incarnation("c"));
    let foreign = Holder::Foreign("kubectl".to_owned());
    fleet.server.take(&name, foreign, Duration::from_secs(1));
    fleet.show_worker(&incarnation("c"));

    fleet.run(Duration::from_millis(3_800));
    assert_eq!(fleet.owned_by("c").len(), 10);

    fleet.run(Duration::from_millis(500));
    assert_eq!(fleet.worker_holder("c"), Holder::Fenced);
    assert_eq!(fleet.owned_by("c").len(), 0);
}

#[test]
fn assign_after_a_crash_names_no_last_write() {
    let mut fleet = Fleet::running(&["a", "b", "c"]);
    fleet.worker("c").renews = false;

    fleet.run(Duration::from_secs(6));

    let told = fleet.orders("a");
    let blank = told
        .iter()
        .all(|it| matches!(it, Order::Assign { last_written, .. } if last_written.is_empty()));
    assert!(blank && !told.is_empty(), "{told:?}");
}
