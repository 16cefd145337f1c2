//! `metashard_fleet_invariant_violations_total`: what should never happen, counted where it is seen.

use std::fmt::Display;

use prometheus::{Error, IntCounterVec, Registry};
use tracing::error;

/// Counts and tells of broken invariants. Cheap to clone: all clones count together.
#[derive(Debug, Clone)]
pub struct Violations(IntCounterVec);

impl Violations {
    /// Makes the counters, which are there at 0 for each of `ids`.
    ///
    /// # Errors
    ///
    /// If the name is taken.
    pub fn register<'a>(
        registry: &Registry,
        ids: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, Error> {
        let counters = super::counter_vec(
            registry,
            "metashard_fleet_invariant_violations_total",
            "Invariants of the fleet that this replica has seen broken: a bug, or somebody's hand in a Lease or the ShardMap.",
            &["id"],
        )?;
        for id in ids {
            counters.with_label_values(&[id]);
        }
        Ok(Self(counters))
    }

    /// `who` has seen `invariant` broken.
    pub fn saw(&self, who: &str, id: &str, invariant: &dyn Display) {
        self.0.with_label_values(&[id]).inc();
        error!(
            by = who,
            "invariant {invariant} is broken: `metashardctl fleet record` keeps what led to it"
        );
    }

    /// How often `id` was seen broken.
    pub fn count(&self, id: &str) -> u64 {
        self.0.with_label_values(&[id]).get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_invariant_has_a_series_before_it_is_broken() {
        let registry = Registry::new();
        let violations = Violations::register(&registry, ["I1", "L1"]).unwrap();

        let other = violations.clone();
        other.saw("worker", "I1", &"I1 Exclusive");

        assert_eq!((violations.count("I1"), violations.count("L1")), (1, 0));
        let text = prometheus::TextEncoder::new()
            .encode_to_string(&registry.gather())
            .unwrap();
        assert!(
            text.contains(r#"metashard_fleet_invariant_violations_total{id="L1"} 0"#),
            "{text}"
        );
    }
}
