//! Election: two candidates for one Lease.

use super::{Found, explore};
use crate::{
    invariants::Invariant,
    model::{
        budget::{Budget, NONE},
        election::{Fault, Race},
    },
    rules::{Rule, Rules},
};

const PAUSE: Budget = Budget {
    slow: 1,
    pauses: 1,
    ..NONE
};
const SUSPEND: Budget = Budget {
    slow: 1,
    suspends: 1,
    ..NONE
};
const OUTAGE: Budget = Budget {
    pauses: 1,
    outages: 1,
    ..NONE
};
const STEP_DOWN: Budget = Budget {
    slow: 1,
    step_downs: 1,
    ..NONE
};
const DELETION: Budget = Budget {
    slow: 1,
    deletions: 1,
    ..NONE
};

fn race(budget: Budget) -> Race {
    Race {
        n_candidates: 2,
        ticks: 8,
        budget,
        rules: Rules::default(),
        fault: None,
        looks_at: None,
    }
}

fn mutant(rule: Rule, budget: Budget) -> Race {
    Race {
        rules: Rules::breaking(rule),
        ..race(budget)
    }
}

fn faulty(fault: Fault, budget: Budget) -> Race {
    Race {
        fault: Some(fault),
        ..race(budget)
    }
}

fn run(name: &str, race: Race) -> Found {
    explore(name, race, |state| &state.broken)
}

fn assert_holds(name: &str, race: Race) {
    let found = run(name, race);
    assert_eq!(found.broken, [].into(), "{name}");
    assert!(found.is_meaningful, "{name}: the lead never changes hands");
}

/// `mutant` breaks `invariant`.
fn assert_breaks(name: &str, mutant: Race, invariant: Invariant) {
    let found = run(
        name,
        Race {
            looks_at: Some(invariant),
            ..mutant
        },
    );
    assert_eq!(found.broken, [invariant].into(), "{name}");
}

#[test]
fn one_leads_at_a_time_whatever_is_slow_lost_or_paused() {
    assert_holds("election, slow answers", race(Budget { slow: 2, ..NONE }));
    assert_holds("election, a pause", race(PAUSE));
}

#[test]
fn one_leads_at_a_time_though_a_machine_is_suspended() {
    assert_holds("election, a suspended machine", race(SUSPEND));
}

#[test]
fn an_outage_takes_the_lead_from_nobody() {
    assert_holds("election, an outage", race(OUTAGE));
}

#[test]
fn one_leads_at_a_time_though_the_leader_gives_up() {
    assert_holds("election, stepping down", race(STEP_DOWN));
}

#[test]
fn one_leads_at_a_time_though_the_lease_is_deleted() {
    assert_holds("election, a deleted Lease", race(DELETION));
}

#[test]
fn deadline_counted_from_the_answers_receipt_makes_two_leaders() {
    let mutant = mutant(Rule::DeadlineFromSending, PAUSE);
    assert_breaks(
        "election, DeadlineFromSending",
        mutant,
        Invariant::OneLeader,
    );
}

#[test]
fn deadline_beyond_the_duration_makes_two_leaders() {
    let mutant = mutant(Rule::DeadlineWithinDuration, PAUSE);
    assert_breaks(
        "election, DeadlineWithinDuration",
        mutant,
        Invariant::OneLeader,
    );
}

#[test]
fn renewal_without_resource_version_makes_two_leaders() {
    let mutant = mutant(Rule::RenewByVersion, PAUSE);
    assert_breaks("election, RenewByVersion", mutant, Invariant::OneLeader);
}

#[test]
fn release_before_the_coordinator_has_stopped_makes_two_leaders() {
    let mutant = mutant(Rule::ReleaseWhenStopped, STEP_DOWN);
    assert_breaks("election, ReleaseWhenStopped", mutant, Invariant::OneLeader);
}

#[test]
fn judging_without_renewing_takes_the_lead_in_an_outage() {
    let mutant = mutant(Rule::JudgeWhileRenewing, OUTAGE);
    assert_breaks(
        "election, JudgeWhileRenewing",
        mutant,
        Invariant::OutageFencesNobody,
    );
}

#[test]
fn observation_stamped_at_sending_makes_two_leaders() {
    let mutant = faulty(Fault::StampedAtSending, PAUSE);
    assert_breaks(
        "election, observation stamped at sending",
        mutant,
        Invariant::OneLeader,
    );
}

#[test]
fn clock_that_stops_in_suspend_makes_two_leaders() {
    let mutant = faulty(Fault::ClockThatStops, SUSPEND);
    assert_breaks("election, clock that stops", mutant, Invariant::OneLeader);
}
