//! Which controllers there are: the caches of controller objects, and the names of those that changed.

use std::{collections::BTreeSet, sync::Arc};

use metashard_api::{id::ControllerKind, resource::Resource};
use metashard_kube::{
    identity::Identity,
    informer::{Event, Informers, Subscriber, View, ViewKey},
};
use metashard_reconcile::object::Object;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Names one controller object: kind and name, as it is cluster-scoped.
pub(crate) type ControllerName = (ControllerKind, Box<str>);

/// The controller objects of the cluster, and what changed among them since it was last asked.
#[derive(Debug)]
pub(crate) struct Catalog {
    composites: View,
    decorators: View,
    changes: Arc<Changes>,
}

/// Names that changed and were not taken yet: bounded by the number of controllers.
#[derive(Debug, Default)]
struct Changes {
    names: Mutex<BTreeSet<ControllerName>>,
    some: Notify,
}

/// Counts one controller as changed, whatever happens in a view or to it.
struct Marker {
    name: ControllerName,
    changes: Arc<Changes>,
}

struct Follower {
    kind: ControllerKind,
    changes: Arc<Changes>,
}

impl Catalog {
    /// Follows the controllers that `selector` selects (the text of `--target-label-selector`; empty: all).
    pub(crate) fn open(informers: &Informers, selector: &str) -> Self {
        let changes = Arc::new(Changes::default());
        let view = |kind| {
            let key = ViewKey::new(
                Identity::process(),
                Arc::new(Resource::of_controllers(kind)),
            );
            let follower = Follower {
                kind,
                changes: Arc::clone(&changes),
            };
            informers.open(key.selecting(selector), Some(Arc::new(follower)))
        };
        Self {
            composites: view(ControllerKind::Composite),
            decorators: view(ControllerKind::Decorator),
            changes,
        }
    }

    /// The controller object of this name, as last seen.
    pub(crate) fn get(&self, (kind, name): &ControllerName) -> Option<Arc<Object>> {
        let view = match kind {
            ControllerKind::Composite => &self.composites,
            ControllerKind::Decorator => &self.decorators,
        };
        view.get(None, name)
    }

    /// A subscriber for views of what the controller `name` depends on: with each event the controller counts as changed.
    pub(crate) fn marker(&self, name: &ControllerName) -> Arc<dyn Subscriber> {
        Arc::new(Marker {
            name: name.clone(),
            changes: Arc::clone(&self.changes),
        })
    }

    /// Whether all of them are known: one that is not here is gone, or no longer selected.
    pub(crate) fn is_synced(&self) -> bool {
        [&self.composites, &self.decorators]
            .iter()
            .all(|view| view.is_synced())
    }

    /// The names that changed since the last call; waits until there is one. Dropping the future loses nothing.
    pub(crate) async fn changed(&self) -> BTreeSet<ControllerName> {
        loop {
            let some = self.changes.some.notified();
            let names = std::mem::take(&mut *self.changes.names.lock());
            if !names.is_empty() {
                return names;
            }
            some.await;
        }
    }
}

impl Subscriber for Follower {
    fn on_event(&self, event: Event) {
        let object = match event {
            Event::Applied { new, .. } => new,
            Event::Deleted { old } => old,
            Event::Synced => return,
        };
        self.changes.add((self.kind, object.name().into()));
    }
}

impl Subscriber for Marker {
    fn on_event(&self, _event: Event) {
        self.changes.add(self.name.clone());
    }

    fn on_state(&self) {
        self.changes.add(self.name.clone());
    }
}

impl Changes {
    fn add(&self, name: ControllerName) {
        self.names.lock().insert(name);
        self.some.notify_one();
    }
}
