//! What the open views hold, added up when someone asks.

use std::{collections::BTreeMap, sync::Weak, time::Duration};

use prometheus::{
    Error, GaugeVec, IntGaugeVec, Opts,
    core::{Collector as Collects, Desc},
    proto::MetricFamily,
};

use super::{Inner, view::ViewState};

/// Shows size, age and state of the open views, by resource.
pub(super) struct Collector {
    informers: Weak<Inner>,
    objects: IntGaugeVec,
    bytes: IntGaugeVec,
    views: IntGaugeVec,
    age: GaugeVec,
}

#[derive(Default)]
struct Sum {
    objects: usize,
    bytes: usize,
    opening: usize,
    live: usize,
    failing: usize,
    age: Duration,
}

impl Collector {
    pub(super) fn new(informers: Weak<Inner>) -> Result<Self, Error> {
        let resource = &["resource"];
        let opts = |name: &str, help: &str| Opts::new(format!("metashard_kube_{name}"), help);
        Ok(Self {
            informers,
            objects: IntGaugeVec::new(
                opts("cached_objects", "Objects held, by resource."),
                resource,
            )?,
            bytes: IntGaugeVec::new(
                opts("cached_bytes", "Bytes of the objects held, as they came."),
                resource,
            )?,
            views: IntGaugeVec::new(
                opts(
                    "views",
                    "Open views, by resource and state (opening, live, failing).",
                ),
                &["resource", "state"],
            )?,
            age: GaugeVec::new(
                opts(
                    "watch_age_seconds",
                    "Longest time since a view of the resource heard from the API server.",
                ),
                resource,
            )?,
        })
    }

    fn update(&self) {
        for gauge in [&self.objects, &self.bytes, &self.views] {
            gauge.reset();
        }
        self.age.reset();
        for (resource, sum) in self.sums() {
            let resource = resource.as_str();
            set(&self.objects, &[resource], sum.objects);
            set(&self.bytes, &[resource], sum.bytes);
            set(&self.views, &[resource, "opening"], sum.opening);
            set(&self.views, &[resource, "live"], sum.live);
            set(&self.views, &[resource, "failing"], sum.failing);
            self.age
                .with_label_values(&[resource])
                .set(sum.age.as_secs_f64());
        }
    }

    fn sums(&self) -> BTreeMap<String, Sum> {
        let mut sums = BTreeMap::<String, Sum>::new();
        let Some(informers) = self.informers.upgrade() else {
            return sums;
        };
        let now = informers.clients.clock().now().mono;
        for (key, opened) in informers.open.lock().iter() {
            let sum = sums.entry(key.resource.to_string()).or_default();
            let store = opened.shared.store();
            sum.objects += store.len();
            sum.bytes += store.bytes();
            sum.age = sum.age.max(opened.shared.age(now));
            match *opened.shared.state().borrow() {
                ViewState::Opening => sum.opening += 1,
                ViewState::Live => sum.live += 1,
                ViewState::Failing(_) => sum.failing += 1,
            }
        }
        sums
    }
}

fn set(gauge: &IntGaugeVec, labels: &[&str], value: usize) {
    gauge
        .with_label_values(labels)
        .set(i64::try_from(value).unwrap_or(i64::MAX));
}

impl Collects for Collector {
    fn desc(&self) -> Vec<&Desc> {
        [
            self.objects.desc(),
            self.bytes.desc(),
            self.views.desc(),
            self.age.desc(),
        ]
        .concat()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.update();
        [
            self.objects.collect(),
            self.bytes.collect(),
            self.views.collect(),
            self.age.collect(),
        ]
        .concat()
    }
}
