//! What is bounded: calls of a hook at once, and events.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use anyhow::ensure;
use metashard_testkit::{
    FakeHook,
    hook::{Answer, Call},
};
use serde_json::{Value, json};

use crate::support::{Stage, THING, eventually};

/// `--workers` of the shared replica.
const WORKERS: usize = 5;

/// How long a slow hook takes: longer than all else.
const SLOW: Duration = Duration::from_millis(300);

/// The most calls that a hook had at once.
fn most_at_once(calls: &[Call]) -> usize {
    let open_at = |time| {
        let has_ended = |call: &Call| call.ended().is_some_and(|ended| ended <= time);
        let open = calls
            .iter()
            .filter(|it| it.received <= time && !has_ended(it));
        open.count()
    };
    let times = calls.iter().map(|call| call.received);
    times.map(open_at).max().unwrap_or_default()
}

/// `count` parents named `p0`, `p1`...
async fn parents(stage: &Stage, count: usize) -> anyhow::Result<Vec<Value>> {
    let mut parents = Vec::new();
    for number in 0..count {
        let name = format!("p{number}");
        parents.push(stage.parent(THING, &name, json!({})).await?);
    }
    Ok(parents)
}

async fn is_called(stage: &Stage, count: usize) -> anyhow::Result<()> {
    eventually(&format!("{count} calls"), async || {
        let calls = stage.hook.count();
        ensure!(calls >= count, "there were {calls}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_slow_hook_has_no_more_calls_at_once_than_there_are_workers() -> anyhow::Result<()> {
    let hook = FakeHook::start(|_| Answer::json(&json!({ "children": [] })).after(SLOW))?;
    let stage = Stage::with_hook("slow", hook).await?;
    parents(&stage, 4 * WORKERS).await?;

    stage.controller().apply().await?;
    is_called(&stage, 4 * WORKERS).await?;

    let most = most_at_once(&stage.hook.calls());
    ensure!(most == WORKERS, "{most} at once");
    Ok(())
}

#[tokio::test]
async fn an_overloaded_hook_has_no_more_calls_at_once_than_there_are_workers() -> anyhow::Result<()>
{
    let hook = FakeHook::start(|_| Answer::status(503, "busy").after(SLOW / 3))?;
    let stage = Stage::with_hook("overloaded", hook).await?;
    parents(&stage, 4 * WORKERS).await?;

    stage.controller().apply().await?;
    is_called(&stage, 12 * WORKERS).await?;

    let most = most_at_once(&stage.hook.calls());
    ensure!(most <= WORKERS, "{most} at once");
    Ok(())
}

/// So many requests wrote Events in the namespace of a stage. An Event may be seen before its request has ended.
async fn events_are_written(stage: &Stage, times: usize) -> anyhow::Result<()> {
    eventually("Events to be written so often", async || {
        let all = stage.shared.cluster.audit_events()?;
        let ours = all.iter().filter(|it| {
            it["objectRef"]["namespace"] == stage.namespace.as_str()
                && it["objectRef"]["resource"] == "events"
                && matches!(it["verb"].as_str(), Some("create" | "patch" | "update"))
        });
        let written = ours.count();
        ensure!(written == times, "{written} writes in place of {times}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_hook_that_is_down_is_told_of_each_parent_once_however_often_it_is_asked()
-> anyhow::Result<()> {
    let hook = FakeHook::start(|_| Answer::status(500, "down"))?;
    let stage = Stage::with_hook("down", hook).await?;
    stage.controller().apply().await?;
    let parents = parents(&stage, 30).await?;

    let mut calls = BTreeMap::new();
    eventually("many calls for each parent", async || {
        calls.clear();
        for call in stage.hook.calls() {
            let name = call.json()["parent"]["metadata"]["name"].to_string();
            *calls.entry(name).or_insert(0) += 1;
        }
        let few = calls.values().filter(|count| **count < 6).count();
        ensure!(calls.len() == parents.len() && few == 0, "{calls:?}");
        Ok(())
    })
    .await?;

    for parent in &parents {
        let told = stage.event(parent, "SyncError", "500 body: down").await?;
        ensure!(told["type"] == "Warning", "{told:#}");
        let all = stage.events(parent).await?;
        ensure!(all.len() == 1, "{all:#?}");
    }
    events_are_written(&stage, parents.len()).await
}

#[tokio::test]
async fn events_of_answers_are_told_once_and_those_that_always_differ_are_put_together()
-> anyhow::Result<()> {
    let number = AtomicUsize::new(0);
    let hook = FakeHook::json(move |_| {
        let number = number.fetch_add(1, Ordering::Relaxed);
        let same = json!({ "type": "Normal", "reason": "Counted", "message": "as ever" });
        let other =
            json!({ "type": "Warning", "reason": "Flooded", "message": format!("drop {number}") });
        json!({ "children": [], "events": [same, other] })
    })?;
    let stage = Stage::with_hook("floods", hook).await?;
    stage.controller().apply().await?;
    let parent = stage.parent(THING, "p", json!({})).await?;
    for _ in 0..40 {
        stage.poke(THING, "p").await?;
    }

    let text = "(combined from similar events): ";
    stage.event(&parent, "Flooded", text).await?;
    let events = stage.events(&parent).await?;
    let of = |reason: &str| events.iter().filter(|it| it["reason"] == reason).count();
    ensure!(of("Counted") == 1 && of("Flooded") == 11, "{events:#?}");
    let names: BTreeSet<_> = events
        .iter()
        .map(|it| it["metadata"]["name"].to_string())
        .collect();
    ensure!(names.len() == 12, "{names:?}");
    // Three of what is told at once, ten that differ, and the one for the rest.
    events_are_written(&stage, 14).await
}
