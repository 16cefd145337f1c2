//! Claims: adopted, released, labelled again, and what is never touched.

use std::sync::Arc;

use metashard_reconcile::{
    memory::Memory,
    object::Object,
    requeue::Requeue,
    sync::{Candidates, Fed, Step, SyncInput, SyncMachine, Verdict},
    write::{Purpose, WriteError},
};
use serde_json::{Value, json};

use crate::world::{Bench, CONFIG, config, parse, resource_of, rule, spec, told};

/// Children are selected by `app=web`, the selector of the parent's spec.
fn selecting() -> Value {
    let mut spec = spec();
    spec["generateSelector"] = false.into();
    spec
}

fn web(name: &str, data: &str) -> Value {
    let mut child = config(name, data);
    child["metadata"]["namespace"] = "ns1".into();
    child["metadata"]["labels"] = json!({"app": "web"});
    child
}

#[test]
fn an_orphan_that_matches_is_adopted_after_one_read_of_the_parent() {
    let mut bench = Bench::wanting(&selecting(), &[web("a", "1"), web("b", "1")]);
    for name in ["a", "b"] {
        let mut orphan = web(name, "1");
        orphan["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "X"}]);
        bench.world.put(orphan);
    }

    let outcome = bench.pass();

    assert_eq!(bench.reads, 1);
    assert_eq!(
        bench.purposes()[..2],
        [Purpose::AdoptChild, Purpose::AdoptChild]
    );
    assert_eq!(outcome.counts.claimed, 2);
    let owners = &bench.child("a")["metadata"]["ownerReferences"];
    assert_eq!(
        (&owners[0]["uid"], &owners[1]["uid"]),
        (&json!("X"), &json!("P-1"))
    );
    assert_eq!(
        bench.calls[0].1["children"]["ConfigMap.v1"]
            .as_object()
            .unwrap()
            .len(),
        2
    );
}

#[test]
fn an_adopted_child_that_is_not_desired_is_deleted_in_the_same_pass() {
    let mut bench = Bench::new(&selecting());
    bench.world.put(web("a", "1"));

    bench.pass();

    assert_eq!(
        bench.purposes()[..2],
        [Purpose::AdoptChild, Purpose::DeleteChild]
    );
    assert!(bench.world.get(CONFIG, "ns1", "a").is_none());
}

#[test]
fn nothing_is_adopted_for_a_parent_that_is_gone_or_going() {
    for going in [false, true] {
        let mut bench = Bench::new(&selecting());
        bench.world.put(web("a", "1"));
        if going {
            bench.world.edit("foos", "p", |it| {
                it["metadata"]["finalizers"] = json!(["x/y"]);
            });
        }
        bench.before_read = Some(Box::new(|world| world.delete("foos", "p")));

        let outcome = bench.pass();

        let expected = if going { Verdict::Stale } else { Verdict::Gone };
        assert_eq!(outcome.verdict, expected);
        assert!(bench.writes.is_empty() && bench.calls.is_empty());
    }
}

#[test]
fn an_orphan_that_is_being_deleted_is_not_adopted() {
    let mut bench = Bench::new(&selecting());
    let mut orphan = web("a", "1");
    orphan["metadata"]["finalizers"] = json!(["x/y"]);
    bench.world.put(orphan);
    bench.world.delete(CONFIG, "a");

    bench.pass();

    assert_eq!(bench.purposes(), [Purpose::UpdateStatus]);
}

#[test]
fn a_parent_of_a_child_kind_does_not_adopt_itself() {
    let mut spec = selecting();
    spec["childResources"] = json!([rule("ex.io/v1", "foos", "InPlace")]);
    let mut bench = Bench::new(&spec);
    bench.world.edit("foos", "p", |it| {
        it["metadata"]["labels"] = json!({"app": "web"});
    });

    bench.pass();

    assert_eq!(bench.reads, 0);
    assert_eq!(bench.calls[0].1["children"], json!({"Foo.ex.io/v1": {}}));
}

#[test]
fn a_deleted_parent_releases_nothing() {
    let mut bench = Bench::wanting(&selecting(), &[web("a", "1")]);
    bench.pass();
    bench.world.edit("foos", "p", |it| {
        it["metadata"]["finalizers"] = json!(["x/y"]);
    });
    bench.world.delete("foos", "p");
    bench.world.edit(CONFIG, "a", |it| {
        it["metadata"]["labels"]["app"] = "other".into();
    });

    bench.pass();

    assert!(
        !bench.purposes().contains(&Purpose::ReleaseChild),
        "{:?}",
        bench.writes
    );
    assert_eq!(bench.calls[0].1["children"]["ConfigMap.v1"], json!({}));
}

#[test]
fn a_parent_made_anew_under_its_name_adopts_nothing_in_this_pass() {
    let mut bench = Bench::new(&selecting());
    bench.world.put(web("a", "1"));
    bench.before_read = Some(Box::new(|world| {
        world.edit("foos", "p", |it| it["metadata"]["uid"] = "P-2".into());
    }));

    let outcome = bench.pass();

    assert_eq!(outcome.verdict, Verdict::Gone);
    assert!(bench.writes.is_empty());
}

#[test]
fn a_rule_that_never_adopts_leaves_orphans_alone() {
    let mut spec = selecting();
    spec["childResources"][0]["adoption"] = "Never".into();
    let mut bench = Bench::new(&spec);
    bench.world.put(web("a", "1"));

    bench.pass();

    assert_eq!(bench.reads, 0);
    assert_eq!(bench.purposes(), [Purpose::UpdateStatus]);
}

#[test]
fn a_child_whose_labels_no_longer_match_is_released_and_not_deleted() {
    let mut bench = Bench::wanting(&selecting(), &[web("a", "1")]);
    bench.pass();
    bench.world.edit(CONFIG, "a", |it| {
        it["metadata"]["labels"]["app"] = "other".into();
    });
    bench.want(&[]);

    let outcome = bench.pass();

    assert_eq!(bench.purposes(), [Purpose::ReleaseChild]);
    assert_eq!(bench.reads, 0);
    assert_eq!(outcome.counts.claimed, 1);
    assert_eq!(bench.child("a")["metadata"]["ownerReferences"], json!([]));
    assert_eq!(bench.calls[0].1["children"]["ConfigMap.v1"], json!({}));
}

/// Q-17: with a generated selector the label is ours; whoever takes it away does not take the child away.
#[test]
fn the_generated_label_is_put_back() {
    let mut bench = Bench::wanting(&spec(), &[config("a", "1")]);
    bench.pass();
    bench.world.edit(CONFIG, "a", |it| {
        it["metadata"]["labels"] = json!({"x": "y"});
    });

    bench.pass();

    assert_eq!(bench.purposes(), [Purpose::RelabelChild]);
    let metadata = &bench.child("a")["metadata"];
    assert_eq!(
        metadata["labels"],
        json!({"x": "y", "controller-uid": "P-1"})
    );
    assert_eq!(metadata["ownerReferences"][0]["uid"], "P-1");
    let seen = &bench.calls[0].1["children"]["ConfigMap.v1"]["a"]["metadata"]["labels"];
    assert_eq!(
        seen["controller-uid"], "P-1",
        "the hook sees it as it is now"
    );
}

/// A decorator of the same object makes it the controller of its attachments, too. Metacontroller releases them.
#[test]
fn attachments_of_a_decorator_of_the_same_parent_are_left_alone() {
    for spec in [spec(), selecting()] {
        let mut bench = Bench::wanting(&spec, &[]);
        let mut attachment = web("attached", "1");
        attachment["metadata"]["annotations"] =
            json!({"metacontroller.k8s.io/decorator-controller": "d"});
        attachment["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "ex.io/v1", "kind": "Foo", "name": "p", "uid": "P-1", "controller": true,
        }]);
        bench.world.put(attachment);

        bench.pass();

        assert_eq!(bench.purposes(), [Purpose::UpdateStatus]);
        assert_eq!(bench.calls[0].1["children"]["ConfigMap.v1"], json!({}));
    }
}

/// O06: the selector of the parent's spec plays no part.
#[test]
fn parents_with_generated_selectors_never_share_children() {
    let mut bench = Bench::new(&spec());
    bench.world.put(web("orphan", "1"));
    let mut theirs = web("theirs", "1");
    theirs["metadata"]["labels"]["controller-uid"] = "P-2".into();
    theirs["metadata"]["ownerReferences"] = json!([{"apiVersion": "ex.io/v1", "kind": "Foo", "name": "q", "uid": "P-2", "controller": true}]);
    bench.world.put(theirs);

    bench.pass();

    assert_eq!(bench.purposes(), [Purpose::UpdateStatus]);
    assert_eq!(bench.calls[0].1["children"]["ConfigMap.v1"], json!({}));
}

/// O01: with an empty selector every ConfigMap of the namespace would be adopted and deleted.
#[test]
fn a_parent_without_a_selector_is_refused_and_nothing_is_touched() {
    for selector in [
        json!(null),
        json!({}),
        json!({"matchLabels": {}}),
        json!("app=web"),
    ] {
        let mut bench = Bench::new(&selecting());
        bench.world.put(web("a", "1"));
        bench
            .world
            .edit("foos", "p", |it| it["spec"] = json!({"selector": selector}));

        let outcome = bench.pass();

        assert!(matches!(outcome.verdict, Verdict::Failed(_)), "{selector}");
        assert_eq!(outcome.requeue, Requeue::Backoff);
        assert!(
            told(&outcome)[0].contains("selector"),
            "{:?}",
            told(&outcome)
        );
        assert!(bench.writes.is_empty() && bench.calls.is_empty() && bench.reads == 0);
    }
}

/// O04: the event says that the field came in empty.
#[test]
fn a_selector_that_cannot_be_used_is_told_in_metacontrollers_words() {
    let wrong = json!({"matchLabels": {"app": "not a value"}});
    let text = r#"SyncError: Sync error: can't convert label selector ({"matchLabels":{"app":"not a value"}}): "#;
    let mut bench = Bench::new(&selecting());
    bench
        .world
        .edit("foos", "p", |it| it["spec"] = json!({"selector": wrong}));

    let outcome = bench.pass();

    assert!(told(&outcome)[0].starts_with(text), "{:?}", told(&outcome));
    assert!(bench.writes.is_empty() && bench.calls.is_empty());
}

#[test]
fn only_what_its_selector_picks_concerns_a_parent() {
    let bench = Bench::new(&selecting());
    let parent = bench.world.object("foos", "p").unwrap();
    let mut orphan = web("a", "1");
    orphan["metadata"]["uid"] = "U".into();
    orphan["metadata"]["resourceVersion"] = "1".into();
    let mut other = orphan.clone();
    other["metadata"]["labels"]["app"] = "other".into();

    assert!(bench.controller.picks(&parent, &parse(&orphan)));
    assert!(!bench.controller.picks(&parent, &parse(&other)));
}

#[test]
fn a_selector_that_the_schema_emptied_is_told_as_such() {
    let mut bench = Bench::new(&selecting());
    bench
        .world
        .edit("foos", "p", |it| it["spec"] = json!({"selector": {}}));

    let told = told(&bench.pass());

    let words = ".spec.selector must have either matchLabels, matchExpressions, or both";
    assert!(
        told[0].contains(words) && told[0].contains("schema"),
        "{}",
        told[0]
    );
}

#[test]
fn objects_of_other_owners_and_namespaces_are_passed_over() {
    let mut bench = Bench::new(&selecting());
    let mut elsewhere = web("a", "1");
    elsewhere["metadata"]["namespace"] = "ns2".into();
    bench.world.put(elsewhere.clone());
    let parent = bench.world.object("foos", "p").unwrap();
    let candidates = vec![vec![parse(bench.world.get(CONFIG, "ns2", "a").unwrap())]];

    bench.pass_from(parent, candidates.into_iter().map(Into::into).collect());

    assert_eq!(bench.purposes(), [Purpose::UpdateStatus]);
}

#[test]
fn a_conflict_while_claiming_comes_back_soon_and_does_not_call_the_hook() {
    let mut bench = Bench::new(&selecting());
    bench.world.put(web("a", "1"));
    bench.world.errors = vec![(Purpose::AdoptChild, "a", WriteError::Conflict)];

    let outcome = bench.pass();

    assert_eq!(
        (outcome.verdict, outcome.requeue),
        (Verdict::Stale, Requeue::Soon)
    );
    assert!(bench.calls.is_empty() && outcome.events.is_empty());
}

#[test]
fn an_orphan_that_vanished_is_no_child_and_a_refused_adoption_is_told() {
    let mut bench = Bench::new(&selecting());
    bench.world.put(web("a", "1"));
    bench.world.errors = vec![(Purpose::AdoptChild, "a", WriteError::NotFound)];
    let vanished = bench.pass();
    assert_eq!(vanished.events, []);
    assert_eq!(bench.calls[0].1["children"]["ConfigMap.v1"], json!({}));

    let denied = WriteError::Forbidden("no".to_owned());
    bench.world.errors = vec![(Purpose::AdoptChild, "a", denied)];
    let refused = bench.pass();
    let text =
        "SyncError: Sync error: can't claim children of Foo ns1/p: adopt ConfigMap ns1/a: no";
    assert_eq!(told(&refused), [text]);
    assert!(bench.calls.is_empty());
}

#[test]
fn a_desired_child_whose_orphan_vanished_is_created() {
    let mut bench = Bench::wanting(&selecting(), &[web("a", "2")]);
    bench.world.put(web("a", "1"));
    let parent = bench.world.object("foos", "p").unwrap();
    let candidates = bench.world.candidates(&bench.controller, &parent);
    bench.world.delete(CONFIG, "a");

    let outcome = bench.pass_from(parent, candidates);

    assert_eq!(
        bench.purposes()[..2],
        [Purpose::AdoptChild, Purpose::CreateChild]
    );
    assert_eq!(outcome.events, []);
    assert_eq!(bench.child("a")["data"]["a"], "2");
}

#[test]
fn an_api_server_that_does_not_answer_the_read_is_a_failure() {
    let mut bench = Bench::new(&selecting());
    bench.world.put(web("a", "1"));
    let parent = bench.world.object("foos", "p").unwrap();
    let candidates = bench.world.candidates(&bench.controller, &parent);
    let (controller, memory) = (bench.controller, Memory::default());
    let mut machine = SyncMachine::new(SyncInput {
        controller,
        resource: resource_of(&parent),
        parent,
        candidates,
        revisions: Candidates::default(),
        memory,
    });
    assert!(matches!(machine.next(), Step::ReadParent));
    machine.feed(Fed::Parent(Err(WriteError::Unavailable("503".to_owned()))));

    let Step::Done(outcome) = machine.next() else {
        panic!("the end")
    };

    assert_eq!(
        outcome.verdict,
        Verdict::Failed("can't read Foo ns1/p: 503".to_owned())
    );
}

/// Every recorded selector of a parent: an orphan with the recorded labels is about to be adopted (for which the parent is
/// read), passed over, or the parent is refused.
#[test]
fn the_recorded_selectors_of_parents_claim_as_metacontroller_does() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/vectors/selectors.jsonl"
    );
    let text = std::fs::read_to_string(path).expect("the vectors are in the repository");
    let cases = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut count = 0;
    for case in cases.filter(|case| case["via"] == "ccChild") {
        let mut spec = spec();
        spec["generateSelector"] = case["generateSelector"].clone();
        let mut bench = Bench::new(&spec);
        let mut parent = case["parent"].clone();
        parent["metadata"]["resourceVersion"] = "1".into();
        let Ok(parent) = Object::parse(parent.to_string()).map(Arc::new) else {
            assert_eq!(
                case["note"], "generated, parent without uid",
                "no API server sends it"
            );
            count += 1;
            continue;
        };
        let mut orphan = web("a", "1");
        orphan["metadata"]["labels"] = case["labels"].clone();
        bench.world.put(orphan);
        let candidates = bench.world.candidates(&bench.controller, &parent);

        let outcome = bench.pass_from(parent, candidates);

        let claimed = match outcome.verdict {
            Verdict::Failed(_) => Value::Null,
            _ => (bench.reads == 1).into(),
        };
        assert_eq!(claimed, case["matches"], "{case}");
        count += 1;
    }
    println!("selectors.jsonl: {count} child selectors as recorded");
    assert_eq!(count, 34, "every line of that road is looked at");
}
