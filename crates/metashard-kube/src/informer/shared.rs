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

use super::{
    Event, Interest, Subscriber, ViewKey, ViewState,
    interest::{Interests, LetGo},
};
use crate::store::{ByName, Store, forget, namespace_of};

/// Least time between two searches for what nobody wants any more.
const TIDY_EVERY: Duration = Duration::from_secs(2);

/// One view, as its feed and its users share it.
pub(crate) struct Shared {
    pub(crate) key: ViewKey,
    store: RwLock<Store>,
    /// Held while the store changes and until all are told, so that all see the same order.
    users: Mutex<Users>,
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
    /// The newest wish for a list that a complete list fulfilled. `None`: there was no complete list yet.
    listed: Option<u64>,
}

/// Names one user of one view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UserId(u64);

/// Who looks at a view.
#[derive(Default)]
struct Users {
    next: u64,
    interests: Interests,
    all: Vec<User>,
    tidied: Option<MonoTime>,
    /// A list has begun, and is not complete.
    is_listing: bool,
}

struct User {
    id: UserId,
    interest: Interest,
    subscriber: Option<Arc<dyn Subscriber>>,
    /// The wish whose fulfilment shows all that it wants; `None` once it was told that this is so.
    awaits: Option<u64>,
}

/// A list under way: the objects that it has not shown yet.
#[derive(Debug)]
pub(crate) struct Listing {
    unseen: HashSet<ByName>,
    /// What it showed and nobody wanted.
    let_go: LetGo,
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
            users: Mutex::default(),
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
            self.users.lock().tell_state();
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

    /// Whether wish number `mine` is fulfilled.
    pub(crate) fn has_listed(&self, mine: u64) -> bool {
        self.progress.borrow().listed >= Some(mine)
    }

    /// Returns once wish number `mine` is fulfilled.
    pub(crate) async fn listed(&self, mine: u64) {
        // It fails only if the sender is gone, and `self` holds it.
        _ = self
            .progress
            .subscribe()
            .wait_for(|progress| progress.listed >= Some(mine))
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

    /// The resourceVersion up to which the view shows everything; 0 if that is not known.
    pub(crate) fn version(&self) -> u64 {
        self.progress.borrow().version
    }

    /// The view shows everything up to this resourceVersion.
    pub(crate) fn set_version(&self, resource_version: &str) {
        // A version that is no number cannot be waited for: `reached` lists instead.
        let version = resource_version.parse().unwrap_or(0);
        self.progress.send_if_modified(|progress| {
            let changed = progress.version != version;
            progress.version = version;
            changed
        });
    }

    /// Adds a user who wants `interest` of it; returns also the wish whose fulfilment shows all of that. Tells `subscriber` what
    /// is there, and from then on what happens.
    pub(crate) fn join(
        &self,
        interest: Interest,
        subscriber: Option<Arc<dyn Subscriber>>,
    ) -> (UserId, u64) {
        let mut users = self.users.lock();
        let lacks = users.interests.add(interest.clone());
        let since = if lacks { self.want_list() } else { 0 };
        let is_shown = self.has_listed(since);
        if let Some(subscriber) = &subscriber {
            let present: Vec<_> = self.store.read().iter().cloned().collect();
            for new in present {
                tell(&**subscriber, Event::Applied { old: None, new });
            }
            if is_shown {
                tell(&**subscriber, Event::Synced);
            }
        }
        let id = UserId(users.next);
        users.next += 1;
        users.all.push(User {
            id,
            interest,
            subscriber,
            awaits: (!is_shown).then_some(since),
        });
        (id, since)
    }

    /// A user has gone.
    pub(crate) fn leave(&self, id: UserId) {
        // Dropped when the lock is not held any more: it may hold other views.
        let _gone = {
            let mut users = self.users.lock();
            let at = users.all.iter().position(|it| it.id == id);
            at.map(|at| {
                let user = users.all.swap_remove(at);
                (users.interests.remove(&user.interest), user)
            })
        };
    }

    /// Lets go what nobody wants any more. Nobody is told: it concerns nobody. Not again within a moment, as it looks at every
    /// object, and all users of a view may ask for it. Not within a list either, whose own account of what is let go this would
    /// not be in.
    pub(crate) fn tidy(&self, now: MonoTime) {
        let mut users = self.users.lock();
        let is_soon = users.tidied.is_some_and(|at| now.since(at) < TIDY_EVERY);
        if is_soon || users.is_listing || !users.interests.take_slack() {
            return;
        }
        users.tidied = Some(now);
        let objects: Vec<_> = self.store.read().iter().cloned().collect();
        for object in objects {
            if !users.interests.want(&object, None) {
                let mut store = self.store.write();
                store.remove(namespace_of(&object), object.name());
            }
        }
    }

    /// Whether something was let go that `owner` controls.
    pub(crate) fn lacks(&self, owner: &Object) -> bool {
        self.users.lock().interests.lack_of(owner)
    }

    /// The feed broke off somewhere: what it was about to do may be half done. The next list tells everything again.
    pub(crate) fn distrust(&self) {
        // Held so that nobody joins in between.
        let _users = self.users.lock();
        self.store.write().rebuild();
        self.retell.store(true, Ordering::Relaxed);
    }

    /// A list begins that fulfils the wishes up to now.
    pub(crate) fn begin_list(&self, serves: u64) -> Listing {
        self.users.lock().is_listing = true;
        Listing {
            unseen: self.store.read().names(),
            let_go: LetGo::default(),
            retells: self.retell.load(Ordering::Relaxed),
            serves,
        }
    }

    /// `object` is there. Tells nobody if this state of it, or outside of a list a newer one, is known already. Whether it is
    /// kept: not if nobody wants it; whoever had an earlier state of it is told that this is gone.
    pub(crate) fn apply(&self, object: Object, mut listing: Option<&mut Listing>) -> bool {
        let is_listed = listing.is_some();
        let retells = listing.as_ref().is_some_and(|listing| listing.retells);
        if let Some(listing) = &mut listing {
            forget(&mut listing.unseen, namespace_of(&object), object.name());
        }
        let mut users = self.users.lock();
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
            return true;
        }
        let let_go = listing.map(|listing| &mut listing.let_go);
        if !users.interests.want(&object, let_go) {
            self.remove(&users, namespace_of(&object), object.name());
            return false;
        }
        let new = Arc::new(object);
        self.store.write().insert(Arc::clone(&new));
        // Deleted and made anew while nobody looked: two things happened.
        let (gone, old) = match known {
            Some(known) if known.uid() != new.uid() => (Some(known), None),
            known => (None, known),
        };
        if let Some(old) = gone {
            users.tell(&Event::Deleted { old });
        }
        users.tell(&Event::Applied { old, new });
        true
    }

    /// The object of this name is gone.
    pub(crate) fn delete(&self, namespace: &str, name: &str) {
        let users = self.users.lock();
        self.remove(&users, namespace, name);
    }

    fn remove(&self, users: &Users, namespace: &str, name: &str) {
        let removed = self.store.write().remove(namespace, name);
        if let Some(old) = removed {
            users.tell(&Event::Deleted { old });
        }
    }

    /// The list is complete as of `resource_version`: what it did not show is gone.
    pub(crate) fn complete_list(&self, listing: Listing, resource_version: &str) {
        for ByName(object) in listing.unseen {
            self.delete(namespace_of(&object), object.name());
        }
        if listing.retells {
            self.retell.store(false, Ordering::Relaxed);
        }
        // Whoever joins sees all of this, or nothing.
        let mut users = self.users.lock();
        self.set_version(resource_version);
        self.progress
            .send_modify(|progress| progress.listed = Some(listing.serves));
        users.is_listing = false;
        users.interests.listed(listing.let_go);
        users.tell_synced(listing.serves);
    }
}

impl Users {
    fn tell(&self, event: &Event) {
        for subscriber in self.subscribers() {
            tell(subscriber, event.clone());
        }
    }

    fn tell_state(&self) {
        for subscriber in self.subscribers() {
            guarded(|| subscriber.on_state());
        }
    }

    /// A complete list has fulfilled the wishes up to this.
    fn tell_synced(&mut self, served: u64) {
        for user in &mut self.all {
            let is_shown = user.awaits.take_if(|awaited| *awaited <= served).is_some();
            if let (true, Some(subscriber)) = (is_shown, &user.subscriber) {
                tell(&**subscriber, Event::Synced);
            }
        }
    }

    fn subscribers(&self) -> impl Iterator<Item = &dyn Subscriber> {
        self.all
            .iter()
            .filter_map(|user| user.subscriber.as_deref())
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
