//! What one view holds: objects as the bytes that they came in, found by name, by owner, or for having none.

use std::{
    borrow::Borrow,
    collections::{HashMap, HashSet},
    hash::{Hash, Hasher},
    sync::Arc,
};

use metashard_reconcile::object::Object;

/// The objects of one view.
#[derive(Debug, Default)]
pub(crate) struct Store {
    by_name: HashSet<ByName>,
    /// Keyed by the uid of the owner reference whose `controller` is true. No set is empty.
    by_owner: HashMap<Box<str>, HashSet<ByName>>,
    /// Objects without such a reference, keyed by namespace (empty: cluster scope). No set is empty.
    ownerless: HashMap<Box<str>, HashSet<ByName>>,
    bytes: usize,
}

/// An object that is found by its own namespace and name, so that no copy of them is needed as a key.
#[derive(Debug, Clone)]
pub(crate) struct ByName(pub(crate) Arc<Object>);

/// What has a namespace (empty: cluster scope) and a name.
trait Named {
    fn named(&self) -> (&str, &str);
}

impl Store {
    /// The object of this name.
    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<&Arc<Object>> {
        self.by_name
            .get(&(namespace, name) as &dyn Named)
            .map(|found| &found.0)
    }

    /// The objects whose controlling owner has this uid, in the order of namespace and name.
    pub(crate) fn owned_by(&self, uid: &str) -> Vec<Arc<Object>> {
        sorted(self.by_owner.get(uid).into_iter().flatten())
    }

    /// The objects without a controlling owner: of `namespace`, or all of them; in the order of namespace and name.
    pub(crate) fn ownerless(&self, namespace: Option<&str>) -> Vec<Arc<Object>> {
        match namespace {
            Some(namespace) => sorted(self.ownerless.get(namespace).into_iter().flatten()),
            None => sorted(self.ownerless.values().flatten()),
        }
    }

    /// All objects, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.by_name.iter().map(|object| &object.0)
    }

    /// All objects as a set of their own.
    pub(crate) fn names(&self) -> HashSet<ByName> {
        self.by_name.clone()
    }

    /// How many objects there are.
    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// How many bytes the objects have as they came.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Puts `object` in; returns the one of the same name that it replaces.
    pub(crate) fn insert(&mut self, object: Arc<Object>) -> Option<Arc<Object>> {
        let old = self.remove(namespace_of(&object), object.name());
        self.bytes += object.bytes().len();
        self.index_of(&object).insert(ByName(Arc::clone(&object)));
        self.by_name.insert(ByName(object));
        old
    }

    /// Takes the object of this name out.
    pub(crate) fn remove(&mut self, namespace: &str, name: &str) -> Option<Arc<Object>> {
        let ByName(old) = self.by_name.take(&(namespace, name) as &dyn Named)?;
        self.bytes -= old.bytes().len();
        let (index, key) = match old.controller_owner() {
            Some(owner) => (&mut self.by_owner, owner.uid),
            None => (&mut self.ownerless, namespace),
        };
        if let Some(set) = index.get_mut(key) {
            set.remove(&(namespace, name) as &dyn Named);
            if set.is_empty() {
                index.remove(key);
            }
        }
        Some(old)
    }

    /// Makes the indexes and sums anew from the objects.
    pub(crate) fn rebuild(&mut self) {
        let objects = std::mem::take(self).by_name;
        for ByName(object) in objects {
            self.insert(object);
        }
    }

    fn index_of(&mut self, object: &Object) -> &mut HashSet<ByName> {
        let (index, key) = match object.controller_owner() {
            Some(owner) => (&mut self.by_owner, owner.uid),
            None => (&mut self.ownerless, namespace_of(object)),
        };
        index.entry(key.into()).or_default()
    }
}

/// Namespace of an object; empty for cluster scope.
pub(crate) fn namespace_of(object: &Object) -> &str {
    object.namespace().unwrap_or_default()
}

/// Takes the object of this name out of a set.
pub(crate) fn forget(set: &mut HashSet<ByName>, namespace: &str, name: &str) {
    set.remove(&(namespace, name) as &dyn Named);
}

fn sorted<'a>(objects: impl Iterator<Item = &'a ByName>) -> Vec<Arc<Object>> {
    let mut sorted: Vec<_> = objects.map(|object| Arc::clone(&object.0)).collect();
    sorted.sort_unstable_by(|a, b| (namespace_of(a), a.name()).cmp(&(namespace_of(b), b.name())));
    sorted
}

impl Named for ByName {
    fn named(&self) -> (&str, &str) {
        (namespace_of(&self.0), self.0.name())
    }
}

impl Named for (&str, &str) {
    fn named(&self) -> (&str, &str) {
        *self
    }
}

impl<'a> Borrow<dyn Named + 'a> for ByName {
    fn borrow(&self) -> &(dyn Named + 'a) {
        self
    }
}

impl PartialEq for dyn Named + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.named() == other.named()
    }
}

impl Eq for dyn Named + '_ {}

impl Hash for dyn Named + '_ {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.named().hash(state);
    }
}

impl PartialEq for ByName {
    fn eq(&self, other: &Self) -> bool {
        self.named() == other.named()
    }
}

impl Eq for ByName {}

impl Hash for ByName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.named().hash(state);
    }
}

#[cfg(test)]
mod tests;
