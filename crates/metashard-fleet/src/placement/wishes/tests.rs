//! Tests of placement with wishes.

use proptest::prelude::*;

use super::{
    super::tests::{loads, place_new, problem, situations, voluntary},
    *,
};

fn cordoning(members: &[u16]) -> Wishes {
    Wishes {
        cordoned: members.iter().copied().map(Ordinal).collect(),
        pins: BTreeMap::new(),
    }
}

fn pinning(pins: &[(u16, u16)]) -> Wishes {
    let pins = pins
        .iter()
        .map(|(shard, to)| (ShardId(*shard), Ordinal(*to)));
    Wishes {
        cordoned: BTreeSet::new(),
        pins: pins.collect(),
    }
}

#[test]
fn what_a_cordoned_member_had_spreads_over_the_others_and_nothing_else_moves() {
    let problem = problem(4, vec![100; 400]);
    let before = place_new(&problem);

    let after = place_as_wished(&problem, &cordoning(&[1]), &before).assignment;

    let loads = loads(&problem, &after);
    assert_eq!(loads[1], 0);
    assert!(
        [0, 2, 3]
            .iter()
            .all(|it| (12_600..=14_000).contains(&loads[*it])),
        "{loads:?}"
    );
    let moves = after.moves_from(&before);
    assert!(
        moves.iter().all(|it| it.from == Some(Ordinal(1))),
        "{moves:?}"
    );
}

#[test]
fn shard_in_its_cool_down_stays_on_a_cordoned_member_for_now() {
    let mut problem = problem(3, vec![100; 30]);
    let before = place_new(&problem);
    let held = before
        .owners
        .iter()
        .position(|it| *it == Some(Ordinal(0)))
        .unwrap();
    problem.shards[held].pinned = true;

    let during = place_as_wished(&problem, &cordoning(&[0]), &before).assignment;
    problem.shards[held].pinned = false;
    let after = place_as_wished(&problem, &cordoning(&[0]), &during).assignment;

    assert_eq!(during.owners[held], Some(Ordinal(0)));
    assert_eq!(loads(&problem, &during)[0], 100);
    assert_eq!(loads(&problem, &after)[0], 0);
}

#[test]
fn pinned_shard_goes_to_its_member_and_others_make_room() {
    let problem = problem(4, vec![100; 40]);
    let before = place_new(&problem);
    let away = (0..40_u16).filter(|it| before.owners[usize::from(*it)] != Some(Ordinal(2)));
    let pins: Vec<(u16, u16)> = away.take(5).map(|it| (it, 2)).collect();

    let placed = place_as_wished(&problem, &pinning(&pins), &before);

    assert_eq!(placed.denied, BTreeMap::new());
    let owner = |shard: u16| placed.assignment.owners[usize::from(shard)];
    assert!(pins.iter().all(|it| owner(it.0) == Some(Ordinal(2))));
    assert_eq!(loads(&problem, &placed.assignment), [1_000; 4]);
}

#[test]
fn pins_beyond_the_room_for_caches_are_denied_but_one_that_fits_nowhere_is_honoured() {
    let mut problem = problem(4, vec![100; 8]);
    for shard in &mut problem.shards[..4] {
        shard.bytes = 1_000;
    }
    let before = place_new(&problem);
    let all_to_one = pinning(&[(0, 1), (1, 1), (2, 1), (3, 1)]);

    let placed = place_as_wished(&problem, &all_to_one, &before);
    problem.shards[0].bytes = 1_000_000;
    let alone = place_as_wished(&problem, &pinning(&[(0, 1)]), &before);

    // Twice the mean is 2,000 bytes.
    let denied: Vec<u16> = placed.denied.keys().map(|it| it.0).collect();
    assert_eq!(denied, [2, 3]);
    assert!(placed.denied.values().all(|it| *it == Denied::NoRoom));
    assert_eq!(alone.denied, BTreeMap::new());
}

#[test]
fn pin_to_a_cordoned_or_unknown_member_is_denied_and_moves_nothing() {
    let problem = problem(3, vec![100; 30]);
    let before = place_new(&problem);
    let mut wishes = pinning(&[(0, 9), (40, 1)]);
    wishes.cordoned.insert(Ordinal(7));

    let placed = place_as_wished(&problem, &wishes, &before);

    assert!(placed.denied.values().all(|it| *it == Denied::Unknown));
    assert_eq!(placed.denied.len(), 2);
    assert_eq!(placed.assignment, before);
}

prop_compose! {
    /// Any situation and any wishes, also such as name what there is not.
    fn wished()((problem, before) in situations())(
        cordoned in prop::collection::btree_set(0..10_u16, 0..4),
        pins in prop::collection::btree_map(0..125_u16, 0..10_u16, 0..6),
        problem in Just(problem),
        before in Just(before),
    ) -> (Problem, Wishes, Assignment) {
        let pins = pins.into_iter().map(|(shard, to)| (ShardId(shard), Ordinal(to)));
        let wishes = Wishes {
            cordoned: cordoned.into_iter().map(Ordinal).collect(),
            pins: pins.collect(),
        };
        (problem, wishes, before)
    }
}

/// The members that are not cordoned.
fn open(problem: &Problem, wishes: &Wishes) -> Vec<Ordinal> {
    let members = (0..=u16::MAX).map(Ordinal).take(problem.members.len());
    members.filter(|it| !wishes.cordoned.contains(it)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_shard_has_exactly_one_member_whatever_is_wished((problem, wishes, before) in wished()) {
        let after = place_as_wished(&problem, &wishes, &before).assignment;

        prop_assert_eq!(after.owners.len(), problem.shards.len());
        let n_members = problem.members.len();
        prop_assert!(after.owners.iter().all(|it| it.is_some_and(|it| usize::from(it.0) < n_members)));
    }

    #[test]
    fn placing_again_as_wished_changes_nothing((mut problem, wishes, before) in wished()) {
        problem.budget = 1_000;
        let after = place_as_wished(&problem, &wishes, &before).assignment;

        prop_assert_eq!(place_as_wished(&problem, &wishes, &after).assignment, after);
    }

    #[test]
    fn cordoned_members_end_empty_but_for_what_is_held((problem, wishes, before) in wished()) {
        let after = place_as_wished(&problem, &wishes, &before).assignment;

        let open = open(&problem, &wishes);
        prop_assume!(!open.is_empty());
        for (shard, owner) in after.owners.iter().enumerate() {
            let is_held = problem.shards[shard].pinned && before.owners[shard] == *owner;
            prop_assert!(is_held || owner.is_some_and(|it| open.contains(&it)));
        }
    }

    #[test]
    fn nothing_is_taken_from_anybody_while_all_are_cordoned((problem, mut wishes, before) in wished()) {
        wishes.cordoned = (0..=u16::MAX).map(Ordinal).take(problem.members.len()).collect();

        let after = place_as_wished(&problem, &wishes, &before).assignment;

        prop_assert_eq!(voluntary(&problem, &before, &after), []);
    }

    #[test]
    fn what_is_held_stays_whatever_is_wished((problem, wishes, before) in wished()) {
        let after = place_as_wished(&problem, &wishes, &before).assignment;

        let moves = voluntary(&problem, &before, &after);
        prop_assert!(moves.iter().all(|it| !problem.shards[usize::from(it.shard.0)].pinned));
    }

    #[test]
    fn pin_is_honoured_or_denied((problem, wishes, before) in wished()) {
        let placed = place_as_wished(&problem, &wishes, &before);

        for (shard, to) in &wishes.pins {
            let owner = placed.assignment.owners.get(usize::from(shard.0)).copied().flatten();
            prop_assert!(owner == Some(*to) || placed.denied.contains_key(shard));
        }
    }

    #[test]
    fn without_wishes_it_is_the_usual_placement((problem, _, before) in wished()) {
        let placed = place_as_wished(&problem, &Wishes::default(), &before);

        prop_assert_eq!(placed.assignment, place(&problem, &before));
    }
}
