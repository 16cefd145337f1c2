//! What the Lease allows: acting until the deadline, pausing after it, and nothing at all once it is lost.

use super::*;

#[test]
fn authority_ends_at_the_deadline_by_time_alone() {
    let scene = Scene::member(&[Me(3)]);
    let standing = scene.worker.standing();

    let authority = standing.authority(ShardId(0), scene.now).unwrap();
    assert_eq!(authority.claim(), claim(0, 3));
    assert_eq!(authority.replica(), &ReplicaId::new("r1"));
    assert_eq!(authority.incarnation(), &incarnation(1));
    assert_eq!(authority.remaining(scene.now), millis(3600));
    let late = scene.now.after(millis(3600));

    assert_eq!(standing.authority(ShardId(0), late), None);
    assert_eq!(authority.remaining(late), Duration::ZERO);
}

#[test]
fn at_the_deadline_all_is_suspended_and_a_renewal_resumes_it() {
    let mut scene = Scene::member(&[Me(3)]);
    scene.wait(millis(3599));
    assert!(scene.may_act(claim(0, 3)));
    assert_eq!(scene.steps(), []);

    scene.wait(millis(1));
    assert_eq!(scene.steps(), [Action::Suspend]);
    assert_eq!(scene.worker.standing().phase(), Phase::Suspended);
    assert!(!scene.may_act(claim(0, 3)));
    scene.tell(Input::DispatcherAnswered);
    scene.answer_lease(crate::lease::Input::Written(Written::Unknown));
    scene.wait(seconds(1));
    scene.answer_lease(crate::lease::Input::Read(None));
    scene.wait(millis(250));
    let unchanged = Seen::Present(Record {
        holder: Holder::Member(ReplicaId::new("r1"), incarnation(1)),
        resource_version: "1".to_owned(),
        ..record_of(scene.fenced())
    });
    scene.answer_lease(crate::lease::Input::Read(Some(unchanged)));
    scene.confirm();

    assert_eq!(scene.steps(), [Action::Resume]);
    assert!(scene.may_act(claim(0, 3)));
}

fn record_of(seen: Seen) -> Record {
    match seen {
        Seen::Present(record) => record,
        Seen::Absent => panic!("present"),
    }
}

#[test]
fn machine_that_slept_past_the_deadline_has_no_authority_when_it_wakes() {
    let mut scene = Scene::member(&[Me(3)]);

    scene.now.boot = scene.now.boot + seconds(60);

    assert!(!scene.may_act(claim(0, 3)));
    scene.tell(Input::DispatcherAnswered);
    assert_eq!(scene.steps(), [Action::Suspend]);
}

#[test]
fn process_that_stood_still_does_nothing_before_its_lease_is_renewed() {
    let mut scene = Scene::member(&[Me(3)]);

    // SIGSTOP: no timer fires meanwhile.
    scene.now = scene.now.after(seconds(30));
    scene.see_map(1, 2, &[Me(3), Me(9)]);

    assert_eq!(scene.steps(), [Action::Suspend]);
    assert!(!scene.may_act(claim(0, 3)) && !scene.may_act(claim(1, 9)));
}

#[test]
fn what_is_given_while_suspended_starts_when_the_lease_is_renewed() {
    let mut scene = Scene::member(&[]);
    scene.wait(millis(3600));
    scene.tell(Input::DispatcherAnswered);
    scene.see_map(1, 2, &[Me(9)]);
    assert_eq!(scene.steps(), [Action::Suspend]);

    scene.out.push(Action::Lease {
        incarnation: incarnation(1),
        request: Request::Put(record_of(scene.fenced())),
    });
    let mut record = scene.record();
    record.holder = Holder::Member(ReplicaId::new("r1"), incarnation(1));
    scene.answer_lease(crate::lease::Input::Written(Written::Accepted(record)));
    // That write was sent a second after the first, so its deadline has not passed.

    assert_eq!(
        scene.steps(),
        [Action::Resume, start(claim(0, 9), Freshness::Crash)]
    );
}

#[test]
fn shard_is_lost_while_suspended_if_the_map_says_so() {
    let mut scene = Scene::member(&[Me(3)]);
    scene.wait(millis(3600));
    scene.taken();

    scene.see_map(1, 2, &[Other(4)]);

    assert_eq!(scene.steps(), [Action::Drop(claim(0, 3))]);
}

#[test]
fn lost_lease_ends_all_authority_at_once() {
    let mut scene = Scene::member(&[Me(3)]);
    scene.wait(seconds(1));
    assert!(scene.may_act(claim(0, 3)));

    scene.lose(scene.fenced());

    assert!(!scene.may_act(claim(0, 3)));
    assert_eq!(scene.worker.standing().incarnation(), None);
}

#[test]
fn dispatcher_is_pinged_each_quarter_of_the_duration() {
    let mut scene = Scene::member(&[]);
    scene.taken();

    scene.wait(seconds(3));

    let pings = scene.taken();
    let pings = pings.iter().filter(|it| **it == Action::PingDispatcher);
    assert_eq!(pings.count(), 3);
}

#[test]
fn worker_whose_dispatcher_is_wedged_renews_no_more_than_one_duration() {
    let mut scene = Scene::member(&[Me(3)]);
    let mut last = scene.now;
    for _ in 0..20 {
        let before = scene.out.len();
        scene.wait(millis(500));
        let asked = scene.out[before..]
            .iter()
            .any(|action| matches!(action, Action::Lease { .. }));
        if asked {
            last = scene.now;
            scene.confirm();
        }
    }
    assert_eq!(scene.worker.standing().phase(), Phase::Suspended);
    let start = Now::default().after(seconds(100));
    assert!(last.mono.since(start.mono) <= seconds(4));

    scene.tell(Input::DispatcherAnswered);
    scene.confirm();

    assert_eq!(scene.worker.standing().phase(), Phase::Member);
}

#[test]
fn suspended_dispatcher_is_resumed_by_the_next_incarnation() {
    let mut scene = Scene::member(&[]);
    scene.wait(millis(3600));
    scene.tell(Input::DispatcherAnswered);
    scene.lose(scene.fenced());
    scene.read_map(1, 2, &[]);
    scene.draw();
    scene.taken();
    scene.wait(millis(0));

    scene.out.push(Action::Lease {
        incarnation: incarnation(2),
        request: Request::Create(record_of(scene.fenced())),
    });
    let mut record = scene.record();
    record.holder = Holder::Member(ReplicaId::new("r1"), incarnation(2));
    scene.answer_lease(crate::lease::Input::Written(Written::Accepted(record)));

    assert_eq!(
        scene.steps(),
        [Action::OpenSession(incarnation(2)), Action::Resume]
    );
}
