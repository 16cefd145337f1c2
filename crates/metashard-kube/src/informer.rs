//! Caches that follow the API server: one list and one watch for all who look at the same objects with the same rights.

mod backoff;
mod collector;
mod feed;
mod frames;
mod interest;
mod keeper;
mod page;
mod shared;
mod view;

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use metashard_fleet::time::MonoTime;
use metashard_reconcile::object::Object;
use metashard_runtime::task;
use parking_lot::Mutex;
use prometheus::Registry;
use tokio::{sync::watch, task::JoinHandle};

pub use self::interest::{Controlled, Interest};
pub(crate) use self::page::Page;
pub use self::view::{Trouble, TroubleKind, View, ViewKey, ViewState, Wish};
use self::{collector::Collector, keeper::Keeper, shared::Shared};
use crate::client::Clients;

/// Something that happened to one object of a view.
#[derive(Debug, Clone)]
pub enum Event {
    /// An object is there, new or changed.
    Applied {
        /// What it was before; `None` if it is new to this view.
        old: Option<Arc<Object>>,
        /// What it is.
        new: Arc<Object>,
    },
    /// An object is gone, or no longer selected.
    Deleted {
        /// The last that was known of it.
        old: Arc<Object>,
    },
    /// Every object that was there when the view was first listed has been told. Comes once.
    Synced,
}

/// Who is told what happens in a view.
pub trait Subscriber: Send + Sync {
    /// Takes one event, in the order in which they happen; the view shows the new state already.
    ///
    /// It is called from the task that feeds the view, so it must be quick: put a key into a queue, no more. It must
    /// neither open nor drop a view. If it panics, the panic is logged and the next event comes nevertheless.
    fn on_event(&self, event: Event);

    /// The view stands otherwise than before: it has come to be followed, or fails. Called after the view shows it,
    /// under the same conditions.
    fn on_state(&self) {}
}

/// The open views, shared by all who ask for the same one. Cheap to clone.
#[derive(Clone)]
pub struct Informers(Arc<Inner>);

struct Inner {
    clients: Clients,
    open: Mutex<HashMap<ViewKey, Opened>>,
    /// Whether the API server is believed to serve streaming lists.
    streaming: Arc<AtomicBool>,
    /// Wakes views that wait before they try again.
    retry: watch::Sender<u64>,
}

struct Opened {
    shared: Arc<Shared>,
    users: usize,
    task: JoinHandle<()>,
}

impl Informers {
    /// None open yet.
    pub fn new(clients: &Clients) -> Self {
        Self(Arc::new(Inner {
            clients: clients.clone(),
            open: Mutex::default(),
            streaming: Arc::new(AtomicBool::new(true)),
            retry: watch::Sender::default(),
        }))
    }

    /// Adds what the views hold, and how old it is, to `registry`.
    ///
    /// # Errors
    ///
    /// When one of the names is taken there.
    pub fn register(&self, registry: &Registry) -> Result<(), prometheus::Error> {
        registry.register(Box::new(Collector::new(Arc::downgrade(&self.0))?))
    }

    /// Opens a view, or joins the one that is open. It lives until the last [`View`] of its key is dropped.
    ///
    /// `subscriber` is told every object that is there already, then everything that happens until the view is dropped.
    pub fn open(&self, key: ViewKey, subscriber: Option<Arc<dyn Subscriber>>) -> View {
        self.open_for(key, Interest::All, subscriber)
    }

    /// As [`Self::open`], by a user who wants a part of it only. The view may hold more, and the subscriber be told of more: what
    /// others want of it. If it has let go what this user wants, it is listed anew, and synced for this user only then.
    pub fn open_for(
        &self,
        key: ViewKey,
        interest: Interest,
        subscriber: Option<Arc<dyn Subscriber>>,
    ) -> View {
        self.join(key, interest, subscriber).0
    }

    /// As [`Self::open`], with a wish for everything up to this call: a view that is new fulfils it by its first list.
    pub fn open_fresh(
        &self,
        key: ViewKey,
        subscriber: Option<Arc<dyn Subscriber>>,
    ) -> (View, Wish) {
        let (view, is_new) = self.join(key, Interest::All, subscriber);
        let wish = if is_new { Wish::default() } else { view.wish() };
        (view, wish)
    }

    /// A view, and whether it was not open before.
    fn join(
        &self,
        key: ViewKey,
        interest: Interest,
        subscriber: Option<Arc<dyn Subscriber>>,
    ) -> (View, bool) {
        let (shared, is_new) = {
            let mut open = self.0.open.lock();
            let opened = open.entry(key).or_insert_with_key(|key| self.start(key));
            opened.users += 1;
            (Arc::clone(&opened.shared), opened.users == 1)
        };
        let (user, since) = shared.join(interest, subscriber);
        (View::new(self.clone(), shared, user, Wish(since)), is_new)
    }

    /// Makes views that wait before they try again try now: something changed, such as the served resources.
    pub fn retry_failing(&self) {
        self.0.retry.send_modify(|count| *count += 1);
    }

    /// The resources with a view that is said to be followed, and whose API server was not heard of for `limit` or longer.
    /// A watch that brings nothing is replaced long before: its feed is stuck.
    pub fn stuck(&self, limit: Duration) -> BTreeSet<String> {
        let now = self.now();
        let open = self.0.open.lock();
        let stuck = open.iter().filter(|(_, opened)| {
            let is_failing = matches!(*opened.shared.state().borrow(), ViewState::Failing(_));
            !is_failing && opened.shared.age(now) >= limit
        });
        stuck.map(|(key, _)| key.resource.to_string()).collect()
    }

    fn now(&self) -> MonoTime {
        self.0.clients.clock().now().mono
    }

    fn start(&self, key: &ViewKey) -> Opened {
        let shared = Arc::new(Shared::new(key.clone(), self.now()));
        let keeper = Keeper {
            shared: Arc::clone(&shared),
            clients: self.0.clients.clone(),
            streaming: Arc::clone(&self.0.streaming),
            retry: self.0.retry.subscribe(),
        };
        Opened {
            shared,
            users: 0,
            task: task::spawn("informer", keeper.run()),
        }
    }

    /// One user of `key` less.
    fn close(&self, key: &ViewKey) {
        let mut open = self.0.open.lock();
        if let Some(opened) = open.get_mut(key) {
            opened.users -= 1;
            if opened.users == 0 {
                opened.task.abort();
                open.remove(key);
            }
        }
    }
}

impl std::fmt::Debug for Informers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Informers")
            .field("open", &self.0.open.lock().len())
            .finish_non_exhaustive()
    }
}
