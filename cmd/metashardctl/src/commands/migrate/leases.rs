//! Which Leases have run out, by this machine's clock alone: one that has looked the same for as long as it lasts.

use std::{collections::BTreeMap, time::Duration};

use metashard_api::names::ANNOTATION_ATTEMPT;
use metashard_fleet::{record::Holder, time::MonoTime};
use metashard_reconcile::object::Object;
use serde_json::Value;

/// A Lease that names no duration lasts as long as Metacontroller's.
const USUAL: Duration = Duration::from_secs(15);

/// What was seen of Leases so far.
#[derive(Debug, Default)]
pub(super) struct Watched(BTreeMap<String, Watch>);

#[derive(Debug)]
struct Watch {
    version: String,
    since: MonoTime,
    /// It has been renewed under our eyes.
    is_renewed: bool,
}

/// One Lease as it was read.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) holder: Holder,
    /// A replica of ours wrote it: its writes are numbered.
    pub(super) is_ours: bool,
    /// Whether it has run out; `None` while it was not watched for long enough.
    pub(super) is_over: Option<bool>,
}

impl Watched {
    /// Takes in how a Lease looks now.
    pub(super) fn see(&mut self, lease: &Object, now: MonoTime) -> Claim {
        let spec = lease.spec().unwrap_or_default();
        let spec: Value = serde_json::from_slice(spec).unwrap_or_default();
        let holder = Holder::parse(spec["holderIdentity"].as_str());
        let seconds = spec["leaseDurationSeconds"].as_u64();
        let duration = seconds.map_or(USUAL, Duration::from_secs);
        let version = format!("{} {}", lease.uid(), lease.resource_version());
        let key = format!("{}/{}", lease.namespace().unwrap_or_default(), lease.name());
        let watch = self.0.entry(key).or_insert_with(|| Watch {
            version: version.clone(),
            since: now,
            is_renewed: false,
        });
        if watch.version != version {
            *watch = Watch {
                version,
                since: now,
                is_renewed: true,
            };
        }
        let is_over = if matches!(holder, Holder::Released | Holder::Fenced)
            || now.since(watch.since) >= duration
        {
            Some(true)
        } else {
            watch.is_renewed.then_some(false)
        };
        Claim {
            holder,
            is_ours: lease.annotation(ANNOTATION_ATTEMPT).is_some(),
            is_over,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(version: &str, holder: &str) -> Object {
        let text = format!(
            r#"{{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{{"name":"l","namespace":"n","uid":"u","resourceVersion":"{version}"}},"spec":{{"holderIdentity":"{holder}","leaseDurationSeconds":3}}}}"#
        );
        Object::parse(text.into_bytes()).unwrap()
    }

    fn at(seconds: u64) -> MonoTime {
        MonoTime(Duration::from_secs(seconds))
    }

    #[test]
    fn a_lease_has_run_out_once_it_has_looked_the_same_for_as_long_as_it_lasts() {
        let mut watched = Watched::default();

        assert_eq!(watched.see(&lease("1", "a"), at(10)).is_over, None);
        assert_eq!(watched.see(&lease("2", "a"), at(12)).is_over, Some(false));
        assert_eq!(watched.see(&lease("2", "a"), at(14)).is_over, Some(false));
        assert_eq!(watched.see(&lease("2", "a"), at(15)).is_over, Some(true));
        assert_eq!(watched.see(&lease("3", ""), at(15)).is_over, Some(true));
    }
}
