//! Tests of the holder's side, against a Lease of a small server of their own.

use std::time::Duration;

use metashard_api::id::{Incarnation, ReplicaId};

use super::*;
use crate::{record::About, rules::Rules};

mod ends;
mod witness;

const ME: &str = "11111111-1111-4111-8111-111111111111";
const OTHER: &str = "22222222-2222-4222-8222-222222222222";

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn config(rules: Rules) -> Config {
    Config {
        replica: ReplicaId::new("r1"),
        incarnation: Incarnation::new(ME),
        about: About::default(),
        duration: Duration::from_secs(4),
        rules,
    }
}

fn member(incarnation: &str) -> Holder {
    Holder::Member(ReplicaId::new("r1"), Incarnation::new(incarnation))
}

/// One Lease on a server that checks preconditions as the API server does.
struct Server {
    lease: Seen,
    version: u64,
}

impl Server {
    fn empty() -> Self {
        Self {
            lease: Seen::Absent,
            version: 0,
        }
    }

    fn write(&mut self, request: &Request) -> Written<Record> {
        match (request, &self.lease) {
            (Request::Create(record), Seen::Absent) => self.store("uid-1", record),
            (Request::Put(record), Seen::Present(stored)) => {
                let fits = |wanted: &str, it: &str| wanted.is_empty() || wanted == it;
                let is_current = fits(&record.uid, &stored.uid)
                    && fits(&record.resource_version, &stored.resource_version);
                let uid = stored.uid.clone();
                if is_current {
                    self.store(&uid, record)
                } else {
                    Written::Conflict
                }
            }
            // A PUT without the uid makes a deleted object anew.
            (Request::Put(record), Seen::Absent) if record.uid.is_empty() => {
                self.store("uid-2", record)
            }
            (Request::Create(_), Seen::Present(_)) | (Request::Put(_), Seen::Absent) => {
                Written::Conflict
            }
            (Request::Read, _) => panic!("a read is no write"),
        }
    }

    fn store(&mut self, uid: &str, record: &Record) -> Written<Record> {
        self.version += 1;
        let stored = Record {
            uid: uid.to_owned(),
            resource_version: self.version.to_string(),
            ..record.clone()
        };
        self.lease = Seen::Present(stored.clone());
        Written::Accepted(stored)
    }

    /// Somebody else writes `holder` into the Lease.
    fn overwrite(&mut self, holder: Holder) {
        let Seen::Present(record) = self.lease.clone() else {
            panic!("there is no Lease");
        };
        let uid = record.uid.clone();
        self.store(&uid, &Record { holder, ..record });
    }
}

struct Scene {
    hold: Hold,
    server: Server,
    now: Now,
}

impl Scene {
    fn new() -> Self {
        Self::breaking(Rules::default())
    }

    fn breaking(rules: Rules) -> Self {
        let now = Now::default().after(Duration::from_secs(100));
        Self {
            hold: Hold::create(now, config(rules)),
            server: Server::empty(),
            now,
        }
    }

    /// A Lease that was created, and confirmed at once.
    fn held() -> Self {
        let mut scene = Self::new();
        scene.round(Duration::ZERO);
        assert_eq!(*scene.hold.status(), Status::Held);
        scene
    }

    fn wait(&mut self, length: Duration) {
        self.now = self.now.after(length);
    }

    /// Waits until the next request is due and takes it.
    fn request(&mut self) -> Request {
        let due = self.hold.poll_timeout().expect("a request is due");
        self.wait(self.now.mono.until(due));
        let mut out = Vec::new();
        self.hold.handle_timeout(self.now, &mut out);
        assert_eq!(out.len(), 1, "{out:?}");
        out.remove(0)
    }

    /// The next request is carried out and answered after `delay`.
    fn round(&mut self, delay: Duration) {
        let request = self.request();
        let answer = if request == Request::Read {
            Input::Read(Some(self.server.lease.clone()))
        } else {
            Input::Written(self.server.write(&request))
        };
        self.wait(delay);
        self.hold.handle(self.now, answer);
    }

    /// The next write gets no answer within a second; returns it.
    fn unanswered(&mut self) -> Request {
        let request = self.request();
        self.wait(millis(1000));
        self.hold.handle(self.now, Input::Written(Written::Unknown));
        request
    }

    fn time_left(&self) -> Duration {
        self.hold
            .deadline()
            .map(|deadline| self.now.boot.until(deadline))
            .unwrap_or_default()
    }
}

#[test]
fn deadline_counts_from_the_sending_and_lies_a_margin_before_the_end() {
    let mut scene = Scene::new();

    scene.round(millis(700));

    assert_eq!(scene.time_left(), millis(4000 - 400 - 700));
}

#[test]
fn deadline_counted_from_the_receipt_is_later_than_the_rule_allows() {
    let mut scene = Scene::breaking(Rules::breaking(Rule::DeadlineFromSending));

    scene.round(millis(700));

    assert_eq!(scene.time_left(), millis(4000 - 400));
}

#[test]
fn deadline_beyond_the_duration_is_what_the_mutant_has() {
    let mut scene = Scene::breaking(Rules::breaking(Rule::DeadlineWithinDuration));

    scene.round(Duration::ZERO);

    assert_eq!(scene.time_left(), millis(8000));
}

#[test]
fn margin_is_a_tenth_but_at_least_300_milliseconds() {
    for (duration, expected) in [(2000, 300), (3000, 300), (4000, 400), (15_000, 1500)] {
        assert_eq!(margin(millis(duration)), millis(expected), "{duration} ms");
    }
}

#[test]
fn renewal_is_sent_each_quarter_of_the_duration() {
    let mut scene = Scene::held();
    let begin = scene.now;

    for round in 1..=5 {
        scene.round(millis(30));
        assert_eq!(scene.now.mono.since(begin.mono), millis(1000 * round + 30));
    }
}

#[test]
fn each_renewal_names_uid_and_version_and_has_a_number_of_its_own() {
    let mut scene = Scene::held();

    let request = scene.request();

    let Request::Put(record) = request else {
        panic!("{request:?}");
    };
    assert_eq!(record.uid, "uid-1");
    assert_eq!(record.resource_version, "1");
    assert_eq!(record.attempt, 2);
    assert_eq!(record.holder, member(ME));
    assert_eq!(record.duration, millis(4000));
}

#[test]
fn nothing_is_sent_early_or_while_a_request_is_in_flight() {
    let mut scene = Scene::held();
    let mut out = Vec::new();

    scene.wait(millis(999));
    scene.hold.handle_timeout(scene.now, &mut out);
    assert_eq!(out, []);

    let sent = scene.request();
    scene.wait(millis(900));
    scene.hold.handle_timeout(scene.now, &mut out);
    assert_eq!(out, [], "{sent:?} is in flight");
    assert_eq!(scene.hold.poll_timeout(), None);
}

#[test]
fn write_without_an_answer_is_followed_by_a_read() {
    let mut scene = Scene::held();

    scene.unanswered();

    assert_eq!(scene.request(), Request::Read);
}

#[test]
fn own_attempt_that_a_read_shows_is_gone_on_from_but_extends_nothing() {
    let mut scene = Scene::held();
    let deadline = scene.hold.deadline();
    let attempt = scene.unanswered();
    scene.server.write(&attempt);

    scene.round(millis(50));

    assert_eq!(*scene.hold.status(), Status::Held);
    assert_eq!(scene.hold.deadline(), deadline);
    scene.round(millis(50));
    assert_eq!(*scene.hold.status(), Status::Held);
    assert!(scene.hold.deadline() > deadline);
}

#[test]
fn write_that_arrives_after_the_read_costs_nothing() {
    let mut scene = Scene::held();
    let late = scene.unanswered();
    scene.round(Duration::ZERO);

    let next = scene.request();
    assert!(matches!(scene.server.write(&late), Written::Accepted(_)));
    let answer = scene.server.write(&next);
    assert_eq!(answer, Written::Conflict);
    scene.hold.handle(scene.now, Input::Written(answer));
    scene.round(Duration::ZERO);
    scene.round(Duration::ZERO);

    assert_eq!(*scene.hold.status(), Status::Held);
    assert_eq!(scene.time_left(), millis(3600));
}

#[test]
fn one_slow_call_never_costs_a_lease() {
    let mut scene = Scene::held();

    scene.unanswered();
    scene.round(millis(950));
    scene.round(millis(50));

    assert_eq!(*scene.hold.status(), Status::Held);
    assert_eq!(scene.time_left(), millis(3550));
}

#[test]
fn what_a_read_shows_instead_of_an_own_attempt_is_the_end() {
    type Change = fn(&mut Server);
    let cases: [(&str, Change); 6] = [
        ("fenced", |server| server.overwrite(Holder::Fenced)),
        ("evicted", |server| server.overwrite(Holder::Evicted)),
        ("absent", |server| server.lease = Seen::Absent),
        ("another member", |server| server.overwrite(member(OTHER))),
        ("an older record", |server| {
            let Seen::Present(record) = server.lease.clone() else {
                panic!("there is no Lease");
            };
            let older = Record {
                attempt: 1,
                ..record
            };
            server.store("uid-1", &older);
        }),
        ("another object", |server| {
            let Seen::Present(record) = server.lease.clone() else {
                panic!("there is no Lease");
            };
            let future = Record {
                attempt: record.attempt + 1,
                ..record
            };
            server.store("uid-2", &future);
        }),
    ];
    for (name, change) in cases {
        let mut scene = Scene::held();
        scene.round(Duration::ZERO);
        change(&mut scene.server);

        scene.round(Duration::ZERO);
        assert_eq!(*scene.hold.status(), Status::Held, "{name}: not known yet");
        scene.round(Duration::ZERO);

        assert_eq!(
            *scene.hold.status(),
            Status::Lost(scene.server.lease.clone()),
            "{name}"
        );
        assert_eq!(scene.hold.deadline(), None, "{name}");
        assert_eq!(scene.hold.poll_timeout(), None, "{name}");
    }
}

#[test]
fn renewal_without_a_version_overwrites_a_fence() {
    let mut scene = Scene::breaking(Rules::breaking(Rule::RenewByVersion));
    scene.round(Duration::ZERO);
    scene.server.overwrite(Holder::Fenced);

    scene.round(Duration::ZERO);

    assert_eq!(scene.time_left(), millis(3600));
}

#[test]
fn renewal_without_a_uid_makes_a_deleted_lease_anew() {
    let mut scene = Scene::breaking(Rules::breaking(Rule::RenewByUid));
    scene.round(Duration::ZERO);
    scene.server.lease = Seen::Absent;

    scene.round(Duration::ZERO);

    assert_eq!(scene.time_left(), millis(3600));
}

#[test]
fn create_without_an_answer_is_repeated_or_adopted() {
    for arrived in [true, false] {
        let mut scene = Scene::new();
        let create = scene.unanswered();
        if arrived {
            scene.server.write(&create);
        }

        scene.round(Duration::ZERO);
        assert_eq!(*scene.hold.status(), Status::Taking);
        assert_eq!(scene.hold.deadline(), None);
        scene.round(Duration::ZERO);

        assert_eq!(*scene.hold.status(), Status::Held, "arrived: {arrived}");
        assert_eq!(scene.time_left(), millis(3600));
    }
}

#[test]
fn own_lease_that_was_confirmed_is_never_created_again() {
    let mut scene = Scene::held();
    scene.server.lease = Seen::Absent;

    scene.round(Duration::ZERO);
    scene.round(Duration::ZERO);

    assert_eq!(*scene.hold.status(), Status::Lost(Seen::Absent));
}

#[test]
fn suspending_the_machine_uses_up_the_time_to_act() {
    let mut scene = Scene::held();

    scene.now.boot = scene.now.boot + Duration::from_mins(1);

    assert_eq!(scene.time_left(), Duration::ZERO);
}

#[test]
fn answer_that_nobody_waits_for_changes_nothing() {
    let mut scene = Scene::held();
    let before = scene.hold.clone();

    let seen = scene.server.lease.clone();
    scene.hold.handle(scene.now, Input::Read(Some(seen)));
    scene
        .hold
        .handle(scene.now, Input::Written(Written::Conflict));

    assert_eq!(scene.hold, before);
}
