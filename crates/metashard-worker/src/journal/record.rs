//! What one sync did.

use std::time::{Duration, SystemTime};

use k8s_openapi::jiff::Timestamp;
use metashard_api::id::{Epoch, ShardId};
use metashard_fleet::queue::{Cause, Causes};
use metashard_reconcile::{
    object::Object,
    requeue::Requeue,
    sync::{HookKind, HookResult, Outcome},
    write::{Write, WriteResult},
};
use serde_json::{Value, json};

use super::Asked;

/// Most writes that are told of one sync; the others are counted.
const MAX_WRITES: usize = 50;

/// Most events that are told of one sync.
const MAX_EVENTS: usize = 10;

/// Longest text.
const MAX_TEXT: usize = 300;

/// What one sync did.
#[derive(Debug)]
pub(crate) struct Record {
    pub(super) at: SystemTime,
    pub(super) controller: Box<str>,
    pub(super) kind: Box<str>,
    pub(super) namespace: Option<Box<str>>,
    pub(super) name: Box<str>,
    pub(super) resource_version: Box<str>,
    pub(super) causes: Causes,
    pub(super) shard: ShardId,
    pub(super) epoch: Epoch,
    pub(super) verdict: &'static str,
    pub(super) message: Option<Box<str>>,
    pub(super) requeue: Requeue,
    pub(super) took: Duration,
    pub(super) notes: Notes,
    pub(super) events: Vec<Box<str>>,
    /// What is told of the children that were let be because they are fought over: first of all the object.
    pub(super) let_be: Vec<Box<str>>,
}

/// One call of a hook.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) hook: HookKind,
    pub(super) took: Duration,
    /// `answered`, or why not.
    pub(super) result: Box<str>,
    /// Length of the answer.
    pub(super) answer: Option<usize>,
}

/// One write and what came of it.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) kind: Box<str>,
    pub(super) namespace: Option<Box<str>>,
    pub(super) name: Box<str>,
    /// What was attempted, as `create ConfigMap ns/a`.
    pub(super) what: Box<str>,
    /// Which fields differ, or what else made it needed.
    pub(super) why: Box<str>,
    /// Why it was not made; `None`: it was.
    pub(super) error: Option<Box<str>>,
}

/// What is noted while a sync runs.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    calls: Vec<Call>,
    writes: Vec<Written>,
    more_writes: usize,
}

/// Which sync it is.
#[derive(Debug)]
pub(crate) struct Which<'a> {
    pub(crate) at: SystemTime,
    pub(crate) controller: &'a str,
    pub(crate) parent: &'a Object,
    pub(crate) causes: Causes,
    pub(crate) place: (ShardId, Epoch),
    pub(crate) took: Duration,
}

impl Notes {
    /// Notes a call of a hook.
    pub(crate) fn call(&mut self, hook: HookKind, took: Duration, result: &HookResult) {
        let (result, answer) = match result {
            HookResult::Answer(body) => ("answered".into(), Some(body.len())),
            HookResult::TooManyRequests { .. } | HookResult::Unavailable { .. } => {
                ("asked to wait".into(), None)
            }
            HookResult::Failed(why) => (cut(why), None),
            HookResult::NoAuthority => ("cut short".into(), None),
        };
        self.calls.push(Call {
            hook,
            took,
            result,
            answer,
        });
    }

    /// Notes what came of writes.
    pub(crate) fn writes(&mut self, writes: &[Write], results: &[WriteResult]) {
        let room = MAX_WRITES.saturating_sub(self.writes.len());
        self.more_writes += writes.len().saturating_sub(room);
        for (write, result) in writes.iter().zip(results).take(room) {
            self.writes.push(Written {
                kind: write.resource.kind.as_str().into(),
                namespace: write.namespace.clone(),
                name: write.name.clone(),
                what: write.to_string().into(),
                why: cut(&write.why),
                error: result.as_ref().err().map(|error| cut(&error.to_string())),
            });
        }
    }
}

impl Record {
    /// What a sync that has ended did.
    pub(crate) fn new(which: &Which<'_>, notes: Notes, outcome: &Outcome) -> Self {
        let parent = which.parent;
        let events = outcome.events.iter().take(MAX_EVENTS);
        Self {
            at: which.at,
            controller: which.controller.into(),
            kind: parent.kind().into(),
            namespace: parent.namespace().map(Into::into),
            name: parent.name().into(),
            resource_version: parent.resource_version().into(),
            causes: which.causes,
            shard: which.place.0,
            epoch: which.place.1,
            verdict: outcome.verdict.as_str(),
            message: outcome.verdict.message().map(cut),
            requeue: outcome.requeue,
            took: which.took,
            notes,
            events: events
                .map(|it| cut(&format!("{}: {}", it.reason, it.message)))
                .collect(),
            let_be: outcome
                .fights
                .iter()
                .take(MAX_EVENTS)
                .map(|it| cut(it))
                .collect(),
        }
    }

    /// About how much memory it takes.
    pub(super) fn size(&self) -> usize {
        let len = |text: &Option<Box<str>>| text.as_ref().map_or(0, |it| it.len());
        let written = |it: &Written| {
            size_of::<Written>()
                + it.kind.len()
                + len(&it.namespace)
                + it.name.len()
                + it.what.len()
                + it.why.len()
                + len(&it.error)
        };
        let call = |it: &Call| size_of::<Call>() + it.result.len();
        size_of::<Self>()
            + self.controller.len()
            + self.kind.len()
            + len(&self.namespace)
            + self.name.len()
            + len(&self.message)
            + self.notes.calls.iter().map(call).sum::<usize>()
            + self.notes.writes.iter().map(written).sum::<usize>()
            + self
                .events
                .iter()
                .chain(&self.let_be)
                .map(|it| it.len() + 16)
                .sum::<usize>()
    }

    /// Whether it is of the parent, or wrote the object, that is asked for.
    pub(super) fn matches(&self, asked: &Asked) -> bool {
        let is = |asked: &str, found: &str| asked.is_empty() || asked.eq_ignore_ascii_case(found);
        let object = |kind: &str, namespace: Option<&str>, name: &str| {
            is(&asked.kind, kind)
                && is(&asked.namespace, namespace.unwrap_or_default())
                && is(&asked.name, name)
        };
        is(&asked.controller, &self.controller)
            && (object(&self.kind, self.namespace.as_deref(), &self.name)
                || self
                    .notes
                    .writes
                    .iter()
                    .any(|it| object(&it.kind, it.namespace.as_deref(), &it.name))
                || self
                    .let_be
                    .iter()
                    .filter_map(|text| named(text))
                    .any(|(kind, namespace, name)| object(kind, namespace, name)))
    }

    /// As it is served.
    pub(super) fn to_json(&self) -> Value {
        let at =
            Timestamp::try_from(self.at).map_or_else(|_| String::new(), |it| format!("{it:.3}"));
        let calls = self.notes.calls.iter().map(|call| {
            json!({
                "hook": call.hook.as_str(),
                "tookSeconds": call.took.as_secs_f64(),
                "result": call.result,
                "answerBytes": call.answer,
            })
        });
        let writes = self
            .notes
            .writes
            .iter()
            .map(|it| json!({"what": it.what, "why": it.why, "error": it.error}));
        json!({
            "at": at,
            "controller": self.controller,
            "parent": {
                "kind": self.kind,
                "namespace": self.namespace,
                "name": self.name,
                "resourceVersion": self.resource_version,
            },
            "causes": self.causes.iter().map(Cause::as_str).collect::<Vec<_>>(),
            "shard": self.shard.0,
            "epoch": self.epoch.0,
            "verdict": self.verdict,
            "message": self.message,
            "requeue": self.requeue.to_string(),
            "tookSeconds": self.took.as_secs_f64(),
            "calls": calls.collect::<Vec<_>>(),
            "writes": writes.collect::<Vec<_>>(),
            "moreWrites": self.notes.more_writes,
            "events": self.events,
            "letBe": self.let_be,
        })
    }
}

/// Kind, namespace and name at the begin of a text such as `ConfigMap ns/a: data.k is changed`.
fn named(text: &str) -> Option<(&str, Option<&str>, &str)> {
    let (object, _) = text.split_once(": ")?;
    let (kind, name) = object.split_once(' ')?;
    Some(match name.split_once('/') {
        Some((namespace, name)) => (kind, Some(namespace), name),
        None => (kind, None, name),
    })
}

fn cut(text: &str) -> Box<str> {
    text.get(..text.floor_char_boundary(MAX_TEXT))
        .unwrap_or_default()
        .into()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn record(controller: &str, name: &str) -> Record {
        Record {
            at: SystemTime::UNIX_EPOCH,
            controller: controller.into(),
            kind: "Foo".into(),
            namespace: Some("ns".into()),
            name: name.into(),
            resource_version: "1".into(),
            causes: Cause::Child.into(),
            shard: ShardId(7),
            epoch: Epoch(2),
            verdict: "changed",
            message: None,
            requeue: Requeue::Await,
            took: Duration::from_millis(5),
            notes: Notes {
                writes: vec![Written {
                    kind: "ConfigMap".into(),
                    namespace: Some("ns".into()),
                    name: "child".into(),
                    what: "update ConfigMap ns/child".into(),
                    why: "data.k differs".into(),
                    error: None,
                }],
                ..Notes::default()
            },
            events: Vec::new(),
            let_be: Vec::new(),
        }
    }

    #[test]
    fn a_sync_is_found_by_its_parent_and_by_what_it_wrote() {
        let record = record("c", "p");
        let finds = |kind: &str, name: &str| {
            record.matches(&Asked {
                kind: kind.to_owned(),
                name: name.to_owned(),
                ..Asked::default()
            })
        };

        assert!(finds("foo", "p") && finds("ConfigMap", "child"));
        assert!(!finds("Foo", "child") && !finds("ConfigMap", "p"));
    }

    #[test]
    fn a_child_that_is_let_be_is_found_too() {
        let mut record = record("c", "p");
        record.let_be = ["ConfigMap ns/b: data.k is changed", "Node n: it is deleted"]
            .map(Into::into)
            .into();
        let finds = |kind: &str, namespace: &str, name: &str| {
            record.matches(&Asked {
                kind: kind.to_owned(),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                ..Asked::default()
            })
        };

        assert!(finds("configmap", "ns", "b") && finds("Node", "", "n"));
        assert!(!finds("ConfigMap", "ns", "c"));
    }

    #[test]
    fn it_is_told_with_cause_place_and_writes() {
        let told = record("c", "p").to_json();

        assert_eq!(told["causes"], json!(["child"]));
        assert_eq!((&told["shard"], &told["epoch"]), (&json!(7), &json!(2)));
        assert_eq!(told["writes"][0]["why"], "data.k differs");
        assert_eq!(told["at"], "1970-01-01T00:00:00.000Z");
    }
}
