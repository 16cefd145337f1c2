//! What the leader asks for on a session.

use super::*;

#[test]
fn assign_counts_as_the_entry_of_the_map_it_stands_on() {
    let mut scene = Scene::member(&[Other(3), Other(3)]);

    scene.assign(5, claim(0, 4), vec![]);
    assert_eq!(scene.steps(), [start(claim(0, 4), Freshness::Crash)]);
    // A map between the two changes other shards only.
    scene.see_map(1, 4, &[Other(3), Me(4)]);
    assert_eq!(scene.steps(), [start(claim(1, 4), Freshness::Crash)]);
    assert!(scene.may_act(claim(0, 4)));

    scene.see_map(1, 5, &[Other(5), Me(4)]);
    assert_eq!(scene.steps(), [Action::Drop(claim(0, 4))]);
}

#[test]
fn assign_that_the_map_contradicts_is_ignored() {
    let mut scene = Scene::member(&[Other(5)]);

    scene.assign(1, claim(0, 4), vec![]);
    scene.assign(0, claim(0, 6), vec![]);

    assert_eq!(scene.steps(), []);
}

#[test]
fn order_of_a_lower_term_is_refused() {
    let mut scene = Scene::member(&[Me(3)]);
    scene.see_map(2, 1, &[Me(3)]);
    scene.taken();

    for order in [
        Order::Warm { shard: ShardId(1) },
        Order::Drain {
            claim: claim(0, 3),
            grace: GRACE,
        },
        Order::Assign {
            claim: claim(1, 7),
            last_written: vec![],
            splits_as_of: (Term(0), Seq(0)),
        },
    ] {
        scene.order(1, 99, order.clone());
        assert_eq!(scene.steps(), [], "{order:?}");
    }
}

#[test]
fn mutant_takes_orders_of_a_lower_term() {
    let rules = Rules::breaking(Rule::NewestTerm);
    let mut scene = Scene::member_breaking(rules, &[Me(3)]);
    scene.see_map(2, 1, &[Me(3)]);

    scene.drain(claim(0, 3));

    assert!(matches!(scene.out.last(), Some(Action::Drain { .. })));
}

#[test]
fn shard_is_warmed_and_the_leader_told_once() {
    let mut scene = Scene::member(&[]);

    scene.order(1, 1, Order::Warm { shard: ShardId(7) });
    scene.tell(Input::Warmed(ShardId(7)));
    scene.tell(Input::Warmed(ShardId(7)));

    assert_eq!(
        scene.steps(),
        [
            Action::Warm(ShardId(7)),
            Action::Send(FromWorker::WarmReady { shard: ShardId(7) })
        ]
    );
}

#[test]
fn drain_is_answered_when_nothing_is_in_flight_any_more() {
    let mut scene = Scene::member(&[Me(3)]);
    scene.tell(Input::Fresh(claim(0, 3)));
    assert!(scene.worker.standing().may_begin(claim(0, 3), scene.now));

    scene.drain(claim(0, 3));
    assert_eq!(
        scene.steps(),
        [Action::Drain {
            claim: claim(0, 3),
            grace: GRACE
        }]
    );
    assert!(scene.may_act(claim(0, 3)), "what runs may still write");
    assert!(!scene.worker.standing().may_begin(claim(0, 3), scene.now));
    scene.drained(claim(0, 3));

    let writes = [written("v1/configmaps", "70")];
    assert_eq!(scene.steps(), [released(claim(0, 3), &writes)]);
    assert!(!scene.may_act(claim(0, 3)));
}

#[test]
fn mutant_answers_a_drain_with_writes_in_flight() {
    let rules = Rules::breaking(Rule::ReleaseWhenDrained);
    let mut scene = Scene::member_breaking(rules, &[Me(3)]);

    scene.drain(claim(0, 3));

    assert_eq!(scene.steps().pop(), Some(released(claim(0, 3), &[])));
    assert!(scene.may_act(claim(0, 3)));
}

#[test]
fn drain_told_twice_is_carried_out_once_and_answered_again() {
    let mut scene = Scene::member(&[Me(3)]);
    scene.tell(Input::Fresh(claim(0, 3)));
    scene.drain(claim(0, 3));
    scene.taken();

    scene.drain(claim(0, 3));
    assert_eq!(scene.steps(), []);
    scene.drained(claim(0, 3));
    scene.taken();
    scene.drain(claim(0, 3));

    let writes = [written("v1/configmaps", "70")];
    assert_eq!(scene.steps(), [released(claim(0, 3), &writes)]);
}

#[test]
fn drain_of_an_epoch_not_held_yet_is_answered_and_that_epoch_never_held() {
    let mut scene = Scene::member(&[Other(3)]);

    scene.drain(claim(0, 4));
    assert_eq!(scene.steps(), [released(claim(0, 4), &[])]);
    scene.see_map(1, 2, &[Me(4)]);

    assert_eq!(scene.steps(), []);
    assert!(!scene.may_act(claim(0, 4)));
}

#[test]
fn drain_of_the_next_epoch_ends_the_older_one_before_it_is_answered() {
    let mut scene = Scene::member(&[Me(3)]);
    scene.tell(Input::Fresh(claim(0, 3)));

    scene.drain(claim(0, 4));
    assert_eq!(scene.steps(), [Action::Drop(claim(0, 3))]);
    assert!(!scene.may_act(claim(0, 3)));
    scene.drained(claim(0, 3));

    let writes = [written("v1/configmaps", "70")];
    assert_eq!(scene.steps(), [released(claim(0, 4), &writes)]);
}

#[test]
fn writes_of_an_older_epoch_do_not_stand_for_an_owner_in_between() {
    let mut scene = Scene::member(&[Me(3)]);
    scene.tell(Input::Fresh(claim(0, 3)));

    scene.drain(claim(0, 5));
    scene.drained(claim(0, 3));

    assert_eq!(scene.steps().pop(), Some(released(claim(0, 5), &[])));
}

#[test]
fn drain_of_an_epoch_long_over_is_answered() {
    let mut scene = Scene::member(&[Me(5)]);

    scene.drain(claim(0, 4));

    assert_eq!(scene.steps(), [released(claim(0, 4), &[])]);
    assert!(scene.may_act(claim(0, 5)));
}

#[test]
fn release_is_repeated_in_each_hello_until_the_map_shows_a_higher_epoch() {
    let mut scene = Scene::member(&[Me(3)]);
    scene.drain(claim(0, 3));
    scene.tell(Input::SessionClosed);
    scene.drained(claim(0, 3));
    let told = |scene: &mut Scene| {
        scene.tell(Input::SessionClosed);
        scene.tell(Input::SessionOpened);
        scene.steps().iter().any(|action| {
            matches!(
                action,
                Action::Send(FromWorker::Hello { released, .. }) if *released == [claim(0, 3)]
            )
        })
    };

    assert!(told(&mut scene));
    assert!(told(&mut scene));
    scene.see_map(1, 2, &[Nobody(3)]);
    assert!(told(&mut scene));
    scene.see_map(1, 3, &[Other(4)]);
    assert!(!told(&mut scene));
}

#[test]
fn without_a_session_nothing_is_sent_and_no_order_is_taken() {
    let mut scene = Scene::member(&[Me(3)]);
    scene.tell(Input::SessionClosed);

    scene.drain(claim(0, 3));

    assert_eq!(scene.steps(), []);
    assert!(scene.may_act(claim(0, 3)), "static stability");
}
