//! What was rendered, as text for people, and as values for programs.

use std::{fmt::Write as _, sync::Arc};

use metashard_kube::gate::wire;
use metashard_reconcile::{
    object::Object,
    requeue::Requeue,
    sync::HookResult,
    write::{Aim, Op, Purpose, Write},
};
use serde_json::{Value, json};

use crate::{
    changes::{between, for_people},
    render::{BlastRadius, Rendered},
};

/// What was rendered of one parent, for programs: the exact writes and all that belongs to them.
pub fn value(rendered: &Rendered) -> Value {
    let outcome = &rendered.outcome;
    let calls = rendered
        .calls
        .iter()
        .map(|call| json!({"hook": call.hook.as_str(), "result": result(&call.result)}));
    let events = outcome.events.iter().map(|event| {
        let type_ = if event.is_warning {
            "Warning"
        } else {
            "Normal"
        };
        json!({"type": type_, "reason": event.reason, "message": event.message})
    });
    json!({
        "parent": rendered.parent.to_string(),
        "verdict": outcome.verdict.as_str(),
        "message": outcome.verdict.message(),
        "requeue": requeue(outcome.requeue),
        "calls": calls.collect::<Vec<_>>(),
        "writes": rendered.writes.iter().map(write_value).collect::<Vec<_>>(),
        "events": events.collect::<Vec<_>>(),
    })
}

/// One write, for programs.
pub fn write_value(write: &Write) -> Value {
    let wire = wire(write);
    let mut value = json!({
        "method": wire.method.as_str(),
        "path": wire.path,
        "query": wire.query.trim_start_matches('?'),
        "contentType": wire.content_type,
        "resource": write.resource.to_string(),
        "namespace": write.namespace,
        "name": write.name,
        "purpose": write.purpose.as_str(),
        "why": write.why,
        "body": serde_json::from_slice::<Value>(&wire.body).unwrap_or_default(),
    });
    if let Op::Apply { manager, .. } = &write.op {
        value["fieldManager"] = (**manager).into();
    }
    value
}

/// What was rendered of some parents, for people.
pub fn text(all: &[Rendered]) -> String {
    let mut text = String::new();
    for rendered in all {
        one(rendered, &mut text);
    }
    let writes = all.iter().flat_map(|rendered| &rendered.writes);
    let radius = BlastRadius::of(writes);
    let failed = all.iter().filter(|it| it.has_failed()).count();
    line(
        &mut text,
        &match failed {
            0 => radius.to_string(),
            failed => format!("{radius}; {failed} of {} syncs failed", all.len()),
        },
    );
    text
}

fn one(rendered: &Rendered, text: &mut String) {
    let outcome = &rendered.outcome;
    let verdict = outcome.verdict.as_str();
    match outcome.verdict.message() {
        Some(message) => line(text, &format!("{}: {verdict}: {message}", rendered.parent)),
        None => line(text, &format!("{}: {verdict}", rendered.parent)),
    }
    let observed = rendered.observed();
    for write in &rendered.writes {
        show_write(observed.by(write), write, text);
    }
    for event in &outcome.events {
        let type_ = if event.is_warning {
            "Warning"
        } else {
            "Normal"
        };
        line(
            text,
            &format!("  event {type_} {}: {}", event.reason, event.message),
        );
    }
    match outcome.requeue {
        Requeue::Await => {}
        requeue => line(text, &format!("  again {requeue}")),
    }
}

fn show_write(observed: Option<&Arc<Object>>, write: &Write, text: &mut String) {
    let mark = match write.op {
        Op::Create { .. }
        | Op::Apply {
            aim: Aim::Create, ..
        } => '+',
        Op::Delete { .. } => '-',
        _ => '~',
    };
    line(text, &format!("  {mark} {write}"));
    if !write.why.is_empty() && write.purpose != Purpose::CreateChild {
        line(text, &format!("      because {}", write.why));
    }
    let (Op::Create { body }
    | Op::Update { body }
    | Op::UpdateStatus { body }
    | Op::Apply { body, .. }) = &write.op
    else {
        return;
    };
    let new = for_people(body);
    // An apply leaves what it does not name; of its own that goes, the reason tells.
    let is_apply = matches!(write.op, Op::Apply { .. });
    match observed {
        Some(old) if mark == '~' => {
            let changes = between(&for_people(old.bytes()), &new);
            for change in changes.iter().filter(|it| !is_apply || it.mark != '-') {
                let text_of = &change.text;
                line(
                    text,
                    &format!("      {} {}: {text_of}", change.mark, change.path),
                );
            }
        }
        _ => {
            let yaml = serde_saphyr::to_string(&new).unwrap_or_default();
            for yaml in yaml.lines() {
                line(text, &format!("      + {yaml}"));
            }
        }
    }
}

/// When the parent is synced again, for programs.
pub fn requeue(requeue: Requeue) -> Value {
    match requeue {
        Requeue::Await => json!("await"),
        Requeue::After(delay) => json!({"afterSeconds": delay.as_secs_f64()}),
        Requeue::Soon => json!("soon"),
        Requeue::Backoff => json!("backoff"),
        Requeue::BackoffAndAfter(delay) => {
            json!({"backoff": true, "afterSeconds": delay.as_secs_f64()})
        }
    }
}

fn result(result: &HookResult) -> Value {
    match result {
        HookResult::Answer(_) => json!("answered"),
        HookResult::TooManyRequests { .. } | HookResult::Unavailable { .. } => json!("throttled"),
        HookResult::Failed(text) => json!({"failed": text}),
        HookResult::NoAuthority => json!("cancelled"),
    }
}

fn line(text: &mut String, line: &str) {
    // Writing to a String cannot fail.
    let _ok = writeln!(text, "{line}");
}
