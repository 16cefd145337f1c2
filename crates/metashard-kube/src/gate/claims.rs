//! For which ownerships the gate is open, and what of each is in flight.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use http::HeaderValue;
use metashard_api::{
    id::{Epoch, ShardId},
    resource::Resource,
};
use metashard_fleet::{
    message::{Claim, LastWritten},
    worker::Authority,
};
use metashard_reconcile::object::compare_versions;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::client::USER_AGENT;

/// The newest ownership of each shard that the gate was opened for.
#[derive(Debug, Default)]
pub(super) struct Claims(Mutex<BTreeMap<ShardId, Arc<State>>>);

/// One ownership.
#[derive(Debug)]
struct State {
    epoch: Epoch,
    open: AtomicBool,
    in_flight: watch::Sender<usize>,
    /// Highest resourceVersion that a write was answered with.
    written: Mutex<BTreeMap<Arc<Resource>, Box<str>>>,
    /// The same for every write of the ownership.
    user_agent: Mutex<Option<HeaderValue>>,
}

/// A write under way: it counts until this is dropped.
#[derive(Debug)]
pub(super) struct Entry {
    state: Arc<State>,
    user_agent: HeaderValue,
}

impl Claims {
    pub(super) fn open(&self, claim: Claim) {
        let mut claims = self.0.lock();
        if let Some(old) = claims.get(&claim.shard) {
            if old.epoch == claim.epoch {
                old.open.store(true, Ordering::SeqCst);
                return;
            }
            if old.epoch > claim.epoch {
                return;
            }
            old.open.store(false, Ordering::SeqCst);
        }
        claims.insert(claim.shard, Arc::new(State::new(claim.epoch)));
    }

    pub(super) fn close(&self, claim: Claim) {
        if let Some(state) = self.get(claim) {
            state.open.store(false, Ordering::SeqCst);
        }
    }

    /// Counts a write of `authority`'s ownership in; `None` if the gate is closed for it.
    pub(super) fn enter(&self, authority: &Authority) -> Option<Entry> {
        let state = self.get(authority.claim())?;
        // Counted first: whoever closes the gate and then finds nothing in flight has seen every write that found it open.
        state.in_flight.send_modify(|count| *count += 1);
        let entry = Entry {
            user_agent: state.user_agent(authority),
            state,
        };
        entry.state.open.load(Ordering::SeqCst).then_some(entry)
    }

    pub(super) fn in_flight(&self, claim: Claim) -> usize {
        self.get(claim).map_or(0, |state| *state.in_flight.borrow())
    }

    /// Waits until nothing of `claim` is in flight.
    pub(super) async fn drained(&self, claim: Claim) -> Vec<LastWritten> {
        let Some(state) = self.get(claim) else {
            return Vec::new();
        };
        // It fails only if the sender is gone, and `state` holds it.
        _ = state
            .in_flight
            .subscribe()
            .wait_for(|count| *count == 0)
            .await
            .map(drop);
        let written = state.written.lock();
        written
            .iter()
            .map(|(resource, version)| LastWritten {
                resource: resource.to_string(),
                resource_version: version.to_string(),
            })
            .collect()
    }

    fn get(&self, claim: Claim) -> Option<Arc<State>> {
        self.0
            .lock()
            .get(&claim.shard)
            .filter(|state| state.epoch == claim.epoch)
            .cloned()
    }
}

impl State {
    fn new(epoch: Epoch) -> Self {
        Self {
            epoch,
            open: AtomicBool::new(true),
            in_flight: watch::Sender::new(0),
            written: Mutex::default(),
            user_agent: Mutex::default(),
        }
    }

    /// Names replica, shard and epoch, so that the API server's audit log can be checked for overlaps.
    fn user_agent(&self, authority: &Authority) -> HeaderValue {
        let mut kept = self.user_agent.lock();
        kept.get_or_insert_with(|| {
            let replica = authority
                .replica()
                .as_str()
                .replace(|c: char| !c.is_ascii_graphic(), "?");
            let text = format!(
                "{USER_AGENT} (replica {replica}; shard {}; epoch {})",
                authority.shard(),
                authority.epoch()
            );
            HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(USER_AGENT))
        })
        .clone()
    }
}

impl Entry {
    pub(super) fn user_agent(&self) -> HeaderValue {
        self.user_agent.clone()
    }

    /// A write to `resource` was answered with this resourceVersion.
    pub(super) fn written(&self, resource: &Arc<Resource>, resource_version: &str) {
        let mut written = self.state.written.lock();
        match written.get_mut(resource) {
            Some(last) => {
                if compare_versions(resource_version, last).is_none_or(std::cmp::Ordering::is_gt) {
                    *last = resource_version.into();
                }
            }
            None => {
                written.insert(Arc::clone(resource), resource_version.into());
            }
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.state.in_flight.send_modify(|count| *count -= 1);
    }
}
