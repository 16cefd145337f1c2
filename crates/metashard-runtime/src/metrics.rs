//! Making metrics in a registry that is passed by hand, and the metrics of the process itself.
//!
//! Each crate that has metrics has a `Metrics` with `Metrics::register(&Registry) -> Result<Metrics, prometheus::Error>`,
//! built from the functions here. An error there means that a name is malformed or taken: a mistake in the program.

mod live;
mod violations;

use parking_lot::Mutex;
use prometheus::{
    Error, Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry,
    core::{Collector, Desc},
    proto::MetricFamily,
};

pub use self::{live::Live, violations::Violations};
use crate::{build_info, task};

/// Makes a counter.
///
/// # Errors
///
/// If `name` is malformed or taken.
pub fn counter(registry: &Registry, name: &str, help: &str) -> Result<IntCounter, Error> {
    add(registry, IntCounter::new(name, help)?)
}

/// Makes a family of counters with `labels`.
///
/// # Errors
///
/// If a name is malformed or taken.
pub fn counter_vec(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> Result<IntCounterVec, Error> {
    add(registry, IntCounterVec::new(Opts::new(name, help), labels)?)
}

/// Makes a gauge.
///
/// # Errors
///
/// If `name` is malformed or taken.
pub fn gauge(registry: &Registry, name: &str, help: &str) -> Result<IntGauge, Error> {
    add(registry, IntGauge::new(name, help)?)
}

/// Makes a gauge that need not be whole.
///
/// # Errors
///
/// If `name` is malformed or taken.
pub fn float_gauge(registry: &Registry, name: &str, help: &str) -> Result<Gauge, Error> {
    add(registry, Gauge::new(name, help)?)
}

/// Makes a family of gauges with `labels`.
///
/// # Errors
///
/// If a name is malformed or taken.
pub fn gauge_vec(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> Result<IntGaugeVec, Error> {
    add(registry, IntGaugeVec::new(Opts::new(name, help), labels)?)
}

/// Makes a histogram with upper bounds `buckets`, in the unit that `name` ends with.
///
/// # Errors
///
/// If `name` is malformed or taken, or `buckets` do not grow.
pub fn histogram(
    registry: &Registry,
    name: &str,
    help: &str,
    buckets: &[f64],
) -> Result<Histogram, Error> {
    let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
    add(registry, Histogram::with_opts(options)?)
}

/// Makes a family of histograms with `labels` and upper bounds `buckets`, in the unit that `name` ends with.
///
/// # Errors
///
/// If a name is malformed or taken, or `buckets` do not grow.
pub fn histogram_vec(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
    buckets: &[f64],
) -> Result<HistogramVec, Error> {
    let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
    add(registry, HistogramVec::new(options, labels)?)
}

/// Registers what is about the process as a whole: `process_*` (CPU, memory, open files), `metashard_build_info`
/// and `metashard_runtime_task_panics_total`.
///
/// # Errors
///
/// If it was registered before.
pub fn register_process(registry: &Registry) -> Result<(), Error> {
    #[cfg(target_os = "linux")]
    registry.register(Box::new(
        prometheus::process_collector::ProcessCollector::for_self(),
    ))?;
    let build = gauge_vec(
        registry,
        "metashard_build_info",
        "Always 1; the labels say which build runs.",
        &["version", "revision"],
    )?;
    build
        .with_label_values(&[build_info::VERSION, build_info::REVISION])
        .set(1);
    registry.register(Box::new(TaskPanics::new()?))
}

/// Shows the process-wide count of panics.
struct TaskPanics {
    shown: IntCounter,
    /// Held while `shown` catches up: two scrapes at once must not both add the difference.
    catch_up: Mutex<()>,
}

impl TaskPanics {
    fn new() -> Result<Self, Error> {
        Ok(Self {
            shown: IntCounter::new(
                "metashard_runtime_task_panics_total",
                "Tasks that panicked since the process began.",
            )?,
            catch_up: Mutex::new(()),
        })
    }
}

impl Collector for TaskPanics {
    fn desc(&self) -> Vec<&Desc> {
        self.shown.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let _catching_up = self.catch_up.lock();
        self.shown
            .inc_by(task::panics().saturating_sub(self.shown.get()));
        self.shown.collect()
    }
}

fn add<C: Collector + Clone + 'static>(registry: &Registry, metric: C) -> Result<C, Error> {
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

#[cfg(test)]
mod tests {
    use prometheus::TextEncoder;

    use super::*;

    #[test]
    fn process_metrics_name_the_build_and_count_panics() {
        let registry = Registry::new();

        register_process(&registry).unwrap();

        let text = TextEncoder::new()
            .encode_to_string(&registry.gather())
            .unwrap();
        assert!(
            text.contains(&format!("version=\"{}\"", build_info::VERSION)),
            "{text}"
        );
        assert!(
            text.contains("metashard_runtime_task_panics_total"),
            "{text}"
        );
        #[cfg(target_os = "linux")]
        assert!(text.contains("process_resident_memory_bytes"), "{text}");
    }

    #[test]
    fn name_is_taken_once() {
        let registry = Registry::new();
        counter(&registry, "metashard_test_total", "Help.").unwrap();

        assert!(counter(&registry, "metashard_test_total", "Help.").is_err());
    }
}
