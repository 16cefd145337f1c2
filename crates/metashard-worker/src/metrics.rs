//! What the worker counts.

mod controllers;
mod queue;

use metashard_api::names::event;
use metashard_reconcile::{sync::Outcome, write::Write};
use prometheus::{IntCounterVec, Opts, Registry};

use crate::instance::Instance;

pub(crate) use self::{
    controllers::Controllers,
    queue::{QueueMetrics, Timings},
};

/// What the worker counts.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    syncs: IntCounterVec,
    spared: IntCounterVec,
    /// How controller objects are taken in.
    pub(crate) controllers: Controllers,
    observed: IntCounterVec,
    fights: IntCounterVec,
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
            spared: IntCounterVec::new(
                Opts::new(
                    "metashard_worker_hook_calls_spared_total",
                    "Hook calls not made because nothing had changed but the status that the hook had asked for.",
                ),
                &["controller"],
            )?,
            controllers: Controllers::register(registry)?,
            observed: IntCounterVec::new(
                Opts::new(
                    "metashard_observed_writes_total",
                    "Writes that would have been sent if writes were not only observed.",
                ),
                &["controller", "purpose", "resource"],
            )?,
            fights: IntCounterVec::new(
                Opts::new(
                    "metashard_worker_hot_loops_total",
                    "Times that a child was let be because somebody else changes it each time it is put right.",
                ),
                &["controller"],
            )?,
        };
        registry.register(Box::new(metrics.observed.clone()))?;
        registry.register(Box::new(metrics.fights.clone()))?;
        registry.register(Box::new(metrics.syncs.clone()))?;
        registry.register(Box::new(metrics.spared.clone()))?;
        Ok(metrics)
    }

    /// A pass has ended.
    pub(crate) fn synced(&self, instance: &Instance, outcome: &Outcome) {
        let controller = instance.controller.name.as_str();
        self.syncs
            .with_label_values(&[controller, outcome.verdict.as_str()])
            .inc();
        let fights = outcome.events.iter();
        let fights = fights
            .filter(|event| event.reason == event::HOT_LOOP)
            .count();
        if fights > 0 {
            let counter = self.fights.with_label_values(&[controller]);
            counter.inc_by(fights as u64);
        }
    }

    /// A pass has panicked.
    pub(crate) fn panicked(&self, instance: &Instance) {
        self.syncs
            .with_label_values(&[instance.controller.name.as_str(), "panicked"])
            .inc();
    }

    /// A write was observed and not sent.
    pub(crate) fn observed(&self, instance: &Instance, write: &Write) {
        let resource = write.resource.to_string();
        self.observed
            .with_label_values(&[
                instance.controller.name.as_str(),
                write.purpose.as_str(),
                resource.as_str(),
            ])
            .inc();
    }

    /// A hook call was spared.
    pub(crate) fn spared(&self, instance: &Instance) {
        self.spared
            .with_label_values(&[instance.controller.name.as_str()])
            .inc();
    }
}
