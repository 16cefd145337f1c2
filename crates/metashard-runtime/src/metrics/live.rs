//! Sets of series by key, each of which lives as long as somebody holds a handle of it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;

/// What is alive, by key.
#[derive(Debug)]
pub struct Live<K, V>(Mutex<BTreeMap<K, Weak<V>>>);

impl<K: Ord + Clone, V> Live<K, V> {
    /// The one of `key`, shared with whoever has it already; else what `make` gives.
    pub fn get(&self, key: K, make: impl FnOnce(K) -> V) -> Arc<V> {
        let mut live = self.0.lock();
        if let Some(value) = live.get(&key).and_then(Weak::upgrade) {
            return value;
        }
        let value = Arc::new(make(key.clone()));
        live.insert(key, Arc::downgrade(&value));
        value
    }

    /// `value` is being dropped: calls `remove`, unless a successor has taken its place since the last handle went; then
    /// what it leaves behind is the successor's. Nobody gets another one of `key` meanwhile.
    pub fn leave(&self, key: &K, value: &V, remove: impl FnOnce()) {
        let mut live = self.0.lock();
        let is_ours = live
            .get(key)
            .is_some_and(|it| std::ptr::eq(it.as_ptr(), value));
        if is_ours {
            live.remove(key);
            remove();
        }
    }
}

impl<K, V> Default for Live<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_goes_with_its_own_and_not_with_one_that_was_succeeded() {
        let live = Live::default();
        let first = live.get("a", |_| 1);
        assert!(Arc::ptr_eq(&first, &live.get("a", |_| 2)));

        // The last handle has gone, and its drop has not come here yet.
        let raw = Arc::downgrade(&first);
        drop(first);
        let second = live.get("a", |_| 3);
        let mut removed = 0;
        // `raw` keeps the place of the first from being used again.
        live.leave(&"a", &1, || removed += 1);
        assert_eq!((raw.upgrade(), removed), (None, 0));

        live.leave(&"a", &*second, || removed += 1);
        live.leave(&"a", &*second, || removed += 1);
        assert_eq!(removed, 1);
    }
}
