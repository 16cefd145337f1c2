//! Parity: what replicas write is what `render` plans of the same input, byte for byte. Nothing else, and nothing less.
//!
//! Replicas of a recorded cluster reach its API server by a proxy that keeps what they send, and record what each pass
//! started from and was fed with. Each pass is run again, and what it asks for is compared with what was sent. The API
//! server's audit log says whether the proxy has seen everything. All that has happened in a cluster so far is compared
//! when a stage in it ends, so no test can be left out.

mod excuses;
mod tally;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use anyhow::Context;
use metashard_reconcile::recording::Recording;
use metashard_testkit::Cluster;
use parking_lot::Mutex;
use serde_json::Value;

pub(crate) use self::tally::Tally;
use self::tally::{Count, is_of_a_shard, replica_of};

/// What has been compared in one cluster.
#[derive(Debug, Default)]
pub(crate) struct Parity(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    tally: Tally,
    /// Recordings of passes that have ended.
    ended: BTreeSet<PathBuf>,
    /// Recordings of passes that have not, or never will, with their sizes.
    open: BTreeMap<PathBuf, (u64, Tally)>,
    /// How many of the requests that the proxies saw are in the tally.
    sent: usize,
    /// How far the audit log has been read.
    audited: u64,
    /// The names of requests in the audit log, of those that the proxies saw.
    audit_ids: BTreeSet<String>,
    /// Calls of the hooks of stages that have ended.
    calls: usize,
}

impl Parity {
    /// Compares what has happened in a cluster so far: what was compared in all, and what does not fit, each told once.
    ///
    /// Others may be at work meanwhile. A pass is on record before it writes, and its result after it was answered; so
    /// what was sent is looked at before the recordings for what is too much, and after them for what is missing.
    ///
    /// The stage `of` this name ends, and its hook was called so often.
    pub(crate) fn check(
        &self,
        cluster: &Cluster,
        of: &str,
        calls: usize,
    ) -> anyhow::Result<(Count, Vec<String>)> {
        let mut state = self.0.lock();
        let state = &mut *state;
        if excuses::unrecorded(of).is_none() {
            state.calls += calls;
        }
        let mut findings = state.read_audit_log(cluster)?;
        let before = cluster.sent(state.sent);
        state.sent += before.len();
        for exchange in &before {
            state.audit_ids.insert(exchange.audit_id.clone());
            state.tally.sent(exchange);
        }
        state.read_recordings(cluster)?;
        let mut late = Tally::default();
        for exchange in &cluster.sent(state.sent) {
            state.audit_ids.insert(exchange.audit_id.clone());
            late.sent(exchange);
        }
        findings.retain(|(id, _)| !state.audit_ids.contains(id));
        let mut findings: Vec<_> = findings.into_iter().map(|it| it.1).collect();
        let open = state.open.values().map(|it| &it.1);
        findings.extend(state.tally.settle(open, &late));
        let count = state.tally.count();
        findings.extend(too_few(count.passes + state.open.len(), state.calls));
        Ok((count, findings))
    }
}

/// Calls of hooks from which on it is asked how many passes were compared.
const MANY_CALLS: usize = 50;

/// Most calls of hooks that a pass makes, as a rule: the customize hook's, and those for a few revisions.
const CALLS_OF_A_PASS: usize = 4;

/// What is wrong if hooks were called and nearly no pass is there to be compared: then all this shows nothing.
fn too_few(passes: usize, calls: usize) -> Option<String> {
    (calls >= MANY_CALLS && passes * CALLS_OF_A_PASS < calls)
        .then(|| format!("{passes} passes were compared, and hooks were called {calls} times"))
}

impl State {
    /// Writes that the API server had from replicas since it was last asked, by their names in the log.
    fn read_audit_log(&mut self, cluster: &Cluster) -> anyhow::Result<Vec<(String, String)>> {
        let (lines, end) = cluster.audit_lines(self.audited)?;
        self.audited = end;
        let mut found = Vec::new();
        for line in lines.lines().filter(|line| is_of_a_shard(line)) {
            let event: Value = serde_json::from_str(line).context("read an audit event")?;
            let text = |field: &str| event[field].as_str().unwrap_or_default();
            if ["create", "update", "patch", "delete"].contains(&text("verb")) {
                let what = format!(
                    "written past the proxy: replica {}: {} {}",
                    replica_of(text("userAgent")),
                    text("verb"),
                    text("requestURI")
                );
                found.push((text("auditID").to_owned(), what));
            }
        }
        Ok(found)
    }

    fn read_recordings(&mut self, cluster: &Cluster) -> anyhow::Result<()> {
        let Ok(replicas) = fs::read_dir(cluster.recordings()) else {
            // Nothing was recorded so far.
            return Ok(());
        };
        for replica in replicas {
            for file in fs::read_dir(replica?.path())? {
                self.read_recording(file?.path())?;
            }
        }
        Ok(())
    }

    fn read_recording(&mut self, path: PathBuf) -> anyhow::Result<()> {
        if self.ended.contains(&path) {
            return Ok(());
        }
        let bytes = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        let size = bytes.len() as u64;
        let is_begun = bytes.contains(&b'\n');
        if !is_begun || self.open.get(&path).is_some_and(|it| it.0 == size) {
            return Ok(());
        }
        let recording =
            Recording::read(&bytes).with_context(|| format!("read {}", path.display()))?;
        self.open.remove(&path);
        if recording.verdict.is_some() {
            self.tally.planned(recording);
            self.ended.insert(path);
        } else {
            let mut tally = Tally::default();
            tally.planned(recording);
            self.open.insert(path, (size, tally));
        }
        Ok(())
    }
}

#[test]
fn a_run_that_compares_nearly_nothing_fails() {
    assert_eq!(too_few(0, MANY_CALLS - 1), None, "a test that is run alone");
    assert!(too_few(0, MANY_CALLS).is_some());
    assert!(too_few(100, 1000).is_some());
    assert_eq!(too_few(900, 1000), None);
}
