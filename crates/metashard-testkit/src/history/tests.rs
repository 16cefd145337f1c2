//! Histories with one planted violation each, and sound ones beside them.

use metashard_api::{
    id::{Seq, Term},
    shard_map::{Member, ShardEntry},
};
use serde_json::{Value, json};

use super::*;

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn claim(epoch: u64) -> Claim {
    Claim {
        shard: ShardId(0),
        epoch: Epoch(epoch),
    }
}

fn call(epoch: u64, begin: u64, end: u64) -> HookCall {
    HookCall {
        controller: "c".to_owned(),
        parent: "n/p".to_owned(),
        claim: claim(epoch),
        begin: millis(begin),
        end: Some(millis(end)),
    }
}

/// A write of `a` by the owner of `epoch`, over one version and to another.
fn change(epoch: u64, replaced: u64, version: u64) -> ApiWrite {
    ApiWrite {
        at: millis(version),
        writer: Some(Writer {
            replica: format!("r{epoch}"),
            claim: claim(epoch),
        }),
        object: "things n/a".to_owned(),
        verb: Verb::Change,
        replaced: Some(replaced.to_string()),
        version: Some(version),
    }
}

/// The map that gives the shard at `epoch` to the replica `r<epoch>`.
fn map(seq: u64, epoch: u64) -> MapWrite {
    MapWrite {
        at: millis(epoch),
        spec: ShardMapSpec {
            term: Term(1),
            seq: Seq(seq),
            shard_count: 1,
            members: vec![Member {
                replica: format!("r{epoch}"),
                incarnation: format!("i{epoch}"),
            }],
            shards: vec![ShardEntry {
                owner: Some(0),
                epoch: Epoch(epoch),
            }],
            ..ShardMapSpec::default()
        },
    }
}

/// The shard changes hands from epoch 1 to epoch 2; each owner calls and writes.
fn sound() -> History {
    History {
        calls: vec![call(1, 10, 20), call(1, 20, 30), call(2, 35, 40)],
        writes: vec![change(1, 11, 21), change(1, 21, 31), change(2, 31, 41)],
        maps: vec![map(1, 1), map(2, 2)],
        ..History::default()
    }
}

fn broken(history: &History) -> BTreeSet<Broken> {
    let found = history.findings(Some((millis(30), millis(50))));
    found.into_iter().map(|it| it.broken).collect()
}

fn breaks(history: &History, invariant: Invariant) {
    assert_eq!(broken(history), [Broken::Invariant(invariant)].into());
}

#[test]
fn sound_history_breaks_nothing() {
    assert_eq!(sound().findings(Some((millis(30), millis(50)))), []);
}

#[test]
fn two_calls_about_one_parent_at_once_are_found() {
    let mut history = sound();
    history.calls[2].begin = millis(29);

    breaks(&history, Invariant::Exclusive);
}

#[test]
fn long_call_overlaps_all_that_come_before_its_end() {
    let mut history = sound();
    history.calls[0].end = Some(millis(36));

    let found = history.findings(None);

    assert_eq!(found.len(), 2, "{found:?}");
}

#[test]
fn call_that_is_under_way_overlaps_all_that_come_later() {
    let mut history = sound();
    history.calls[1].end = None;

    breaks(&history, Invariant::Exclusive);

    history.calls.truncate(2);
    assert_eq!(broken(&history), [].into(), "nothing comes later");
}

#[test]
fn calls_about_different_parents_may_be_at_once() {
    let mut history = sound();
    history.calls[1].parent = "n/other".to_owned();
    history.calls[1].begin = millis(10);

    assert_eq!(broken(&history), [].into());
}

#[test]
fn call_of_an_older_epoch_after_a_newer_is_found() {
    let mut history = sound();
    history.calls.push(call(1, 45, 46));

    breaks(&history, Invariant::WriteInEpoch);
}

#[test]
fn write_of_an_older_epoch_after_a_newer_is_found() {
    let mut history = sound();
    history.writes.push(change(1, 41, 51));

    breaks(&history, Invariant::WriteInEpoch);
}

#[test]
fn epoch_that_is_given_twice_is_found() {
    let mut history = sound();
    let mut again = map(3, 2);
    again.spec.members[0].incarnation = "another".to_owned();
    history.maps.push(again);

    breaks(&history, Invariant::EpochMonotonic);
}

#[test]
fn map_of_a_lower_term_is_found() {
    let mut history = sound();
    let mut late = map(9, 2);
    late.spec.term = Term(0);
    history.maps.push(late);

    breaks(&history, Invariant::OneTerm);
}

#[test]
fn acting_on_an_epoch_before_the_map_gave_it_is_found() {
    let mut history = sound();
    history.maps[1].at = millis(36);

    breaks(&history, Invariant::TableFirst);
}

#[test]
fn write_by_another_than_the_owner_is_found() {
    let mut history = sound();
    history.writes[2].writer.as_mut().unwrap().replica = "r1".to_owned();

    breaks(&history, Invariant::TableFirst);
}

#[test]
fn write_over_a_state_that_was_not_seen_is_found() {
    let mut history = sound();
    history.writes[2].replaced = Some("21".to_owned());
    assert_eq!(broken(&history), [Broken::LostUpdate].into());

    history.writes[2].replaced = None;
    assert_eq!(broken(&history), [Broken::LostUpdate].into());
}

#[test]
fn write_of_somebody_else_in_between_has_to_be_seen_too() {
    let mut history = sound();
    let foreign = ApiWrite {
        writer: None,
        replaced: None,
        ..change(1, 31, 35)
    };
    history.writes.insert(2, foreign);

    assert_eq!(broken(&history), [Broken::LostUpdate].into());
}

#[test]
fn acting_by_a_map_that_timed_out_and_was_written_all_the_same_is_fine() {
    let mut history = sound();
    let map = history.maps.pop().unwrap();
    breaks(&history, Invariant::TableFirst);

    history.doubtful = vec![map];
    assert_eq!(broken(&history), BTreeSet::new());
}

#[test]
fn map_that_a_killed_api_server_did_not_log_is_known_by_the_next() {
    let mut history = sound();
    // What gave it to the second owner is not in the log; a later one shows it.
    history.maps[1].at = millis(50);
    breaks(&history, Invariant::TableFirst);

    history.holes = vec![millis(34)];
    assert_eq!(broken(&history), BTreeSet::new());

    history.maps.pop();
    breaks(&history, Invariant::TableFirst);
}

#[test]
fn write_that_a_killed_api_server_did_not_log_is_not_missed() {
    let mut history = sound();
    history.writes.remove(1);
    assert_eq!(broken(&history), [Broken::LostUpdate].into());

    history.holes = vec![millis(25)];
    assert_eq!(broken(&history), BTreeSet::new());

    history.writes[1].replaced = Some("20".to_owned());
    assert_eq!(broken(&history), [Broken::LostUpdate].into());
}

#[test]
fn controller_that_is_not_called_within_its_bound_is_found() {
    let found = sound().findings(Some((millis(10), millis(50))));

    assert!(found.iter().all(|it| it.broken == Broken::Gap), "{found:?}");
    assert_eq!(found.len(), 1);
}

fn event(verb: &str, user_agent: &str, code: u16, request: &Value, response: &Value) -> Value {
    json!({
        "verb": verb, "userAgent": user_agent, "requestURI": "/api/v1/namespaces/n/configmaps/a",
        "objectRef": { "resource": "configmaps", "namespace": "n", "name": "a" },
        "responseStatus": { "code": code }, "requestReceivedTimestamp": "2026-01-02T03:04:05.000006Z",
        "requestObject": request, "responseObject": response,
    })
}

fn object(version: &str) -> Value {
    json!({ "kind": "ConfigMap", "metadata": { "resourceVersion": version } })
}

#[test]
fn audit_log_is_read_in_the_order_of_resource_versions() {
    let agent = "metashard/0.1.0 (replica r1; shard 3; epoch 7)";
    let mut deletion = event(
        "delete",
        agent,
        200,
        &json!({}),
        &json!({ "kind": "Status" }),
    );
    deletion["requestObject"] = json!({ "preconditions": { "resourceVersion": "9" } });
    let events = [
        deletion,
        event("update", agent, 200, &object("5"), &object("9")),
        event("create", "kubectl", 201, &object(""), &object("5")),
        event("update", agent, 409, &object("4"), &json!({})),
        event("update", agent, 200, &object("9"), &object("9")),
        event("get", agent, 200, &json!({}), &object("9")),
    ];

    let mut history = History::default();
    history.take_audit(&events);

    let seen: Vec<_> = history
        .writes
        .iter()
        .map(|it| (it.verb, it.version))
        .collect();
    assert_eq!(
        seen,
        [
            (Verb::Create, Some(5)),
            (Verb::Change, Some(9)),
            (Verb::Delete, None)
        ]
    );
    assert_eq!(history.writes[0].writer, None);
    let writer = history.writes[1].writer.clone().unwrap();
    assert_eq!(
        (writer.replica.as_str(), writer.claim.shard),
        ("r1", ShardId(3))
    );
    assert_eq!(writer.claim.epoch, Epoch(7));
    assert_eq!(history.writes[1].object, "configmaps n/a");
}

#[test]
fn maps_are_taken_from_the_audit_log() {
    let mut written = event("update", "metashard/0.1.0", 200, &object("5"), &object("9"));
    written["objectRef"]["resource"] = "shardmaps".into();
    written["responseObject"]["spec"] = serde_json::to_value(map(4, 2).spec).unwrap();

    let mut history = History::default();
    history.take_audit(&[written]);

    assert_eq!(history.maps[0].spec, map(4, 2).spec);
    assert_eq!(history.maps[0].at.subsec_micros(), 6);
}
