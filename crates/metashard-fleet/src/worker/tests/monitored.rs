//! What a worker's monitor sees of what the others do.

use super::*;
use crate::record::Seen;

#[test]
fn a_map_that_gives_away_what_is_still_held_breaks_i1() {
    let mut scene = Scene::member(&[Me(3), Me(3)]);

    scene.see_map(1, 2, &[Me(3), Other(4)]);

    assert_eq!(scene.broken, [Invariant::Exclusive].into());
}

#[test]
fn a_map_that_gives_away_what_the_deadline_has_ended_breaks_nothing() {
    let mut scene = Scene::member(&[Me(3)]);

    // As a process that was frozen, and whose timers have not fired yet.
    scene.now = scene.now.after(seconds(5));
    scene.see_map(1, 2, &[Other(4)]);

    assert_eq!(scene.broken, [].into());
}

#[test]
fn a_map_that_gives_away_what_was_released_breaks_nothing() {
    let mut scene = Scene::member(&[Me(3)]);
    scene.drain(claim(0, 3));
    scene.drained(claim(0, 3));

    scene.see_map(1, 2, &[Other(4)]);

    assert_eq!(scene.broken, [].into());
}

#[test]
fn a_lease_that_was_fenced_before_the_deadline_breaks_o1() {
    let mut scene = Scene::member(&[Me(3)]);
    let own = incarnation(scene.drawn);
    let fenced = Record {
        holder: Holder::Fenced,
        ..crate::testing::record(Holder::Fenced, seconds(4), 1)
    };

    scene.tell(Input::LeaseAnswered {
        incarnation: own,
        answer: crate::lease::Input::Read(Some(Seen::Present(fenced))),
    });

    assert_eq!(scene.broken, [Invariant::OutageFencesNobody].into());
}

#[test]
fn an_epoch_or_a_term_that_goes_back_is_seen() {
    let mut scene = Scene::member(&[Me(3)]);
    scene.see_map(1, 2, &[Me(2)]);
    assert_eq!(scene.broken, [Invariant::EpochMonotonic].into());

    // The same numbers, and another content: somebody has edited it.
    let mut scene = Scene::member(&[Me(3), Nobody(1)]);
    let mut edited = (*scene.map("uid-1", 1, 1, &[Me(3), Other(5)])).clone();
    edited.resource_version = "edited".to_owned();
    scene.tell(Input::MapSeen(MapSeen::Present(Arc::new(edited))));
    assert_eq!(scene.broken, [Invariant::OneTerm].into());
}
