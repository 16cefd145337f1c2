//! What child rules may say otherwise: which existing objects become children, and which children stay.

use metashard_reconcile::{memory::Memory, requeue::Requeue, sync::Verdict, write::Purpose};
use serde_json::{Value, json};

use crate::world::{Bench, CONFIG, FOO, answer, config, hook, spec, told};

const MARK: &str = "metashard.io/orphaned-from";

fn with(field: &str, value: &str) -> Value {
    let mut spec = spec();
    spec["childResources"][0][field] = value.into();
    spec
}

/// An object of nobody with the name of a desired child, and other labels.
fn put_theirs(bench: &mut Bench) {
    let mut theirs = config("a", "theirs");
    theirs["metadata"]["namespace"] = "ns1".into();
    theirs["metadata"]["labels"] = json!({"theirs": "x"});
    bench.world.put(theirs);
}

#[test]
fn force_takes_over_an_object_of_nobody_by_its_name_and_says_so() {
    for by_server in [false, true] {
        let (spec, children) = (with("adoption", "Force"), [config("a", "1")]);
        let mut bench = if by_server {
            Bench::applying(&spec, &children)
        } else {
            Bench::wanting(&spec, &children)
        };
        put_theirs(&mut bench);

        let outcome = bench.pass();

        assert_eq!(bench.purposes()[0], Purpose::AdoptChild);
        assert_eq!(bench.reads, 1, "the parent must still be there");
        assert_eq!(outcome.requeue, Requeue::Soon);
        assert_eq!(outcome.events.len(), 1);
        assert_eq!(outcome.events[0].reason, "ChildAdopted");
        assert!(
            outcome.events[0]
                .message
                .starts_with("adopt ConfigMap ns1/a")
        );
        bench.pass();
        assert_eq!(bench.purposes(), [Purpose::UpdateChild]);
        let child = bench.child("a");
        assert_eq!(child["data"], json!({"a": "1"}));
        assert_eq!(
            child["metadata"]["labels"],
            json!({"controller-uid": "P-1", "theirs": "x"})
        );
        assert_eq!(bench.pass().verdict, Verdict::Unchanged);
    }
}

#[test]
fn without_force_it_is_left_alone() {
    for adoption in ["IfOwnerless", "Never"] {
        let mut bench = Bench::wanting(&with("adoption", adoption), &[config("a", "1")]);
        put_theirs(&mut bench);

        let outcome = bench.pass();

        assert_eq!(bench.purposes(), [Purpose::UpdateStatus]);
        assert!(told(&outcome)[0].starts_with("ChildConflict"));
        assert_eq!(outcome.requeue, Requeue::Backoff);
    }
}

#[test]
fn force_never_takes_what_another_controls() {
    let mut bench = Bench::wanting(&with("adoption", "Force"), &[config("a", "1")]);
    put_theirs(&mut bench);
    bench.world.edit(CONFIG, "a", |it| {
        it["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "v1", "kind": "Other", "name": "o", "uid": "O-1", "controller": true,
        }]);
    });

    bench.pass();

    assert!(!bench.purposes().contains(&Purpose::AdoptChild));
    assert_eq!(bench.child("a")["data"], json!({"a": "theirs"}));
}

#[test]
fn an_orphan_stays_and_is_not_adopted_again() {
    let mut bench = Bench::wanting(&with("deletionPolicy", "Orphan"), &[config("a", "1")]);
    bench.pass();
    bench.want(&[]);

    bench.pass();

    assert_eq!(bench.purposes(), [Purpose::OrphanChild]);
    let metadata = &bench.child("a")["metadata"];
    assert_eq!(metadata["ownerReferences"], json!([]));
    assert_eq!(metadata["annotations"][MARK], "P-1");
    for _ in 0..2 {
        bench.memory = Memory::default();
        bench.pass();
        assert_eq!(bench.purposes(), [], "its labels still match");
    }
}

#[test]
fn an_orphan_comes_back_when_it_is_desired_again() {
    let mut bench = Bench::wanting(&with("deletionPolicy", "Orphan"), &[config("a", "1")]);
    bench.pass();
    bench.want(&[]);
    bench.pass();
    bench.want(&[config("a", "2")]);

    bench.pass();
    bench.pass();

    let child = bench.child("a");
    assert_eq!(child["data"], json!({"a": "2"}));
    assert_eq!(child["metadata"]["ownerReferences"][0]["uid"], "P-1");
    assert_eq!(child["metadata"]["annotations"].get(MARK), None);
}

#[test]
fn the_children_of_a_deleted_parent_are_let_go_before_it_goes() {
    let mut bench = Bench::wanting(&with("deletionPolicy", "Orphan"), &[config("a", "1")]);
    bench.pass();
    assert_eq!(bench.purposes()[0], Purpose::AddFinalizer);
    bench.world.delete(FOO, "p");

    bench.pass();
    assert_eq!(bench.purposes(), [Purpose::OrphanChild]);
    assert_eq!(bench.calls.len(), 0, "no hook is asked");
    let outcome = bench.pass();

    assert_eq!(bench.purposes(), [Purpose::RemoveFinalizer]);
    assert_eq!(outcome.verdict, Verdict::Gone);
    assert_eq!(bench.child("a")["metadata"]["ownerReferences"], json!([]));
}

#[test]
fn a_finalized_parent_lets_its_children_go_first_and_asks_once_more() {
    let mut spec = with("deletionPolicy", "Orphan");
    spec["hooks"]["finalize"] = hook("v1");
    let mut bench = Bench::wanting(&spec, &[config("a", "1")]);
    bench.pass();
    bench.world.delete(FOO, "p");
    bench.answer = answer(&json!({"finalized": true}));

    bench.pass();
    assert_eq!(bench.purposes()[0], Purpose::OrphanChild);
    bench.pass();

    assert_eq!(bench.purposes(), [Purpose::RemoveFinalizer]);
    assert_eq!(bench.child("a")["metadata"]["ownerReferences"], json!([]));
}

#[test]
fn a_policy_that_is_not_asked_for_puts_no_finalizer_on_parents() {
    let mut bench = Bench::wanting(&with("deletionPolicy", "Delete"), &[config("a", "1")]);

    bench.pass();

    assert_eq!(
        bench.purposes(),
        [Purpose::CreateChild, Purpose::UpdateStatus]
    );
}
