//! The rules of the election, each with candidates against a Lease on one server.

use std::time::Duration;

use metashard_api::id::ReplicaId;

use super::*;
use crate::{
    record::{Holder, Written},
    testing::{Server, incarnation, member, record},
};

const LEASE: &str = "metashard-leader";
const DURATION: Duration = Duration::from_secs(4);

/// Candidates that see and answer everything at once, in steps of 100 ms.
struct Race {
    now: Now,
    server: Server,
    candidates: Vec<Candidate>,
    n_drawn: usize,
}

struct Candidate {
    election: Election,
    /// Its own Lease can be renewed.
    renews: bool,
    since: MonoTime,
    /// Its requests reach the server, and the answers come back.
    is_connected: bool,
    /// Of a connection that is cut: its request, not answered yet.
    waiting: Vec<(MonoTime, Action)>,
}

impl Race {
    fn new(n_candidates: usize, rules: Rules) -> Self {
        let now = Now::default().after(Duration::from_secs(100));
        let candidate = |n: usize| Candidate {
            election: Election::new(Config {
                replica: ReplicaId::new(format!("r{n}")),
                about: About::default(),
                lease_duration: DURATION,
                rules,
            }),
            renews: true,
            since: now.mono,
            is_connected: true,
            waiting: Vec::new(),
        };
        Self {
            now,
            server: Server::default(),
            candidates: (0..n_candidates).map(candidate).collect(),
            n_drawn: 0,
        }
    }

    /// A race in which candidate 0 leads already.
    fn led(n_candidates: usize) -> Self {
        let mut race = Self::new(n_candidates, Rules::default());
        race.hold_by("nobody", Holder::Released);
        race.run(Duration::from_millis(200));
        assert_eq!(race.leaders().len(), 1);
        let leader = race.leaders()[0];
        race.candidates.swap(0, leader);
        race
    }

    fn hold_by(&mut self, _who: &str, holder: Holder) {
        self.server.put(LEASE, record(holder, DURATION, 1));
    }

    fn run(&mut self, length: Duration) {
        let end = self.now.after(length);
        while self.now.mono < end.mono {
            self.now = self.now.after(Duration::from_millis(100));
            for n in 0..self.candidates.len() {
                self.step(n);
            }
        }
    }

    fn step(&mut self, n: usize) {
        let now = self.now;
        let candidate = &mut self.candidates[n];
        let since = candidate.renews.then_some(candidate.since);
        let mut inputs = vec![Input::OwnRenewal(since)];
        if candidate.is_connected {
            inputs.push(Input::LeaseSeen(self.server.lease(LEASE)));
        }
        for input in inputs {
            self.tell(n, input);
        }
        let candidate = &mut self.candidates[n];
        let waiting = std::mem::take(&mut candidate.waiting);
        let (late, waiting) = waiting
            .into_iter()
            .partition(|(sent, _)| now.mono.since(*sent) >= Duration::from_secs(1));
        candidate.waiting = waiting;
        for (_, action) in late {
            let answer = match action {
                Action::Lease(lease::Request::Read) => lease::Input::Read(None),
                Action::Lease(_) | Action::DrawIncarnation => {
                    lease::Input::Written(Written::Unknown)
                }
            };
            self.tell(n, Input::LeaseAnswered(answer));
        }
        let mut actions = Vec::new();
        self.candidates[n]
            .election
            .handle_timeout(now, &mut actions);
        self.carry_out(n, actions);
    }

    fn tell(&mut self, n: usize, input: Input) {
        let mut actions = Vec::new();
        self.candidates[n]
            .election
            .handle(self.now, input, &mut actions);
        self.carry_out(n, actions);
    }

    fn carry_out(&mut self, n: usize, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::DrawIncarnation => {
                    self.n_drawn += 1;
                    let drawn = incarnation(&format!("c{}", self.n_drawn));
                    self.tell(n, Input::IncarnationDrawn(drawn));
                }
                Action::Lease(request) if self.candidates[n].is_connected => {
                    let answer = self.server.answer(LEASE, request);
                    self.tell(n, Input::LeaseAnswered(answer));
                }
                Action::Lease(_) => {
                    let sent = self.now.mono;
                    self.candidates[n].waiting.push((sent, action));
                }
            }
        }
    }

    fn leaders(&self) -> Vec<usize> {
        (0..self.candidates.len())
            .filter(|n| self.candidates[*n].election.may_lead(self.now))
            .collect()
    }

    fn phase(&self, n: usize) -> Phase {
        self.candidates[n].election.phase()
    }

    fn holder(&self) -> Holder {
        match self.server.lease(LEASE) {
            Seen::Present(record) => record.holder,
            Seen::Absent => panic!("the Lease is absent"),
        }
    }
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn five_candidates_racing_for_one_released_lease_have_one_winner() {
    let mut race = Race::new(5, Rules::default());
    race.hold_by("nobody", Holder::Released);

    race.run(millis(300));

    assert_eq!(race.leaders().len(), 1);
}

#[test]
fn five_candidates_racing_for_one_silent_holder_have_one_winner_after_its_duration() {
    let mut race = Race::new(5, Rules::default());
    race.hold_by("r9", member("r9", &incarnation("gone")));

    race.run(millis(4_000));
    assert_eq!(race.leaders().len(), 0);

    race.run(millis(200));
    assert_eq!(race.leaders().len(), 1);
}

#[test]
fn holder_that_renews_is_never_challenged() {
    let mut race = Race::led(3);
    let holder = race.holder();

    race.run(Duration::from_mins(1));

    assert_eq!(race.leaders(), [0]);
    assert_eq!(race.holder(), holder);
}

#[test]
fn silent_leader_is_replaced_within_five_seconds_and_has_stopped_before() {
    let mut race = Race::led(3);
    race.candidates[0].is_connected = false;

    let mut seen_without_leader = false;
    for _ in 0..50 {
        race.run(millis(100));
        assert!(race.leaders().len() <= 1, "two leaders");
        seen_without_leader |= race.leaders().is_empty();
    }

    assert!(seen_without_leader);
    assert_ne!(race.leaders(), [0]);
    assert_eq!(race.leaders().len(), 1);
}

#[test]
fn candidate_that_cannot_renew_its_own_lease_judges_nobody() {
    let mut race = Race::new(1, Rules::default());
    race.hold_by("r9", member("r9", &incarnation("gone")));
    race.candidates[0].renews = false;
    race.run(Duration::from_secs(20));
    assert_eq!(race.phase(0), Phase::Candidate);

    race.candidates[0].renews = true;
    race.candidates[0].since = race.now.mono;
    race.run(millis(3_900));
    assert_eq!(race.leaders().len(), 0);

    race.run(millis(300));
    assert_eq!(race.leaders(), [0]);
}

#[test]
fn absent_lease_is_waited_out_like_any_other_record() {
    let mut race = Race::new(1, Rules::default());

    race.run(millis(3_900));
    assert_eq!(race.phase(0), Phase::Candidate);

    race.run(millis(300));
    assert_eq!(race.leaders(), [0]);
}

#[test]
fn absent_lease_is_taken_at_once_if_nobody_has_led_yet() {
    let mut race = Race::new(1, Rules::default());
    race.tell(0, Input::NobodyLedYet(true));

    race.run(millis(200));

    assert_eq!(race.leaders(), [0]);
}

#[test]
fn foreign_holder_makes_the_leader_step_down_until_its_claim_has_ended() {
    let mut race = Race::led(1);
    let foreign = Holder::Foreign("kubectl".to_owned());

    race.server
        .take(LEASE, foreign.clone(), Duration::from_secs(15));
    race.run(millis(1_200));
    assert_eq!(race.phase(0), Phase::SteppingDown);
    race.tell(0, Input::CoordinatorStopped);

    race.run(millis(13_500));
    assert_eq!(race.phase(0), Phase::Candidate);
    assert_eq!(race.holder(), foreign);
    race.run(millis(1_000));
    assert_eq!(race.leaders(), [0]);
}

#[test]
fn each_candidacy_after_a_lead_has_a_new_incarnation() {
    let mut race = Race::led(1);
    let first = race.candidates[0].election.incarnation().cloned();

    race.tell(0, Input::StepDownAsked);
    race.tell(0, Input::CoordinatorStopped);
    race.run(millis(300));

    assert_eq!(race.leaders(), [0]);
    assert_ne!(race.candidates[0].election.incarnation().cloned(), first);
}

#[test]
fn lead_is_released_only_when_the_coordinator_has_stopped() {
    let mut race = Race::led(2);
    let holder = race.holder();

    race.tell(0, Input::ShutdownAsked);
    race.run(Duration::from_secs(8));
    assert_eq!(race.phase(0), Phase::SteppingDown);
    assert!(!race.candidates[0].election.may_lead(race.now));
    assert_eq!(race.holder(), holder);

    race.tell(0, Input::CoordinatorStopped);
    race.run(millis(200));
    assert_eq!(race.phase(0), Phase::Stopped);
    assert_eq!(race.leaders(), [1]);
}

#[test]
fn without_that_rule_the_lead_is_free_while_the_coordinator_still_acts() {
    let mut race = Race::new(1, Rules::breaking(Rule::ReleaseWhenStopped));
    race.hold_by("nobody", Holder::Released);
    race.run(millis(200));

    race.tell(0, Input::ShutdownAsked);
    race.run(millis(100));

    let deadline = race.candidates[0].election.coordinator_deadline();
    assert_eq!(race.holder(), Holder::Released);
    assert!(deadline.is_some_and(|deadline| race.now.boot < deadline));
}

#[test]
fn leader_cut_off_pauses_at_its_deadline_and_goes_on_if_nobody_led_in_between() {
    let mut race = Race::led(1);
    let first = race.candidates[0].election.incarnation().cloned();

    race.candidates[0].is_connected = false;
    race.run(Duration::from_secs(10));
    assert_eq!(race.leaders().len(), 0);
    assert_eq!(race.phase(0), Phase::Leading);

    race.candidates[0].is_connected = true;
    race.run(millis(2_500));
    assert_eq!(race.leaders(), [0]);
    assert_eq!(race.candidates[0].election.incarnation().cloned(), first);
}

#[test]
fn candidate_that_shuts_down_without_the_lead_stops_at_once() {
    let mut race = Race::led(2);

    race.tell(1, Input::ShutdownAsked);

    assert_eq!(race.phase(1), Phase::Stopped);
}
