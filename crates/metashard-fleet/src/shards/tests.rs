//! What is found out from a view of all shards.

use metashard_api::shard_map::{Member, ShardEntry};

use super::*;
use crate::placement::Level;

const QUIET: u64 = 5_000;

fn replica(name: &str) -> Replica {
    Replica {
        replica: ReplicaId::new(name),
        incarnation: Incarnation::new(name),
        capacity: 0,
        retiring: false,
        cordoned: false,
        leaving: false,
    }
}

/// Sixty shards, of which half hold a quiet controller, shared out in turns.
fn shared_by(names: &[&str]) -> Shards {
    let shards = (0..60).map(|number| {
        let n = u32::from(number % 2 == 0);
        let owner = names[usize::from(number / 2) % names.len()];
        Shard {
            owner: Some(ReplicaId::new(owner)),
            phase: Some(Phase::Owned),
            controllers: n,
            weight: u64::from(n) * QUIET,
            ..Shard::new(ShardId(number), Epoch(1))
        }
    });
    Shards {
        replicas: names.iter().copied().map(replica).collect(),
        shards: shards.collect(),
        ..Shards::default()
    }
}

fn names(parts: &[Part]) -> Vec<&str> {
    parts.iter().map(|it| it.replica.as_str()).collect()
}

#[test]
fn replicas_that_come_get_their_share_and_nothing_else_moves() {
    let shards = shared_by(&["a-1", "a-2"]);

    let simulated = shards.simulated(Some(4), Level::Rest);

    assert_eq!(names(&simulated.replicas), ["a-1", "a-2", "new-1", "new-2"]);
    assert!(!simulated.moves.is_empty());
    let is_to_new = |it: &Move| it.to.as_str().starts_with("new-");
    assert!(simulated.moves.iter().all(is_to_new), "{simulated:#?}");
    assert_eq!(
        simulated.hottest_percent, 100,
        "who is not there yet does not count"
    );
    assert!(simulated.hottest_percent_after <= 115, "{simulated:#?}");
    let heaviest_first = simulated
        .moves
        .is_sorted_by_key(|it| std::cmp::Reverse(it.weight));
    assert!(heaviest_first);
}

#[test]
fn replicas_that_are_called_last_go_and_only_what_they_had_moves() {
    let shards = shared_by(&["a-2", "a-10", "a-9"]);

    let simulated = shards.simulated(Some(2), Level::Rest);

    assert_eq!(names(&simulated.replicas), ["a-2", "a-9", "a-10"]);
    let gone = &simulated.replicas[2];
    assert_eq!(gone.after, Carried::default());
    assert_eq!(simulated.moves.len(), 20);
    let is_its = |it: &Move| it.from.as_ref().is_some_and(|it| it.as_str() == "a-10");
    assert!(simulated.moves.iter().all(is_its), "{simulated:#?}");
}

#[test]
fn levelling_moves_only_where_it_helps_and_a_level_fleet_stays() {
    let mut shards = shared_by(&["a", "b", "c"]);
    assert_eq!(shards.simulated(None, Level::Fine).moves, []);

    for shard in &mut shards.shards {
        let is_hot = shard.weight > 0 && shard.owner.as_ref().is_some_and(|it| it.as_str() == "a");
        shard.weight *= if is_hot { 3 } else { 1 };
    }
    let simulated = shards.simulated(None, Level::Fine);

    assert!(!simulated.moves.is_empty());
    assert!(simulated.hottest_percent > 150, "{simulated:#?}");
    assert!(simulated.hottest_percent_after < 120, "{simulated:#?}");
}

#[test]
fn cordons_and_pins_count_in_what_is_simulated() {
    let mut shards = shared_by(&["a", "b", "c"]);
    shards.replicas[0].cordoned = true;
    shards.shards[4].pinned_to = Some(ReplicaId::new("b"));

    let simulated = shards.simulated(None, Level::Rest);

    let carried = |name: &str| {
        let part = simulated
            .replicas
            .iter()
            .find(|it| it.replica.as_str() == name);
        part.unwrap().after
    };
    assert_eq!(carried("a"), Carried::default());
    let pinned = simulated.moves.iter().find(|it| it.shard == ShardId(4));
    assert_eq!(pinned.unwrap().to.as_str(), "b");
}

#[test]
fn what_is_on_its_way_counts_at_its_target() {
    let mut shards = shared_by(&["a", "b"]);
    shards.shards[0].phase = Some(Phase::Warming);
    shards.shards[0].hand_over = Some(UnderWay {
        to: Some(ReplicaId::new("b")),
        reason: "balance".to_owned(),
        since_seconds: 1,
    });

    let simulated = shards.simulated(None, Level::Rest);

    let first = &simulated.moves[0];
    assert_eq!((first.shard, first.to.as_str()), (ShardId(0), "b"));
}

#[test]
fn place_of_a_shard_is_explained_by_what_put_it_there() {
    let mut shards = shared_by(&["a", "b", "c"]);
    // Light enough for all to have room for it.
    shards.shards[0].weight = 1;
    let order = |shards: &Shards| shards.explain(ShardId(0)).unwrap().preference;
    let preference = order(&shards);
    let (home, last) = (preference[0].clone(), preference[2].clone());
    let explained = |owner: &ReplicaId, shards: &mut Shards| {
        shards.shards[0].owner = Some(owner.clone());
        shards.explain(ShardId(0)).unwrap()
    };

    assert_eq!(explained(&home, &mut shards).reason, Some(Reason::Home));
    assert_eq!(
        explained(&last, &mut shards).reason,
        Some(Reason::Kept { home: home.clone() })
    );
    // Its home has a hundred times as much as the others.
    for shard in &mut shards.shards {
        if shard.owner.as_ref() == Some(&home) {
            shard.weight *= 100;
        }
    }
    assert_eq!(
        explained(&last, &mut shards).reason,
        Some(Reason::Full { home })
    );
    shards.shards[0].pinned_to = Some(last.clone());
    let pinned = explained(&last, &mut shards);
    assert_eq!(pinned.reason, Some(Reason::Pinned));
    assert!(pinned.next.is_some_and(|it| it != last));
    shards.shards[0].pinned_to = None;
    let cordoned = shards.replicas.iter_mut().find(|it| it.replica == last);
    cordoned.unwrap().cordoned = true;
    let explained = explained(&last, &mut shards);
    assert_eq!(explained.reason, Some(Reason::Cordoned));
    assert!(!explained.preference.contains(&last));
    assert_eq!(shards.explain(ShardId(60)), None);
}

#[test]
fn nobody_is_next_after_the_only_replica() {
    let explained = shared_by(&["a"]).explain(ShardId(1)).unwrap();

    assert_eq!(explained.reason, Some(Reason::Home));
    assert_eq!(explained.next, None);
}

#[test]
fn map_alone_tells_owners_and_epochs_and_can_be_simulated() {
    let member = |name: &str| Member {
        replica: name.to_owned(),
        incarnation: format!("incarnation-{name}"),
    };
    let entry = |number: u16| ShardEntry {
        owner: (number > 0).then_some(number % 2),
        epoch: Epoch(7),
    };
    let map = ShardMapSpec {
        members: vec![member("a"), member("b")],
        shards: (0..20).map(entry).collect(),
        ..ShardMapSpec::default()
    };
    let controllers = BTreeMap::from([(ShardId(3), 2)]);

    let shards = Shards::of_map(&map, &controllers);

    assert_eq!(shards.shards[0].owner, None);
    let third = &shards.shards[3];
    assert_eq!(third.owner.as_ref().unwrap().as_str(), "b");
    assert_eq!((third.controllers, third.phase), (2, None));
    let without = Shards::of_map(&map, &BTreeMap::new());
    let simulated = without.simulated(Some(4), Level::Rest);
    assert!(simulated.hottest_percent_after <= 120, "{simulated:#?}");
}

#[test]
fn view_is_read_back_as_it_was_written() {
    let mut shards = shared_by(&["a", "b"]);
    shards.shards[0].last_hand_over = Some(LastHandOver {
        ago_seconds: 5,
        reason: "pin".to_owned(),
        took_millis: 120,
    });

    let text = serde_json::to_string(&shards).unwrap();

    assert_eq!(serde_json::from_str::<Shards>(&text).unwrap(), shards);
    assert!(text.contains(r#""lastHandOver":{"agoSeconds":5"#), "{text}");
}
