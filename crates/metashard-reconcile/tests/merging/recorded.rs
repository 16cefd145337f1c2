//! Every line of the recorded vectors: reproduced exactly, or decided otherwise by a rule that stands here.

use std::path::Path;

use metashard_reconcile::{apply, diff, lastapplied};
use serde_json::{Value, json};

use crate::model;

const ANNOTATION: &str = "metacontroller.k8s.io/last-applied-configuration";

fn cases(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/vectors")
        .join(file);
    let text = std::fs::read_to_string(&path).expect("the vectors are in the repository");
    text.lines()
        .map(|line| serde_json::from_str(line).expect("each line is a case"))
        .collect()
}

fn has(case: &Value, list: &str, word: &str) -> bool {
    case[list]
        .as_array()
        .is_some_and(|words| words.iter().any(|found| found == word))
}

fn is_decided_here(case: &Value) -> bool {
    ["Q-7", "Q-8", "Q-9", "NEW-A", "NEW-B"]
        .iter()
        .any(|word| has(case, "q", word))
}

/// Keys that are neither text nor integer: ours go by the value of a number, Metacontroller's by how Go prints it.
const ODD_KEYS: [&str; 3] = ["h0388", "h0393", "h0394"];

#[test]
fn merge_reproduces_every_recorded_case_or_follows_our_rule() {
    let (mut exact, mut decided) = (0, 0);
    for case in cases("merge.jsonl") {
        let id = case["id"].as_str().unwrap();
        let (observed, desired) = (&case["observed"], &case["desired"]);
        let last = Some(&case["lastApplied"]).filter(|last| !last.is_null());

        let ours = apply::merge(observed, last, desired);

        let rule = model::merge(observed, &case["lastApplied"], desired);
        assert!(
            model::same(&ours, &rule),
            "{id}: ours {ours}, the rule says {rule}"
        );
        if is_decided_here(&case) || ODD_KEYS.contains(&id) {
            decided += 1;
        } else {
            assert!(
                diff::equal(&ours, &case["result"]),
                "{id}: {ours} is not {}",
                case["result"]
            );
            exact += 1;
        }
    }
    println!("merge.jsonl: {exact} as recorded, {decided} by our rule");
    assert_eq!(exact + decided, 3418, "every line is looked at");
}

/// The decisions by example: what we make of cases in which Metacontroller loses or corrupts data.
#[test]
fn recorded_errors_of_metacontroller_are_mended() {
    let all = cases("merge.jsonl");
    for (id, path, expected) in mended() {
        let case = all.iter().find(|case| case["id"] == id).unwrap();
        let last = Some(&case["lastApplied"]).filter(|last| !last.is_null());

        let ours = apply::merge(&case["observed"], last, &case["desired"]);

        let found = ours.pointer(path).unwrap_or(&Value::Null);
        assert_eq!(found, &expected, "{id} {}: {path}", case["note"]);
    }
}

fn mended() -> Vec<(&'static str, &'static str, Value)> {
    let two =
        json!([{"containerPort": 53, "protocol": "TCP"}, {"containerPort": 53, "protocol": "UDP"}]);
    vec![
        // One port served by two protocols: both stay.
        ("h0127", "/spec/containers/0/ports", two),
        // One name in two namespaces: the list is replaced whole.
        ("h0265", "/subjects/0/namespace", json!("ns1")),
        ("h0265", "/subjects/2/namespace", json!("ns2")),
        // Two listeners on one port are told apart by their names.
        ("h0297", "/spec/listeners/1/hostname", json!("a.ex.io")),
        ("h0297", "/spec/listeners/2/hostname", json!("b.ex.io")),
        ("h0382", "/x", json!([{"name": "a", "w": 1}])),
        // The desired type wins.
        ("h0330", "/spec/nested/a", json!("none")),
        ("h0332", "/spec/items", json!({"i1": 1})),
        // A null removes what was applied, and nothing else.
        ("h0338", "/spec/mode", Value::Null),
        ("h0237", "/data/c", Value::Null),
        ("h0157", "/spec/nodeName", json!("node-1")),
    ]
}

#[test]
fn update_writes_only_what_differs_by_value() {
    let (mut exact, mut decided, mut refused) = (0, 0, 0);
    for case in cases("update.jsonl") {
        let id = case["id"].as_str().unwrap();
        let ours = apply::update(&case["observed"], &case["desired"]);
        if case.get("error").is_some() {
            ours.expect_err(id);
            refused += 1;
            continue;
        }
        if is_decided_here(&case) {
            check_decided_update(&case);
            decided += 1;
            continue;
        }
        let ours = ours.expect(id);
        let needed =
            case["bodyChangedByValue"] == true || case["lastAppliedChangedByValue"] == true;
        assert_eq!(ours.changed, needed, "{id}: {}", case["note"]);
        let mut theirs = case["updated"].clone();
        hide_secrets(&mut theirs);
        if case["lastAppliedChangedByValue"] == false {
            // The text may differ: ours is left as it was found.
            let text = case["observed"]["metadata"]["annotations"][ANNOTATION].clone();
            theirs["metadata"]["annotations"][ANNOTATION] = text;
        }
        assert!(
            diff::equal(&ours.object, &theirs),
            "{id}: {} is not {theirs}",
            ours.object
        );
        exact += 1;
    }
    println!(
        "update.jsonl: {exact} as recorded, {decided} by our rule, {refused} refused as recorded"
    );
    assert_eq!(exact + decided + refused, 222, "every line is looked at");
}

/// Our record of a Secret has no values.
fn hide_secrets(updated: &mut Value) {
    if updated["kind"] != "Secret" {
        return;
    }
    let text = &mut updated["metadata"]["annotations"][ANNOTATION];
    let mut record: Value = serde_json::from_str(text.as_str().unwrap()).unwrap();
    for value in record["data"].as_object_mut().unwrap().values_mut() {
        *value = "".into();
    }
    *text = lastapplied::encode(&record).into();
}

/// Whether a case that meets an error of Metacontroller needs a write by our rules.
fn check_decided_update(case: &Value) {
    let id = case["id"].as_str().unwrap();
    let expected = decided_updates()
        .into_iter()
        .find(|(known, _)| *known == id);
    let (_, expected) = expected.unwrap_or_else(|| panic!("{id}: no decision: {}", case["note"]));
    let ours = apply::update(&case["observed"], &case["desired"]).ok();
    let writes = ours.as_ref().map(|update| update.changed);
    assert_eq!(writes, expected, "{id}: {}", case["note"]);
    if let Some(update) = ours {
        // Once written, and kept by the server as it is, nothing is left to write.
        let again = apply::update(&update.object, &case["desired"]).expect(id);
        assert!(!again.changed, "{id} is written again");
    }
}

/// Whether a write is needed; `None`: the child is refused.
fn decided_updates() -> Vec<(&'static str, Option<bool>)> {
    let none = ["u0164", "u0165", "u0166", "u0167"].map(|id| (id, None));
    // a list with two items of one key is merged by a longer key, or as a whole.
    let no = ["u0011", "u0015", "u0213", "u0214"]
        .into_iter()
        // Q-9 and NEW-B: 3.0 is 3, and a null is nothing.
        .chain(["u0158", "u0159", "u0160", "u0176", "u0177", "u0179", "u0180", "u0181", "u0182"])
        .chain(["u0184", "u0185", "u0198"]);
    let yes = ["u0012", "u0013", "u0014", "u0128", "u0168", "u0209", "u0210"]
        .into_iter()
        // the desired type wins.
        .chain(["u0186", "u0187", "u0188"])
        // NEW-A: the sync refuses such a child before; a merge alone takes the value as it is.
        .chain(["u0157", "u0161", "u0162", "u0222"]);
    none.into_iter()
        .chain(no.map(|id| (id, Some(false))))
        .chain(yes.map(|id| (id, Some(true))))
        .collect()
}

/// Half a surrogate pair is refused, where Go's decoder puts U+FFFD: nothing of ours or of Metacontroller's writes one.
const LONE_SURROGATES: [&str; 4] = ["l014", "l015", "l016", "l095"];

/// The integer -0: its sign is kept as that of -0.0, and both are 0 in a comparison.
const NEGATIVE_ZERO: &str = "l020";

#[test]
fn last_applied_texts_are_those_of_metacontroller() {
    let mut counts = (0, 0);
    for case in cases("lastapplied.jsonl") {
        match case["op"].as_str().unwrap() {
            "write" => {
                check_written(&case);
                counts.0 += 1;
            }
            "read" => {
                check_read(&case, lastapplied::decode(case["text"].as_str().unwrap()));
                counts.1 += 1;
            }
            _ => {
                check_read(&case, lastapplied::read(&case["observed"]));
                counts.1 += 1;
            }
        }
    }
    println!("lastapplied.jsonl: {} written, {} read", counts.0, counts.1);
    assert_eq!(counts.0 + counts.1, 104, "every line is looked at");
}

fn check_written(case: &Value) {
    let id = case["id"].as_str().unwrap();
    let object = serde_json::from_str::<Value>(case["objectText"].as_str().unwrap());
    if LONE_SURROGATES.contains(&id) {
        object.expect_err(id);
        return;
    }
    let text = lastapplied::encode(&object.expect(id));
    if id != NEGATIVE_ZERO {
        assert_eq!(text, case["text"].as_str().unwrap(), "{id}");
    }
    let back = lastapplied::decode(&text).unwrap().unwrap();
    assert!(diff::equal(&back, &case["readBack"]), "{id}: {back}");
}

fn check_read(case: &Value, ours: Result<Option<Value>, lastapplied::Error>) {
    let id = case["id"].as_str().unwrap();
    if LONE_SURROGATES.contains(&id) {
        ours.expect_err(id);
        return;
    }
    if id == "l102" {
        // NEW-A: one annotation that is no text does not hide the others from us.
        assert_eq!(ours.unwrap(), Some(json!({"a": 1})));
        return;
    }
    assert_eq!(ours.is_ok(), case["ok"] == true, "{id}: {ours:?}");
    if let Ok(back) = ours {
        let back = back.unwrap_or(Value::Null);
        assert!(diff::equal(&back, &case["readBack"]), "{id}: {back}");
    }
}
