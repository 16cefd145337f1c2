//! What is told of the versions of the replicas that share a fleet.

use std::collections::BTreeSet;

use metashard_api::names::event;
use metashard_kube::events::Event;
use tracing::{info, warn};

/// What to tell when there are versions `now` after `before`.
pub(super) fn tell(before: &BTreeSet<String>, now: &BTreeSet<String>) -> Option<Event> {
    let all: Vec<&str> = now.iter().map(String::as_str).collect();
    let versions = all.join(", ");
    let (is_warning, reason, message) = match &all[..] {
        [] => return None,
        [_] if before.len() < 2 => return None,
        [_] => {
            info!(versions, "replicas are of one version again");
            let message = format!("all replicas are of version {versions} again");
            (false, event::VERSIONS_ALIKE, message)
        }
        _ if are_neighbours(&all) => {
            info!(versions, "replicas of several versions share the fleet");
            let message = format!("replicas of versions {versions} share the fleet");
            (false, event::VERSIONS_MIXED, message)
        }
        _ => {
            warn!(
                versions,
                "replicas share the fleet whose versions are too far apart"
            );
            let message = format!(
                "replicas of versions {versions} share the fleet: only neighbouring minor versions are made for that; upgrade one minor version at a time, or end all replicas of the old one first"
            );
            (true, event::VERSION_SKEW, message)
        }
    };
    Some(Event {
        is_warning,
        reason: reason.into(),
        message,
    })
}

/// Whether they are of one major version, and of at most two minor ones in a row.
fn are_neighbours(versions: &[&str]) -> bool {
    let parsed: Option<BTreeSet<(u64, u64)>> = versions.iter().map(|it| minor(it)).collect();
    let parsed = parsed.unwrap_or_default();
    let ends = parsed.first().zip(parsed.last());
    ends.is_some_and(|(low, high)| low.0 == high.0 && high.1 - low.1 <= 1)
}

/// Major and minor version; `None`: that is no version.
fn minor(version: &str) -> Option<(u64, u64)> {
    let mut parts = version.split('.').map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(before: &[&str], now: &[&str]) -> Option<(bool, String)> {
        let set = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect();
        let event = tell(&set(before), &set(now))?;
        Some((event.is_warning, event.reason.into_owned()))
    }

    #[test]
    fn neighbouring_minor_versions_are_told_of_and_others_warned_of() {
        let mixed = Some((false, "VersionsMixed".to_owned()));
        let skew = Some((true, "VersionSkew".to_owned()));

        assert_eq!(told(&[], &["1.4.0"]), None);
        assert_eq!(told(&["1.4.0"], &["1.4.0", "1.4.1"]), mixed);
        assert_eq!(told(&["1.4.0"], &["1.3.9", "1.4.0"]), mixed);
        assert_eq!(told(&["1.4.0"], &["1.4.0", "1.5.0", "1.6.0"]), skew);
        assert_eq!(told(&["1.4.0"], &["1.4.0", "2.4.0"]), skew);
        assert_eq!(told(&["1.4.0"], &["1.4.0", "dev"]), skew);
    }

    #[test]
    fn the_end_of_a_mixture_is_told_of_once() {
        let alike = Some((false, "VersionsAlike".to_owned()));

        assert_eq!(told(&["1.4.0", "1.5.0"], &["1.5.0"]), alike);
        assert_eq!(told(&["1.5.0"], &["1.5.0"]), None);
    }
}
