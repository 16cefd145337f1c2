//! One shard through its ownerships: tombstones, drops, successions, and what its caches must have seen.

use super::*;

#[test]
fn map_gives_and_takes() {
    let mut scene = Scene::member(&[Other(3), Me(3), Nobody(0)]);
    assert!(scene.may_act(claim(1, 3)));
    assert!(!scene.may_act(claim(0, 3)));

    scene.see_map(1, 2, &[Me(4), Other(4), Me(1)]);

    assert_eq!(
        scene.steps(),
        [
            start(claim(0, 4), Freshness::Crash),
            Action::Drop(claim(1, 3)),
            start(claim(2, 1), Freshness::Crash),
        ]
    );
    assert!(scene.may_act(claim(0, 4)) && !scene.may_act(claim(1, 3)));
}

#[test]
fn released_epoch_is_never_held_again() {
    let mut scene = Scene::member(&[Me(3)]);
    scene.drain(claim(0, 3));
    scene.drained(claim(0, 3));
    scene.taken();

    scene.see_map(1, 2, &[Me(3)]);
    scene.assign(3, claim(0, 3), vec![]);

    assert_eq!(scene.steps(), []);
    assert!(!scene.may_act(claim(0, 3)));
}

#[test]
fn mutant_without_tombstones_takes_a_released_epoch_up_again() {
    let rules = Rules::breaking(Rule::Tombstones);
    let mut scene = Scene::member_breaking(rules, &[Me(3)]);
    scene.drain(claim(0, 3));

    scene.drained(claim(0, 3));

    assert!(scene.may_act(claim(0, 3)));
    assert!(scene.broken.contains(&Invariant::NoResurrection));
}

#[test]
fn lost_epoch_is_never_held_again() {
    let mut scene = Scene::member(&[Me(3)]);
    scene.see_map(1, 2, &[Nobody(3)]);
    scene.drained(claim(0, 3));
    scene.taken();

    scene.see_map(1, 3, &[Me(3)]);

    assert_eq!(scene.steps(), []);
}

#[test]
fn next_epoch_of_the_same_owner_waits_until_the_last_one_is_over() {
    let mut scene = Scene::member(&[Me(3)]);
    scene.tell(Input::Fresh(claim(0, 3)));

    scene.see_map(1, 2, &[Me(4)]);
    assert_eq!(scene.steps(), [Action::Drop(claim(0, 3))]);
    assert!(!scene.may_act(claim(0, 3)) && !scene.may_act(claim(0, 4)));
    scene.drained(claim(0, 3));

    let writes = vec![written("v1/configmaps", "70")];
    assert_eq!(
        scene.steps(),
        [start(claim(0, 4), Freshness::Released(writes))]
    );
}

#[test]
fn mutant_starts_the_next_epoch_with_the_last_one_in_flight() {
    let rules = Rules::breaking(Rule::StartWhenDrained);
    let mut scene = Scene::member_breaking(rules, &[Me(3)]);

    scene.see_map(1, 2, &[Me(4)]);

    assert!(scene.may_act(claim(0, 4)));
}

#[test]
fn drained_ownership_is_dropped_if_the_map_moves_on() {
    let mut scene = Scene::member(&[Me(3)]);
    scene.drain(claim(0, 3));
    scene.taken();

    scene.see_map(1, 2, &[Other(4)]);

    assert_eq!(scene.steps(), [Action::Drop(claim(0, 3))]);
    assert!(!scene.may_act(claim(0, 3)));
}

#[test]
fn freshness_is_what_is_known_of_the_last_owner() {
    let writes = vec![written("v1/configmaps", "70")];
    let mut scene = Scene::member(&[Other(3), Other(3)]);

    scene.assign(2, claim(0, 4), writes.clone());
    scene.assign(2, claim(1, 4), vec![]);

    assert_eq!(
        scene.steps(),
        [
            start(claim(0, 4), Freshness::Released(writes)),
            start(claim(1, 4), Freshness::Crash)
        ]
    );
}

#[test]
fn assign_after_the_map_lightens_what_the_caches_wait_for() {
    let writes = vec![written("v1/configmaps", "70")];
    let mut scene = Scene::member(&[Other(3)]);
    scene.see_map(1, 2, &[Me(4)]);
    assert_eq!(scene.steps(), [start(claim(0, 4), Freshness::Crash)]);

    scene.assign(2, claim(0, 4), writes.clone());
    scene.assign(2, claim(0, 4), writes.clone());

    assert_eq!(
        scene.steps(),
        [start(claim(0, 4), Freshness::Released(writes))]
    );
}

#[test]
fn assign_tells_of_the_writes_also_when_some_controllers_work_already() {
    let writes = vec![written("v1/configmaps", "70")];
    let mut scene = Scene::member(&[Me(4)]);
    scene.tell(Input::Fresh(claim(0, 4)));

    scene.assign(1, claim(0, 4), writes.clone());

    assert_eq!(
        scene.steps(),
        [start(claim(0, 4), Freshness::Released(writes))]
    );
}

/// How an ownership with epoch 4 begins and goes, and what its release then tells of writes.
#[test]
fn release_tells_the_own_writes_and_those_before_them() {
    let pods = || written("v1/pods", "50");
    let maps = |version| written("v1/configmaps", version);
    // (told by Assign, was fresh, own writes, told by Released)
    let cases = [
        (vec![], true, vec![maps("70")], vec![maps("70")]),
        (
            vec![pods()],
            true,
            vec![maps("70")],
            vec![maps("70"), pods()],
        ),
        (vec![maps("60")], true, vec![maps("70")], vec![maps("70")]),
        (vec![pods()], true, vec![], vec![pods()]),
        (vec![pods()], false, vec![], vec![pods()]),
        // Not known where its predecessor's writes ended: neither is it for its successor.
        (vec![], false, vec![], vec![]),
    ];
    for (assigned, is_fresh, own, expected) in cases {
        let mut scene = Scene::member(&[Other(3)]);
        scene.assign(2, claim(0, 4), assigned.clone());
        if is_fresh {
            scene.tell(Input::Fresh(claim(0, 4)));
        }
        scene.drain(claim(0, 4));

        scene.tell(Input::Drained {
            claim: claim(0, 4),
            last_written: own.clone(),
        });

        assert_eq!(
            scene.steps().pop(),
            Some(released(claim(0, 4), &expected)),
            "{assigned:?} {is_fresh} {own:?}"
        );
    }
}

#[test]
fn own_successor_goes_on_from_its_own_writes() {
    let writes = vec![written("v1/configmaps", "70")];
    let mut scene = Scene::member(&[Me(3)]);
    scene.tell(Input::Fresh(claim(0, 3)));
    scene.see_map(1, 2, &[Me(4)]);

    scene.tell(Input::Drained {
        claim: claim(0, 3),
        last_written: writes.clone(),
    });

    assert_eq!(
        scene.steps().pop(),
        Some(start(claim(0, 4), Freshness::Released(writes)))
    );
}

#[test]
fn own_successor_after_another_owner_starts_as_after_a_crash() {
    let mut scene = Scene::member(&[Me(3)]);
    scene.tell(Input::Fresh(claim(0, 3)));
    scene.see_map(1, 2, &[Other(4)]);
    scene.drained(claim(0, 3));

    scene.see_map(1, 3, &[Me(5)]);

    assert_eq!(
        scene.steps().pop(),
        Some(start(claim(0, 5), Freshness::Crash))
    );
}

#[test]
fn drained_without_being_asked_changes_nothing() {
    let mut scene = Scene::member(&[Me(3)]);

    scene.drained(claim(0, 3));
    scene.drained(claim(0, 2));
    scene.drained(claim(1, 1));

    assert_eq!(scene.steps(), []);
    assert!(scene.may_act(claim(0, 3)));
}

#[test]
fn shard_beyond_the_end_of_the_map_is_lost() {
    let mut scene = Scene::member(&[Me(3), Me(3)]);

    scene.see_map(1, 2, &[Me(3)]);

    assert_eq!(scene.steps(), [Action::Drop(claim(1, 3))]);
}

#[test]
fn standing_changes_only_if_something_in_it_does() {
    let mut scene = Scene::member(&[Me(3)]);
    let before = Arc::clone(scene.worker.standing());

    scene.tell(Input::DispatcherAnswered);
    scene.tell(Input::Warmed(ShardId(9)));
    assert!(Arc::ptr_eq(&before, scene.worker.standing()));
    scene.renew();

    let after = scene.worker.standing();
    assert!(after.deadline() > before.deadline());
    assert_eq!(after.held(ShardId(0)), before.held(ShardId(0)));
}
