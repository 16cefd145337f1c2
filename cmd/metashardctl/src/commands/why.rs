//! `why`: what the last syncs of an object did, and what made them run.

use anyhow::Context;
use serde_json::{Value, json};

use crate::{
    Found, age,
    argv::{Format, Why},
    cluster::Cluster,
    output::{self, Output},
    replica,
};

pub(super) async fn run(flags: &Why, output: &mut Output) -> anyhow::Result<Found> {
    let (kind, name) = super::object(&flags.object)?;
    let cluster = Cluster::connect(&flags.live).await;
    if flags.server.is_empty() {
        let cluster = cluster?;
        anyhow::bail!(advice(&cluster, kind, flags).await?);
    }
    let (kind, namespace) = match &cluster {
        Ok(cluster) => {
            let resource = cluster.resource(kind)?;
            let namespace = cluster.namespace().filter(|_| resource.namespaced);
            (resource.kind.clone(), namespace.map(str::to_owned))
        }
        // The replicas may be reached where the API server is not; then the type must be the kind.
        Err(_) => (kind.to_owned(), flags.live.namespace.clone()),
    };
    let query = [
        ("kind", kind.as_str()),
        ("namespace", namespace.as_deref().unwrap_or_default()),
        ("name", name),
        (
            "controller",
            flags.controller.as_deref().unwrap_or_default(),
        ),
    ];
    let (mut syncs, mut reached) = (Vec::new(), 0);
    for server in &flags.server {
        match replica::syncs(server, &query).await {
            Ok(found) => {
                reached += 1;
                syncs.extend(found);
            }
            Err(error) => output::complain(&format!("{server} is left out: {error:#}")),
        }
    }
    anyhow::ensure!(reached > 0, "no replica could be asked");
    syncs.sort_by(|left, right| right["at"].as_str().cmp(&left["at"].as_str()));
    syncs.truncate(flags.limit);
    if matches!(flags.output, Format::Json | Format::Yaml) {
        output.value(flags.output, &json!({"syncs": syncs}))?;
    } else if syncs.is_empty() {
        output.line(&format!(
            "no sync of {kind} {name} is remembered by these replicas"
        ))?;
    }
    if matches!(flags.output, Format::Text | Format::Wide) {
        let now = metashard_runtime::clock::Clock::system().wall();
        for sync in &syncs {
            let ago = age::since(sync["at"].as_str().unwrap_or_default(), now);
            output.text(&told(sync, &ago))?;
        }
    }
    Ok(Found::Same)
}

/// Who must be asked, when nobody was named.
async fn advice(cluster: &Cluster, kind: &str, flags: &Why) -> anyhow::Result<String> {
    let resource = cluster.resource(kind)?;
    let mut workers: Vec<String> = Vec::new();
    for controller in cluster.controllers().await? {
        let value: Value =
            serde_json::from_slice(controller.bytes()).context("read a controller")?;
        let is_asked = flags
            .controller
            .as_deref()
            .is_none_or(|it| it == controller.name());
        let names = value["spec"].to_string();
        if let (true, true, Some(worker)) = (
            is_asked,
            names.contains(&format!("\"{}\"", resource.plural)),
            value["status"]["worker"].as_str(),
        ) {
            workers.push(format!("{} (controller {})", worker, controller.name()));
        }
    }
    let who = if workers.is_empty() {
        "the replicas".to_owned()
    } else {
        workers.join(", ")
    };
    Ok(format!(
        "name a replica to ask: {who}\nRun `kubectl port-forward -n metashard-system POD 8081`, then add --server http://127.0.0.1:8081"
    ))
}

/// One sync, for people.
fn told(sync: &Value, ago: &str) -> String {
    let mut lines = vec![head(sync, ago), because(sync)];
    lines.extend(list(sync, "calls").map(call));
    lines.extend(list(sync, "writes").map(write));
    if let Some(more @ 1..) = sync["moreWrites"].as_u64() {
        lines.push(format!("  and {more} more writes"));
    }
    let events = list(sync, "events").filter_map(Value::as_str);
    lines.extend(events.map(|event| format!("  event {event}")));
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
    format!("{ago} ago  {parent}  by {controller} (shard {shard}, epoch {epoch})")
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
        "hot_loop" => "a child is written again and again",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_is_told_with_cause_call_diff_and_writes() {
        let sync = json!({
            "at": "t", "controller": "c", "shard": 3, "epoch": 2, "causes": ["child", "retry"],
            "parent": {"kind": "Foo", "namespace": "ns", "name": "p"},
            "calls": [{"hook": "sync", "result": "answered", "tookSeconds": 0.012, "answerBytes": 40}],
            "writes": [{"what": "update ConfigMap ns/a", "why": "data.k differs", "error": null}],
            "moreWrites": 0, "events": [], "verdict": "changed", "requeue": "soon",
        });

        assert_eq!(
            told(&sync, "5s"),
            "5s ago  Foo ns/p  by c (shard 3, epoch 2)\n\
             \x20 because a child changed; the last sync failed or was out of date\n\
             \x20 hook sync: answered in 12 ms, 40 bytes\n\
             \x20 wrote: update ConfigMap ns/a: data.k differs\n\
             \x20 changed; again soon\n"
        );
    }
}
