//! Which parents an ownership is of: known before it starts, and never changed while it lasts.

use std::sync::Arc;

use metashard_api::shard_map::Split;

use super::*;
use crate::shard::shard_of;

/// A controller that is split over the two shards of a map.
fn controller() -> metashard_api::id::ControllerUid {
    let mut uids = (0..8).map(|n| metashard_api::id::ControllerUid::new(format!("c{n}")));
    let shard = |uid: &_, slice| shard_of(uid, metashard_api::id::Slice(slice), 2);
    uids.find(|uid| shard(uid, 0) != shard(uid, 1))
        .expect("one of them is")
}

impl Scene {
    /// The watch shows a map that splits the controller in two.
    fn see_split_map(&mut self, seq: u64, owners: &[Owner]) {
        let mut map = Map::clone(&self.map("uid-1", 1, seq, owners));
        map.spec.splits = vec![Split {
            controller: controller().to_string(),
            slices: 2,
        }];
        self.tell(Input::MapSeen(map::Seen::Present(Arc::new(map))));
    }

    fn assign_of_split(&mut self, seq: u64, claim: Claim, splits_as_of: u64) {
        let order = Order::Assign {
            claim,
            last_written: Vec::new(),
            splits_as_of: (Term(1), Seq(splits_as_of)),
        };
        self.order(1, seq, order);
    }
}

#[test]
fn ownership_starts_when_the_map_is_seen_that_says_what_it_is_of() {
    let mut scene = Scene::member(&[Other(3), Other(3)]);

    scene.assign_of_split(3, claim(0, 4), 2);
    assert_eq!(scene.steps(), []);
    assert!(!scene.may_act(claim(0, 4)));

    scene.see_split_map(3, &[Me(4), Other(4)]);
    assert_eq!(scene.steps(), [start(claim(0, 4), Freshness::Crash)]);
}

#[test]
fn ownership_of_a_map_that_splits_as_before_starts_at_once() {
    let mut scene = Scene::member(&[Other(3), Other(3)]);

    scene.assign_of_split(3, claim(0, 4), 1);

    assert!(scene.may_act(claim(0, 4)));
}

#[test]
fn after_a_split_caches_have_to_be_as_new_as_what_others_wrote() {
    for splits in [false, true] {
        let mut scene = Scene::member(&[Me(3), Other(3)]);
        scene.tell(Input::Fresh(claim(0, 3)));
        scene.drain(claim(0, 3));
        scene.drained(claim(0, 3));
        scene.taken();

        let freshness = if splits {
            scene.see_split_map(2, &[Me(4), Other(4)]);
            Freshness::Crash
        } else {
            scene.see_map(1, 2, &[Me(4), Other(4)]);
            Freshness::Released(vec![written("v1/configmaps", "70")])
        };

        assert_eq!(scene.steps(), [start(claim(0, 4), freshness)]);
    }
}

#[test]
fn mutant_starts_an_ownership_without_its_map() {
    let rules = Rules::breaking(Rule::CutOfItsMap);
    let mut scene = Scene::member_breaking(rules, &[Other(3), Other(3)]);

    scene.assign_of_split(3, claim(0, 4), 2);

    assert!(scene.may_act(claim(0, 4)));
}

#[test]
fn ownership_whose_parents_a_map_changes_is_released() {
    let mut scene = Scene::member(&[Me(3), Me(3)]);

    scene.see_split_map(2, &[Me(3), Me(4)]);
    assert_eq!(
        scene.steps(),
        [Action::Drop(claim(0, 3)), Action::Drop(claim(1, 3)),]
    );
    assert!(!scene.may_act(claim(0, 3)));

    scene.drained(claim(1, 3));
    assert_eq!(
        scene.steps().first(),
        Some(&start(claim(1, 4), Freshness::Crash)),
        "an ownership that is new is of the new parents"
    );
    scene.drained(claim(0, 3));
    assert!(
        matches!(scene.steps()[..], [Action::Send(FromWorker::Released { claim: it, .. })] if it == claim(0, 3))
    );
}
