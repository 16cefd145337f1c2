//! What the worker counts.

use std::sync::{Arc, Weak};

use metashard_reconcile::sync::Outcome;
use parking_lot::Mutex;
use prometheus::{
    HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry,
    core::{Collector, Desc},
    proto::MetricFamily,
};

use crate::{dispatch::Dispatcher, instance::Instance};

/// Buckets of times between 1 ms and 100 s.
const SECONDS: [f64; 11] = [
    0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 50.0, 100.0,
];

/// What the worker counts.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    syncs: IntCounterVec,
    seconds: HistogramVec,
    spared: IntCounterVec,
}

impl Metrics {
    /// Adds the worker's metrics to `registry`.
    ///
    /// # Errors
    ///
    /// When one of the names is taken there.
    pub(crate) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let metrics = Self {
            syncs: IntCounterVec::new(
                Opts::new(
                    "metashard_worker_syncs_total",
                    "Passes over a parent, by how they ended.",
                ),
                &["controller", "verdict"],
            )?,
            seconds: HistogramVec::new(
                HistogramOpts::new(
                    "metashard_worker_sync_seconds",
                    "Time of one pass over a parent, hook included.",
                )
                .buckets(SECONDS.to_vec()),
                &["controller"],
            )?,
            spared: IntCounterVec::new(
                Opts::new(
                    "metashard_worker_hook_calls_spared_total",
                    "Hook calls not made because nothing had changed but the status that the hook had asked for.",
                ),
                &["controller"],
            )?,
        };
        registry.register(Box::new(metrics.syncs.clone()))?;
        registry.register(Box::new(metrics.seconds.clone()))?;
        registry.register(Box::new(metrics.spared.clone()))?;
        Ok(metrics)
    }

    /// A pass has ended.
    pub(crate) fn synced(&self, instance: &Instance, outcome: &Outcome, seconds: f64) {
        let controller = instance.controller.name.as_str();
        self.syncs
            .with_label_values(&[controller, outcome.verdict.as_str()])
            .inc();
        self.seconds
            .with_label_values(&[controller])
            .observe(seconds);
    }

    /// A hook call was spared.
    pub(crate) fn spared(&self, instance: &Instance) {
        self.spared
            .with_label_values(&[instance.controller.name.as_str()])
            .inc();
    }
}

/// The peer's metrics of work queues, read from the queue when they are asked for.
#[derive(Debug)]
pub(crate) struct QueueMetrics {
    dispatcher: Weak<Dispatcher>,
    gauges: Mutex<Gauges>,
}

#[derive(Debug)]
struct Gauges {
    depth: IntGaugeVec,
    adds: IntGaugeVec,
    retries: IntGaugeVec,
    in_progress: IntGaugeVec,
}

impl QueueMetrics {
    /// Reads from `dispatcher` as long as it lives.
    ///
    /// # Errors
    ///
    /// Never with these names; the metrics library cannot know that.
    pub(crate) fn new(dispatcher: &Arc<Dispatcher>) -> Result<Self, prometheus::Error> {
        let gauge = |name: &str, help: &str| IntGaugeVec::new(Opts::new(name, help), &["name"]);
        Ok(Self {
            dispatcher: Arc::downgrade(dispatcher),
            gauges: Mutex::new(Gauges {
                depth: gauge("workqueue_depth", "Keys that wait.")?,
                adds: gauge("workqueue_adds_total", "Keys made ready.")?,
                retries: gauge("workqueue_retries_total", "Failed attempts.")?,
                in_progress: gauge("workqueue_in_progress", "Keys in progress.")?,
            }),
        })
    }
}

impl Gauges {
    fn all(&self) -> [&IntGaugeVec; 4] {
        [&self.depth, &self.adds, &self.retries, &self.in_progress]
    }
}

impl Collector for QueueMetrics {
    fn desc(&self) -> Vec<&Desc> {
        Vec::new()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let Some(dispatcher) = self.dispatcher.upgrade() else {
            return Vec::new();
        };
        let gauges = self.gauges.lock();
        for gauge in gauges.all() {
            gauge.reset();
        }
        for (instance, counts) in dispatcher.all_counts() {
            let name = format!("{}-{}", instance.controller.kind, instance.controller.name);
            let set = |gauge: &IntGaugeVec, value: u64| {
                let value = i64::try_from(value).unwrap_or(i64::MAX);
                gauge.with_label_values(&[name.as_str()]).set(value);
            };
            set(&gauges.depth, counts.depth as u64);
            set(&gauges.adds, counts.adds_total);
            set(&gauges.retries, counts.retries_total);
            set(&gauges.in_progress, u64::from(counts.in_progress));
        }
        gauges
            .all()
            .iter()
            .flat_map(|gauge| gauge.collect())
            .collect()
    }
}
