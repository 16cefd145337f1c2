//! Between the Lease object and what the machines see of it.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference},
    jiff::{Timestamp, Unit},
};
use metashard_api::names;
use metashard_fleet::record::{About, Holder, Record};

/// Taken for a Lease that names no duration, which ours always do: client-go's default.
const UNNAMED_DURATION: Duration = Duration::from_secs(15);

/// A Lease without content.
pub(super) fn fresh(name: &str, namespace: &str, owner: Option<&OwnerReference>) -> Lease {
    Lease {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            owner_references: owner.map(|owner| vec![owner.clone()]),
            ..ObjectMeta::default()
        },
        spec: None,
    }
}

/// Whether `lease` is the very state that `record` is of.
pub(super) fn is_state(lease: &Lease, record: &Record) -> bool {
    lease.metadata.uid.as_ref() == Some(&record.uid)
        && lease.metadata.resource_version.as_ref() == Some(&record.resource_version)
}

/// What the machines see of a Lease.
pub(super) fn to_record(lease: &Lease) -> Record {
    let spec = lease.spec.clone().unwrap_or_default();
    let annotation = |name: &str| {
        let annotations = lease.metadata.annotations.as_ref()?;
        annotations.get(name).cloned()
    };
    let seconds = spec
        .lease_duration_seconds
        .and_then(|seconds| u64::try_from(seconds).ok());
    let number = |name| annotation(name).and_then(|text| text.parse().ok());
    Record {
        uid: lease.metadata.uid.clone().unwrap_or_default(),
        resource_version: lease.metadata.resource_version.clone().unwrap_or_default(),
        holder: Holder::parse(spec.holder_identity.as_deref()),
        duration: seconds.map_or(UNNAMED_DURATION, Duration::from_secs),
        attempt: number(names::ANNOTATION_ATTEMPT).unwrap_or(0),
        about: About {
            address: annotation(names::ANNOTATION_ADDRESS).unwrap_or_default(),
            version: annotation(names::ANNOTATION_VERSION).unwrap_or_default(),
            zone: annotation(names::ANNOTATION_ZONE).unwrap_or_default(),
            capacity: number(names::ANNOTATION_CAPACITY)
                .and_then(|capacity| u32::try_from(capacity).ok())
                .unwrap_or(0),
        },
    }
}

/// `base` with the content of `record`: the body of a write at `wall`, which only people read the time stamps of.
pub(super) fn to_lease(base: &Lease, record: &Record, wall: SystemTime) -> Lease {
    let mut lease = base.clone();
    let present = |text: &String| !text.is_empty();
    lease.metadata.uid = Some(record.uid.clone()).filter(present);
    lease.metadata.resource_version = Some(record.resource_version.clone()).filter(present);
    // Absent, they stay as they are.
    lease.metadata.managed_fields = None;
    describe(&mut lease.metadata, record);
    let old = lease.spec.take().unwrap_or_default();
    let now = Timestamp::try_from(wall)
        .ok()
        .and_then(|now| now.round(Unit::Microsecond).ok())
        .map(MicroTime);
    let holder = record.holder.to_text();
    let is_same = old.holder_identity.as_deref() == Some(&*holder);
    lease.spec = Some(LeaseSpec {
        acquire_time: if is_same {
            old.acquire_time.or_else(|| now.clone())
        } else {
            now.clone()
        },
        lease_transitions: match old.holder_identity {
            Some(_) if !is_same => Some(old.lease_transitions.unwrap_or(0).saturating_add(1)),
            _ => old.lease_transitions.or(Some(0)),
        },
        holder_identity: Some(holder),
        lease_duration_seconds: Some(
            i32::try_from(record.duration.as_secs().max(1)).unwrap_or(i32::MAX),
        ),
        renew_time: now,
        preferred_holder: old.preferred_holder,
        strategy: old.strategy,
    });
    lease
}

fn describe(metadata: &mut ObjectMeta, record: &Record) {
    let name = metadata.name.as_deref().unwrap_or_default();
    let role = [
        ("worker", names::WORKER_LEASE_PREFIX),
        ("candidate", names::CANDIDATE_LEASE_PREFIX),
    ]
    .into_iter()
    .find(|(_, prefix)| name.starts_with(prefix));
    let mut labels = metadata.labels.take().unwrap_or_default();
    if let Some((role, _)) = role {
        labels.insert(names::LABEL_ROLE.to_owned(), role.to_owned());
    }
    if let Holder::Member(replica, _) = &record.holder {
        set(
            &mut labels,
            names::LABEL_REPLICA,
            label_value(replica.as_str()),
        );
    }
    metadata.labels = Some(labels);
    let about = &record.about;
    let annotations = metadata.annotations.get_or_insert_default();
    set(
        annotations,
        names::ANNOTATION_ATTEMPT,
        record.attempt.to_string(),
    );
    set(
        annotations,
        names::ANNOTATION_ADDRESS,
        about.address.clone(),
    );
    set(
        annotations,
        names::ANNOTATION_VERSION,
        about.version.clone(),
    );
    set(annotations, names::ANNOTATION_ZONE, about.zone.clone());
    let capacity = if about.capacity == 0 {
        String::new()
    } else {
        about.capacity.to_string()
    };
    set(annotations, names::ANNOTATION_CAPACITY, capacity);
}

/// Sets a value; an empty one is removed.
fn set(map: &mut BTreeMap<String, String>, key: &str, value: String) {
    if value.is_empty() {
        map.remove(key);
    } else {
        map.insert(key.to_owned(), value);
    }
}

/// The longest start of `text` that the API server takes as a label's value; empty if there is none.
fn label_value(text: &str) -> String {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let cut: String = text
        .chars()
        .take(63)
        .take_while(|&c| is_allowed(c))
        .collect();
    cut.trim_matches(|c: char| !c.is_ascii_alphanumeric())
        .to_owned()
}

#[cfg(test)]
mod tests {
    use metashard_api::id::{Incarnation, ReplicaId};

    use super::*;

    const INCARNATION: &str = "6f1c7a52-9a0e-4b5e-8f54-0d7c3b2a1e90";

    fn record() -> Record {
        Record {
            uid: "u".to_owned(),
            resource_version: "7".to_owned(),
            holder: Holder::Member(ReplicaId::new("replica-1"), Incarnation::new(INCARNATION)),
            duration: Duration::from_secs(4),
            attempt: 12,
            about: About {
                address: "10.0.0.1:9443".to_owned(),
                version: "0.1.0".to_owned(),
                zone: String::new(),
                capacity: 150,
            },
        }
    }

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn a_record_survives_the_way_through_a_lease() {
        let lease = to_lease(
            &fresh("metashard-worker-x", "system", None),
            &record(),
            at(1),
        );
        assert_eq!(to_record(&lease), record());
    }

    #[test]
    fn a_lease_tells_people_who_holds_it_and_since_when() {
        let first = to_lease(
            &fresh("metashard-worker-x", "system", None),
            &record(),
            at(1),
        );
        let renewed = to_lease(&first, &record(), at(5));

        let labels = renewed.metadata.labels.unwrap();
        assert_eq!(labels[names::LABEL_REPLICA], "replica-1");
        assert_eq!(labels[names::LABEL_ROLE], "worker");
        let spec = renewed.spec.unwrap();
        assert_eq!(spec.acquire_time, first.spec.unwrap().acquire_time);
        assert_eq!(spec.renew_time.unwrap().0.as_second(), 5);
        assert_eq!(spec.lease_transitions, Some(0));
    }

    #[test]
    fn a_fence_keeps_what_the_worker_said_and_its_owner() {
        let owner = OwnerReference {
            name: "pod".to_owned(),
            ..OwnerReference::default()
        };
        let lease = to_lease(
            &fresh("metashard-worker-x", "system", Some(&owner)),
            &record(),
            at(1),
        );

        let fenced = to_lease(
            &lease,
            &Record {
                holder: Holder::Fenced,
                ..record()
            },
            at(9),
        );

        assert_eq!(to_record(&fenced).about, record().about);
        assert_eq!(
            fenced.metadata.labels.as_ref().unwrap()[names::LABEL_REPLICA],
            "replica-1"
        );
        assert_eq!(fenced.metadata.owner_references.unwrap(), [owner]);
        assert_eq!(fenced.spec.unwrap().lease_transitions, Some(1));
    }

    #[test]
    fn a_lease_of_another_program_is_foreign_and_unnumbered() {
        let lease = Lease {
            spec: Some(LeaseSpec {
                holder_identity: Some("pod-7_abc".to_owned()),
                ..LeaseSpec::default()
            }),
            ..Lease::default()
        };

        let record = to_record(&lease);

        assert_eq!(record.holder, Holder::Foreign("pod-7_abc".to_owned()));
        assert_eq!((record.attempt, record.duration), (0, UNNAMED_DURATION));
    }

    #[test]
    fn a_label_takes_what_the_api_server_takes() {
        assert_eq!(label_value("host.example-1"), "host.example-1");
        assert_eq!(label_value("host/1"), "host");
        assert_eq!(
            label_value(&format!("{}.x", "a".repeat(62))),
            "a".repeat(62)
        );
    }
}
