//! Which map counts.

use super::*;

#[test]
fn lower_map_changes_nothing() {
    let mut scene = Scene::member(&[Me(3)]);
    scene.see_map(2, 1, &[Me(3), Me(4)]);
    scene.taken();

    for (term, seq) in [(1, 9), (2, 0), (0, 0)] {
        scene.see_map(term, seq, &[Other(2)]);
        assert_eq!(scene.steps(), [], "({term}, {seq})");
    }

    assert!(scene.may_act(claim(0, 3)) && scene.may_act(claim(1, 4)));
}

#[test]
fn mutant_follows_a_lower_map() {
    let rules = Rules::breaking(Rule::NewestMap);
    let mut scene = Scene::member_breaking(rules, &[Other(4)]);

    scene.see_map(1, 0, &[Me(3)]);

    assert!(scene.may_act(claim(0, 3)));
}

#[test]
fn lower_map_that_a_quorum_read_confirms_after_2_seconds_ends_the_incarnation() {
    let mut scene = Scene::member(&[Me(3)]);
    scene.see_map(1, 0, &[Me(3)]);
    scene.wait(millis(1999));
    assert_eq!(scene.steps(), []);

    scene.wait(millis(1));
    assert_eq!(scene.steps(), [Action::ReadMap]);
    scene.read_map(1, 0, &[Me(3)]);

    assert_eq!(
        scene.steps(),
        [
            Action::ReportLoss(Loss::MapWentBack),
            Action::CloseSession,
            Action::Drop(claim(0, 3))
        ]
    );
}

#[test]
fn lower_map_that_a_quorum_read_does_not_confirm_was_only_late() {
    for (term, seq) in [(1, 1), (1, 2)] {
        let mut scene = Scene::member(&[Me(3)]);
        scene.see_map(1, 0, &[Me(3)]);
        scene.wait(seconds(2));

        scene.read_map(term, seq, &[Me(3)]);
        scene.taken();
        scene.wait(seconds(2));

        assert!(!scene.taken().contains(&Action::ReadMap), "({term}, {seq})");
        assert!(scene.worker.standing().incarnation().is_some());
    }
}

#[test]
fn lower_map_followed_by_a_higher_one_is_forgotten() {
    let mut scene = Scene::member(&[]);
    scene.see_map(1, 0, &[]);
    scene.wait(seconds(1));

    scene.see_map(1, 2, &[]);
    scene.wait(seconds(2));

    assert!(!scene.taken().contains(&Action::ReadMap));
}

#[test]
fn read_without_an_answer_is_repeated() {
    let mut scene = Scene::member(&[]);
    scene.see_map(1, 0, &[]);
    scene.wait(seconds(2));
    scene.steps();

    scene.tell(Input::MapRead(None));
    scene.wait(millis(500));

    assert_eq!(scene.steps(), [Action::ReadMap]);
}

#[test]
fn another_map_object_ends_the_incarnation_whatever_its_numbers_say() {
    for (term, seq) in [(0, 0), (1, 1), (9, 9)] {
        let mut scene = Scene::member(&[Me(3)]);
        let map = scene.map("uid-2", term, seq, &[Me(3)]);

        scene.tell(Input::MapSeen(MapSeen::Present(map)));

        assert!(!scene.may_act(claim(0, 3)), "({term}, {seq})");
        assert_eq!(
            scene.steps(),
            [
                Action::ReportLoss(Loss::MapReplaced),
                Action::CloseSession,
                Action::Drop(claim(0, 3))
            ]
        );
    }
}

#[test]
fn read_that_was_sent_for_the_last_incarnation_does_not_count() {
    let mut scene = Scene::member(&[]);
    scene.see_map(1, 0, &[]);
    scene.wait(seconds(2));
    let map = scene.map("uid-2", 1, 1, &[]);
    scene.tell(Input::MapSeen(MapSeen::Present(map)));
    scene.taken();

    // The read that was under way when the map was replaced still shows the old one.
    scene.read_map(1, 1, &[]);

    assert_eq!(scene.steps(), [Action::ReadMap]);
}

#[test]
fn deleted_map_stops_nothing() {
    let mut scene = Scene::member(&[Me(3)]);

    scene.tell(Input::MapSeen(MapSeen::Absent));
    scene.wait(millis(900));

    assert!(scene.may_act(claim(0, 3)));
    assert_eq!(scene.steps(), []);
}

#[test]
fn map_that_cannot_be_read_stops_nothing_and_nothing_begins_by_it() {
    let mut scene = Scene::member(&[Me(3), Other(3)]);

    scene.tell(Input::MapSeen(MapSeen::Unreadable));
    // Who changes the format says so as if splits had changed.
    let order = Order::Assign {
        claim: claim(1, 4),
        last_written: Vec::new(),
        splits_as_of: (Term(2), Seq(1)),
    };
    scene.order(2, 1, order);
    scene.taken();
    scene.wait(seconds(2));

    assert!(scene.taken().contains(&Action::ReadMap));
    scene.tell(Input::MapRead(Some(MapSeen::Unreadable)));
    assert!(scene.may_act(claim(0, 3)) && !scene.may_act(claim(1, 4)));
    scene.see_map(2, 1, &[Me(3), Me(4)]);
    assert!(scene.may_act(claim(0, 3)) && scene.may_act(claim(1, 4)));
}

#[test]
fn map_with_another_number_of_shards_ends_the_incarnation() {
    let mut scene = Scene::member(&[Me(3)]);
    let mut map = Map::clone(&scene.map("uid-1", 1, 2, &[Me(3)]));
    map.spec.shard_count = 1;

    scene.tell(Input::MapSeen(MapSeen::Present(Arc::new(map))));

    assert!(!scene.may_act(claim(0, 3)));
    assert_eq!(
        scene.steps(),
        [
            Action::ReportLoss(Loss::ShardsRenumbered),
            Action::CloseSession,
            Action::Drop(claim(0, 3))
        ]
    );
}

#[test]
fn order_that_stands_on_a_map_never_seen_makes_it_read_the_map() {
    let mut scene = Scene::member(&[]);
    scene.assign(5, claim(0, 9), vec![]);
    scene.taken();

    scene.wait(seconds(2));
    assert!(scene.taken().contains(&Action::ReadMap));
    scene.read_map(1, 4, &[]);

    assert!(
        scene
            .taken()
            .contains(&Action::ReportLoss(Loss::MapWentBack))
    );
}

#[test]
fn map_read_before_the_order_came_is_not_a_map_that_went_back() {
    let mut scene = Scene::member(&[]);
    scene.see_map(1, 0, &[]);
    scene.wait(seconds(2));
    assert!(scene.taken().contains(&Action::ReadMap));
    scene.assign(5, claim(0, 9), vec![]);

    scene.read_map(1, 4, &[]);

    assert!(scene.worker.standing().incarnation().is_some());
    assert!(scene.may_act(claim(0, 9)));
}
