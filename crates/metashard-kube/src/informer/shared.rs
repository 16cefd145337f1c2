//! What a view's feed writes and its users read: the store, the subscribers, and how far it has come.

use std::{
    collections::HashSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use metashard_fleet::time::MonoTime;
use metashard_reconcile::object::Object;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use tokio::sync::watch;
use tracing::error;

use super::{Event, Subscriber, ViewKey, ViewState};
use crate::store::{ByName, Store, forget, namespace_of};

/// One view, as its feed and its users share it.
pub(crate) struct Shared {
    pub(crate) key: ViewKey,
    store: RwLock<Store>,
    /// Held while the store changes and until all are told, so that all see the same order.
    subscribers: Mutex<Subscribers>,
    state: watch::Sender<ViewState>,
    progress: watch::Sender<Progress>,
    /// How many complete lists were asked for.
    wanted: watch::Sender<u64>,
    /// When the API server was last heard of.
    heard: Mutex<MonoTime>,
    /// The next list tells all that it shows: what was told before may not have come through.
    retell: AtomicBool,
}

/// How far a view has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Progress {
    /// It shows everything up to this resourceVersion. 0: nothing yet.
    version: u64,
    /// The newest wish for a list that a complete list fulfilled.
    listed: u64,
}

/// Names one subscriber of one view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SubscriptionId(u64);

#[derive(Default)]
struct Subscribers {
    next: u64,
    synced: bool,
    told: Vec<(SubscriptionId, Arc<dyn Subscriber>)>,
}

/// A list under way: the objects that it has not shown yet.
#[derive(Debug)]
pub(crate) struct Listing {
    unseen: HashSet<ByName>,
    /// Whether it tells also what is known.
    retells: bool,
    /// The wish that it fulfils once it is complete.
    serves: u64,
}

impl Shared {
    pub(crate) fn new(key: ViewKey, now: MonoTime) -> Self {
        Self {
            key,
            store: RwLock::default(),
            subscribers: Mutex::default(),
            state: watch::Sender::new(ViewState::Opening),
            progress: watch::Sender::default(),
            wanted: watch::Sender::default(),
            heard: Mutex::new(now),
            retell: AtomicBool::new(false),
        }
    }

    pub(crate) fn store(&self) -> RwLockReadGuard<'_, Store> {
        self.store.read()
    }

    pub(crate) fn state(&self) -> watch::Receiver<ViewState> {
        self.state.subscribe()
    }

    pub(crate) fn is_synced(&self) -> bool {
        self.state.borrow().is_synced()
    }

    pub(crate) fn set_state(&self, state: ViewState) {
        let is_new = self.state.send_if_modified(|current| {
            let changed = *current != state;
            *current = state;
            changed
        });
        if is_new {
            self.subscribers.lock().tell_state();
        }
    }

    /// Something came from the API server at `now`.
    pub(crate) fn heard(&self, now: MonoTime) {
        *self.heard.lock() = now;
    }

    /// How long nothing has come from the API server.
    pub(crate) fn age(&self, now: MonoTime) -> Duration {
        now.since(*self.heard.lock())
    }

    /// Asks for a complete list that begins after this; returns the number of the wish.
    pub(crate) fn want_list(&self) -> u64 {
        let mut mine = 0;
        self.wanted.send_modify(|count| {
            *count += 1;
            mine = *count;
        });
        mine
    }

    /// The wishes for lists.
    pub(crate) fn wanted(&self) -> watch::Receiver<u64> {
        self.wanted.subscribe()
    }

    /// Returns once wish number `mine` is fulfilled.
    pub(crate) async fn listed(&self, mine: u64) {
        // It fails only if the sender is gone, and `self` holds it.
        _ = self
            .progress
            .subscribe()
            .wait_for(|progress| progress.listed >= mine)
            .await
            .map(drop);
    }

    /// Returns once the view shows everything up to `resource_version`; never, if that is no number.
    pub(crate) async fn reached(&self, resource_version: &str) {
        match resource_version.parse::<u64>() {
            Ok(target) => {
                let mut progress = self.progress.subscribe();
                // As above.
                _ = progress
                    .wait_for(|progress| progress.version >= target)
                    .await
                    .map(drop);
            }
            Err(_) => std::future::pending().await,
        }
    }

    /// The view shows everything up to this resourceVersion.
    /// The resourceVersion up to which the view shows everything; 0 if that is not known.
    pub(crate) fn version(&self) -> u64 {
        self.progress.borrow().version
    }

    pub(crate) fn set_version(&self, resource_version: &str) {
        // A version that is no number cannot be waited for: `reached` lists instead.
        let version = resource_version.parse().unwrap_or(0);
        self.progress.send_if_modified(|progress| {
            let changed = progress.version != version;
            progress.version = version;
            changed
        });
    }

    /// Tells `subscriber` what is there, and from then on what happens.
    pub(crate) fn subscribe(&self, subscriber: Arc<dyn Subscriber>) -> SubscriptionId {
        let mut subscribers = self.subscribers.lock();
        let present: Vec<_> = self.store.read().iter().cloned().collect();
        for new in present {
            tell(&*subscriber, Event::Applied { old: None, new });
        }
        if subscribers.synced {
            tell(&*subscriber, Event::Synced);
        }
        let id = SubscriptionId(subscribers.next);
        subscribers.next += 1;
        subscribers.told.push((id, subscriber));
        id
    }

    pub(crate) fn unsubscribe(&self, id: SubscriptionId) {
        self.subscribers
            .lock()
            .told
            .retain(|(other, _)| *other != id);
    }

    /// The feed broke off somewhere: what it was about to do may be half done. The next list tells everything again.
    pub(crate) fn distrust(&self) {
        // Held so that nobody subscribes in between.
        let _subscribers = self.subscribers.lock();
        self.store.write().rebuild();
        self.retell.store(true, Ordering::Relaxed);
    }

    /// A list begins that fulfils the wishes up to now.
    pub(crate) fn begin_list(&self, serves: u64) -> Listing {
        Listing {
            unseen: self.store.read().names(),
            retells: self.retell.load(Ordering::Relaxed),
            serves,
        }
    }

    /// `object` is there. Tells nobody if this state of it, or outside of a list a newer one, is known already.
    pub(crate) fn apply(&self, object: Object, listing: Option<&mut Listing>) {
        let is_listed = listing.is_some();
        let retells = listing.as_ref().is_some_and(|listing| listing.retells);
        if let Some(listing) = listing {
            forget(&mut listing.unseen, namespace_of(&object), object.name());
        }
        let subscribers = self.subscribers.lock();
        let known = self
            .store
            .read()
            .get(namespace_of(&object), object.name())
            .cloned();
        let is_known = |known: &Object| {
            // What a list shows is true, even if it is older: the database may have been restored.
            same_state(known, &object) || (!is_listed && known.is_newer_than(&object))
        };
        if !retells && known.as_deref().is_some_and(is_known) {
            return;
        }
        let new = Arc::new(object);
        self.store.write().insert(Arc::clone(&new));
        // Deleted and made anew while nobody looked: two things happened.
        let (gone, old) = match known {
            Some(known) if known.uid() != new.uid() => (Some(known), None),
            known => (None, known),
        };
        if let Some(old) = gone {
            subscribers.tell(&Event::Deleted { old });
        }
        subscribers.tell(&Event::Applied { old, new });
    }

    /// The object of this name is gone.
    pub(crate) fn delete(&self, namespace: &str, name: &str) {
        let subscribers = self.subscribers.lock();
        let removed = self.store.write().remove(namespace, name);
        if let Some(old) = removed {
            subscribers.tell(&Event::Deleted { old });
        }
    }

    /// The list is complete as of `resource_version`: what it did not show is gone.
    pub(crate) fn complete_list(&self, listing: Listing, resource_version: &str) {
        for ByName(object) in listing.unseen {
            self.delete(namespace_of(&object), object.name());
        }
        {
            let mut subscribers = self.subscribers.lock();
            if !subscribers.synced {
                subscribers.synced = true;
                subscribers.tell(&Event::Synced);
            }
        }
        if listing.retells {
            self.retell.store(false, Ordering::Relaxed);
        }
        self.set_version(resource_version);
        self.progress
            .send_modify(|progress| progress.listed = listing.serves);
    }
}

impl Subscribers {
    fn tell(&self, event: &Event) {
        for (_, subscriber) in &self.told {
            tell(&**subscriber, event.clone());
        }
    }

    fn tell_state(&self) {
        for (_, subscriber) in &self.told {
            guarded(|| subscriber.on_state());
        }
    }
}

fn tell(subscriber: &dyn Subscriber, event: Event) {
    guarded(|| subscriber.on_event(event));
}

/// A panic of one subscriber must not keep the event from the others.
fn guarded(tell: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(tell)).is_err() {
        error!("subscriber of a view panicked");
    }
}

fn same_state(known: &Object, object: &Object) -> bool {
    known.uid() == object.uid() && known.resource_version() == object.resource_version()
}

#[cfg(test)]
mod tests;
