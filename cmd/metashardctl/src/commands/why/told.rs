//! A sync that a replica remembers, for people.

use serde_json::Value;

/// One sync, for people.
pub(super) fn told(sync: &Value, ago: &str) -> String {
    let mut lines = vec![head(sync, ago), because(sync)];
    lines.extend(list(sync, "calls").map(call));
    lines.extend(list(sync, "writes").map(write));
    if let Some(more @ 1..) = sync["moreWrites"].as_u64() {
        lines.push(format!("  and {more} more writes"));
    }
    let events = list(sync, "events").filter_map(Value::as_str);
    lines.extend(events.map(|event| format!("  event {event}")));
    let let_be = list(sync, "letBe").filter_map(Value::as_str);
    lines.extend(let_be.map(|text| format!("  not written: {text}")));
    let message = with_colon(text(sync, "/message"));
    let (verdict, requeue) = (text(sync, "/verdict"), text(sync, "/requeue"));
    lines.push(format!("  {verdict}{message}; again {requeue}"));
    lines
        .iter()
        .fold(String::new(), |told, line| told + line + "\n")
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    let text = value.pointer(pointer).and_then(Value::as_str);
    text.unwrap_or_default()
}

fn list<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value[field].as_array().into_iter().flatten()
}

/// `: text`, or nothing.
fn with_colon(text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!(": {text}")
    }
}

fn head(sync: &Value, ago: &str) -> String {
    let (kind, name) = (text(sync, "/parent/kind"), text(sync, "/parent/name"));
    let parent = match text(sync, "/parent/namespace") {
        "" => format!("{kind} {name}"),
        namespace => format!("{kind} {namespace}/{name}"),
    };
    let (controller, shard, epoch) = (text(sync, "/controller"), &sync["shard"], &sync["epoch"]);
    let on = match text(sync, "/replica") {
        "" => String::new(),
        replica => format!(" on {replica}"),
    };
    format!("{ago} ago  {parent}  by {controller} (shard {shard}, epoch {epoch}){on}")
}

fn because(sync: &Value) -> String {
    let causes = list(sync, "causes").filter_map(Value::as_str).map(cause);
    let causes: Vec<_> = causes.collect();
    if causes.is_empty() {
        "  nothing is known of why".to_owned()
    } else {
        format!("  because {}", causes.join("; "))
    }
}

fn call(call: &Value) -> String {
    let took = call["tookSeconds"].as_f64().unwrap_or(0.0) * 1000.0;
    let bytes = match call["answerBytes"].as_u64() {
        Some(bytes) => format!(", {bytes} bytes"),
        None => String::new(),
    };
    let (hook, result) = (text(call, "/hook"), text(call, "/result"));
    format!("  hook {hook}: {result} in {took:.0} ms{bytes}")
}

fn write(write: &Value) -> String {
    let (what, why) = (text(write, "/what"), with_colon(text(write, "/why")));
    match write["error"].as_str() {
        Some(error) => format!("  not written: {what}{why}; {error}"),
        None => format!("  wrote: {what}{why}"),
    }
}

/// A cause, in words.
fn cause(word: &str) -> &str {
    match word {
        "parent" => "the parent changed",
        "child" => "a child changed",
        "related" => "a related object changed",
        "resync" => "everything is synced again from time to time",
        "timer" => "the hook asked to be called again",
        "retry" => "the last sync failed or was out of date",
        "shard_move" => "its controller began to run on this replica",
        "asked" => "a sync was asked for",
        "hot_loop" => "a child that is fought over was let be, and is looked at again",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_sync_is_told_with_cause_call_diff_and_writes() {
        let sync = json!({
            "at": "t", "controller": "c", "replica": "r1", "shard": 3, "epoch": 2, "causes": ["child", "retry"],
            "parent": {"kind": "Foo", "namespace": "ns", "name": "p"},
            "calls": [{"hook": "sync", "result": "answered", "tookSeconds": 0.012, "answerBytes": 40}],
            "writes": [{"what": "update ConfigMap ns/a", "why": "data.k differs", "error": null}],
            "moreWrites": 0, "events": [], "letBe": ["ConfigMap ns/b: data.k is changed by manager \"x\""], "verdict": "changed", "requeue": "soon",
        });

        assert_eq!(
            told(&sync, "5s"),
            "5s ago  Foo ns/p  by c (shard 3, epoch 2) on r1\n\
             \x20 because a child changed; the last sync failed or was out of date\n\
             \x20 hook sync: answered in 12 ms, 40 bytes\n\
             \x20 wrote: update ConfigMap ns/a: data.k differs\n\
             \x20 not written: ConfigMap ns/b: data.k is changed by manager \"x\"\n\
             \x20 changed; again soon\n"
        );
    }
}
