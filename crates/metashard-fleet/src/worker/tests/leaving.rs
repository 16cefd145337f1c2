//! How a worker leaves.

use super::*;

const SHUTDOWN: Duration = Duration::from_secs(20);

fn ask(scene: &mut Scene) {
    scene.tell(Input::ShutdownAsked { grace: SHUTDOWN });
}

/// Whether an empty holder was asked to be written since the last look.
fn releases_lease(scene: &mut Scene) -> bool {
    scene.taken().iter().any(|action| {
        matches!(
            action,
            Action::Lease { request: Request::Put(record), .. } if record.holder == Holder::Released
        )
    })
}

#[test]
fn leader_is_told_and_drains() {
    let mut scene = Scene::member(&[Me(3), Me(4)]);

    ask(&mut scene);
    assert_eq!(
        scene.steps(),
        [Action::Send(FromWorker::Leaving { grace: SHUTDOWN })]
    );
    assert!(
        scene.may_act(claim(0, 3)),
        "it works on until it is drained"
    );
    assert_eq!(scene.worker.standing().phase(), Phase::Leaving);
    scene.drain(claim(0, 3));
    scene.drained(claim(0, 3));
    scene.drain(claim(1, 4));
    assert!(!releases_lease(&mut scene), "a gate is open");
    scene.drained(claim(1, 4));

    assert!(releases_lease(&mut scene));
}

#[test]
fn finished_when_the_empty_holder_is_confirmed() {
    let mut scene = Scene::member(&[]);
    ask(&mut scene);

    scene.confirm();

    assert_eq!(
        scene.steps().pop(),
        Some(Action::Finish { unfinished: vec![] })
    );
    assert_eq!(scene.worker.standing().phase(), Phase::Left);
    assert_eq!(scene.worker.poll_timeout(), None);
}

#[test]
fn without_a_leader_it_closes_its_gates_itself() {
    type Cut = fn(&mut Scene);
    let cases: [(&str, Cut); 3] = [
        ("before", |scene| {
            scene.tell(Input::SessionClosed);
            ask(scene);
        }),
        ("after", |scene| {
            ask(scene);
            scene.tell(Input::SessionClosed);
        }),
        ("never drained", |scene| {
            ask(scene);
            for _ in 0..10 {
                scene.renew();
            }
        }),
    ];
    for (name, cut) in cases {
        let mut scene = Scene::member(&[Me(3)]);
        scene.tell(Input::Fresh(claim(0, 3)));

        cut(&mut scene);
        assert_eq!(
            scene.steps().pop(),
            Some(Action::Drain {
                claim: claim(0, 3),
                grace: GRACE
            }),
            "{name}"
        );
        scene.drained(claim(0, 3));

        if name == "never drained" {
            let writes = [written("v1/configmaps", "70")];
            assert!(scene.out.contains(&released(claim(0, 3), &writes)));
        }
        assert!(releases_lease(&mut scene), "{name}");
    }
}

#[test]
fn nothing_new_is_taken_up() {
    let mut scene = Scene::member(&[Me(3)]);
    ask(&mut scene);
    scene.taken();

    scene.see_map(1, 2, &[Me(3), Me(4)]);

    assert_eq!(scene.steps(), []);
    assert!(!scene.may_act(claim(1, 4)));
}

#[test]
fn what_is_not_drained_in_time_is_named() {
    let mut scene = Scene::member(&[Me(3)]);
    ask(&mut scene);

    scene.wait(SHUTDOWN);

    let finish = Action::Finish {
        unfinished: vec![claim(0, 3)],
    };
    assert_eq!(scene.steps().pop(), Some(finish));
    assert!(!scene.may_act(claim(0, 3)));
}

#[test]
fn second_request_only_shortens_the_time() {
    let mut scene = Scene::member(&[Me(3)]);
    ask(&mut scene);
    scene.tell(Input::ShutdownAsked { grace: seconds(60) });

    scene.tell(Input::ShutdownAsked { grace: seconds(1) });
    scene.wait(seconds(1));

    assert_eq!(scene.worker.standing().phase(), Phase::Left);
}

#[test]
fn it_leaves_at_once_before_it_has_a_lease() {
    for is_drawing in [false, true] {
        let mut scene = Scene::new();
        if is_drawing {
            scene.read_map(0, 0, &[]);
        }

        ask(&mut scene);

        assert_eq!(
            scene.steps().pop(),
            Some(Action::Finish { unfinished: vec![] })
        );
    }
}

#[test]
fn lease_that_is_only_being_created_is_released() {
    let mut scene = Scene::new();
    scene.tell(Input::DispatcherAnswered);
    scene.read_map(0, 0, &[]);
    scene.draw();

    ask(&mut scene);
    scene.confirm();

    assert!(releases_lease(&mut scene));
}

#[test]
fn lost_worker_that_leaves_ends_when_nothing_is_in_flight() {
    let mut scene = Scene::member(&[Me(3)]);
    scene.wait(seconds(1));
    scene.lose(scene.fenced());

    ask(&mut scene);
    assert_eq!(scene.worker.standing().phase(), Phase::Leaving);
    scene.wait(seconds(1));
    scene.drained(claim(0, 3));

    assert_eq!(
        scene.steps().pop(),
        Some(Action::Finish { unfinished: vec![] })
    );
}

#[test]
fn wedged_dispatcher_does_not_keep_the_empty_holder_back() {
    let mut scene = Scene::member(&[]);
    scene.now = scene.now.after(seconds(10));

    ask(&mut scene);

    assert!(releases_lease(&mut scene));
}
