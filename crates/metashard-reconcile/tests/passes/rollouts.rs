//! Roll-outs: one child at a time, in order, each waiting for the one before.

use metashard_reconcile::{memory::Memory, sync::Verdict, write::Purpose};
use serde_json::json;

use crate::{
    rolling::{CHILD, Stage, name, rolling, rolling_spec, sized},
    world::{CONFIG, config, rule},
};

const METHODS: [&str; 2] = ["RollingInPlace", "RollingRecreate"];

/// Syncs once, and once more where a child was deleted to be created anew. The child that was disturbed.
fn step(stage: &mut Stage, method: &str) -> Option<String> {
    stage.pass();
    let disturbed = stage.disturbed();
    assert!(disturbed.len() <= 1, "{disturbed:?}");
    if method == "RollingRecreate" && !disturbed.is_empty() {
        let outcome = stage.pass();
        assert_eq!(outcome.counts.created, 1, "it is created anew");
        assert_eq!(stage.disturbed(), Vec::<String>::new());
    }
    disturbed.into_iter().next()
}

#[test]
fn children_are_created_all_at_once_and_are_at_the_latest_revision() {
    let mut stage = Stage::unsynced(&rolling_spec("RollingInPlace"), 20);

    let outcome = stage.pass();

    assert_eq!(outcome.counts.created, 20);
    assert_eq!(
        outcome.counts.total(),
        22,
        "a revision and a status besides"
    );
    assert_eq!(stage.bench.purposes()[0], Purpose::CreateRevision);
    let [revision] = &stage.revisions()[..] else {
        panic!("there is one revision");
    };
    let name = revision["metadata"]["name"].as_str().unwrap();
    let message = format!("latest ControllerRevision: {name}");
    assert_eq!(stage.updated(), ("OnLatestRevision".to_owned(), message));
    assert_eq!(
        revision["children"][0]["names"].as_array().unwrap().len(),
        20
    );
}

#[test]
fn a_roll_out_moves_one_child_at_a_time_in_order_and_waits_until_each_is_well() {
    let both = |method| {
        let spec = rolling_spec(method);
        [Stage::new(&spec, 20), Stage::applying(&spec, 20)].map(|stage| (method, stage))
    };
    for (method, mut stage) in METHODS.into_iter().flat_map(both) {
        stage.edit("image", &json!("v2"));
        for index in 0..20 {
            let child = name(index);
            assert_eq!(step(&mut stage, method).as_ref(), Some(&child), "{method}");
            let outcome = stage.pass();
            assert_eq!(
                outcome.counts.total() - outcome.counts.parent,
                0,
                "{method}"
            );
            assert_eq!(stage.count("v2"), index + 1, "nothing moves meanwhile");
            if index < 19 {
                assert_eq!(stage.updated().0, "RolloutWaiting");
                assert!(
                    stage
                        .updated()
                        .1
                        .starts_with(&format!("child Deployment {child} "))
                );
            }
            stage.report(&child, "False");
            assert_eq!(step(&mut stage, method), None, "it is not well yet");
            stage.heal(&child);
        }
        stage.settle();
        assert_eq!(stage.updated().0, "OnLatestRevision");
        assert_eq!(stage.revisions().len(), 1, "old revisions go");
        assert_eq!(stage.count("v2"), 20);
    }
}

#[test]
fn the_condition_says_which_child_moves_and_what_is_waited_for() {
    let waiting = |message: &str| ("RolloutWaiting".to_owned(), message.to_owned());
    let mut stage = Stage::new(&rolling_spec("RollingInPlace"), 3);
    stage.edit("image", &json!("v2"));

    stage.pass();
    let moving = "updating Deployment c-00".to_owned();
    assert_eq!(stage.updated(), ("RolloutProgressing".to_owned(), moving));
    stage.pass();
    let unobserved =
        "child Deployment c-00 with RollingInPlace update strategy hasn't observed latest spec";
    assert_eq!(stage.updated(), waiting(unobserved));
    stage.report("c-00", "False");
    stage.pass();
    let unwell = r#"child Deployment c-00 failed status check: "Available" condition status is "False" (want "True")"#;
    assert_eq!(stage.updated(), waiting(unwell));
    stage
        .bench
        .world
        .edit(CHILD, "c-00", |it| it["status"]["conditions"] = json!([]));
    stage.pass();
    let untold = r#"child Deployment c-00 failed status check: required condition type missing: "Available""#;
    assert_eq!(stage.updated(), waiting(untold));
    stage.bench.world.delete(CHILD, "c-00");
    stage.pass();
    assert_eq!(stage.updated(), waiting("missing child Deployment c-00"));
}

#[test]
fn a_reason_is_checked_where_one_is_wanted() {
    let mut spec = rolling_spec("RollingInPlace");
    let check = json!({"conditions": [{"type": "Available", "reason": "Good"}]});
    spec["childResources"][0]["updateStrategy"]["statusChecks"] = check;
    let mut stage = Stage::new(&spec, 2);
    stage.edit("image", &json!("v2"));
    stage.pass();
    stage.heal("c-00");

    stage.pass();

    let message = r#"child Deployment c-00 failed status check: "Available" condition reason is "R" (want "Good")"#;
    assert_eq!(stage.updated().1, message);
}

#[test]
fn without_checks_a_child_that_reports_no_generation_counts_as_well() {
    let mut spec = rolling_spec("RollingInPlace");
    spec["childResources"] = json!([rule("v1", CONFIG, "RollingInPlace")]);
    let mut stage = Stage::unsynced(&spec, 3);
    stage.bench.answers = Some(Box::new(|request| {
        let image = request["parent"]["spec"]["image"].as_str().unwrap();
        json!({"children": [config("a", image), config("b", image)]})
    }));
    stage.settle();
    stage.edit("image", &json!("v2"));

    stage.pass();
    assert_eq!(stage.disturbed(), ["a"]);
    stage.pass();
    assert_eq!(stage.disturbed(), ["b"]);
}

#[test]
fn the_hook_sees_the_parent_at_each_revision_with_all_else_as_it_is() {
    let mut stage = Stage::new(&rolling_spec("RollingInPlace"), 2);
    stage.bench.world.edit("foos", "p", |it| {
        it["metadata"]["labels"] = json!({"new": "yes"});
    });
    stage.edit("image", &json!("v2"));

    stage.pass();

    let images: Vec<_> = stage
        .bench
        .calls
        .iter()
        .map(|it| it.1["parent"]["spec"]["image"].clone())
        .collect();
    assert_eq!(images, ["v2", "v1"]);
    let [latest, older] = &stage.bench.calls[..] else {
        panic!("two revisions are live");
    };
    for field in ["metadata", "status"] {
        assert_eq!(latest.1["parent"][field], older.1["parent"][field]);
    }
    assert_eq!(latest.1["children"], older.1["children"]);
}

#[test]
fn a_child_that_is_deleted_before_its_turn_comes_back_as_it_was() {
    for method in METHODS {
        let mut stage = Stage::new(&rolling_spec(method), 4);
        stage.edit("image", &json!("v2"));
        step(&mut stage, method);
        for is_waiting in [true, false] {
            stage.bench.world.delete(CHILD, "c-03");
            if !is_waiting {
                stage.heal("c-00");
            }

            stage.pass();

            assert_eq!(stage.image("c-03"), "v1", "{method}");
            stage.heal("c-03");
        }
        stage.settle();
        assert_eq!(stage.count("v2"), 4);
    }
}

#[test]
fn a_child_that_cannot_be_created_at_its_revision_is_created_at_the_latest() {
    use metashard_reconcile::write::WriteError;
    let mut stage = Stage::new(&rolling_spec("RollingInPlace"), 3);
    stage.edit("image", &json!("v2"));
    stage.bench.world.delete(CHILD, "c-02");
    let refused = WriteError::Invalid("v1 is no more".to_owned());
    stage.bench.world.errors = vec![(Purpose::CreateChild, "c-02", refused)];

    let outcome = stage.pass();
    assert!(matches!(outcome.verdict, Verdict::Failed(_)));
    assert_eq!(stage.updated().1, "missing child Deployment c-02");
    stage.pass();

    assert_eq!(stage.image("c-02"), "v2");
    stage.settle();
    assert_eq!(stage.count("v2"), 3);
}

#[test]
fn a_parent_that_goes_back_half_way_takes_its_children_back() {
    for method in METHODS {
        let mut stage = Stage::new(&rolling_spec(method), 6);
        stage.edit("image", &json!("v2"));
        for _ in 0..3 {
            step(&mut stage, method);
            stage.heal_all();
        }
        assert_eq!(stage.count("v2"), 3);
        let first = stage.revisions().len();

        stage.edit("image", &json!("v1"));
        let moved: Vec<_> = (0..3)
            .map(|_| {
                let moved = step(&mut stage, method);
                stage.heal_all();
                moved.unwrap()
            })
            .collect();

        assert_eq!(moved, ["c-00", "c-01", "c-02"]);
        stage.settle();
        assert_eq!(
            (first, stage.revisions().len()),
            (2, 1),
            "the first revision is found again"
        );
        assert_eq!(stage.count("v1"), 6);
    }
}

#[test]
fn a_roll_out_that_is_given_up_is_mended_where_it_did_harm() {
    let mut stage = Stage::new(&rolling_spec("RollingInPlace"), 4);
    stage.edit("image", &json!("broken"));
    stage.pass();
    stage.heal("c-00");
    stage.pass();
    stage.report("c-01", "False");
    stage.edit("image", &json!("v3"));

    stage.pass();

    assert_eq!(
        stage.disturbed(),
        ["c-01"],
        "the one that is out of service, and no other"
    );
    stage.pass();
    assert_eq!(stage.disturbed(), Vec::<String>::new());
    stage.settle();
    assert_eq!(stage.count("v3"), 4);
}

#[test]
fn a_parent_may_grow_and_shrink_while_children_move() {
    for method in METHODS {
        let mut stage = Stage::new(&rolling_spec(method), 4);
        stage.edit("image", &json!("v2"));
        step(&mut stage, method);
        stage.heal_all();

        stage.edit("size", &json!(6));
        stage.pass();
        assert_eq!(
            (stage.image("c-04"), stage.image("c-05")),
            (json!("v2"), json!("v2"))
        );
        assert_eq!(stage.updated().1, "missing child Deployment c-04");
        assert!(stage.revisions().len() <= 3);
        stage.edit("size", &json!(2));
        stage.pass();
        assert!(stage.children().iter().all(|child| **child < *"c-02"));
        stage.settle();

        assert_eq!(stage.count("v2"), 2);
        let [revision] = &stage.revisions()[..] else {
            panic!("there is one revision");
        };
        assert_eq!(revision["children"][0]["names"], json!(["c-00", "c-01"]));
    }
}

#[test]
fn children_of_two_kinds_move_in_the_order_of_the_answer() {
    let mut spec = rolling_spec("RollingInPlace");
    let kinds = [
        rule("v1", CONFIG, "RollingRecreate"),
        rolling("RollingInPlace"),
        rule("v1", "secrets", "InPlace"),
    ];
    spec["childResources"] = kinds.into_iter().collect();
    let mut stage = Stage::unsynced(&spec, 2);
    stage.bench.answers = Some(Box::new(|request| {
        let mut answer = sized(request);
        let image = request["parent"]["spec"]["image"].as_str().unwrap();
        let children = answer["children"].as_array_mut().unwrap();
        children.insert(1, config("b", image));
        let mut secret = config("s", image);
        secret["kind"] = "Secret".into();
        children.push(secret);
        answer
    }));
    stage.settle();
    stage.edit("image", &json!("v2"));
    let mut order = Vec::new();
    for _ in 0..8 {
        stage.pass();
        order.extend(stage.disturbed());
        stage.heal_all();
    }

    assert_eq!(
        order,
        ["c-00", "s", "b", "c-01"],
        "what is not rolled is changed at once"
    );
    stage.settle();
    let [revision] = &stage.revisions()[..] else {
        panic!("there is one revision");
    };
    let groups = json!([
        {"apiGroup": "", "kind": "ConfigMap", "names": ["b"]},
        {"apiGroup": "apps", "kind": "Deployment", "names": ["c-00", "c-01"]},
    ]);
    assert_eq!(revision["children"], groups);
}

#[test]
fn a_roll_out_goes_on_where_it_was_without_any_memory() {
    let mut stage = Stage::new(&rolling_spec("RollingInPlace"), 3);
    stage.edit("image", &json!("v2"));
    stage.pass();
    stage.bench.memory = Memory::default();

    stage.pass();
    assert_eq!(
        stage.disturbed(),
        Vec::<String>::new(),
        "the first is not well yet"
    );
    stage.heal("c-00");
    stage.bench.memory = Memory::default();
    stage.pass();

    assert_eq!(stage.disturbed(), ["c-01"]);
}

#[test]
fn nothing_is_written_and_the_hook_is_called_once_when_all_is_done() {
    let mut stage = Stage::new(&rolling_spec("RollingInPlace"), 5);

    for forget in [false, true] {
        if forget {
            stage.bench.memory = Memory::default();
        }
        let outcome = stage.pass();
        assert_eq!(outcome.verdict, Verdict::Unchanged);
        assert_eq!(stage.bench.calls.len(), 1);
        assert_eq!(stage.bench.writes, []);
    }
}
