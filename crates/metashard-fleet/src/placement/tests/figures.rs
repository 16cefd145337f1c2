//! What placement promises in figures, at the size of a large fleet.

use std::fs;

use metashard_api::id::{ControllerUid, Slice};

use super::*;
use crate::shard::shard_of;

const N_SHARDS: u16 = 4096;

/// 10,000 controllers of lognormal cost.
fn large(n_members: u16) -> Problem {
    let mut weights = vec![0; usize::from(N_SHARDS)];
    for (n, weight) in lognormal(10_000).into_iter().enumerate() {
        let uid = ControllerUid::new(format!("uid-{n}"));
        let shard = shard_of(&uid, Slice(0), N_SHARDS);
        weights[usize::from(shard.0)] += weight;
    }
    problem(n_members, weights)
}

/// CPU time that this thread has had: the machine may be busy with something else.
fn cpu_time() -> Duration {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").expect("this is Linux");
    let nanos = stat.split(' ').next().and_then(|it| it.parse().ok());
    Duration::from_nanos(nanos.expect("nanoseconds"))
}

/// What `work` comes to, and the shortest of some tries: caches are warm in a leader that plans every 10 s.
fn timed<T>(work: impl Fn() -> T) -> (T, Duration) {
    let mut shortest = Duration::MAX;
    for _ in 0..5 {
        let began = cpu_time();
        drop(work());
        shortest = shortest.min(cpu_time().saturating_sub(began));
    }
    (work(), shortest)
}

fn share(problem: &Problem) -> usize {
    problem.shards.len().div_ceil(problem.members.len()) + 2
}

#[test]
#[expect(clippy::print_stdout, reason = "the figures, for people")]
fn ten_thousand_controllers_on_a_hundred_members_keep_the_promises() {
    let mut problem = large(100);
    let (cold, cold_time) = timed(|| place_new(&problem));
    let hottest = hottest_percent(&problem, &cold);
    assert!(hottest <= 110, "{hottest}");
    assert!(cold_time <= Duration::from_millis(50), "{cold_time:?}");

    let (again, again_time) = timed(|| place(&problem, &cold));
    assert_eq!(again, cold);
    assert!(again_time <= Duration::from_millis(5), "{again_time:?}");

    problem.level = Level::Fine;
    let (fine, fine_time) = timed(|| place(&problem, &cold));
    let finest = hottest_percent(&problem, &fine);
    assert!(finest <= 105, "{finest}");
    assert!(fine_time <= Duration::from_millis(5), "{fine_time:?}");
    problem.level = Level::Rest;

    problem.members.push(Member {
        replica: ReplicaId::new("metashard-new"),
        capacity: 0,
        retiring: false,
    });
    problem.budget = share(&problem);
    let (joined, join_time) = timed(|| place(&problem, &cold));
    let n_join = joined.moves_from(&cold).len();
    assert!(n_join <= share(&problem), "{n_join}");
    assert!(hottest_percent(&problem, &joined) <= 110);
    assert!(join_time <= Duration::from_millis(5), "{join_time:?}");

    problem.members.remove(0);
    problem.budget = 0;
    let orphaned = after_leave(&joined, 0);
    let (left, leave_time) = timed(|| place(&problem, &orphaned));
    let moves = left.moves_from(&orphaned);
    assert!(
        moves.iter().all(|it| it.from.is_none()),
        "only orphans move"
    );
    assert!(hottest_percent(&problem, &left) <= 110);
    assert!(leave_time <= Duration::from_millis(5), "{leave_time:?}");
    println!(
        "cold {cold_time:?}, hottest {hottest} %; again {again_time:?}; levelled {fine_time:?}, hottest {finest} %; \
         join {join_time:?}, {n_join} moves; leave {leave_time:?}, {} orphans",
        moves.len()
    );
}

#[test]
#[expect(clippy::print_stdout, reason = "the figures, for people")]
fn a_thousand_members_are_planned_for_in_two_seconds() {
    let mut problem = large(1_000);
    let (cold, cold_time) = timed(|| place_new(&problem));
    assert!(cold.owners.iter().all(Option::is_some));
    assert!(cold_time <= Duration::from_secs(2), "{cold_time:?}");

    problem.members.remove(0);
    problem.budget = 4;
    let orphaned = after_leave(&cold, 0);
    let (left, leave_time) = timed(|| place(&problem, &orphaned));
    assert!(left.owners.iter().all(Option::is_some));
    println!("1,000 members: cold {cold_time:?}, leave {leave_time:?}");
}

#[test]
fn member_whose_caches_are_full_is_not_moved_to() {
    let mut problem = problem(3, vec![10; 60]);
    for (n, shard) in problem.shards.iter_mut().enumerate() {
        shard.bytes = if n < 20 { 1_000 } else { 1 };
    }
    // The first has all that are large, and is the coldest.
    let owners = (0..60).map(|n| match n {
        0..20 => Some(Ordinal(0)),
        _ => Some(Ordinal(1)),
    });
    let before = Assignment {
        owners: owners.collect(),
    };

    let after = place(&problem, &before);

    let bytes = sums(&problem, &after, |shard| shard.bytes);
    let mean = bytes.iter().sum::<u64>() / 3;
    assert!(bytes[1..].iter().all(|it| *it <= 2 * mean), "{bytes:?}");
    let loads = loads(&problem, &after);
    assert!(loads[2] >= 170, "the third is filled: {loads:?}");
}

#[test]
fn orphan_that_is_too_large_for_all_is_placed_all_the_same() {
    let mut problem = problem(3, vec![10; 6]);
    problem.shards[0].bytes = 1_000_000;

    let after = place_new(&problem);

    assert!(after.owners.iter().all(Option::is_some));
}

#[test]
fn while_some_retire_the_others_get_all_that_has_no_member() {
    let mut problem = problem(4, vec![10; 40]);
    for member in &mut problem.members[..3] {
        member.retiring = true;
    }
    let owners = (0..40).map(|n| (n >= 10).then_some(Ordinal(n % 3)));
    let before = Assignment {
        owners: owners.collect(),
    };
    problem.budget = 0;

    let after = place(&problem, &before);

    let to_others = after
        .moves_from(&before)
        .into_iter()
        .filter(|it| it.to != Ordinal(3));
    assert_eq!(to_others.count(), 0);
    assert_eq!(loads(&problem, &after)[3], 100);
}

#[test]
fn members_that_retire_are_emptied_first() {
    let mut problem = problem(4, vec![10; 40]);
    problem.members[0].retiring = true;
    problem.members[1].retiring = true;
    // The third has most and the fourth, which has joined, nothing.
    let owners = (0..40).map(|n| Some(Ordinal(if n < 20 { n % 2 } else { 2 })));
    let before = Assignment {
        owners: owners.collect(),
    };
    problem.budget = 10;

    let after = place(&problem, &before);

    let moves = after.moves_from(&before);
    assert_eq!(moves.len(), 10);
    assert!(moves.iter().all(|it| it.to == Ordinal(3)));
    assert!(
        moves.iter().all(|it| it.from != Some(Ordinal(2))),
        "{moves:?}"
    );
}
