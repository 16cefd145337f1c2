//! The metric that tells when a hook's certificates end.

use std::{
    fmt,
    sync::atomic::{AtomicBool, Ordering},
};

use metashard_runtime::metrics::gauge_vec;
use prometheus::{IntGaugeVec, Registry};

use crate::security::Role;

const ROLES: [Role; 2] = [Role::Authority, Role::Client];

/// Days left to certificates, by controller, hook and role.
#[derive(Debug, Clone)]
pub(crate) struct Gauges(IntGaugeVec);

/// The series of one hook of one controller; gone when it is dropped.
pub(crate) struct DaysLeft {
    gauges: IntGaugeVec,
    labels: [String; 3],
    /// By role: whether there is a series.
    shown: [AtomicBool; 2],
}

impl Gauges {
    pub(crate) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        gauge_vec(
            registry,
            "metashard_hook_certificate_days_left",
            "Days until a certificate that a hook is called with ends, by its role (ca, client).",
            &["controller_name", "controller_type", "hook", "certificate"],
        )
        .map(Self)
    }

    /// The series of one hook, none of which is shown yet. `labels`: name and kind of the controller, and the hook.
    pub(crate) fn days_left(&self, labels: [&str; 3]) -> DaysLeft {
        DaysLeft {
            gauges: self.0.clone(),
            labels: labels.map(str::to_owned),
            shown: Default::default(),
        }
    }
}

impl DaysLeft {
    pub(crate) fn show(&self, role: Role, days: i64) {
        self.gauges.with_label_values(&self.labels(role)).set(days);
        if let Some(shown) = self.shown.get(role as usize) {
            shown.store(true, Ordering::Relaxed);
        }
    }

    fn labels(&self, role: Role) -> [&str; 4] {
        let [name, kind, hook] = &self.labels;
        [name, kind, hook, role.as_str()]
    }
}

impl Drop for DaysLeft {
    fn drop(&mut self) {
        for role in ROLES {
            let shown = self.shown.get(role as usize);
            if shown.is_some_and(|shown| shown.load(Ordering::Relaxed)) {
                // A successor shows its own again.
                drop(self.gauges.remove_label_values(&self.labels(role)));
            }
        }
    }
}

impl fmt::Debug for DaysLeft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DaysLeft").field(&self.labels).finish()
    }
}
