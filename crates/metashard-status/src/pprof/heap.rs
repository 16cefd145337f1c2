//! `/debug/pprof/heap`: what memory is used for.
//!
//! It is no record of allocations: the caches count what they hold, by resource, and the rest is the rest of the process.

use std::collections::BTreeMap;

use prometheus::proto::MetricFamily;

use super::profile::Profile;

/// The metrics that the accounts are made of.
const OBJECTS: &str = "metashard_kube_cached_objects";
const BYTES: &str = "metashard_kube_cached_bytes";
const RESIDENT: &str = "process_resident_memory_bytes";

/// Accounts of memory, from the metrics of the caches and of the process.
pub(super) fn profile_of(families: &[MetricFamily]) -> Profile {
    let (objects, bytes) = (by_resource(families, OBJECTS), by_resource(families, BYTES));
    let mut profile = Profile::new([("inuse_objects", "count"), ("inuse_space", "bytes")]);
    for (resource, bytes) in &bytes {
        let objects = objects.get(resource).copied().unwrap_or_default();
        profile.add(&[resource.as_str(), "cached objects"], [objects, *bytes]);
    }
    let resident: u64 = by_resource(families, RESIDENT).into_values().sum();
    let rest = resident.saturating_sub(bytes.into_values().sum());
    profile.add(&["everything else"], [0, rest]);
    profile
}

/// The values of a gauge by its first label.
fn by_resource(families: &[MetricFamily], name: &str) -> BTreeMap<String, u64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "counts and sizes are not negative, and a float holds them"
    )]
    let value = |value: f64| value as u64;
    families
        .iter()
        .filter(|family| family.name() == name)
        .flat_map(MetricFamily::get_metric)
        .map(|metric| {
            let label = metric.get_label().first();
            let resource = label.map(|label| label.value().to_owned());
            (
                resource.unwrap_or_default(),
                value(metric.get_gauge().get_value()),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use metashard_runtime::metrics::{gauge, gauge_vec};
    use prometheus::Registry;

    use super::*;

    #[test]
    fn memory_is_accounted_for_by_resource_and_the_rest_is_named() {
        let registry = Registry::new();
        for (name, value) in [(OBJECTS, 2), (BYTES, 300)] {
            let family = gauge_vec(&registry, name, "x", &["resource"]).unwrap();
            family.with_label_values(&["v1/configmaps"]).set(value);
        }
        gauge(&registry, RESIDENT, "x").unwrap().set(1000);

        let profile = profile_of(&registry.gather());

        let mut expected = Profile::new([("inuse_objects", "count"), ("inuse_space", "bytes")]);
        expected.add(&["v1/configmaps", "cached objects"], [2, 300]);
        expected.add(&["everything else"], [0, 700]);
        assert_eq!(profile, expected);
    }
}
