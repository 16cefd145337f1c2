//! Taking and losing a term.

use std::time::Duration;

use metashard_api::{
    id::{Incarnation, ShardId, Term},
    shard_map::Member,
};

use super::fleet::{Fleet, LEADER_LEASE, MapWrites, N_SHARDS, n_moved};
use crate::{
    election::Phase,
    invariants::Invariant,
    leader::{Action, Input, Report},
    message::Order,
    record::Holder,
    rules::{Rule, Rules},
    testing::incarnation,
};

#[test]
fn first_leader_makes_the_term_its_own_and_sets_the_number_of_shards_once() {
    let mut fleet = Fleet::new(1, Rules::default());

    fleet.run(Duration::from_millis(200));

    let spec = fleet.server.spec();
    let leader = fleet.replicas[0].leader.election().incarnation();
    assert_eq!(spec.term, Term(1));
    assert_eq!(spec.shard_count, N_SHARDS);
    assert_eq!(spec.shards.len(), usize::from(N_SHARDS));
    let named = spec.leader.as_ref().map(|it| it.incarnation.as_str());
    assert_eq!(named, leader.map(Incarnation::as_str));
}

#[test]
fn number_of_shards_of_a_map_that_has_them_is_kept() {
    let mut fleet = Fleet::running(&["a"]);
    fleet.broken_by_hand = [Invariant::EpochMonotonic].into();
    let mut spec = fleet.server.spec().clone();
    spec.shard_count = 8;
    spec.shards.truncate(8);
    spec.leader = None;
    spec.term = Term(9);
    let map = fleet.server.put_map(Some("map-1".to_owned()), spec);

    fleet.tell(0, Input::MapSeen(crate::map::Seen::Present(map)));
    fleet.run(Duration::from_secs(2));

    assert_eq!(fleet.server.spec().shard_count, 8);
    assert_eq!(fleet.server.spec().shards.len(), 8);
    assert_eq!(fleet.server.spec().term, Term(10));
}

#[test]
fn workers_that_start_together_share_from_the_first_map_with_owners() {
    let mut fleet = Fleet::new(1, Rules::default());
    fleet.run(Duration::from_millis(300));
    fleet.join("a");
    fleet.run(Duration::from_millis(500));
    fleet.join("b");

    fleet.run(Duration::from_secs(20));

    assert_eq!(fleet.owned_by("a").len(), 15);
    assert_eq!(fleet.owned_by("b").len(), 15);
    assert_eq!(fleet.maps.len(), 2, "the term, and one map with all owners");
}

#[test]
fn new_leader_raises_the_term_and_moves_nothing() {
    let mut fleet = Fleet::new(2, Rules::default());
    fleet.join("a");
    fleet.join("b");
    fleet.run(Duration::from_secs(3));
    let leader = fleet.leaders()[0];
    let before = fleet.server.spec().clone();

    fleet.replicas[leader].is_alive = false;
    let took = fleet.run_until(Duration::from_secs(10), |it| {
        it.leaders().first() == Some(&(1 - leader))
    });
    fleet.run(Duration::from_secs(30));

    assert!(took <= Duration::from_secs(5), "{took:?}");
    assert_eq!(fleet.server.spec().term, before.term.next());
    assert_eq!(n_moved(&before, fleet.server.spec()), 0);
}

#[test]
fn term_write_without_an_answer_is_looked_up_before_anything_else() {
    let mut fleet = Fleet::new(1, Rules::default());
    fleet.map_writes = MapWrites::AnswerLost;

    fleet.run(Duration::from_millis(600));

    assert_eq!(fleet.leaders(), [0]);
    assert_eq!(fleet.maps.len(), 1, "written once: the read showed it");
}

#[test]
fn term_that_another_incarnation_wrote_is_not_ours() {
    for rules in [Rules::default(), Rules::breaking(Rule::TermNamesLeader)] {
        let mut fleet = Fleet::new(1, rules);
        fleet.map_writes = MapWrites::Lost;
        fleet.run(Duration::from_millis(100));
        let mut spec = fleet.server.spec().clone();
        spec.term = Term(1);
        spec.leader = Some(Member {
            replica: "r9".to_owned(),
            incarnation: incarnation("other").to_string(),
        });
        fleet.server.put_map(Some("map-1".to_owned()), spec);

        fleet.map_writes = MapWrites::Lost;
        fleet.run(Duration::from_secs(1));

        let is_mutant = !rules.keep(Rule::TermNamesLeader);
        assert_eq!(fleet.leaders().len(), usize::from(is_mutant));
    }
}

#[test]
fn leader_whose_map_belongs_to_a_higher_term_steps_down() {
    let mut fleet = Fleet::running(&["a", "b"]);
    let mut spec = fleet.server.spec().clone();
    spec.term = spec.term.next();
    spec.leader = Some(Member {
        replica: "r9".to_owned(),
        incarnation: incarnation("other").to_string(),
    });
    let before = fleet.replicas[0].leader.election().incarnation().cloned();
    let map = fleet.server.put_map(Some("map-1".to_owned()), spec);

    fleet.tell(0, Input::MapSeen(crate::map::Seen::Present(map)));

    let lost = fleet.reports.contains(&Report::LeadLost { term: Term(1) });
    assert!(lost, "{:?}", fleet.reports);
    let after = fleet.replicas[0].leader.election().incarnation().cloned();
    assert_ne!(before, after);
}

#[test]
fn foreign_holder_of_the_leader_lease_stops_the_coordinator_and_nothing_else() {
    let mut fleet = Fleet::running(&["a", "b"]);
    fleet.broken_by_hand = [Invariant::OneLeader].into();
    let before = fleet.server.spec().clone();
    let foreign = Holder::Foreign("kubectl".to_owned());

    fleet
        .server
        .take(LEADER_LEASE, foreign.clone(), Duration::from_secs(15));
    fleet.run(Duration::from_secs(14));
    assert_eq!(fleet.leaders().len(), 0);
    assert_eq!(fleet.holder(LEADER_LEASE), foreign);
    assert_eq!(fleet.server.spec(), &before);

    fleet.run(Duration::from_secs(3));
    assert_eq!(fleet.leaders(), [0]);
    assert_eq!(n_moved(&before, fleet.server.spec()), 0);
}

#[test]
fn shutdown_releases_the_lead_and_finishes() {
    let mut fleet = Fleet::running(&["a"]);

    fleet.tell(0, Input::ShutdownAsked);
    fleet.run(Duration::from_millis(200));

    assert_eq!(fleet.holder(LEADER_LEASE), Holder::Released);
    assert!(fleet.replicas[0].has_finished);
    assert_eq!(fleet.snapshot().phase, Phase::Stopped);
}

#[test]
fn lead_is_released_only_when_the_map_write_under_way_is_answered() {
    let mut fleet = Fleet::running(&["a", "b"]);
    let mut actions = Vec::new();
    let released = crate::message::FromWorker::Released {
        claim: fleet.owned_by("a")[0],
        last_written: Vec::new(),
    };
    let now = fleet.now;
    let leader = &mut fleet.replicas[0].leader;
    let released = Input::FromWorker(incarnation("a"), released);

    leader.handle(now, released, &mut actions);
    leader.handle(now, Input::ShutdownAsked, &mut actions);
    let now = now.after(Duration::from_millis(1_500));
    leader.handle_timeout(now, &mut actions);
    let renewal = actions.iter().find_map(|action| {
        if let Action::LeaderLease(request) = action {
            Some(request.clone())
        } else {
            None
        }
    });
    let renewed = fleet.server.answer(LEADER_LEASE, renewal.unwrap());
    leader.handle(now, Input::LeaderLeaseAnswered(renewed), &mut actions);

    let n_writes = actions.iter().filter(|it| is_map_write(it)).count();
    assert_eq!(n_writes, 1, "{actions:?}");
    assert_eq!(leader.election().phase(), Phase::SteppingDown);
    actions.clear();
    let unknown = crate::record::Written::Unknown;
    leader.handle(now, Input::MapWritten(unknown), &mut actions);
    let n_writes = actions.iter().filter(|it| is_lease_write(it)).count();
    assert_eq!(n_writes, 1, "{actions:?}");
}

#[test]
fn nobody_is_told_of_an_epoch_that_is_not_in_the_map() {
    for rules in [Rules::default(), Rules::breaking(Rule::TableFirst)] {
        let mut fleet = Fleet::new(1, rules);
        fleet.join("a");
        fleet.run(Duration::from_millis(900));
        fleet.map_writes = MapWrites::Lost;

        fleet.run(Duration::from_secs(2));

        let assigns = fleet.orders("a").into_iter();
        let assigns = assigns.filter(|it| matches!(it, Order::Assign { .. }));
        assert_eq!(assigns.count() > 0, !rules.keep(Rule::TableFirst));
        let is_seen = fleet.replicas[0].broken.contains(&Invariant::TableFirst);
        assert_eq!(is_seen, !rules.keep(Rule::TableFirst));
    }
}

#[test]
fn map_write_that_was_carried_out_without_an_answer_is_followed_all_the_same() {
    let mut fleet = Fleet::new(1, Rules::default());
    fleet.join("a");
    fleet.run(Duration::from_millis(900));
    fleet.map_writes = MapWrites::AnswerLost;

    fleet.run(Duration::from_secs(2));

    assert_eq!(fleet.owned_by("a").len(), usize::from(N_SHARDS));
    assert_eq!(fleet.orders("a").len(), usize::from(N_SHARDS));
    assert!(fleet.owner(0).is_some_and(|(_, epoch)| epoch.0 == 1));
    assert_eq!(
        fleet.server.spec().owner(ShardId(0)).map(|it| it.1.0),
        Some(1)
    );
}

fn is_map_write(action: &Action) -> bool {
    matches!(action, Action::WriteMap(_))
}

fn is_lease_write(action: &Action) -> bool {
    use crate::{leader::Action, lease::Request};
    matches!(action, Action::LeaderLease(Request::Put(_)))
}
