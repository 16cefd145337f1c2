//! What an endpoint is called with at the moment, and how it is replaced.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, SystemTime},
};

use metashard_api::{
    endpoint::{Demand, Source},
    validate::Finding,
};

use super::Endpoint;
use crate::{Certificate, Found, security::Security};

const DAY: Duration = Duration::from_hours(24);

/// What an endpoint is called with.
#[derive(Debug, Default)]
pub(crate) struct Secured {
    pub(crate) security: Security,
    /// Grows when the TLS material changes: connections of another generation are not used for new calls.
    pub(crate) generation: u64,
}

impl Endpoint {
    /// The objects that hold its certificates and credentials.
    pub fn sources(&self) -> BTreeSet<Source> {
        self.demand
            .as_ref()
            .map_or_else(BTreeSet::new, Demand::sources)
    }

    /// Whether it has what it is to be called with.
    pub fn is_ready(&self) -> bool {
        self.secured.load().is_some()
    }

    /// Takes its certificates and credentials from the objects that `find` finds. Calls that begin after this use them;
    /// those under way end as they began, and their connections are closed then. Not to be called twice at a time.
    ///
    /// # Errors
    ///
    /// When something is missing or cannot be used: what there was before stays in use.
    pub fn secure<'a>(&self, find: &dyn Fn(&Source) -> Found<'a>) -> Result<(), Finding> {
        let Some(demand) = &self.demand else {
            return Ok(());
        };
        let before = self.secured.load_full();
        let before_security = before.as_ref().map(|it| &it.security);
        let security = Security::read(demand, find, before_security, &self.system_roots)?;
        if before_security.is_some_and(|before| before.is_same(&security)) {
            return Ok(());
        }
        let kept = before
            .as_ref()
            .filter(|before| before.security.tls_hash == security.tls_hash)
            .map(|before| before.generation);
        let next = before.as_ref().map_or(0, |before| before.generation) + 1;
        let generation = kept.unwrap_or(next);
        self.secured.store(Some(Arc::new(Secured {
            security,
            generation,
        })));
        if kept.is_none() {
            // After the new material is in place: a connection that is made from now on is of the new generation.
            self.pool.renew(generation);
        }
        Ok(())
    }

    /// The certificates in use whose end would be the end of its calls.
    pub fn certificates(&self) -> Vec<Certificate> {
        self.secured
            .load()
            .as_ref()
            .map_or_else(Vec::new, |it| it.security.certificates.clone())
    }

    /// Shows in the metrics how many days are left at `wall` to each certificate.
    pub fn show_days_left(&self, wall: SystemTime) {
        if let Some(secured) = &*self.secured.load() {
            for certificate in &secured.security.certificates {
                self.days_left
                    .show(certificate.role, certificate.days_left(wall));
            }
        }
    }

    pub(crate) fn secured(&self) -> Option<Arc<Secured>> {
        self.secured.load_full()
    }
}

impl Certificate {
    /// Whole days from `wall` until it ends; below zero if it has ended.
    pub fn days_left(&self, wall: SystemTime) -> i64 {
        let days =
            |time: Duration| i64::try_from(time.as_secs() / DAY.as_secs()).unwrap_or(i64::MAX);
        match self.not_after.duration_since(wall) {
            Ok(left) => days(left),
            Err(over) => -days(over.duration()) - 1,
        }
    }
}
