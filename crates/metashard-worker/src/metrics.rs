//! What the worker counts.

mod authority;
mod controllers;
mod queue;
mod series;

use metashard_api::names::event;
use metashard_reconcile::{sync::Outcome, write::Write};
use prometheus::Registry;

pub(crate) use self::{
    authority::AuthorityMetric,
    controllers::Controllers,
    queue::{QueueMetrics, Timings},
    series::{Families, Series},
};

/// What the worker counts.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    /// What is counted of each controller.
    pub(crate) families: Families,
    /// How controller objects are taken in.
    pub(crate) controllers: Controllers,
}

impl Metrics {
    /// Adds the worker's metrics to `registry`.
    ///
    /// # Errors
    ///
    /// When one of the names is taken there.
    pub(crate) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        Ok(Self {
            families: Families::register(registry)?,
            controllers: Controllers::register(registry)?,
        })
    }
}

impl Series {
    /// A pass has ended.
    pub(crate) fn pass_ended(&self, outcome: &Outcome) {
        self.synced(outcome.verdict.as_str());
        let fights = outcome.events.iter();
        let fights = fights
            .filter(|event| event.reason == event::HOT_LOOP)
            .count();
        if fights > 0 {
            self.fought(fights as u64);
        }
    }

    /// A pass has panicked.
    pub(crate) fn pass_panicked(&self) {
        self.synced("panicked");
    }

    /// A write was observed and not sent.
    pub(crate) fn write_observed(&self, write: &Write) {
        self.observed(write.purpose.as_str(), &write.resource.to_string());
    }
}
