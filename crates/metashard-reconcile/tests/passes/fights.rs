//! Children that somebody else changes each time they are put right, and writes that are refused.

use std::time::Duration;

use metashard_reconcile::{
    fights::{FIRST_HOLD, REPAIRS, WINDOW},
    requeue::Requeue,
    sync::Verdict,
    write::{Purpose, WriteError},
};
use serde_json::{Value, json};

use crate::world::{Bench, CONFIG, config, rule, spec, told};

const SECOND: Duration = Duration::from_secs(1);

/// A bench with children `a` and `b` at second 1.
fn bench(by_server: bool) -> Bench {
    let children = [config("a", "1"), config("b", "1")];
    let mut bench = if by_server {
        Bench::applying(&spec(), &children)
    } else {
        Bench::wanting(&spec(), &children)
    };
    bench.world.manages_fields = true;
    bench.now = Some(SECOND);
    bench.pass();
    bench
}

/// Somebody changes `a`, and a pass follows.
fn fight(bench: &mut Bench, round: u32) -> Vec<String> {
    change(bench, round);
    told(&bench.pass())
}

fn change(bench: &mut Bench, round: u32) {
    let theirs = format!("theirs {round}");
    bench.world.edit_as("gitops", CONFIG, "a", |it| {
        it["data"]["a"] = theirs.clone().into();
    });
}

/// As many rounds as it takes; the events of the last.
fn fight_until_held(bench: &mut Bench) -> Vec<String> {
    for round in 1..REPAIRS {
        assert_eq!(fight(bench, round), [""; 0]);
        assert_eq!(bench.purposes(), [Purpose::UpdateChild]);
    }
    fight(bench, REPAIRS)
}

#[test]
fn a_child_that_is_fought_over_is_let_be_and_people_are_told_who_does_it() {
    for by_server in [false, true] {
        let mut bench = bench(by_server);

        let events = fight_until_held(&mut bench);

        assert_eq!(events.len(), 1);
        let expected = "HotLoop: ConfigMap ns1/a: data.a is changed by manager \"gitops\" each time it is put right";
        assert!(events[0].starts_with(expected), "{events:?}");
        change(&mut bench, 99);
        let outcome = bench.pass();
        assert_eq!(bench.purposes(), [], "it is let be");
        assert_eq!(
            (&outcome.verdict, outcome.fights.len()),
            (&Verdict::Unchanged, 1)
        );
        assert_eq!(outcome.requeue, Requeue::After(FIRST_HOLD));
        assert!(outcome.for_fight);
    }
}

#[test]
fn its_siblings_are_written_meanwhile_and_it_is_too_once_something_else_is_desired() {
    let mut bench = bench(false);
    fight_until_held(&mut bench);
    change(&mut bench, 99);
    bench.want(&[config("a", "1"), config("b", "2"), config("c", "1")]);
    bench.pass();
    assert_eq!(
        bench.purposes(),
        [Purpose::UpdateChild, Purpose::CreateChild]
    );

    bench.want(&[config("a", "3")]);
    bench.pass();

    assert_eq!(bench.child("a")["data"]["a"], "3");
}

#[test]
fn after_a_while_it_is_tried_again_and_let_be_for_longer() {
    let mut bench = bench(false);
    fight_until_held(&mut bench);
    change(&mut bench, 98);
    bench.now = bench.now.map(|now| now + FIRST_HOLD);

    let again = told(&bench.pass());

    assert_eq!(
        (again.len(), bench.purposes()),
        (1, vec![Purpose::UpdateChild])
    );
    change(&mut bench, 99);
    let outcome = bench.pass();
    assert_eq!(outcome.requeue, Requeue::After(FIRST_HOLD * 2));
}

#[test]
fn a_fight_ends_by_itself_when_nobody_changes_the_child_any_more() {
    let mut bench = bench(false);
    fight_until_held(&mut bench);
    assert_eq!(bench.pass().fights.len(), 1);
    bench.now = bench.now.map(|now| now + FIRST_HOLD);

    let outcome = bench.pass();

    assert_eq!((outcome.fights.len(), outcome.requeue), (0, Requeue::Await));
    assert_eq!(fight(&mut bench, 99), [""; 0]);
    assert_eq!(
        bench.purposes(),
        [Purpose::UpdateChild],
        "as if nothing had been"
    );
}

#[test]
fn changes_over_a_longer_time_are_put_right_each_time() {
    let mut bench = bench(false);
    for round in 0..REPAIRS * 3 {
        bench.now = bench.now.map(|now| now + WINDOW / 4);
        assert_eq!(fight(&mut bench, round), [""; 0]);
        assert_eq!(bench.purposes(), [Purpose::UpdateChild]);
    }
}

#[test]
fn a_hook_that_wants_something_else_each_time_fights_with_nobody() {
    let mut bench = bench(false);
    for round in 0..REPAIRS * 3 {
        bench.want(&[config("a", &round.to_string()), config("b", "1")]);
        assert_eq!(told(&bench.pass()), [""; 0]);
        assert_eq!(bench.purposes(), [Purpose::UpdateChild]);
    }
}

#[test]
fn a_child_that_somebody_deletes_each_time_is_let_be_too() {
    let mut bench = bench(false);
    let mut events = Vec::new();
    for _ in 0..REPAIRS {
        bench.world.delete(CONFIG, "a");
        events = told(&bench.pass());
        assert_eq!(bench.purposes(), [Purpose::CreateChild]);
    }
    assert!(events[0].starts_with("HotLoop: ConfigMap ns1/a: it is deleted by somebody"));

    bench.world.delete(CONFIG, "a");
    bench.pass();

    assert_eq!(bench.purposes(), []);
}

#[test]
fn a_child_that_is_made_anew_each_time_is_let_be_too() {
    let mut spec = spec();
    spec["childResources"][0] = rule("v1", CONFIG, "Recreate");
    let mut bench = Bench::wanting(&spec, &[config("a", "1")]);
    bench.now = Some(SECOND);
    bench.pass();
    for round in 0..REPAIRS {
        change(&mut bench, round);
        bench.pass();
        assert_eq!(bench.purposes(), [Purpose::RecreateChild]);
        bench.pass();
        assert_eq!(bench.purposes(), [Purpose::CreateChild]);
    }
    change(&mut bench, 99);

    bench.pass();

    assert_eq!(bench.purposes(), []);
}

#[test]
fn a_refused_write_is_reported_with_its_object_and_no_longer_once_it_succeeds() {
    let mut bench = Bench::wanting(&spec(), &[config("a", "1")]);
    let forbidden = WriteError::Forbidden("configmaps is forbidden".into());
    bench.world.errors = vec![(Purpose::CreateChild, "a", forbidden.clone())];

    let refused = bench.pass().refused;

    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0].write, "create ConfigMap ns1/a");
    assert_eq!(refused[0].error, forbidden);
    assert_eq!(bench.pass().refused, []);
    let value: &Value = bench.child("a");
    assert_eq!(value["data"], json!({"a": "1"}));
}
