//! A small world that carries out what is decided, and answers as replicas do; moves are interrupted at every step.

use metashard_api::v1alpha1::status::MigrationStatus;

use super::*;
use crate::migrate::{
    Move,
    seen::{LeaseSeen, PeerSeen},
};

/// More steps than any move takes.
const MANY: usize = 100;

fn workload(replicas: i64) -> Workload {
    Workload {
        kind: "StatefulSet".to_owned(),
        namespace: "ops".to_owned(),
        name: "mc".to_owned(),
        replicas,
    }
}

fn controller(name: &str) -> ControllerSeen {
    ControllerSeen {
        kind: "CompositeController".to_owned(),
        name: name.to_owned(),
        observe: false,
        round: None,
        report: None,
        ready: Some(true),
        message: String::new(),
        is_paused: false,
        is_acted_on: false,
        moved: Move {
            controller: name.to_owned(),
            refusals: Vec::new(),
            differences: Vec::new(),
        },
    }
}

/// Two controllers, a Metacontroller of two replicas with a Lease, and a replica of metashard.
fn world() -> Seen {
    Seen {
        peers: vec![PeerSeen {
            workload: workload(2),
            pods: 2,
            is_pending: false,
        }],
        leases: vec![LeaseSeen {
            title: "ops/metacontroller".to_owned(),
            holder: "mc-0".to_owned(),
            is_over: Some(false),
        }],
        controllers: vec![controller("a"), controller("b")],
        replicas: Some(1),
        ..Seen::default()
    }
}

/// Carries out a step.
fn carry_out(world: &mut Seen, next: &Next) {
    match next {
        Next::Record(record) => world.record = Some(record.clone()),
        Next::Mark { name, mark, .. } => {
            let found = world.controllers.iter_mut().find(|it| it.name == *name);
            let found = found.unwrap();
            found.observe = mark.is_some_and(|mark| mark.observe);
            found.round = mark.map(|mark| mark.round.to_string());
        }
        Next::Scale(workload) => world.peers[0].workload.replicas = workload.replicas,
        Next::Wait(_) => live(world),
        Next::Stop(_) | Next::Finished(_) => {}
    }
}

/// What goes on by itself: Pods come and end, Leases run out, replicas answer.
fn live(world: &mut Seen) {
    let peer = &mut world.peers[0];
    peer.pods = usize::try_from(peer.workload.replicas).unwrap();
    world.leases[0].is_over = Some(peer.pods == 0);
    let held = world.record.as_ref().is_some_and(|it| it.stage.holds());
    for controller in &mut world.controllers {
        controller.report = controller.round.clone().map(|round| MigrationStatus {
            round,
            acts: !controller.observe && !held,
            held,
            parents: 3,
            synced: 3,
            ..MigrationStatus::default()
        });
        controller.is_acted_on = !controller.observe && !held;
    }
}

/// Metacontroller may act, and metashard may.
fn may_act(world: &Seen) -> (bool, bool) {
    let peer = &world.peers[0];
    let held = world.record.as_ref().is_none_or(|it| it.stage.holds());
    // As a replica does that has not heard of the record for a while: it goes on with what it acted on.
    let acts = world.controllers.iter().any(|it| it.is_acted_on);
    (peer.workload.replicas > 0 || peer.pods > 0, !held || acts)
}

/// Goes on until it ends; at most `steps` steps.
fn run(world: &mut Seen, steps: usize, decide: impl Fn(&Seen) -> Next) -> Next {
    for _ in 0..steps {
        let next = decide(world);
        if matches!(next, Next::Stop(_) | Next::Finished(_)) {
            return next;
        }
        carry_out(world, &next);
        assert_ne!(may_act(world), (true, true), "after {next:?}: {world:#?}");
    }
    Next::Wait("not at the end".to_owned())
}

fn all(world: &Seen) -> Next {
    apply(world, &Wishes::default())
}

fn is_finished(next: &Next) -> bool {
    matches!(next, Next::Finished(_))
}

fn stage(world: &Seen) -> Option<Stage> {
    world.record.as_ref().map(|record| record.stage)
}

#[test]
fn a_move_goes_through_all_stages_and_leaves_no_mark() {
    let mut world = world();

    let end = run(&mut world, MANY, all);

    assert!(is_finished(&end), "{end:?}");
    assert_eq!(stage(&world), Some(Stage::Done));
    assert_eq!(world.peers[0].workload.replicas, 0);
    assert!(
        world
            .controllers
            .iter()
            .all(|it| !it.observe && it.round.is_none())
    );
    assert!(is_finished(&run(&mut world, 1, all)), "again");
}

#[test]
fn from_every_step_a_move_goes_on_and_goes_back_and_the_two_never_act_at_once() {
    for steps in 0..MANY {
        let mut left = world();
        let end = run(&mut left, steps, all);

        let mut on = left.clone();
        assert!(is_finished(&run(&mut on, MANY, all)), "on from {left:#?}");

        let mut back = left.clone();
        if left.record.is_some() {
            for more in 0..20 {
                let mut half_back = left.clone();
                run(&mut half_back, more, rollback);
                let end = run(&mut half_back, MANY, all);
                assert!(is_finished(&end), "on from half back: {end:?}");
                assert_eq!(stage(&half_back), Some(Stage::Done));
            }
            let end = run(&mut back, MANY, rollback);
            assert!(is_finished(&end), "back from {left:#?}: {end:?}");
            assert_eq!(back.peers[0].workload.replicas, 2);
            assert_eq!(stage(&back), Some(Stage::Back));
            assert!(is_finished(&run(&mut back, MANY, all)), "anew");
        }
        if is_finished(&end) {
            return;
        }
    }
    panic!("a move does not end");
}

#[test]
fn controllers_are_moved_one_by_one_and_the_first_that_degrades_stops_it() {
    let mut world = world();
    let acts = |world: &Seen| {
        let acts = world
            .controllers
            .iter()
            .filter(|it| it.report.as_ref().is_some_and(|it| it.acts));
        acts.count()
    };
    while acts(&world) == 0 {
        let next = all(&world);
        carry_out(&mut world, &next);
    }
    world.controllers[0].ready = Some(false);
    world.controllers[0].message = "HooksReady: no route".to_owned();

    let Next::Stop(why) = run(&mut world, MANY, all) else {
        panic!("it goes on");
    };
    assert!(
        why[0].contains("no route") && why[2].contains("rollback"),
        "{why:?}"
    );
    assert_eq!(acts(&world), 1);
    assert!(world.controllers[1].observe);

    world.controllers[0].ready = Some(true);
    assert!(is_finished(&run(&mut world, MANY, all)));
}

#[test]
fn a_controller_that_is_paused_holds_nobody_up() {
    let mut world = world();
    let paused = &mut world.controllers[0];
    (paused.is_paused, paused.ready) = (true, Some(false));

    assert!(is_finished(&run(&mut world, MANY, all)));
}

#[test]
fn a_parent_that_fails_is_waited_for() {
    let mut world = world();
    while !world
        .controllers
        .iter()
        .any(|it| it.report.as_ref().is_some_and(|it| it.acts))
    {
        let next = all(&world);
        carry_out(&mut world, &next);
    }
    let report = world.controllers[0].report.as_mut().unwrap();
    report.failing = 1;
    report.examples = vec!["ns/p: no".to_owned()];

    assert_eq!(
        all(&world),
        Next::Wait(
            "CompositeController a to settle: 3 of 3 parents synced, 1 failing: ns/p: no"
                .to_owned()
        )
    );
}

/// At the end of observing, with a write that metashard would make.
fn observed(wishes: &Wishes) -> (Seen, Next) {
    let mut world = world();
    while !matches!(apply(&world, wishes), Next::Wait(_)) {
        let next = apply(&world, wishes);
        carry_out(&mut world, &next);
    }
    live(&mut world);
    let report = world.controllers[0].report.as_mut().unwrap();
    report.writes = 1;
    report.examples = vec!["create ConfigMap ns/c".to_owned()];
    let next = apply(&world, wishes);
    (world, next)
}

#[test]
fn writes_that_would_be_made_stop_a_move_unless_they_are_accepted() {
    let (_, Next::Stop(why)) = observed(&Wishes::default()) else {
        panic!("it goes on");
    };
    assert!(why[0].ends_with("writes we would have made: 1"), "{why:?}");
    assert_eq!(why[1], "  create ConfigMap ns/c");

    let wishes = Wishes {
        accept_writes: true,
        ..Wishes::default()
    };
    let (_, Next::Record(record)) = observed(&wishes) else {
        panic!("it does not go on");
    };
    assert_eq!(record.stage, Stage::Stopping);
}

#[test]
fn whoever_wants_to_observe_only_stops_nothing() {
    let wishes = Wishes {
        only_observe: true,
        accept_writes: true,
        ..Wishes::default()
    };
    let (world, next) = observed(&wishes);

    assert!(is_finished(&next), "{next:?}");
    assert_eq!(world.peers[0].workload.replicas, 2);
}

#[test]
fn some_controllers_alone_are_moved_only_if_the_others_may_rest() {
    let mut wishes = Wishes {
        controllers: vec!["b".to_owned()],
        ..Wishes::default()
    };
    let mut left = world();
    let Next::Stop(why) = run(&mut left, MANY, |world| apply(world, &wishes)) else {
        panic!("it goes on");
    };
    assert!(
        why[0].contains("nobody would act on CompositeController a"),
        "{why:?}"
    );
    assert_eq!(left.peers[0].workload.replicas, 2);

    wishes.let_others_rest = true;
    assert!(is_finished(&run(&mut left, MANY, |world| apply(
        world, &wishes
    ))));
    assert_eq!(
        (left.controllers[0].observe, left.controllers[1].observe),
        (true, false)
    );
    assert_eq!(stage(&left), Some(Stage::Moving));
    assert!(is_finished(&run(&mut left, MANY, all)));
    assert_eq!(stage(&left), Some(Stage::Done));
}

fn stops(world: &Seen, text: &str) {
    match all(world) {
        Next::Stop(why) => assert!(why.iter().any(|it| it.contains(text)), "{why:?}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_cannot_be_guaranteed_is_refused_before_anything_is_written() {
    let mut refused = world();
    refused.controllers[1].moved.refusals = vec!["spec.x: no".to_owned()];
    stops(
        &refused,
        "CompositeController b would not be served: spec.x: no",
    );

    stops(
        &Seen {
            peers: Vec::new(),
            ..world()
        },
        "no Metacontroller was found",
    );
    stops(
        &Seen {
            strays: vec!["Pod ops/x".to_owned()],
            ..world()
        },
        "belongs to no StatefulSet",
    );
    stops(
        &Seen {
            lacks: vec!["a CRD".to_owned()],
            ..world()
        },
        "a CRD",
    );

    let mut both = world();
    both.controllers[0].is_acted_on = true;
    stops(&both, "stop metashard at once");
}

/// A world in this stage, in which nothing of Metacontroller is left.
fn moving() -> Seen {
    let mut world = world();
    while stage(&world) != Some(Stage::Moving) {
        let next = all(&world);
        carry_out(&mut world, &next);
    }
    world
}

#[test]
fn nothing_is_moved_while_anything_of_metacontroller_may_live() {
    for edit in [
        (|world| world.peers[0].pods = 1) as fn(&mut Seen),
        |world| world.peers[0].is_pending = true,
        |world| world.leases[0].is_over = Some(false),
        |world| world.leases[0].is_over = None,
        |world| world.strays.push("Pod ops/x".to_owned()),
    ] {
        let mut world = moving();
        edit(&mut world);
        assert!(matches!(all(&world), Next::Wait(_)), "{world:#?}");
    }
    let mut world = moving();
    world.peers[0].workload.replicas = 1;
    stops(&world, "was started again while metashard acts");
}

#[test]
fn metacontroller_is_started_only_when_metashard_rests_or_is_gone() {
    let mut world = world();
    run(&mut world, MANY, all);
    let next = rollback(&world);
    carry_out(&mut world, &next);
    for _ in 0..2 {
        let next = rollback(&world);
        carry_out(&mut world, &next);
    }
    // The answers of the round before do not count.
    assert!(matches!(rollback(&world), Next::Wait(_)));
    live(&mut world);
    world.controllers[1].report.as_mut().unwrap().acts = true;
    assert!(matches!(rollback(&world), Next::Wait(_)));

    world.replicas = Some(0);
    assert_eq!(rollback(&world), Next::Scale(workload(2)));
    world.peers.clear();
    assert!(matches!(rollback(&world), Next::Stop(_)));
}

#[test]
fn without_a_record_there_is_nothing_to_go_back_from() {
    assert!(matches!(rollback(&world()), Next::Stop(_)));
}

#[test]
fn a_record_is_read_as_it_was_written_and_holds_while_metacontroller_may_act() {
    for (stage, holds) in [
        (Stage::Observing, "true"),
        (Stage::Stopping, "true"),
        (Stage::Moving, "false"),
        (Stage::Done, "false"),
        (Stage::HandingBack, "true"),
        (Stage::Back, "true"),
    ] {
        let record = Record {
            stage,
            round: 4,
            workloads: vec![workload(2)],
        };
        let mut data = record.to_data();
        assert_eq!(data["hold"], holds);
        assert_eq!(Record::from_data(&data), Ok(record));
        data.insert("stage".to_owned(), "gone".to_owned());
        assert!(Record::from_data(&data).is_err());
    }
}
