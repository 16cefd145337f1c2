//! What is counted of one controller: one set of series for each, which goes when the controller is run here no more.

use std::{fmt, sync::Arc};

use metashard_api::id::ControllerKind;
use metashard_runtime::metrics::{Live, counter_vec};
use parking_lot::Mutex;
use prometheus::{IntCounter, IntCounterVec, Registry};

/// The metrics that have series for each controller. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Families(Arc<Shared>);

/// Kind and name of a controller: a composite and a decorator may have the same name.
type Key = (ControllerKind, Box<str>);

/// A family, and the values of the labels after those of the controller.
type Counted = (Family, Box<[Box<str>]>, IntCounter);

/// One of the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Syncs,
    Spared,
    Observed,
    Fights,
}

#[derive(Debug)]
struct Shared {
    syncs: IntCounterVec,
    spared: IntCounterVec,
    observed: IntCounterVec,
    fights: IntCounterVec,
    live: Live<Key, Series>,
}

/// The series of one controller. Dropping the last handle takes them out of the registry.
pub(crate) struct Series {
    key: Key,
    shared: Arc<Shared>,
    /// Those that have been needed, which are few.
    counters: Mutex<Vec<Counted>>,
}

impl Families {
    /// Makes them in `registry`.
    ///
    /// # Errors
    ///
    /// If a name is taken.
    pub(crate) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let counter = |name, help, more: &[&str]| {
            let labels = [&["controller", "controller_type"], more].concat();
            counter_vec(registry, name, help, &labels)
        };
        Ok(Self(Arc::new(Shared {
            syncs: counter(
                "metashard_worker_syncs_total",
                "Passes over a parent, by how they ended.",
                &["verdict"],
            )?,
            spared: counter(
                "metashard_worker_hook_calls_spared_total",
                "Hook calls not made because nothing had changed but the status that the hook had asked for.",
                &[],
            )?,
            observed: counter(
                "metashard_observed_writes_total",
                "Writes that would have been sent if writes were not only observed.",
                &["purpose", "resource"],
            )?,
            fights: counter(
                "metashard_worker_hot_loops_total",
                "Times that a child was let be because somebody else changes it each time it is put right.",
                &[],
            )?,
            live: Live::default(),
        })))
    }

    /// The series of a controller, shared with whoever has them already.
    pub(crate) fn series(&self, kind: ControllerKind, name: &str) -> Arc<Series> {
        self.0.live.get((kind, name.into()), |key| Series {
            key,
            shared: Arc::clone(&self.0),
            counters: Mutex::default(),
        })
    }
}

impl Series {
    /// A pass has ended so.
    pub(super) fn synced(&self, verdict: &str) {
        self.count(Family::Syncs, &[verdict], 1);
    }

    /// A hook call was spared.
    pub(crate) fn spared(&self) {
        self.count(Family::Spared, &[], 1);
    }

    /// A write was observed and not sent.
    pub(super) fn observed(&self, purpose: &str, resource: &str) {
        self.count(Family::Observed, &[purpose, resource], 1);
    }

    /// So many children were let be.
    pub(super) fn fought(&self, count: u64) {
        self.count(Family::Fights, &[], count);
    }

    fn count(&self, family: Family, more: &[&str], by: u64) {
        let mut counters = self.counters.lock();
        let known =
            |it: &&Counted| it.0 == family && it.1.iter().map(|it| &**it).eq(more.iter().copied());
        if let Some((.., counter)) = counters.iter().find(known) {
            counter.inc_by(by);
            return;
        }
        let counter = self.family(family).with_label_values(&self.labels(more));
        counter.inc_by(by);
        let more = more.iter().map(|it| Box::from(*it)).collect();
        counters.push((family, more, counter));
    }

    fn labels<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let (kind, name) = &self.key;
        [&[&**name, kind.as_str()], more].concat()
    }

    fn family(&self, family: Family) -> &IntCounterVec {
        match family {
            Family::Syncs => &self.shared.syncs,
            Family::Spared => &self.shared.spared,
            Family::Observed => &self.shared.observed,
            Family::Fights => &self.shared.fights,
        }
    }

    fn remove(&self) {
        for (family, more, _) in &*self.counters.lock() {
            let more: Vec<_> = more.iter().map(|it| &**it).collect();
            // It is there, as it was counted.
            drop(
                self.family(*family)
                    .remove_label_values(&self.labels(&more)),
            );
        }
    }
}

impl Drop for Series {
    fn drop(&mut self) {
        self.shared.live.leave(&self.key, self, || self.remove());
    }
}

impl fmt::Debug for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Series").field(&self.key).finish()
    }
}

#[cfg(test)]
mod tests {
    use prometheus::TextEncoder;

    use super::*;

    fn text(registry: &Registry) -> String {
        TextEncoder::new()
            .encode_to_string(&registry.gather())
            .unwrap()
    }

    #[test]
    fn controllers_of_both_kinds_with_one_name_are_counted_apart_and_each_leaves_alone() {
        let registry = Registry::new();
        let families = Families::register(&registry).unwrap();
        let composite = families.series(ControllerKind::Composite, "web");
        let decorator = families.series(ControllerKind::Decorator, "web");
        for series in [&composite, &decorator, &composite] {
            series.synced("changed");
            series.spared();
            series.observed("create child", "v1/pods");
            series.fought(2);
        }
        let of = |kind| format!("controller=\"web\",controller_type=\"{kind}\"");

        let both = text(&registry);
        for line in [
            format!(
                "metashard_worker_syncs_total{{{},verdict=\"changed\"}} 2",
                of("CompositeController")
            ),
            format!(
                "metashard_worker_hot_loops_total{{{}}} 2",
                of("DecoratorController")
            ),
        ] {
            assert!(
                both.lines().any(|it| it == line),
                "{line}\nis not in\n{both}"
            );
        }
        drop(composite);

        let one = text(&registry);
        assert!(!one.contains("CompositeController"), "{one}");
        assert_eq!(one.matches("DecoratorController").count(), 4, "{one}");
    }

    #[test]
    fn a_changed_spec_counts_on() {
        let registry = Registry::new();
        let families = Families::register(&registry).unwrap();
        let before = families.series(ControllerKind::Composite, "web");
        before.synced("changed");
        let after = families.series(ControllerKind::Composite, "web");

        drop(before);
        after.synced("changed");

        let text = text(&registry);
        assert!(text.contains("verdict=\"changed\"} 2"), "{text}");
    }
}
