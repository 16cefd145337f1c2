//! What a pass remembers for the next one.

use std::sync::Arc;

use metashard_reconcile::{
    memory::Memory,
    object::Object,
    sync::{Candidates, Verdict},
    write::Purpose,
};
use serde_json::json;

use crate::world::{Bench, CONFIG, FOO, answer, compile, config, spec};

#[test]
fn an_answer_seen_before_to_the_same_request_is_not_even_read() {
    let mut bench = Bench::new(&spec());
    bench.answer = answer(&json!({"children": [config("a", "1")], "odd": 1}));
    bench.pass();
    assert_eq!(
        bench.pass().events.len(),
        1,
        "the request is new: it shows the child"
    );

    let same = bench.pass();
    assert_eq!((same.verdict, same.events.len()), (Verdict::Unchanged, 0));

    bench
        .world
        .edit(CONFIG, "a", |it| it["metadata"]["labels"]["x"] = "y".into());
    assert_eq!(bench.pass().events.len(), 1, "the request is new again");
}

#[test]
fn another_compilation_of_the_controller_looks_at_everything_again() {
    let mut bench = Bench::wanting(&spec(), &[config("a", "1")]);
    let mut changed = spec();
    changed["childResources"][0]["updateStrategy"]["method"] = "OnDelete".into();
    let in_place = Arc::clone(&bench.controller);
    bench.pass();
    bench.controller = Arc::new(recompiled(&changed));
    bench
        .world
        .edit(CONFIG, "a", |it| it["data"]["a"] = "drifted".into());
    bench.pass();
    assert!(bench.writes.is_empty(), "OnDelete lets it drift");

    bench.controller = in_place;
    bench.pass();

    assert_eq!(bench.purposes(), [Purpose::UpdateChild]);
}

fn recompiled(spec: &serde_json::Value) -> metashard_reconcile::controller::Controller {
    let mut object = crate::world::controller_object(spec);
    object["metadata"]["generation"] = 2.into();
    let raw = object.to_string().into();
    let parsed = serde_json::from_value(object).unwrap();
    metashard_reconcile::controller::Controller::compile(&parsed, &raw, &crate::world::lookup)
        .unwrap()
}

#[test]
fn children_that_the_cache_does_not_show_yet_are_seen_and_not_created_again() {
    let mut bench = Bench::wanting(&spec(), &[config("a", "1"), config("b", "1")]);
    let before = bench.world.object(FOO, "p").unwrap();
    let behind = || {
        vec![Candidates {
            objects: vec![],
            reached: Some("1".into()),
        }]
    };
    bench.pass_from(Arc::clone(&before), behind());

    let outcome = bench.pass_from(before, behind());

    assert_eq!(
        bench.calls[0].1["children"]["ConfigMap.v1"]
            .as_object()
            .unwrap()
            .len(),
        2
    );
    assert_eq!(outcome.verdict, Verdict::Unchanged);
}

#[test]
fn a_child_that_is_gone_from_a_cache_that_has_caught_up_is_created_again() {
    let mut bench = Bench::wanting(&spec(), &[config("a", "1")]);
    bench.pass();
    bench.world.delete(CONFIG, "a");

    bench.pass();

    assert_eq!(bench.purposes(), [Purpose::CreateChild]);
}

#[test]
fn a_cache_that_never_catches_up_is_believed_in_the_end() {
    let mut bench = Bench::wanting(&spec(), &[config("a", "1")]);
    bench.pass();
    bench.world.delete(CONFIG, "a");

    let passes = (0..40).position(|_| {
        let parent = bench.world.object(FOO, "p").unwrap();
        bench.pass_from(
            parent,
            vec![Candidates {
                objects: vec![],
                reached: Some("1".into()),
            }],
        );
        bench.purposes() == [Purpose::CreateChild]
    });

    assert_eq!(passes, Some(16));
}

#[test]
fn an_updated_child_is_seen_as_it_was_written() {
    let mut bench = Bench::wanting(&spec(), &[config("a", "1")]);
    bench.pass();
    let parent = bench.world.object(FOO, "p").unwrap();
    let stale = bench.world.candidates(&bench.controller, &parent);
    bench.want(&[config("a", "2")]);
    bench.pass();

    let outcome = bench.pass_from(parent, stale);

    assert_eq!(
        bench.calls[0].1["children"]["ConfigMap.v1"]["a"]["data"]["a"],
        "2"
    );
    assert_eq!(outcome.verdict, Verdict::Unchanged);
}

#[test]
fn a_child_deleted_by_us_is_not_deleted_again_while_the_cache_still_shows_it() {
    let mut bench = Bench::wanting(&spec(), &[config("a", "1")]);
    bench.pass();
    let parent = bench.world.object(FOO, "p").unwrap();
    let stale = bench.world.candidates(&bench.controller, &parent);
    bench.want(&[]);
    bench.pass();

    bench.pass_from(parent, stale);

    assert!(bench.writes.is_empty(), "{:?}", bench.writes);
}

#[test]
fn own_writes_are_known_as_such() {
    let mut bench = Bench::wanting(&spec(), &[config("a", "1")]);
    bench.answer = answer(&json!({"status": {"x": 1}, "children": [config("a", "1")]}));
    bench.pass();
    let (parent, child) = (
        bench.world.object(FOO, "p").unwrap(),
        bench.world.object(CONFIG, "a").unwrap(),
    );

    assert!(bench.memory.wrote(&parent) && bench.memory.wrote(&child));

    bench
        .world
        .edit(CONFIG, "a", |it| it["data"]["b"] = "x".into());
    assert!(
        !bench
            .memory
            .wrote(&bench.world.object(CONFIG, "a").unwrap())
    );
    assert!(!Memory::default().wrote(&parent));
}

#[test]
fn what_a_cache_shows_is_let_go() {
    let mut bench = Bench::wanting(&spec(), &[config("a", "1")]);
    let before = bench.world.object(FOO, "p").unwrap();
    bench.pass();
    let parent = bench.world.object(FOO, "p").unwrap();

    assert!(
        !bench.memory.saw(&before),
        "an old state is no news of ours"
    );
    assert!(bench.memory.wrote(&parent), "and lets nothing go");
    assert!(bench.memory.saw(&parent));
    assert!(!bench.memory.wrote(&parent));
}

#[test]
fn a_write_that_a_cache_shows_as_it_was_made_is_not_held_twice() {
    let mut bench = Bench::wanting(&spec(), &[config("a", "1"), config("b", "1")]);
    bench.pass();
    let written = bench.world.object(CONFIG, "a").unwrap();
    let shown = Arc::new(Object::parse(written.bytes().clone()).unwrap());
    bench
        .world
        .edit(CONFIG, "b", |it| it["data"]["k"] = "theirs".into());
    let newer = bench.world.object(CONFIG, "b").unwrap();

    bench.memory.share(|rule, own| match (rule?, own.name()) {
        (_, "a") => Some(Arc::clone(&shown)),
        _ => Some(Arc::clone(&newer)),
    });

    assert_eq!(
        Arc::strong_count(&shown),
        2,
        "the cache's copy is the one that is kept"
    );
    assert_eq!(
        Arc::strong_count(&newer),
        1,
        "another state is not taken for it"
    );
    assert!(bench.memory.wrote(&written), "and it is known as ours");
}

#[test]
fn a_memory_of_a_parent_of_the_same_name_is_not_used() {
    let mut bench = Bench::new(&spec());
    bench.answer = answer(&json!({"status": {"x": 1}, "children": []}));
    bench.pass();
    bench.world.edit(FOO, "p", |it| {
        it["metadata"]["uid"] = "P-2".into();
        it["status"] = json!({});
    });

    bench.pass();

    assert_eq!(bench.calls[0].1["parent"]["metadata"]["uid"], "P-2");
    assert_eq!(bench.purposes(), [Purpose::UpdateStatus]);
    assert!(compile(&spec()).is_ok());
}
