//! Tests of how a claim begins by take-over and ends by release.

use super::*;

fn ended_record(server: &mut Server) -> Record {
    let record = Record {
        uid: String::new(),
        resource_version: String::new(),
        holder: member(OTHER),
        duration: Duration::from_secs(4),
        attempt: 7,
        about: About::default(),
    };
    let Written::Accepted(record) = server.store("uid-1", &record) else {
        panic!("stored");
    };
    record
}

#[test]
fn take_over_replaces_exactly_the_record_whose_claim_ended() {
    let mut scene = Scene::new();
    let ended = ended_record(&mut scene.server);
    scene.hold = Hold::take_over(scene.now, config(Rules::default()), ended.clone());

    let request = scene.request();

    let Request::Put(record) = &request else {
        panic!("{request:?}");
    };
    assert_eq!(
        (&record.uid, &record.resource_version),
        (&ended.uid, &ended.resource_version)
    );
}

#[test]
fn take_over_that_another_wins_is_lost() {
    let mut scene = Scene::new();
    let ended = ended_record(&mut scene.server);
    scene.hold = Hold::take_over(scene.now, config(Rules::default()), ended);
    scene.server.overwrite(member(OTHER));

    scene.round(Duration::ZERO);
    scene.round(Duration::ZERO);

    assert!(matches!(
        scene.hold.status(),
        Status::Lost(Seen::Present(_))
    ));
}

#[test]
fn take_over_without_an_answer_is_repeated_or_adopted() {
    for arrived in [true, false] {
        let mut scene = Scene::new();
        let ended = ended_record(&mut scene.server);
        scene.hold = Hold::take_over(scene.now, config(Rules::default()), ended);
        let attempt = scene.unanswered();
        if arrived {
            scene.server.write(&attempt);
        }

        scene.round(Duration::ZERO);
        scene.round(Duration::ZERO);

        assert_eq!(*scene.hold.status(), Status::Held, "arrived: {arrived}");
    }
}

#[test]
fn failures_that_come_at_once_are_spread() {
    let mut scene = Scene::held();
    let begin = scene.now;

    let mut requests = 0;
    while scene.now.mono.since(begin.mono) < millis(3000) {
        let request = scene.request();
        let answer = if request == Request::Read {
            Input::Read(None)
        } else {
            Input::Written(Written::Unknown)
        };
        scene.hold.handle(scene.now, answer);
        requests += 1;
    }

    assert!(
        requests <= 9,
        "{requests} requests in 2 s of refused connections"
    );
}

#[test]
fn release_writes_an_empty_holder_and_ends_the_right_to_act_before() {
    let mut scene = Scene::held();

    scene.hold.handle(scene.now, Input::ReleaseAsked);
    assert_eq!(scene.hold.deadline(), None);
    scene.round(Duration::ZERO);

    assert_eq!(*scene.hold.status(), Status::Released);
    let Seen::Present(record) = &scene.server.lease else {
        panic!("the Lease stays");
    };
    assert_eq!(record.holder, Holder::Released);
}

#[test]
fn release_waits_for_the_renewal_in_flight() {
    let mut scene = Scene::held();
    let renewal = scene.request();

    scene.hold.handle(scene.now, Input::ReleaseAsked);
    assert_eq!(scene.hold.poll_timeout(), None);
    let answer = scene.server.write(&renewal);
    scene.hold.handle(scene.now, Input::Written(answer));
    scene.round(Duration::ZERO);

    assert_eq!(*scene.hold.status(), Status::Released);
}

#[test]
fn release_without_an_answer_is_repeated_or_found() {
    for arrived in [true, false] {
        let mut scene = Scene::held();
        scene.hold.handle(scene.now, Input::ReleaseAsked);
        let attempt = scene.unanswered();
        if arrived {
            scene.server.write(&attempt);
        }

        scene.round(Duration::ZERO);
        if !arrived {
            scene.round(Duration::ZERO);
        }

        assert_eq!(*scene.hold.status(), Status::Released, "arrived: {arrived}");
    }
}

#[test]
fn what_was_never_taken_is_released_without_a_write() {
    let mut scene = Scene::new();
    let mut out = Vec::new();

    scene.hold.handle(scene.now, Input::ReleaseAsked);
    scene.hold.handle_timeout(scene.now, &mut out);

    assert_eq!(out, []);
    assert_eq!(*scene.hold.status(), Status::Released);
}

#[test]
fn create_that_met_a_lease_which_is_gone_by_the_read_is_lost() {
    let mut scene = Scene::new();
    ended_record(&mut scene.server);
    scene.round(Duration::ZERO);

    scene.server.lease = Seen::Absent;
    scene.round(Duration::ZERO);

    assert_eq!(*scene.hold.status(), Status::Lost(Seen::Absent));
}

#[test]
fn create_that_was_refused_before_it_met_anything_is_repeated() {
    let mut scene = Scene::new();
    scene.unanswered();

    scene.round(Duration::ZERO);
    scene.round(Duration::ZERO);

    assert_eq!(*scene.hold.status(), Status::Held);
}
