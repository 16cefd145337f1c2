//! What was planned against what was sent, counted write by write.

use std::collections::{BTreeMap, BTreeSet};

use metashard_kube::gate::wire;
use metashard_plan::input;
use metashard_reconcile::{
    recording::Recording,
    sync::{Candidates, SyncInput},
    write::{Write, WriteError, WriteResult},
};
use metashard_testkit::proxy::Exchange;

use super::excuses;

/// What stands in the User-Agent of every write that is made for a shard, before the replica's name.
const SHARD_WRITE: &str = "(replica ";

/// Longest part of a body in a message.
const MAX_BODY: usize = 2000;

/// How much was compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Count {
    /// Passes that were run again.
    pub(crate) passes: usize,
    /// Writes that were sent.
    pub(crate) writes: usize,
}

/// One write, as it is sent.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    path: String,
    method: String,
    query: String,
    content_type: String,
    body: Vec<u8>,
    replica: String,
}

/// How often a write was planned and sent.
#[derive(Debug, Clone, Default)]
struct Line {
    sent: usize,
    /// It was planned, and an answer of the API server is on record.
    answered: usize,
    /// It was planned; whether it was sent is not on record: no answer came, or the pass was cut short.
    open: usize,
    /// The last pass that planned it.
    by: String,
}

/// What was planned against what was sent.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    lines: BTreeMap<Key, Line>,
    count: Count,
    /// The parents of passes, by their paths, with the finalizers of their controllers.
    pub(super) parents: BTreeMap<String, BTreeSet<String>>,
    /// What was told of: what an unfinished pass did is looked at each time.
    told: BTreeSet<Key>,
    /// Passes that do not run again as they ran.
    departed: Vec<String>,
}

impl Tally {
    /// Takes in a request, if it is one that was made for a shard.
    pub(crate) fn sent(&mut self, exchange: &Exchange) {
        let header = |name: &str| {
            let value = exchange.headers.get(name);
            value.and_then(|it| it.to_str().ok()).unwrap_or_default()
        };
        let user_agent = header("user-agent");
        if !is_of_a_shard(user_agent) {
            return;
        }
        let query = exchange.query.split('&');
        let query = query.filter(|pair| !pair.starts_with("timeout="));
        let key = Key {
            path: exchange.path.clone(),
            method: exchange.method.to_string(),
            query: query.collect::<Vec<_>>().join("&"),
            content_type: header("content-type").to_owned(),
            body: exchange.body.to_vec(),
            replica: replica_of(user_agent).to_owned(),
        };
        self.lines.entry(key).or_default().sent += 1;
        self.count.writes += 1;
    }

    /// Takes in what a recorded pass plans when it is run again.
    pub(crate) fn planned(&mut self, recording: Recording) {
        let parent = &recording.input.parent;
        let (controller, resource) = (&recording.input.controller, &recording.input.resource);
        let by = format!(
            "replica {}, {} {}, {} at {}",
            recording.replica, controller.kind, controller.name, parent, recording.at
        );
        let path = resource.object_path(parent.namespace(), parent.name());
        let finalizers = self.parents.entry(path).or_default();
        finalizers.insert(controller.finalizer.clone());
        if !picks_the_same(&recording.input) {
            self.departed
                .push(format!("it would start from other children: {by}"));
        }
        let replica = recording.replica.clone();
        let again = recording.replay();
        if let Some(departs) = again.departs {
            self.departed
                .push(format!("it runs another way than it ran: {by}: {departs}"));
        }
        for (write, result) in &again.writes {
            self.plan(write, result.as_ref(), &replica, &by);
        }
        self.count.passes += 1;
    }

    fn plan(&mut self, write: &Write, result: Option<&WriteResult>, replica: &str, by: &str) {
        let is_open = match result {
            // It was not sent.
            Some(Err(WriteError::NoAuthority | WriteError::Observed)) => return,
            None | Some(Err(WriteError::Unavailable(_))) => true,
            Some(_) => false,
        };
        let wire = wire(write);
        let key = Key {
            path: wire.path,
            method: wire.method.to_string(),
            query: wire.query.trim_start_matches('?').to_owned(),
            content_type: wire.content_type.to_owned(),
            body: wire.body.to_vec(),
            replica: replica.to_owned(),
        };
        let line = self.lines.entry(key).or_default();
        line.open += usize::from(is_open);
        line.answered += usize::from(!is_open);
        by.clone_into(&mut line.by);
    }

    /// How much was taken in.
    pub(crate) fn count(&self) -> Count {
        self.count
    }

    /// What does not fit, told once; what fits is let go. `open`: passes that have not ended; `late`: what was sent since.
    pub(crate) fn settle<'a>(
        &mut self,
        open: impl IntoIterator<Item = &'a Self>,
        late: &Self,
    ) -> Vec<String> {
        let mut findings = std::mem::take(&mut self.departed);
        let mut all = self.clone();
        for tally in open {
            all.add(tally);
        }
        for (key, line) in &all.lines {
            let planned = line.answered + line.open;
            let sent_in_all = line.sent + late.lines.get(key).map_or(0, |it| it.sent);
            let finding = if line.sent > planned && excuses::find(key, &all.parents).is_none() {
                Some(format!("sent, and not planned: {key}"))
            } else if line.answered > sent_in_all {
                Some(format!("planned, and not sent: {key}\n  by {}", line.by))
            } else if line.sent <= planned {
                continue;
            } else {
                None
            };
            // It is told of, or excused.
            self.lines.remove(key);
            findings.extend(finding.filter(|_| self.told.insert(key.clone())));
        }
        // What may have been sent and what was may be two writes of the same bytes: the second's pass is perhaps open still.
        self.lines
            .retain(|_, line| line.open > 0 || line.sent != line.answered);
        findings
    }

    fn add(&mut self, other: &Self) {
        for (key, more) in &other.lines {
            let line = self.lines.entry(key.clone()).or_default();
            line.answered += more.answered;
            line.open += more.open;
            line.by.clone_from(&more.by);
        }
        for (path, finalizers) in &other.parents {
            let known = self.parents.entry(path.clone()).or_default();
            known.extend(finalizers.iter().cloned());
        }
    }
}

impl Key {
    pub(super) fn method(&self) -> &str {
        &self.method
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn replica(&self) -> &str {
        &self.replica
    }

    pub(super) fn body(&self) -> &[u8] {
        &self.body
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let body = String::from_utf8_lossy(&self.body);
        let body = body
            .get(..body.floor_char_boundary(MAX_BODY))
            .unwrap_or_default();
        let (method, path, query) = (&self.method, &self.path, &self.query);
        let (content_type, replica) = (&self.content_type, &self.replica);
        write!(
            f,
            "replica {replica}: {method} {path}?{query} ({content_type})\n    {body}"
        )
    }
}

/// Whether a plan made of the same objects takes each for what the worker's caches take it for.
fn picks_the_same(input: &SyncInput) -> bool {
    let uids = |all: &Candidates| -> BTreeSet<String> {
        all.objects.iter().map(|it| it.uid().to_owned()).collect()
    };
    let recorded = input.candidates.iter().chain([&input.revisions]);
    let recorded: Vec<_> = recorded.collect();
    let objects: Vec<_> = recorded.iter().flat_map(|it| it.objects.clone()).collect();
    let (children, revisions) = input::candidates(&input.controller, &input.parent, &objects);
    let planned = children.iter().chain([&revisions]);
    planned.map(uids).eq(recorded.into_iter().map(uids))
}

/// Whether a User-Agent, or what has one in it, is of a write that was made for a shard. Leases, the ShardMap, events and
/// the fleet's own certificate are written for none.
pub(super) fn is_of_a_shard(text: &str) -> bool {
    text.contains(SHARD_WRITE)
}

/// The replica that a User-Agent names.
pub(super) fn replica_of(user_agent: &str) -> &str {
    let (_, rest) = user_agent.split_once(SHARD_WRITE).unwrap_or_default();
    rest.split(';').next().unwrap_or_default()
}

#[test]
fn what_an_unfinished_pass_did_wrong_is_told_once() {
    let key = Key {
        path: "/api/v1/namespaces/ns/configmaps".to_owned(),
        method: "POST".to_owned(),
        query: String::new(),
        content_type: "application/json".to_owned(),
        body: b"{}".to_vec(),
        replica: "r".to_owned(),
    };
    let line = Line {
        answered: 1,
        ..Line::default()
    };
    let (mut tally, mut open) = (Tally::default(), Tally::default());
    open.lines.insert(key, line);
    let none_late = Tally::default();

    let first = tally.settle([&open], &none_late);
    let second = tally.settle([&open], &none_late);
    tally.add(&open);
    let at_its_end = tally.settle([], &none_late);

    assert_eq!(first.len(), 1, "{first:?}");
    assert!(second.is_empty() && at_its_end.is_empty());
}
