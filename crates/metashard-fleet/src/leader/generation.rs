//! Which members are about to be replaced, as far as can be told: a roll-out fills the new ones first.
//!
//! A hint and no more: whoever is taken for an old one keeps what it has, and gets what nobody else can take.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use metashard_api::id::Incarnation;

use crate::{leader::world::World, membership::State, record::Record, time::Now};

/// How long after a replica has left the next one may be expected to.
const ROLLING: Duration = Duration::from_mins(2);

impl World<'_> {
    /// The members that others replace.
    ///
    /// While versions are mixed: all that are not of the version whose eldest member is the youngest, which is the one that
    /// was begun last, be it a newer one or the one that somebody goes back to. Replicas of one version may be restarted one by
    /// one too: when one leaves, and for two minutes, all that were at least half as old as it then.
    pub(crate) fn retiring(&self, now: Now) -> BTreeSet<&Incarnation> {
        let old = self.of_old_versions();
        if old.is_empty() {
            self.as_old_as_leavers(now)
        } else {
            old
        }
    }

    fn of_old_versions(&self) -> BTreeSet<&Incarnation> {
        let mut eldest: BTreeMap<&str, Duration> = BTreeMap::new();
        for member in self.eligible() {
            let age = eldest.entry(self.version(member)).or_default();
            *age = self.age(member).max(*age);
        }
        let newest = eldest.iter().min_by_key(|(_, age)| **age);
        let newest = newest.map(|(version, _)| *version);
        self.eligible()
            .filter(|member| Some(self.version(member)) != newest)
            .collect()
    }

    fn as_old_as_leavers(&self, now: Now) -> BTreeSet<&Incarnation> {
        let left = self.membership.workers().filter_map(|(it, worker)| {
            let ago = match worker.state() {
                State::Released => worker.over_for(now).filter(|ago| *ago < ROLLING)?,
                State::Joined if self.is_leaving(it) => Duration::ZERO,
                State::Joined
                | State::Silent
                | State::Missing
                | State::Taken
                | State::Evicting
                | State::Fenced
                | State::Evicted
                | State::Gone => return None,
            };
            Some((ago, self.age(it)))
        });
        let left: Vec<(Duration, Duration)> = left.collect();
        let was_as_old = |member: &Incarnation| {
            let age = self.age(member);
            let mut left = left.iter();
            left.any(|(ago, leaver)| age.saturating_sub(*ago).saturating_mul(2) >= *leaver)
        };
        self.eligible().filter(|it| was_as_old(it)).collect()
    }

    fn version(&self, member: &Incarnation) -> &str {
        let worker = self.membership.worker(member);
        let about = worker.and_then(|worker| worker.about());
        about.map_or("", |about| about.version.as_str())
    }

    /// For how long `member` has renewed its Lease: by the number of its renewals, for no two clocks are compared.
    fn age(&self, member: &Incarnation) -> Duration {
        let worker = self.membership.worker(member);
        let record = worker.and_then(|worker| worker.record());
        record.map_or(Duration::ZERO, renewed_for)
    }
}

/// A Lease is renewed each quarter of its duration.
fn renewed_for(record: &Record) -> Duration {
    let attempt = u32::try_from(record.attempt).unwrap_or(u32::MAX);
    (record.duration / 4).saturating_mul(attempt)
}
