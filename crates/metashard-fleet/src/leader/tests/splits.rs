//! Controllers that are split and merged: by their spec, by what they cost, and what goes wrong meanwhile.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use metashard_api::id::{ControllerUid, ShardId, Slice};

use super::fleet::{Fleet, N_SHARDS};
use crate::{
    leader::{Input, Report},
    message::Order,
    shard::{Layout, shard_of},
};

const HOT: &str = "hot";

fn uid(name: &str) -> ControllerUid {
    ControllerUid::new(name)
}

/// 30 controllers, one of which asks for `slices`.
fn show(fleet: &mut Fleet, slices: Option<u16>) {
    let mut all: BTreeMap<ControllerUid, Option<u16>> = (0..30)
        .map(|n| (uid(&format!("quiet-{n}")), None))
        .collect();
    all.insert(uid(HOT), slices);
    for n in 0..fleet.replicas.len() {
        fleet.tell(n, Input::ControllersSeen(Arc::new(all.clone())));
    }
}

/// The shards of the hot controller, were it split into eight.
fn eighths() -> BTreeSet<ShardId> {
    let shard = |slice| shard_of(&uid(HOT), Slice(slice), N_SHARDS);
    (0..8).map(shard).collect()
}

fn slices(fleet: &Fleet) -> u16 {
    Layout::of(fleet.server.spec()).slices(&uid(HOT))
}

fn n_moves_of_maps(fleet: &Fleet) -> usize {
    let maps = fleet.maps.iter();
    let splits = maps.map(|spec| Layout::of(spec).slices(&uid(HOT)));
    let mut splits: Vec<u16> = splits.collect();
    splits.dedup();
    splits.len()
}

/// In every map that splits otherwise than the one before, all shards concerned have a new epoch.
fn assert_parents_of_an_epoch_never_change(fleet: &Fleet) {
    for pair in fleet.maps.windows(2) {
        let changes = Layout::of(&pair[0]).changes(&Layout::of(&pair[1]));
        for (controller, recut) in changes {
            let epochs = |n: usize| {
                let layout = Layout::of(&pair[n]);
                let shards = layout.concerned(&controller, recut).into_iter();
                shards.map(move |it| pair[n].shards[usize::from(it.0)].epoch)
            };
            let (newest, oldest) = (epochs(0).max(), epochs(1).min());
            assert!(
                newest < oldest,
                "{controller} {recut:?}: {newest:?}, {oldest:?}"
            );
        }
    }
}

#[test]
fn controller_is_split_and_merged_as_its_spec_says() {
    let mut fleet = Fleet::running(&["a", "b", "c"]);
    show(&mut fleet, None);
    fleet.run(Duration::from_secs(11));
    fleet.maps.push(fleet.server.spec().clone());

    show(&mut fleet, Some(8));
    let took = fleet.run_until(Duration::from_secs(5), |it| slices(it) == 8);
    assert!(took <= Duration::from_secs(1), "{took:?}");
    fleet.run(Duration::from_secs(5));
    for shard in eighths() {
        assert!(fleet.owner(shard.0).is_some(), "{shard}");
    }

    show(&mut fleet, Some(1));
    fleet.run_until(Duration::from_secs(5), |it| slices(it) == 1);
    show(&mut fleet, Some(2));
    fleet.run_until(Duration::from_secs(5), |it| slices(it) == 2);

    assert_parents_of_an_epoch_never_change(&fleet);
}

#[test]
fn map_changes_splits_only_when_every_owner_has_released() {
    let mut fleet = Fleet::running(&["a", "b", "c"]);
    show(&mut fleet, None);
    fleet.run(Duration::from_secs(11));
    let concerned = eighths();
    let slow = ["a", "b", "c"].into_iter().find(|name| {
        let owned = fleet.owned_by(name);
        owned.iter().any(|it| concerned.contains(&it.shard))
    });
    let slow = slow.unwrap();
    fleet.worker(slow).drains = false;

    show(&mut fleet, Some(8));
    fleet.run(Duration::from_secs(5));
    assert_eq!(slices(&fleet), 1);
    let waiting: Vec<_> = fleet.owned_by(slow).into_iter().collect();

    fleet.worker(slow).drains = true;
    for claim in waiting {
        if concerned.contains(&claim.shard) {
            let message = crate::message::FromWorker::Released {
                claim,
                last_written: Vec::new(),
            };
            fleet.say(slow, message);
        }
    }
    fleet.run_until(Duration::from_secs(2), |it| slices(it) == 8);
    assert_parents_of_an_epoch_never_change(&fleet);
}

#[test]
fn split_that_an_owner_holds_up_is_given_up_and_its_shards_go_on() {
    let mut fleet = Fleet::running(&["a", "b", "c"]);
    show(&mut fleet, None);
    fleet.run(Duration::from_secs(11));
    let home = shard_of(&uid(HOT), Slice(0), N_SHARDS);
    let (owner, _) = fleet.owner(home.0).unwrap();
    let owner = owner.as_str().to_owned();
    let name = ["a", "b", "c"]
        .into_iter()
        .find(|it| crate::testing::incarnation(it).as_str() == owner);
    let name = name.unwrap();

    show(&mut fleet, Some(8));
    fleet.worker(name).renews = false;
    fleet.run(Duration::from_secs(30));

    // Fenced meanwhile: all is owned, by the old split or the new one.
    assert_eq!(fleet.snapshot().n_unowned, 0);
    assert!(fleet.owned_by(name).is_empty());
    assert_parents_of_an_epoch_never_change(&fleet);
    fleet.run_until(Duration::from_mins(2), |it| slices(it) == 8);
    assert_parents_of_an_epoch_never_change(&fleet);
}

#[test]
fn split_of_a_controller_that_is_gone_is_taken_back() {
    let mut fleet = Fleet::running(&["a", "b"]);
    show(&mut fleet, Some(4));
    fleet.run_until(Duration::from_secs(5), |it| slices(it) == 4);

    for n in 0..fleet.replicas.len() {
        fleet.tell(n, Input::ControllersSeen(Arc::default()));
    }
    fleet.run_until(Duration::from_secs(15), |it| slices(it) == 1);

    assert!(fleet.server.spec().splits.is_empty());
}

#[test]
fn server_whose_crd_knows_no_splits_keeps_controllers_whole_and_evicts_nobody() {
    let mut fleet = Fleet::running(&["a", "b"]);
    fleet.server.drops_splits = true;
    show(&mut fleet, Some(4));

    fleet.run(Duration::from_mins(2));

    assert!(!fleet.reports.contains(&Report::MapLost));
    assert_eq!(slices(&fleet), 1);
    for shard in 0..N_SHARDS {
        assert!(fleet.owner(shard).is_some(), "{shard}");
    }
}

/// What the hot controller and the quiet ones cost, wherever they are.
fn cost(fleet: &mut Fleet, hot: u64, quiet: u64) {
    let n_slices = slices(fleet);
    fleet.costs.clear();
    for n in 0..30 {
        let shard = shard_of(&uid(&format!("quiet-{n}")), Slice(0), N_SHARDS);
        *fleet.costs.entry(shard).or_default() += quiet;
    }
    for slice in (0..n_slices).map(Slice) {
        let shard = shard_of(&uid(HOT), slice, N_SHARDS);
        *fleet.costs.entry(shard).or_default() += hot / u64::from(n_slices);
    }
    fleet.hot = Some((uid(HOT), n_slices, hot));
}

#[test]
fn controller_with_half_of_all_load_is_split_so_that_workers_are_even_within_two_minutes() {
    let mut fleet = Fleet::running(&["a", "b", "c", "d"]);
    show(&mut fleet, None);
    cost(&mut fleet, 3_000_000, 100_000);
    let length = fleet.run_until(Duration::from_mins(2), |it| slices(it) > 1);
    assert!(
        length >= Duration::from_secs(15),
        "{length:?}: first it has to last"
    );
    cost(&mut fleet, 3_000_000, 100_000);

    let more = fleet.run_until(Duration::from_mins(2), |it| {
        loads(it).iter().max().unwrap() * 4 * 100 <= 110 * loads(it).iter().sum::<u64>()
    });

    assert!(
        length + more <= Duration::from_mins(2),
        "{length:?} + {more:?}"
    );
    fleet.run(Duration::from_mins(3));
    assert_eq!(n_moves_of_maps(&fleet), 2, "it is split once");
    assert_parents_of_an_epoch_never_change(&fleet);

    // The load goes.
    cost(&mut fleet, 3_000, 100_000);
    fleet.run(Duration::from_mins(25));
    assert!(
        slices(&fleet) > 1,
        "not before it was cold for half an hour"
    );
    fleet.run_until(Duration::from_mins(10), |it| slices(it) == 1);
    assert_parents_of_an_epoch_never_change(&fleet);
}

/// What each worker has.
fn loads(fleet: &Fleet) -> Vec<u64> {
    let names = fleet.workers.keys();
    names
        .map(|name| {
            let shards = fleet.costs.iter().filter(|(shard, _)| {
                let owner = fleet.owner(shard.0);
                owner.is_some_and(|(owner, _)| owner == *name)
            });
            shards.map(|(_, cost)| *cost).sum()
        })
        .collect()
}

#[test]
fn controller_that_asks_for_one_slice_is_never_split() {
    let mut fleet = Fleet::running(&["a", "b", "c", "d"]);
    show(&mut fleet, Some(1));
    cost(&mut fleet, 3_000_000, 100_000);

    fleet.run(Duration::from_mins(5));

    assert_eq!(slices(&fleet), 1);
}

#[test]
fn orders_after_a_split_name_the_map_that_made_it() {
    let mut fleet = Fleet::running(&["a", "b"]);
    show(&mut fleet, Some(4));
    fleet.run_until(Duration::from_secs(5), |it| slices(it) == 4);

    let version = fleet.server.spec().version();
    let home: ShardId = shard_of(&uid(HOT), Slice(0), N_SHARDS);
    let assigned = fleet
        .told
        .iter()
        .rev()
        .find_map(|(_, message)| match &message.order {
            Order::Assign {
                claim,
                splits_as_of,
                last_written,
            } if claim.shard == home => Some((*splits_as_of, last_written.len())),
            Order::Warm { .. } | Order::Assign { .. } | Order::Drain { .. } => None,
        });

    assert_eq!(
        assigned,
        Some((version, 0)),
        "nor is it known where writes for its parents ended"
    );
}
