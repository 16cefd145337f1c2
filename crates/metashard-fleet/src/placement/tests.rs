//! Tests of placement.

mod figures;

use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn members(n: u16) -> Vec<Member> {
    (0..n)
        .map(|n| Member {
            replica: ReplicaId::new(format!("metashard-{n}")),
            capacity: 0,
            retiring: false,
        })
        .collect()
}

fn shard(weight: u64) -> Shard {
    Shard {
        weight,
        ..Shard::default()
    }
}

pub(super) fn problem(n_members: u16, weights: impl IntoIterator<Item = u64>) -> Problem {
    let shards: Vec<Shard> = weights.into_iter().map(shard).collect();
    Problem {
        members: members(n_members),
        budget: shards.len(),
        shards,
        level: Level::Rest,
    }
}

pub(super) fn place_new(problem: &Problem) -> Assignment {
    place(problem, &Assignment::empty(problem.shards.len()))
}

/// Sum of `measure` over the shards of each member.
fn sums(problem: &Problem, assignment: &Assignment, measure: impl Fn(&Shard) -> u64) -> Vec<u64> {
    let mut sums = vec![0; problem.members.len()];
    for (shard, owner) in problem.shards.iter().zip(&assignment.owners) {
        sums[usize::from(owner.expect("placed").0)] += measure(shard);
    }
    sums
}

pub(super) fn loads(problem: &Problem, assignment: &Assignment) -> Vec<u64> {
    sums(problem, assignment, |shard| shard.weight)
}

/// Number of shards of each member that hold no controller.
fn n_idle(problem: &Problem, assignment: &Assignment) -> Vec<u64> {
    sums(problem, assignment, |shard| u64::from(shard.weight == 0))
}

/// Weights as controllers have them: lognormal, from a fixed sequence.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small positive numbers, any of them will do"
)]
fn lognormal(n: usize) -> Vec<u64> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut uniform = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    // The sum of twelve uniform numbers less 6 is close to a standard normal one.
    (0..n)
        .map(|_| {
            let normal = (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
            (1_000.0 * normal.exp()) as u64 + 1
        })
        .collect()
}

/// The hottest member is within 1.10 of the mean, or nothing on it weighs at most half the gap to the coldest.
fn is_at_rest(loads: &[u64], items: impl Fn(usize) -> Vec<u64>) -> bool {
    let total: u64 = loads.iter().sum();
    let (hottest, hot) = loads
        .iter()
        .enumerate()
        .map(|(n, load)| (n, *load))
        .max_by_key(|it| it.1)
        .unwrap();
    let cold = *loads.iter().min().unwrap();
    let gap = hot - cold;
    hot * 100 * loads.len() as u64 <= total * 110
        || items(hottest).iter().all(|weight| *weight * 2 > gap)
}

fn weights_on(problem: &Problem, assignment: &Assignment, member: usize) -> Vec<u64> {
    let shards = problem.shards.iter().zip(&assignment.owners);
    let on_it =
        shards.filter(|(_, owner)| owner.is_some_and(|owner| usize::from(owner.0) == member));
    on_it
        .map(|(shard, _)| shard.weight)
        .filter(|weight| *weight > 0)
        .collect()
}

#[test]
fn eight_controllers_and_the_empty_shards_spread_over_three_members() {
    let problem = problem(3, (0..1024).map(|n| if n % 128 == 5 { 1_000 } else { 0 }));

    let assignment = place_new(&problem);

    let mut loads = loads(&problem, &assignment);
    loads.sort_unstable();
    assert_eq!(loads, [2_000, 3_000, 3_000]);
    let n_idle = n_idle(&problem, &assignment);
    assert!(n_idle.iter().all(|n| (304..=356).contains(n)), "{n_idle:?}");
}

#[test]
fn shards_that_weigh_next_to_nothing_fill_up_what_controllers_leave() {
    let problem = problem(3, (0..1024).map(|n| if n % 128 == 5 { 1_000 } else { 1 }));

    let assignment = place_new(&problem);

    let n_controllers = sums(&problem, &assignment, |shard| shard.weight / 1_000);
    assert!(
        n_controllers.iter().all(|n| (2..=3).contains(n)),
        "{n_controllers:?}"
    );
    assert!(hottest_percent(&problem, &assignment) <= 105);
}

#[test]
fn replica_that_comes_back_gets_the_shards_that_it_prefers() {
    let all = problem(5, vec![0; 1024]);
    let before = place_new(&all);
    let mut without = all.clone();
    without.members.remove(2);
    let while_away = place(&without, &after_leave(&before, 2));

    let back = place(&all, &after_join(&while_away, 2));

    let n_moved_between_others = back
        .moves_from(&after_join(&while_away, 2))
        .iter()
        .filter(|it| it.to != Ordinal(2))
        .count();
    assert_eq!(n_moved_between_others, 0);
    assert!(n_idle(&all, &back)[2] >= 180);
}

/// The assignment once `gone` is no longer among the members.
fn after_leave(assignment: &Assignment, gone: u16) -> Assignment {
    let owners = assignment.owners.iter().map(|owner| match *owner {
        Some(Ordinal(owner)) if owner > gone => Some(Ordinal(owner - 1)),
        owner => owner.filter(|owner| owner.0 != gone),
    });
    Assignment {
        owners: owners.collect(),
    }
}

/// The assignment once `new` is among the members.
fn after_join(assignment: &Assignment, new: u16) -> Assignment {
    let owners = assignment.owners.iter().map(|owner| match *owner {
        Some(Ordinal(owner)) if owner >= new => Some(Ordinal(owner + 1)),
        owner => owner,
    });
    Assignment {
        owners: owners.collect(),
    }
}

#[test]
fn shard_heavier_than_all_others_together_has_a_member_to_itself() {
    let problem = problem(4, std::iter::once(1_000_000).chain(vec![10; 99]));

    let assignment = place_new(&problem);

    let mut loads = loads(&problem, &assignment);
    loads.sort_unstable();
    assert_eq!(loads[3], 1_000_000);
}

#[test]
fn member_of_twice_the_capacity_carries_twice_the_load() {
    let mut problem = problem(3, vec![7; 1000]);
    problem.members[1].capacity = 200;

    let assignment = place_new(&problem);

    let loads = loads(&problem, &assignment);
    assert!((3_325..=3_675).contains(&loads[1]), "{loads:?}");
    assert!((1_660..=1_840).contains(&loads[0]), "{loads:?}");
}

#[test]
fn without_members_nothing_has_an_owner() {
    let problem = problem(0, [1, 0, 2]);

    let assignment = place(
        &problem,
        &Assignment {
            owners: vec![Some(Ordinal(1)); 3],
        },
    );

    assert_eq!(assignment, Assignment::empty(3));
}

#[test]
fn pinned_shards_stay_and_count_where_they_are() {
    let mut problem = problem(2, vec![1; 100]);
    for shard in &mut problem.shards[..60] {
        shard.pinned = true;
    }
    let all_on_the_first = Assignment {
        owners: vec![Some(Ordinal(0)); 100],
    };

    let assignment = place(&problem, &all_on_the_first);

    assert!(
        assignment.owners[..60]
            .iter()
            .all(|owner| *owner == Some(Ordinal(0)))
    );
    assert_eq!(loads(&problem, &assignment), [60, 40]);
}

fn weights() -> impl Strategy<Value = u64> {
    prop_oneof![3 => Just(0), 2 => 1_u64..10, 3 => 10_u64..1_000, 1 => 1_000_u64..100_000]
}

prop_compose! {
    /// Any problem and any assignment so far.
    pub(super) fn situations()(n_members in 1_u16..9)(
        n_members in Just(n_members),
        kinds in prop::collection::vec(
            (prop_oneof![Just(0_u32), 50..300_u32], prop::bool::weighted(0.2)), usize::from(n_members),
        ),
        shards in prop::collection::vec(
            (weights(), 0..1_000_u64, prop::bool::weighted(0.2), prop::option::weighted(0.8, 0..n_members + 1)),
            0..120,
        ),
        budget in prop_oneof![Just(1_000_usize), 0..8_usize],
        level in prop_oneof![Just(Level::Rest), Just(Level::Fine)],
    ) -> (Problem, Assignment) {
        let mut members = members(n_members);
        for (member, (capacity, retiring)) in members.iter_mut().zip(kinds) {
            (member.capacity, member.retiring) = (capacity, retiring);
        }
        let owners = shards.iter().map(|(.., owner)| owner.map(Ordinal)).collect();
        let shards = shards.into_iter();
        let shards = shards.map(|(weight, bytes, pinned, _)| Shard { weight, pinned, bytes }).collect();
        (Problem { members, shards, budget, level }, Assignment { owners })
    }
}

/// Moves of shards that could have stayed.
pub(super) fn voluntary(problem: &Problem, before: &Assignment, after: &Assignment) -> Vec<Move> {
    let mut moves = after.moves_from(before);
    moves.retain(|it| {
        it.from
            .is_some_and(|from| usize::from(from.0) < problem.members.len())
    });
    moves
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_shard_has_exactly_one_member((problem, before) in situations()) {
        let after = place(&problem, &before);

        prop_assert_eq!(after.owners.len(), problem.shards.len());
        let n_members = problem.members.len();
        let is_valid = |owner: Option<Ordinal>| owner.is_some_and(|it| usize::from(it.0) < n_members);
        prop_assert!(after.owners.iter().all(|owner| is_valid(*owner)));
    }

    #[test]
    fn placing_again_changes_nothing((problem, before) in situations()) {
        let after = place(&problem, &before);

        let n_moved = voluntary(&problem, &before, &after).len();
        let rest = Problem { budget: problem.budget - n_moved, ..problem };
        prop_assert_eq!(place(&rest, &after), after);
    }

    #[test]
    fn placing_twice_with_budget_enough_changes_nothing((mut problem, before) in situations()) {
        problem.budget = 1_000;
        let after = place(&problem, &before);

        prop_assert_eq!(place(&problem, &after), after);
    }

    #[test]
    fn only_movable_shards_move_and_at_most_the_budget((problem, before) in situations()) {
        let after = place(&problem, &before);

        let moves = voluntary(&problem, &before, &after);
        prop_assert!(moves.len() <= problem.budget);
        prop_assert!(moves.iter().all(|it| !problem.shards[usize::from(it.shard.0)].pinned));
    }

    #[test]
    fn nothing_that_could_stay_moves_to_a_member_that_retires((problem, before) in situations()) {
        let after = place(&problem, &before);

        let has_others = problem.members.iter().any(|it| !it.retiring);
        let retires = |it: Ordinal| problem.members[usize::from(it.0)].retiring;
        let moves = voluntary(&problem, &before, &after);
        prop_assert!(!has_others || moves.iter().all(|it| !retires(it.to)));
    }

    #[test]
    fn members_are_level_at_rest(
        weights in prop::collection::vec(weights(), 0..200), n_members in 1_u16..9,
        owners in prop::collection::vec(prop::option::of(0_u16..9), 200),
    ) {
        let problem = problem(n_members, weights);
        let before = Assignment { owners: owners.into_iter().map(|owner| owner.map(Ordinal)).collect() };

        let after = place(&problem, &before);

        let is_level = is_at_rest(&loads(&problem, &after), |member| weights_on(&problem, &after, member));
        prop_assert!(is_level, "{:?}", loads(&problem, &after));
        prop_assert!(is_at_rest(&n_idle(&problem, &after), |_| vec![1]), "{:?}", n_idle(&problem, &after));
    }

    #[test]
    fn join_moves_its_share_and_levels(
        weights in prop::collection::vec(1_u64..1_000, 40..300), n_members in 1_u16..9, new in 0_u16..9,
    ) {
        let new = new.min(n_members);
        let mut with = problem(n_members + 1, weights);
        let mut without = with.clone();
        without.members.remove(usize::from(new));
        let before = after_join(&place_new(&without), new);
        with.budget = with.shards.len().div_ceil(with.members.len()) + 2;

        let after = place(&with, &before);

        prop_assert!(after.moves_from(&before).len() <= with.budget);
        let is_level = is_at_rest(&loads(&with, &after), |member| weights_on(&with, &after, member));
        prop_assert!(is_level, "{:?}", loads(&with, &after));
    }

    #[test]
    fn leave_moves_orphans_only(
        weights in prop::collection::vec(weights(), 0..200), n_members in 2_u16..9, gone in 0_u16..9,
    ) {
        let gone = gone.min(n_members - 1);
        let with = problem(n_members, weights);
        let before = place_new(&with);
        let mut without = with;
        without.members.remove(usize::from(gone));
        without.budget = 0;

        let orphaned = after_leave(&before, gone);
        let after = place(&without, &orphaned);

        prop_assert!(after.moves_from(&orphaned).iter().all(|it| it.from.is_none()));
    }
}
