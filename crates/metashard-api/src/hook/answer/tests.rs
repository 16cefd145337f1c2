//! Answers as Metacontroller takes and refuses them, and where we decide otherwise.

use proptest::prelude::*;
use serde_json::json;

use super::*;

const VECTORS: &str = include_str!("../../../../../tests/vectors/responses.jsonl");

/// Answers that Metacontroller takes and we refuse.
const REFUSED_BY_US: [(&str, &str); 13] = [
    ("p155", "a null child ends its process"),
    ("p156", "a null child ends its process"),
    ("p159", "a null child ends its process"),
    ("p160", "a null child ends its process"),
    ("p232", "a null attachment ends its process"),
    ("p233", "a null attachment ends its process"),
    ("p254", "a null rule ends its process"),
    ("p255", "a null rule ends its process"),
    ("p180", "deeper than we read"),
    ("p181", "deeper than we read"),
    ("p182", "deeper than we read"),
    ("p183", "deeper than we read"),
    ("p184", "deeper than we read"),
];

#[derive(Default, Debug, PartialEq, Eq)]
struct Counts {
    taken: usize,
    refused: usize,
    refused_by_us: usize,
    other_status: usize,
}

#[test]
fn every_recorded_answer_is_taken_or_refused_for_the_same_reason() {
    let mut counts = Counts::default();
    for line in VECTORS.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        check(&case, &mut counts);
    }

    println!("responses.jsonl: {counts:?}");
    let all = Counts {
        taken: 148,
        refused: 126,
        refused_by_us: 13,
        other_status: 10,
    };
    assert_eq!(counts, all);
}

fn check(case: &Value, counts: &mut Counts) {
    if case["errorClass"] == "status" {
        // Whoever makes the call judges the status: the body is not read.
        assert!(
            case["status"].as_u64().is_some_and(|status| status != 200),
            "{case}"
        );
        counts.other_status += 1;
        return;
    }
    let decoded = decode(case);
    let ours = REFUSED_BY_US.iter().find(|(id, _)| case["id"] == *id);
    match (decoded, ours) {
        (Err(_), Some(_)) => counts.refused_by_us += 1,
        (Ok(decoded), None) => {
            assert_eq!(decoded, normalized(&case["decoded"]), "{case}");
            counts.taken += 1;
        }
        (Err(error), None) => {
            assert!(
                is_of_class(&error, case["errorClass"].as_str().unwrap_or("none")),
                "{error:?}: {case}"
            );
            counts.refused += 1;
        }
        (Ok(decoded), Some((_, why))) => panic!("taken although {why}: {decoded}"),
    }
}

/// Decodes a case into the form of its `decoded`.
fn decode(case: &Value) -> Result<Value, DecodeError> {
    let mode = if case["effectiveMode"] == "strict" {
        Mode::Strict
    } else {
        Mode::Loose
    };
    let body = body(case);
    match case["kind"].as_str() {
        Some("composite") => decode_sync(&body, mode).map(|it| {
            json!({
                "children": it.children.unwrap_or_default(),
                "finalized": it.finalized,
                "resyncAfterSeconds": it.resync_after.map(|after| after.as_secs_f64()),
                "status": it.status,
            })
        }),
        Some("decorator") => decode_decorator(&body, mode).map(|it| {
            json!({
                "annotations": it.annotations,
                "attachments": it.attachments.unwrap_or_default(),
                "finalized": it.finalized,
                "labels": it.labels,
                "resyncAfterSeconds": it.resync_after.map(|after| after.as_secs_f64()),
                "status": it.status,
            })
        }),
        Some("customize") => decode_customize(&body, mode).map(
            |it| json!({ "relatedResources": it.related.iter().map(rule).collect::<Vec<_>>() }),
        ),
        other => panic!("{other:?}"),
    }
}

fn rule(rule: &RelatedRule) -> Value {
    json!({
        "apiVersion": rule.api_version,
        "resource": rule.resource,
        "labelSelector": rule.label_selector,
        "namespaceSelector": rule.namespace_selector,
        "namespace": rule.namespace,
        "names": rule.names,
    })
}

/// A recorded `decoded`, in the words of our types.
fn normalized(decoded: &Value) -> Value {
    let mut decoded = decoded.clone();
    let fields = decoded.as_object_mut().unwrap();
    if let Some(seconds) = fields.get_mut("resyncAfterSeconds") {
        *seconds = json!(resync_after(seconds.as_f64().unwrap()).map(|after| after.as_secs_f64()));
    }
    for name in ["labels", "annotations"] {
        if fields.get(name).is_some_and(Value::is_null) {
            fields.insert(name.to_owned(), json!({}));
        }
    }
    for rule in fields
        .get_mut("relatedResources")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        let defaults = json!({ "namespaceSelector": null, "namespace": "", "names": [] });
        for (name, default) in defaults.as_object().unwrap() {
            let field = rule
                .as_object_mut()
                .unwrap()
                .entry(name.clone())
                .or_insert(Value::Null);
            if field.is_null() {
                *field = default.clone();
            }
        }
    }
    decoded
}

fn body(case: &Value) -> Vec<u8> {
    if let Some(body) = case["body"].as_str() {
        return body.as_bytes().to_vec();
    }
    if let Some(text) = case["bodyBase64"].as_str() {
        let k8s_openapi::ByteString(bytes) = serde_json::from_value(json!(text)).unwrap();
        return bytes;
    }
    let depth = usize::try_from(case["bodyNest"].as_u64().unwrap()).unwrap();
    format!(
        "{{\"status\":{}1{}",
        "{\"a\":".repeat(depth - 1),
        "}".repeat(depth)
    )
    .into_bytes()
}

fn is_of_class(error: &DecodeError, class: &str) -> bool {
    let class_of = match error {
        DecodeError::Json(json::Error::NumberOutOfRange { .. }) | DecodeError::WrongType { .. } => {
            "type"
        }
        DecodeError::Json(_) => "malformed",
        DecodeError::KindMissing { .. } => "kind-missing",
        DecodeError::Strict { unknown, repeated } => {
            match (unknown.is_empty(), repeated.is_empty()) {
                (false, true) => "strict-unknown",
                (true, false) => "strict-duplicate",
                (false, false) => "strict-unknown-and-duplicate",
                (true, true) => "none",
            }
        }
    };
    class_of == class
}

#[test]
fn odd_resync_times_never_panic_and_stay_within_bounds() {
    let cases = [
        ("0", None),
        ("-1", None),
        ("-1e308", None),
        ("1e-300", Some(MIN_RESYNC)),
        ("0.25", Some(Duration::from_millis(250))),
        ("1e308", Some(MAX_RESYNC)),
        ("99999999999999999999", Some(MAX_RESYNC)),
    ];
    for (seconds, expected) in cases {
        let body = format!("{{\"resyncAfterSeconds\":{seconds}}}");
        let answer = decode_sync(body.as_bytes(), Mode::Strict).unwrap();
        assert_eq!(answer.resync_after, expected, "{seconds}");
    }
    assert_eq!(resync_after(f64::NAN), None);
    assert_eq!(resync_after(f64::INFINITY), Some(MAX_RESYNC));
}

#[test]
fn an_answer_without_children_is_told_from_one_with_none() {
    let children = |body: &str| decode_sync(body.as_bytes(), Mode::Loose).unwrap().children;

    assert_eq!(children("{}"), None);
    assert_eq!(children("null"), None);
    assert_eq!(children(r#"{"children":null}"#), Some(vec![]));
    assert_eq!(children(r#"{"children":[]}"#), Some(vec![]));
}

#[test]
fn loose_mode_names_odd_fields_in_a_warning() {
    let body = br#"{"Children":[],"typo":1,"status":{"m":[{"a":1,"a":2}]},"status":{}}"#;

    let answer = decode_sync(body, Mode::Loose).unwrap();

    let warning = "unknown field Children, typo; repeated field status.m[0].a, status";
    assert_eq!(answer.warnings, [warning]);
}

#[test]
fn events_are_read_cut_and_counted() {
    let long = "x".repeat(2000);
    let event = |reason: &str| json!({ "type": "Warning", "reason": reason, "message": long });
    let many: Vec<_> = (0..12).map(|n| event(&format!("R{n}"))).collect();
    let body =
        json!({ "events": [event("Same"), event("Same"), { "reason": "Plain" }] }).to_string();
    let too_many = json!({ "events": many }).to_string();

    let answer = decode_sync(body.as_bytes(), Mode::Strict).unwrap();
    let crowded = decode_sync(too_many.as_bytes(), Mode::Strict).unwrap();

    let reasons: Vec<_> = answer
        .events
        .iter()
        .map(|it| (it.is_warning, it.reason.as_str()))
        .collect();
    assert_eq!(reasons, [(false, "Plain"), (true, "Same")]);
    assert_eq!(answer.events[1].message.len(), MAX_EVENT_MESSAGE);
    assert_eq!(crowded.events.len(), MAX_EVENTS);
    assert_eq!(crowded.warnings.len(), 1);
}

#[test]
fn odd_events_are_refused_in_strict_mode_and_dropped_in_loose_mode() {
    let odd = [
        json!(5),
        json!([5]),
        json!([{ "reason": "no spaces" }]),
        json!([{ "reason": "Fine", "type": "Odd" }]),
        json!([{ "reason": "Fine", "message": 5 }]),
    ];
    for events in odd {
        let body = json!({ "children": [], "events": events }).to_string();

        assert!(
            decode_sync(body.as_bytes(), Mode::Strict).is_err(),
            "{body}"
        );
        let loose = decode_sync(body.as_bytes(), Mode::Loose).unwrap();
        assert_eq!((loose.events.len(), loose.warnings.len()), (0, 1), "{body}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        drop(decode_sync(&bytes, Mode::Strict));
        drop(decode_decorator(&bytes, Mode::Loose));
        drop(decode_customize(&bytes, Mode::Loose));
    }

    #[test]
    fn nearly_right_answers_never_make_the_reader_panic(
        text in r#"\{("(status|children|events|finalized|x)":(\[|\]|\{|\}|"a":|1e|-|null|true|"\\u[dD]8|,){0,9},?){0,4}\}?"#
    ) {
        drop(decode_sync(text.as_bytes(), Mode::Loose));
        drop(decode_customize(text.as_bytes(), Mode::Strict));
    }
}
