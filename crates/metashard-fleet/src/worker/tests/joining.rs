//! How a worker becomes a member, and a member again.

use super::*;

#[test]
fn first_it_reads_a_map_and_pings_the_dispatcher() {
    let mut scene = Scene::new();

    assert_eq!(scene.taken(), [Action::PingDispatcher, Action::ReadMap]);
    assert_eq!(scene.worker.standing().phase(), Phase::Starting);
}

#[test]
fn without_a_map_it_reads_again_and_does_not_join() {
    for answer in [None, Some(MapSeen::Absent)] {
        let mut scene = Scene::new();
        scene.taken();

        scene.tell(Input::MapRead(answer));
        assert_eq!(scene.steps(), []);
        scene.wait(millis(500));

        assert_eq!(scene.steps(), [Action::ReadMap]);
    }
}

#[test]
fn map_that_the_watch_shows_first_is_read_before_it_counts() {
    let mut scene = Scene::new();
    scene.tell(Input::MapRead(Some(MapSeen::Absent)));
    scene.taken();

    scene.see_map(0, 0, &[]);

    assert_eq!(scene.steps(), [Action::ReadMap]);
    assert_eq!(scene.worker.standing().map(), None);
}

#[test]
fn it_creates_a_lease_of_its_own_for_each_incarnation() {
    let mut scene = Scene::new();
    scene.tell(Input::DispatcherAnswered);
    scene.read_map(0, 0, &[]);
    assert_eq!(scene.out.last(), Some(&Action::DrawIncarnation));

    scene.draw();

    let Some(Action::Lease {
        incarnation: it,
        request: Request::Create(record),
    }) = scene.out.last()
    else {
        panic!("{:?}", scene.out);
    };
    assert_eq!(*it, incarnation(1));
    assert!(record.holder.is_incarnation(&incarnation(1)));
    assert_eq!(scene.worker.standing().phase(), Phase::Joining);
}

#[test]
fn it_does_not_join_before_the_dispatcher_has_answered() {
    let mut scene = Scene::new();
    scene.read_map(0, 0, &[]);
    scene.draw();
    scene.wait(seconds(5));
    assert!(
        scene
            .taken()
            .iter()
            .all(|action| !matches!(action, Action::Lease { .. }))
    );

    scene.tell(Input::DispatcherAnswered);

    assert!(matches!(scene.lease_request(), Request::Create(_)));
}

#[test]
fn it_is_a_member_only_once_its_lease_is_confirmed() {
    let mut scene = Scene::new();
    scene.tell(Input::DispatcherAnswered);
    scene.read_map(0, 0, &[]);
    scene.draw();
    assert_eq!(scene.worker.standing().incarnation(), None);

    scene.confirm();

    assert_eq!(
        scene.steps(),
        [
            Action::ReadMap,
            Action::DrawIncarnation,
            Action::OpenSession(incarnation(1))
        ]
    );
    let standing = scene.worker.standing();
    assert_eq!(standing.incarnation(), Some(&incarnation(1)));
    assert_eq!(scene.now.boot.until(standing.deadline()), millis(3600));
}

#[test]
fn hello_names_what_is_held_and_released() {
    let mut scene = Scene::member(&[Me(3), Me(4), Me(5), Other(6)]);
    scene.tell(Input::Fresh(claim(1, 4)));
    scene.drain(claim(2, 5));
    scene.drained(claim(2, 5));
    scene.tell(Input::SessionClosed);
    scene.taken();

    scene.tell(Input::SessionOpened);

    assert_eq!(
        scene.steps(),
        [
            Action::Send(FromWorker::Hello {
                replica: ReplicaId::new("r1"),
                incarnation: incarnation(1),
                held: vec![claim(0, 3), claim(1, 4)],
                released: vec![claim(2, 5)],
            }),
            Action::Send(FromWorker::Released {
                claim: claim(2, 5),
                last_written: vec![],
            }),
        ]
    );
}

#[test]
fn it_joins_again_only_when_nothing_of_the_last_incarnation_is_in_flight() {
    let mut scene = Scene::member(&[Me(3), Me(4)]);
    scene.drain(claim(1, 4));
    scene.wait(seconds(1));
    scene.lose(scene.fenced());
    assert_eq!(scene.worker.standing().phase(), Phase::Ending);
    assert_eq!(
        scene.steps(),
        [
            Action::Drain {
                claim: claim(1, 4),
                grace: GRACE
            },
            Action::ReportLoss(Loss::Lease(scene.fenced())),
            Action::CloseSession,
            Action::Drop(claim(0, 3)),
            Action::Drop(claim(1, 4)),
        ]
    );

    scene.drained(claim(1, 4));
    scene.wait(seconds(30));
    assert_eq!(scene.steps(), []);
    scene.drained(claim(0, 3));
    assert_eq!(scene.steps(), [Action::ReadMap]);
    scene.read_map(1, 2, &[Other(4), Other(5)]);
    assert_eq!(scene.steps(), [Action::DrawIncarnation]);
    scene.tell(Input::DispatcherAnswered);
    scene.draw();
    scene.confirm();

    assert_eq!(scene.worker.standing().incarnation(), Some(&incarnation(2)));
    assert_eq!(scene.steps(), [Action::OpenSession(incarnation(2))]);
}

#[test]
fn mutant_joins_again_with_writes_in_flight() {
    let rules = Rules::breaking(Rule::RejoinWhenDrained);
    let mut scene = Scene::member_breaking(rules, &[Me(3)]);
    scene.wait(seconds(1));

    scene.lose(scene.fenced());

    assert_eq!(scene.out.last(), Some(&Action::ReadMap));
}

#[test]
fn answer_for_the_last_incarnation_is_not_taken_for_this_one() {
    let mut scene = Scene::member(&[]);
    scene.wait(seconds(1));
    let record = scene.record();
    let map = scene.map("uid-2", 1, 2, &[]);
    scene.tell(Input::MapSeen(MapSeen::Present(Arc::clone(&map))));
    scene.tell(Input::MapRead(Some(MapSeen::Present(map))));
    scene.tell(Input::DispatcherAnswered);
    scene.draw();
    assert!(matches!(scene.lease_request(), Request::Create(_)));

    scene.tell(Input::LeaseAnswered {
        incarnation: incarnation(1),
        answer: crate::lease::Input::Written(Written::Accepted(record)),
    });

    assert_eq!(scene.worker.standing().phase(), Phase::Joining);
}
