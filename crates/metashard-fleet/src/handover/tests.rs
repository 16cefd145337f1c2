//! One shard's way, without a leader around it.

use super::*;

const SHARD: ShardId = ShardId(3);
const GRACE: Duration = Duration::from_secs(2);

fn at(millis: u64) -> Now {
    Now::default().after(Duration::from_millis(millis))
}

fn of(name: &str) -> Incarnation {
    Incarnation::new(name)
}

fn claim(epoch: u64) -> Claim {
    Claim {
        shard: SHARD,
        epoch: Epoch(epoch),
    }
}

fn begun(why: Why) -> HandOvers {
    let mut hand_overs = HandOvers::default();
    let begin = Begin {
        claim: claim(5),
        from: of("a"),
        to: Some(of("b")),
        why,
        warm: Some(WARM_TIMEOUT),
    };
    hand_overs.begin(at(0), begin);
    hand_overs
}

fn orders(hand_overs: &mut HandOvers, millis: u64) -> Vec<(Incarnation, Order)> {
    hand_overs.advance(at(millis), GRACE, |_| true).orders
}

fn drain() -> (Incarnation, Order) {
    let order = Order::Drain {
        claim: claim(5),
        grace: GRACE,
    };
    (of("a"), order)
}

#[test]
fn target_is_asked_once_and_again_on_a_new_session() {
    let mut hand_overs = begun(Why::Balance);
    let warm = [(of("b"), Order::Warm { shard: SHARD })];

    assert_eq!(orders(&mut hand_overs, 0), warm);
    assert_eq!(orders(&mut hand_overs, 100), []);
    hand_overs.session_opened(&of("b"));
    assert_eq!(orders(&mut hand_overs, 200), warm);
}

#[test]
fn only_the_target_can_say_that_it_is_warm() {
    let mut hand_overs = begun(Why::Balance);
    orders(&mut hand_overs, 0);

    hand_overs.warm_ready(SHARD, &of("c"));
    assert_eq!(orders(&mut hand_overs, 100), []);

    hand_overs.warm_ready(SHARD, &of("b"));
    assert_eq!(orders(&mut hand_overs, 200), [drain()]);
}

#[test]
fn hand_over_for_balance_ends_with_its_owners_session_unless_the_drain_was_told() {
    let mut undrained = begun(Why::Balance);
    orders(&mut undrained, 0);
    let mut drained = begun(Why::Balance);
    orders(&mut drained, 0);
    drained.warm_ready(SHARD, &of("b"));
    orders(&mut drained, 100);

    assert!(undrained.settle(|_| true, |it| *it != of("a")));
    assert!(!drained.settle(|_| true, |it| *it != of("a")));

    assert!(undrained.is_empty());
    assert_eq!(drained.len(), 1, "a drain cannot be recalled");
}

#[test]
fn hand_over_whose_target_went_away_after_the_drain_waits_for_another() {
    let mut hand_overs = begun(Why::Balance);
    orders(&mut hand_overs, 0);
    hand_overs.warm_ready(SHARD, &of("b"));
    orders(&mut hand_overs, 0);

    hand_overs.settle(|it| *it != of("b"), |_| true);
    assert_eq!(hand_overs.get(SHARD).and_then(|it| it.to.clone()), None);

    hand_overs.retarget(SHARD, Some(of("c")));
    let to = hand_overs.get(SHARD).and_then(|it| it.to.clone());
    assert_eq!(to, Some(of("c")));
}

#[test]
fn unanswered_warm_is_due_after_its_time_and_a_second_one_is_not_repeated() {
    let mut hand_overs = begun(Why::Leaving);
    orders(&mut hand_overs, 0);
    assert_eq!(hand_overs.poll_timeout(at(1), GRACE), Some(at(10_000).mono));

    let due = hand_overs.advance(at(10_000), GRACE, |_| true);
    assert_eq!(due.unanswered, [SHARD]);
    hand_overs.retarget(SHARD, Some(of("c")));
    orders(&mut hand_overs, 10_000);
    let due = hand_overs.advance(at(20_000), GRACE, |_| true);

    assert_eq!(due.unanswered, []);
    assert_eq!(due.orders, [drain()]);
}

#[test]
fn owner_is_overdue_a_minute_after_its_deadline() {
    let mut hand_overs = begun(Why::Leaving);
    hand_overs.retarget(SHARD, None);
    orders(&mut hand_overs, 0);

    let due = hand_overs.advance(at(61_999), GRACE, |_| true);
    assert_eq!(due.overdue, BTreeSet::new());

    let due = hand_overs.advance(at(62_000), GRACE, |_| true);
    assert_eq!(due.overdue, BTreeSet::from([of("a")]));
}

#[test]
fn release_that_is_repeated_without_its_writes_does_not_forget_them() {
    let mut hand_overs = HandOvers::default();
    let written = vec![LastWritten {
        resource: "v1/configmaps".to_owned(),
        resource_version: "17".to_owned(),
    }];

    hand_overs.released(claim(5), &of("a"), written.clone());
    hand_overs.released(claim(5), &of("a"), Vec::new());
    hand_overs.released(claim(4), &of("a"), Vec::new());

    let release = hand_overs.release(claim(5), &of("a"));
    assert_eq!(release.map(|it| it.last_written.clone()), Some(written));
}

#[test]
fn only_what_was_moved_of_our_own_accord_cools_down() {
    for (why, cools) in [
        (Why::Balance, true),
        (Why::Join, true),
        (Why::RollOut, true),
        (Why::Leaving, false),
    ] {
        let mut hand_overs = begun(why);

        hand_overs.finish(at(1_000), SHARD);

        assert_eq!(hand_overs.is_cooling(SHARD, at(60_999)), cools);
        assert!(!hand_overs.is_cooling(SHARD, at(61_000)));
    }
}

#[test]
fn phases_of_a_hand_over_are_told_apart() {
    let mut hand_overs = begun(Why::Balance);
    orders(&mut hand_overs, 0);
    hand_overs.warm_ready(SHARD, &of("b"));
    orders(&mut hand_overs, 300);
    hand_overs.released(claim(5), &of("a"), Vec::new());
    orders(&mut hand_overs, 350);

    let hand_over = hand_overs.get(SHARD).unwrap();
    let took = hand_over.took(at(360));

    let millis = Duration::from_millis;
    let expected = Took {
        warm: Some(millis(300)),
        drain: Some(millis(50)),
        assign: millis(10),
        total: millis(360),
    };
    assert_eq!(took, expected);
    let other = Took {
        total: millis(900),
        ..Took::default()
    };
    assert_eq!(took.longest(other).warm, Some(millis(300)));
    assert_eq!(took.longest(other).total, millis(900));
}
