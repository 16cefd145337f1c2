//! Candidates that go for one Lease at the same moment.

use std::{sync::Arc, time::Duration};

use anyhow::ensure;
use futures::future::join_all;
use metashard_api::id::{Incarnation, ReplicaId};
use metashard_fleet::{
    election::{Action, Config, Election, Input, Phase},
    record::{About, Holder, Seen},
    rules::Rules,
};
use metashard_kube::lease::Leases;
use metashard_runtime::clock::Clock;
use prometheus::Registry;
use tokio::sync::Barrier;
use uuid::Uuid;

use crate::kit::{connect, record};

const CANDIDATES: usize = 5;
const ROUNDS: usize = 100;

/// Rounds at once: each has a Lease of its own, and what is raced for is one Lease.
const AT_ONCE: usize = 20;

/// Of the dead holder: as short as a Lease can say.
const EXPIRES: Duration = Duration::from_secs(1);

/// How long a loser looks on after the winner is known.
const AFTERMATH: Duration = Duration::from_millis(300);

#[tokio::test]
async fn five_candidates_racing_for_one_expired_lease_have_exactly_one_winner_in_100_rounds()
-> anyhow::Result<()> {
    let (clients, namespace) = connect(&Registry::new()).await?;
    let begin = Clock::system().now().mono;

    for batch in 0..ROUNDS / AT_ONCE {
        let rounds = (0..AT_ONCE).map(|n| {
            // As from processes of their own: nothing is shared but the server.
            let leases = std::array::from_fn(|_| Leases::new(&clients, &namespace, None));
            round(format!("race-{batch}-{n}"), leases)
        });
        for winners in join_all(rounds).await {
            assert_eq!(winners?, 1);
        }
    }
    let took = Clock::system().now().mono.since(begin);
    println!("{ROUNDS} rounds with one winner each in {took:?}");
    Ok(())
}

/// Lets five candidates see a Lease whose holder is dead, and counts those that ever lead.
async fn round(name: String, leases: [Leases; CANDIDATES]) -> anyhow::Result<usize> {
    let dead = Holder::Foreign("dead".to_owned());
    leases[0].create(&name, &record(dead, EXPIRES)).await;
    let start = Arc::new(Barrier::new(CANDIDATES));
    let candidates = leases
        .into_iter()
        .map(|leases| candidate(&name, leases, Arc::clone(&start)));
    let mut winners = 0;
    for ever_led in join_all(candidates).await {
        winners += usize::from(ever_led?);
    }
    Ok(winners)
}

/// One candidate, until the race is decided; whether it ever led.
async fn candidate(name: &str, leases: Leases, start: Arc<Barrier>) -> anyhow::Result<bool> {
    let clock = Clock::system();
    let mut election = Election::new(Config {
        replica: ReplicaId::new("racer"),
        about: About::default(),
        lease_duration: Duration::from_secs(4),
        rules: Rules::default(),
    });
    let seen = leases.read(name).await?;
    start.wait().await;
    let begin = clock.now();
    let mut inputs = vec![Input::LeaseSeen(seen)];
    let mut end = None;
    let mut ever_led = false;
    while end.is_none_or(|end| clock.now().mono < end) {
        ensure!(
            clock.now().mono.since(begin.mono) < Duration::from_secs(20),
            "undecided"
        );
        // Its own Lease is renewed all the while.
        inputs.insert(0, Input::OwnRenewal(Some(begin.mono)));
        for request in step(&mut election, &clock, &mut inputs) {
            let answer = leases.carry_out(name, &request).await;
            inputs.push(Input::LeaseAnswered(answer));
        }
        ever_led |= election.may_lead(clock.now());
        let is_decided = match election.seen() {
            Some(Seen::Present(record)) => record.holder != Holder::Foreign("dead".to_owned()),
            Some(Seen::Absent) | None => false,
        };
        if ever_led || (is_decided && election.phase() == Phase::Candidate) {
            end.get_or_insert_with(|| clock.now().mono + AFTERMATH);
        }
        if inputs.is_empty() {
            let tick = clock.now().mono + Duration::from_millis(100);
            let due = election.poll_timeout().unwrap_or(tick).min(tick);
            clock.sleep_until(due).await;
        }
    }
    Ok(ever_led)
}

/// Hands all inputs to the machine, and returns the requests that it wants to send.
fn step(
    election: &mut Election,
    clock: &Clock,
    inputs: &mut Vec<Input>,
) -> Vec<metashard_fleet::lease::Request> {
    let mut requests = Vec::new();
    let mut actions = Vec::new();
    election.handle_timeout(clock.now(), &mut actions);
    let mut inputs = std::mem::take(inputs).into_iter();
    loop {
        for action in std::mem::take(&mut actions) {
            match action {
                Action::Lease(request) => requests.push(request),
                Action::DrawIncarnation => {
                    let drawn = Incarnation::new(Uuid::new_v4().to_string());
                    let drawn = Input::IncarnationDrawn(drawn);
                    election.handle(clock.now(), drawn, &mut actions);
                }
            }
        }
        if !actions.is_empty() {
            continue;
        }
        let Some(input) = inputs.next() else {
            return requests;
        };
        election.handle(clock.now(), input, &mut actions);
    }
}
