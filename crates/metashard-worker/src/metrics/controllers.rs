//! Metacontroller's metrics of how controller objects are taken in, one set for each of their kinds.

use metashard_api::id::ControllerKind;
use metashard_runtime::metrics::{counter_vec, gauge_vec, histogram_vec};
use prometheus::{HistogramVec, IntCounterVec, Registry};

/// How a controller object can be taken in.
const RESULTS: [&str; 4] = ["error", "requeue", "requeue_after", "success"];

const SECONDS: [f64; 8] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0];

/// Counts how controller objects are taken in.
#[derive(Debug, Clone)]
pub(crate) struct Controllers {
    total: IntCounterVec,
    errors: IntCounterVec,
    seconds: HistogramVec,
}

/// The name that Metacontroller's reconciler of this kind has.
const fn reconciler(kind: ControllerKind) -> &'static str {
    match kind {
        ControllerKind::Composite => "composite-metacontroller",
        ControllerKind::Decorator => "decorator-metacontroller",
    }
}

impl Controllers {
    /// Makes them in `registry`, all at zero.
    ///
    /// # Errors
    ///
    /// If a name is taken.
    pub(crate) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let name = |rest: &str| format!("controller_runtime_{rest}");
        let counter =
            |rest: &str, help: &str| counter_vec(registry, &name(rest), help, &["controller"]);
        let metrics = Self {
            total: counter_vec(
                registry,
                &name("reconcile_total"),
                "Times that a controller object was taken in, by how that ended.",
                &["controller", "result"],
            )?,
            errors: counter(
                "reconcile_errors_total",
                "Controller objects that were refused.",
            )?,
            seconds: histogram_vec(
                registry,
                &name("reconcile_time_seconds"),
                "Time to take in a controller object.",
                &["controller"],
                &SECONDS,
            )?,
        };
        let never = [
            counter(
                "terminal_reconcile_errors_total",
                "Always 0: what is refused is looked at again.",
            )?,
            counter(
                "reconcile_panics_total",
                "Always 0: see metashard_runtime_task_panics_total.",
            )?,
            counter("reconcile_timeouts_total", "Always 0: no time-out is set.")?,
        ];
        let workers = gauge_vec(
            registry,
            &name("max_concurrent_reconciles"),
            "Always 1: controller objects are taken in one after the other.",
            &["controller"],
        )?;
        let active = gauge_vec(
            registry,
            &name("active_workers"),
            "Always 0 at the moment of a scrape: see workqueue_in_progress for syncs.",
            &["controller"],
        )?;
        for kind in [ControllerKind::Composite, ControllerKind::Decorator] {
            let controller = [reconciler(kind)];
            for counter in never.iter().chain([&metrics.errors]) {
                counter.with_label_values(&controller);
            }
            for result in RESULTS {
                metrics.total.with_label_values(&[controller[0], result]);
            }
            metrics.seconds.with_label_values(&controller);
            workers.with_label_values(&controller).set(1);
            active.with_label_values(&controller).set(0);
        }
        Ok(metrics)
    }

    /// A controller object was taken in, or refused.
    pub(crate) fn taken_in(&self, kind: ControllerKind, accepted: bool, seconds: f64) {
        let controller = reconciler(kind);
        let result = if accepted { "success" } else { "error" };
        self.total.with_label_values(&[controller, result]).inc();
        if !accepted {
            self.errors.with_label_values(&[controller]).inc();
        }
        self.seconds
            .with_label_values(&[controller])
            .observe(seconds);
    }
}

#[cfg(test)]
mod tests {
    use prometheus::TextEncoder;

    use super::*;

    #[test]
    fn names_types_and_labels_are_those_of_controller_runtime() {
        let registry = Registry::new();
        let metrics = Controllers::register(&registry).unwrap();

        metrics.taken_in(ControllerKind::Composite, true, 0.002);
        metrics.taken_in(ControllerKind::Decorator, false, 0.002);

        let text = TextEncoder::new()
            .encode_to_string(&registry.gather())
            .unwrap();
        for line in [
            "# TYPE controller_runtime_reconcile_total counter",
            "controller_runtime_reconcile_total{controller=\"composite-metacontroller\",result=\"success\"} 1",
            "controller_runtime_reconcile_total{controller=\"composite-metacontroller\",result=\"requeue_after\"} 0",
            "controller_runtime_reconcile_total{controller=\"decorator-metacontroller\",result=\"error\"} 1",
            "controller_runtime_reconcile_errors_total{controller=\"composite-metacontroller\"} 0",
            "controller_runtime_reconcile_errors_total{controller=\"decorator-metacontroller\"} 1",
            "controller_runtime_terminal_reconcile_errors_total{controller=\"composite-metacontroller\"} 0",
            "controller_runtime_reconcile_panics_total{controller=\"composite-metacontroller\"} 0",
            "controller_runtime_reconcile_timeouts_total{controller=\"composite-metacontroller\"} 0",
            "# TYPE controller_runtime_reconcile_time_seconds histogram",
            "controller_runtime_reconcile_time_seconds_count{controller=\"composite-metacontroller\"} 1",
            "# TYPE controller_runtime_max_concurrent_reconciles gauge",
            "controller_runtime_max_concurrent_reconciles{controller=\"composite-metacontroller\"} 1",
            "controller_runtime_active_workers{controller=\"composite-metacontroller\"} 0",
        ] {
            assert!(
                text.lines().any(|it| it == line),
                "{line}\nis not in\n{text}"
            );
        }
    }
}
