//! What is asked of histories: that they keep the invariants, that they are the same each time, and that defects show.

use metashard_fleet::rules::Rule;
use metashard_runtime::clock::Clock;

use crate::{
    harness::Check,
    plan::Mutant,
    seeds::{Report, asked_seed, n_seeds, spawn, spawn_all, tell_failures, used},
};

/// Seeds of the gate.
const SEEDS: u64 = 200;

/// Seeds within which a mutant has to be found.
const SEEDS_OF_A_MUTANT: u64 = 80;

/// Defects, and what finds them. Those that are found soon are looked for each time, the others by hand only.
const MUTANTS: &[(Mutant, &[&str], Found)] = &[
    (
        Mutant::Breaks(Rule::DeadlineFromSending),
        &["I1", "L1"],
        Found::Seldom,
    ),
    (
        Mutant::Breaks(Rule::DeadlineWithinDuration),
        &["I1", "L1"],
        Found::From(3),
    ),
    (
        Mutant::Breaks(Rule::RenewByVersion),
        &["I1", "L1"],
        Found::From(2),
    ),
    (
        Mutant::Breaks(Rule::RenewByUid),
        &["I1", "L1"],
        Found::Seldom,
    ),
    (
        Mutant::Breaks(Rule::JudgeWhileRenewing),
        &["O1"],
        Found::From(24),
    ),
    (
        Mutant::Breaks(Rule::Tombstones),
        &["I1", "I6"],
        Found::From(19),
    ),
    (
        Mutant::Breaks(Rule::ReleaseWhenDrained),
        &["I1", "I13"],
        Found::From(16),
    ),
    (
        Mutant::Breaks(Rule::StartWhenDrained),
        &["I1", "I6", "I13"],
        Found::Seldom,
    ),
    (
        Mutant::Breaks(Rule::NewestMap),
        &["I1", "I5", "I6"],
        Found::Seldom,
    ),
    (
        Mutant::Breaks(Rule::NewestTerm),
        &["I1", "I5", "I6"],
        Found::Seldom,
    ),
    (
        Mutant::Breaks(Rule::RejoinWhenDrained),
        &["I1", "I13"],
        Found::Seldom,
    ),
    (
        Mutant::Breaks(Rule::ReleaseWhenStopped),
        &["L1"],
        Found::Seldom,
    ),
    (
        Mutant::Breaks(Rule::TermNamesLeader),
        &["I4"],
        Found::Seldom,
    ),
    (Mutant::Breaks(Rule::TableFirst), &["I5"], Found::From(1)),
    (
        Mutant::Breaks(Rule::ProofBeforeOwner),
        &["I1"],
        Found::From(4),
    ),
    (Mutant::Breaks(Rule::FenceByVersion), &["I1"], Found::Seldom),
    (Mutant::Breaks(Rule::EvictionWaits), &["I1"], Found::Seldom),
    (
        Mutant::Breaks(Rule::MapByVersion),
        &["I3", "I4"],
        Found::Seldom,
    ),
    (Mutant::ClockThatStops, &["I1", "L1"], Found::Seldom),
    (Mutant::WriteWithoutVersion, &["I2", "lost"], Found::From(6)),
];

/// How soon a defect is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    /// Within [`SEEDS_OF_A_MUTANT`] from this one on, which was the first that found it.
    From(u64),
    /// Within more, or never: other layers of the rules hide it from this fleet.
    Seldom,
}

/// All of them, in the order in which they are made.
pub(crate) const ALL: &[Check] = &[
    (
        "seed_that_is_asked_for_is_shown",
        seed_that_is_asked_for_is_shown,
    ),
    (
        "invariants_hold_whatever_fails",
        invariants_hold_whatever_fails,
    ),
    (
        "history_of_a_seed_is_the_same_each_time",
        history_of_a_seed_is_the_same_each_time,
    ),
    ("planted_defects_are_found", planted_defects_are_found),
];

/// The defect of a number.
pub(crate) fn mutant(number: usize) -> Mutant {
    MUTANTS[number].0
}

fn seed_that_is_asked_for_is_shown() {
    if let Some(seed) = asked_seed() {
        let report = spawn(seed, None, true).unwrap();
        assert!(report.broken.is_empty(), "{:?}", report.broken);
    }
}

fn invariants_hold_whatever_fails() {
    let clock = Clock::system();
    let (begin, before) = (clock.now().mono, used());
    let results = spawn_all(0..n_seeds(SEEDS), None, |_| true);
    let wall = clock.now().mono.since(begin);
    let cpu = used().saturating_sub(before);
    let (reports, failed): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
    let reports: Vec<Report> = reports.into_iter().flatten().collect();
    let sum = |of: fn(&Report) -> u64| reports.iter().map(of).sum::<u64>();
    println!(
        "{} histories, {} steps, {} calls, {} writes, {} moves, {} terms; {wall:?}, {cpu:?} of processors",
        reports.len(),
        sum(|it| it.steps),
        sum(|it| it.calls),
        sum(|it| it.writes),
        sum(|it| it.moves),
        sum(|it| it.terms),
    );
    let broken: Vec<&Report> = reports.iter().filter(|it| !it.broken.is_empty()).collect();
    tell_failures(&broken);
    assert!(failed.is_empty(), "{failed:?}");
    assert!(broken.is_empty(), "{} seeds break something", broken.len());
    assert!(sum(|it| it.moves) > reports.len() as u64, "little happened");
}

fn history_of_a_seed_is_the_same_each_time() {
    for seed in 0..4 {
        let hashes = [(); 3].map(|()| spawn(seed, None, false).unwrap().hash);
        assert!(
            hashes.iter().all(|it| *it == hashes[0]),
            "seed {seed}: {hashes:?}"
        );
    }
}

fn planted_defects_are_found() {
    let mut missed: Vec<Mutant> = Vec::new();
    let seeds = n_seeds(SEEDS_OF_A_MUTANT);
    let by_hand = seeds != SEEDS_OF_A_MUTANT;
    for (number, (mutant, ids, found)) in MUTANTS.iter().enumerate() {
        let first = match found {
            _ if by_hand => 0,
            Found::From(first) => *first,
            Found::Seldom => continue,
        };
        let finds = |it: &Result<Report, String>| it.as_ref().is_ok_and(|it| it.breaks(ids));
        let results = spawn_all(first..first + seeds, Some(number), |it| !finds(it));
        if let Some(report) = results.iter().flatten().find(|it| it.breaks(ids)) {
            let broken = report.broken.iter().map(|(id, _)| id.as_str());
            let broken = broken.collect::<Vec<_>>().join(", ");
            println!(
                "{mutant:?}: seed {} of {} breaks {broken}",
                report.seed,
                results.len()
            );
        } else {
            println!("{mutant:?}: not found in {seeds} seeds");
            missed.extend((*found != Found::Seldom).then_some(*mutant));
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
