//! What hooks saw and the API server carried out, kept in the little that is judged.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead, BufReader},
    path::PathBuf,
    time::{Duration, Instant, SystemTime},
};

use anyhow::Context;
use metashard_api::id::{Epoch, ShardId};
use metashard_fleet::message::Claim;
use metashard_testkit::{
    history::{History, HookCall},
    hook::Call,
};
use serde_json::Value;

use crate::objects;

/// The history so far.
#[derive(Debug)]
pub(crate) struct Record {
    /// One instant by both clocks: of the machine, and since 1970.
    origin: (Instant, Duration),
    /// Calls of hooks; the audit log is added in the end.
    pub(crate) history: History,
    /// By parent: when which value was first seen by the hook, in order.
    pub(crate) values: BTreeMap<String, Vec<(Instant, u64)>>,
    /// Requests of subjects in the audit log, watches apart.
    pub(crate) requests: u64,
}

impl Record {
    /// Nothing yet.
    #[expect(
        clippy::disallowed_methods,
        reason = "the audit log of the API server is dated by the wall clock"
    )]
    pub(crate) fn new() -> Self {
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self {
            origin: (Instant::now(), wall.unwrap_or_default()),
            history: History::default(),
            values: BTreeMap::new(),
            requests: 0,
        }
    }

    /// An instant since 1970.
    pub(crate) fn time(&self, instant: Instant) -> Duration {
        let (here, wall) = self.origin;
        match instant.checked_duration_since(here) {
            Some(after) => wall + after,
            None => wall.saturating_sub(here - instant),
        }
    }

    /// What is judged of a call that names its ownership.
    pub(crate) fn seen(&self, call: &Call) -> anyhow::Result<HookCall> {
        HookCall::of(call, &controller(call), |it| self.time(it))
    }

    /// Takes calls in. `is_bare`: they name no ownership.
    pub(crate) fn take(&mut self, calls: Vec<Call>, is_bare: bool) -> anyhow::Result<()> {
        for call in calls {
            let body = call.json();
            let parent = &body["parent"];
            let name = parent["metadata"]["name"].as_str().unwrap_or_default();
            let value = parent["spec"]["value"].as_str();
            if let Some(value) = value.and_then(|it| it.parse().ok()) {
                let values = self.values.entry(name.to_owned()).or_default();
                if values.last().is_none_or(|(_, last)| *last < value) {
                    values.push((call.received, value));
                }
            }
            let seen = if is_bare {
                HookCall {
                    controller: controller(&call),
                    parent: name.to_owned(),
                    claim: Claim {
                        shard: ShardId(0),
                        epoch: Epoch(0),
                    },
                    begin: self.time(call.received),
                    end: call.ended().map(|it| self.time(it)),
                }
            } else {
                self.seen(&call)?
            };
            self.history.calls.push(seen);
        }
        Ok(())
    }

    /// Takes in the audit logs of all API servers.
    pub(crate) fn take_audit(&mut self, logs: &[PathBuf]) -> anyhow::Result<()> {
        let mut lines = Vec::new();
        for log in logs {
            let file = File::open(log).context("open an audit log")?;
            lines.push(BufReader::new(file).lines());
        }
        let mut events = Vec::new();
        for line in lines.into_iter().flatten() {
            // The last line may be half a line, if the server was killed.
            let Ok(mut event) = serde_json::from_str::<Value>(&line?) else {
                continue;
            };
            let verb = event["verb"].as_str().unwrap_or_default();
            let is_write = matches!(verb, "create" | "update" | "patch" | "delete");
            if event["user"]["username"] == objects::USER && verb != "watch" {
                self.requests += u64::from(event["objectRef"]["resource"] != "leases");
            }
            if is_write {
                shrink(&mut event);
                events.push(event);
            }
        }
        self.history.take_audit(&events);
        Ok(())
    }
}

/// The controller that a call is of.
fn controller(call: &Call) -> String {
    objects::controller_name(objects::controller_of(&call.path).unwrap_or_default())
}

/// Leaves of the bodies what is judged: all of the map, of other objects their metadata.
fn shrink(event: &mut Value) {
    let is_map = event["objectRef"]["resource"] == "shardmaps";
    for body in ["requestObject", "responseObject"] {
        let Some(body) = event.get_mut(body).and_then(Value::as_object_mut) else {
            continue;
        };
        if !is_map {
            body.retain(|field, _| matches!(field.as_str(), "kind" | "metadata" | "preconditions"));
        }
        if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|field, _| matches!(field.as_str(), "name" | "resourceVersion"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn of_bodies_that_are_no_map_only_metadata_is_kept() {
        let mut event = json!({
            "objectRef": { "resource": "configmaps" },
            "responseObject": {
                "kind": "ConfigMap",
                "metadata": { "name": "a", "resourceVersion": "7", "labels": { "a": "b" } },
                "data": { "value": "1" },
            },
        });

        shrink(&mut event);

        assert_eq!(
            event["responseObject"],
            json!({ "kind": "ConfigMap", "metadata": { "name": "a", "resourceVersion": "7" } })
        );
    }
}
