//! What dashboards, alerts and scripts read: metrics and log lines have Metacontroller's names.

use std::collections::BTreeSet;

use anyhow::{Context, ensure};
use metashard_testkit::{FakeHook, hook::Answer};
use serde_json::json;

use crate::support::{Stage, THING, eventually};

/// A metric, its type, and its labels, which are told from those of others by the values given here.
struct Metric {
    name: String,
    type_: &'static str,
    labels: BTreeSet<&'static str>,
    /// In the line of one of its samples.
    of: String,
}

/// What one controller has, its hook of one type among it.
fn of_controller(name: &str, url: &str) -> Vec<Metric> {
    let hook = |rest: &str, type_, labels: &[&'static str]| Metric {
        name: format!("metacontroller_sync_{rest}"),
        type_,
        labels: ["url", "controller_name", "controller_type"]
            .iter()
            .chain(labels)
            .copied()
            .collect(),
        of: format!("url=\"{url}\""),
    };
    let queue = |rest: &str, type_| Metric {
        name: format!("workqueue_{rest}"),
        type_,
        labels: ["name"].into(),
        of: format!("name=\"CompositeController-{name}\""),
    };
    vec![
        hook("requests_total", "counter", &["code", "method"]),
        hook(
            "request_duration_histogram_seconds",
            "histogram",
            &["method"],
        ),
        hook("in_flight_requests", "gauge", &[]),
        queue("depth", "gauge"),
        queue("adds_total", "counter"),
        queue("retries_total", "counter"),
        queue("queue_duration_seconds", "histogram"),
        queue("work_duration_seconds", "histogram"),
        queue("unfinished_work_seconds", "gauge"),
        queue("longest_running_processor_seconds", "gauge"),
    ]
}

/// What the process has.
fn of_process() -> Vec<Metric> {
    let metric = |name: &str, type_, labels: &[&'static str]| Metric {
        name: name.to_owned(),
        type_,
        labels: labels.iter().copied().collect(),
        of: String::new(),
    };
    let reconciler = |rest: &str, type_, labels: &[&'static str]| Metric {
        name: format!("controller_runtime_{rest}"),
        type_,
        labels: ["controller"].iter().chain(labels).copied().collect(),
        of: "controller=\"composite-metacontroller\"".to_owned(),
    };
    vec![
        reconciler("reconcile_total", "counter", &["result"]),
        reconciler("reconcile_errors_total", "counter", &[]),
        reconciler("terminal_reconcile_errors_total", "counter", &[]),
        reconciler("reconcile_panics_total", "counter", &[]),
        reconciler("reconcile_timeouts_total", "counter", &[]),
        reconciler("reconcile_time_seconds", "histogram", &[]),
        reconciler("max_concurrent_reconciles", "gauge", &[]),
        reconciler("active_workers", "gauge", &[]),
        metric(
            "rest_client_requests_total",
            "counter",
            &["code", "host", "method"],
        ),
        metric("leader_election_master_status", "gauge", &["name"]),
        metric("process_cpu_seconds_total", "counter", &[]),
        metric("process_resident_memory_bytes", "gauge", &[]),
        metric("process_open_fds", "gauge", &[]),
    ]
}

impl Metric {
    /// It is in `text`, as it has to be.
    fn is_in(&self, text: &str) -> anyhow::Result<()> {
        let Self {
            name, type_, of, ..
        } = self;
        let declared = format!("# TYPE {name} {type_}");
        ensure!(text.lines().any(|line| line == declared), "no {declared:?}");
        let sample = match *type_ {
            "histogram" => format!("{name}_count"),
            _ => name.clone(),
        };
        let line = text
            .lines()
            .find(|line| name_of(line) == sample && line.contains(of.as_str()))
            .with_context(|| format!("no sample of {sample} with {of}"))?;
        ensure!(labels_of(line) == self.labels, "{line}");
        Ok(())
    }
}

fn name_of(line: &str) -> &str {
    line.split(['{', ' ']).next().unwrap_or_default()
}

/// Names of the labels of a sample, none of whose values has a comma.
fn labels_of(line: &str) -> BTreeSet<&str> {
    let Some((_, rest)) = line.split_once('{') else {
        return BTreeSet::new();
    };
    let (labels, _) = rest.rsplit_once('}').unwrap_or_default();
    labels
        .split(',')
        .filter_map(|label| Some(label.split_once('=')?.0))
        .collect()
}

#[tokio::test]
async fn every_metric_of_metacontroller_is_there_with_its_name_type_and_labels()
-> anyhow::Result<()> {
    let stage = Stage::new("metrics").await?;
    stage.controller().apply().await?;
    stage.parent(THING, "p", json!({})).await?;
    stage.settle(THING, "p").await?;
    let mut wanted = of_controller(&stage.namespace, &stage.hook.url("/sync"));
    wanted.extend(of_process());

    eventually("every metric", async || {
        let text = stage.shared.replica.metrics().await?;
        wanted.iter().try_for_each(|metric| metric.is_in(&text))
    })
    .await
}

#[tokio::test]
async fn the_log_has_the_lines_that_people_look_for() -> anyhow::Result<()> {
    let stage = Stage::new("log").await?;

    eventually("the lines", async || {
        let log = stage.shared.replica.whole_log();
        for line in [
            "Configuration information",
            "Communication with K8s API server successful",
            "Attempting to acquire leader lease",
            "Successfully acquired lease",
        ] {
            ensure!(log.contains(line), "no {line:?}");
        }
        let configuration = log
            .lines()
            .find(|line| line.contains("Configuration information"));
        for flag in [
            "discovery-interval=",
            "cache-flush-interval=",
            "metrics-address=",
            "client-go-qps=",
            "client-go-burst=",
            "workers=",
            "events-qps=",
            "events-burst=",
            "leader-election-id=",
            "health-probe-bind-address=",
            "target-label-selector=",
            "kubeconfig=",
        ] {
            ensure!(
                configuration.is_some_and(|line| line.contains(flag)),
                "no {flag:?} in {configuration:?}"
            );
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_failed_sync_is_logged_under_its_controller_in_metacontrollers_words()
-> anyhow::Result<()> {
    let stage = Stage::with_hook(
        "log-failed",
        FakeHook::start(|_| Answer::status(500, "boom"))?,
    )
    .await?;
    stage.controller().apply().await?;
    let parent = stage.parent(THING, "p", json!({})).await?;
    stage.event(&parent, "SyncError", "boom").await?;

    let name = &stage.namespace;
    let words = format!("failed to sync Thing '{name}/p': sync hook failed for Thing {name}/p: ");
    let line = eventually("a line about it", async || {
        let log = stage.shared.replica.whole_log();
        let line = log.lines().find(|line| line.contains(&words));
        line.map(str::to_owned).context("none")
    })
    .await?;
    ensure!(line.contains(&format!("composite.{name}")), "{line}");
    ensure!(line.contains("ERROR"), "{line}");
    Ok(())
}
