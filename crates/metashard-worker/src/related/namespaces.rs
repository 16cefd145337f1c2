//! The labels of namespaces, for rules that select namespaces by them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use metashard_api::selector::Selector;
use metashard_fleet::queue::{Cause, FlowId};
use metashard_kube::informer::{Event, Subscriber};
use metashard_reconcile::object::Object;
use parking_lot::Mutex;

use crate::{dispatch::Dispatcher, key::ParentKey};

/// The namespaces as a cache last told of them, and the selectors that parents have for them.
///
/// It is no view: what is told of other objects' changes may read it, and must not hold a view.
#[derive(Debug)]
pub(super) struct Namespaces {
    known: Mutex<Known>,
    /// Where keys of parents go.
    dispatcher: Arc<Dispatcher>,
    flow: FlowId,
}

#[derive(Debug, Default)]
struct Known {
    by_name: BTreeMap<Box<str>, Arc<Object>>,
    selectors: BTreeMap<Selector, BTreeSet<ParentKey>>,
}

impl Namespaces {
    /// Knows none yet.
    pub(super) fn new(dispatcher: Arc<Dispatcher>, flow: FlowId) -> Self {
        Self {
            known: Mutex::default(),
            dispatcher,
            flow,
        }
    }

    /// Whether the labels of a namespace match.
    pub(super) fn selects(&self, selector: &Selector, namespace: &str) -> bool {
        let known = self.known.lock();
        known
            .by_name
            .get(namespace)
            .is_some_and(|it| matches(selector, it))
    }

    /// A parent has a rule with this selector.
    pub(super) fn add(&self, selector: &Selector, key: &ParentKey) {
        let mut known = self.known.lock();
        let keys = known.selectors.entry(selector.clone()).or_default();
        keys.insert(key.clone());
    }

    /// A parent has no rule with this selector any more.
    pub(super) fn remove(&self, selector: &Selector, key: &ParentKey) {
        let mut known = self.known.lock();
        if let Some(keys) = known.selectors.get_mut(selector) {
            keys.remove(key);
            if keys.is_empty() {
                known.selectors.remove(selector);
            }
        }
    }

    /// The cache is closed: nobody tells of changes any more.
    pub(super) fn clear(&self) {
        self.known.lock().by_name.clear();
    }
}

impl Subscriber for Namespaces {
    fn on_event(&self, event: Event) {
        let mut known = self.known.lock();
        let (old, new) = match event {
            Event::Applied { old, new } => {
                known.by_name.insert(new.name().into(), Arc::clone(&new));
                (old, Some(new))
            }
            Event::Deleted { old } => {
                known.by_name.remove(old.name());
                (Some(old), None)
            }
            Event::Synced => return,
        };
        let is_selected = |selector: &Selector, it: &Option<Arc<Object>>| {
            it.as_ref().is_some_and(|it| matches(selector, it))
        };
        let turned = known
            .selectors
            .iter()
            .filter(|(selector, _)| is_selected(selector, &old) != is_selected(selector, &new));
        let keys: BTreeSet<_> = turned.flat_map(|(_, keys)| keys).cloned().collect();
        drop(known);
        if !keys.is_empty() {
            self.dispatcher.push_all(self.flow, keys, Cause::Related);
        }
    }
}

fn matches(selector: &Selector, namespace: &Object) -> bool {
    selector.matches(|key| namespace.label(key))
}
