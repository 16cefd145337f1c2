//! The newest state of each object of a view, one change after the other, without a backlog.

use std::{collections::BTreeMap, sync::Arc};

use metashard_reconcile::object::Object;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::informer::{Event, Subscriber};

/// Collects the objects that changed since they were last taken. Of several changes of one object only the last one
/// counts, so it never holds more than one entry per object.
#[derive(Debug, Default)]
pub(crate) struct Latest {
    /// By name. `None`: it is gone.
    changed: Mutex<BTreeMap<Box<str>, Option<Arc<Object>>>>,
    notify: Notify,
}

impl Latest {
    /// Takes the next changed object; waits for one. Dropping the future loses nothing.
    pub(crate) async fn next(&self) -> (Box<str>, Option<Arc<Object>>) {
        loop {
            if let Some(entry) = self.changed.lock().pop_first() {
                return entry;
            }
            // A change between the look and this leaves a permit behind.
            self.notify.notified().await;
        }
    }

    fn put(&self, name: &str, state: Option<Arc<Object>>) {
        self.changed.lock().insert(name.into(), state);
        self.notify.notify_one();
    }
}

impl Subscriber for Latest {
    fn on_event(&self, event: Event) {
        match event {
            Event::Applied { new, .. } => {
                let name: Box<str> = new.name().into();
                self.put(&name, Some(new));
            }
            Event::Deleted { old } => self.put(old.name(), None),
            Event::Synced => {}
        }
    }
}
