//! Children as our last writes left them, found by name and by uid: there may be as many as a parent has children.

use std::{collections::BTreeMap, sync::Arc};

use super::{hash_name, hash_text};
use crate::object::Object;

/// One child as our last write left it.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) rule: usize,
    pub(super) object: Arc<Object>,
    /// For how many passes it was taken to exist.
    pub(super) passes: u8,
}

/// All of them; of each name there is one.
#[derive(Debug, Default)]
pub(super) struct Writes {
    /// By hash of rule, namespace and name.
    by_name: BTreeMap<u64, Written>,
    /// Keys of them, by hash of the uid.
    names: BTreeMap<u64, u64>,
}

impl Writes {
    /// Takes one in, in the place of another of its name.
    pub(super) fn insert(&mut self, written: Written) {
        let object = &written.object;
        let name = hash_name(written.rule, object.namespace(), object.name());
        let uid = hash_text(object.uid());
        if let Some(before) = self.by_name.insert(name, written) {
            self.names.remove(&hash_text(before.object.uid()));
        }
        self.names.insert(uid, name);
    }

    /// The one that has the rule and the name of `other`, and the key of it.
    pub(super) fn named_as(&self, rule: usize, other: &Object) -> Option<(u64, &Arc<Object>)> {
        if self.by_name.is_empty() {
            return None;
        }
        let name = hash_name(rule, other.namespace(), other.name());
        let own = &self.by_name.get(&name)?.object;
        let is_same = own.name() == other.name() && own.namespace() == other.namespace();
        is_same.then_some((name, own))
    }

    /// The one of this uid.
    pub(super) fn of_uid(&self, uid: &str) -> Option<&Arc<Object>> {
        if self.names.is_empty() {
            return None;
        }
        let name = self.names.get(&hash_text(uid))?;
        let own = &self.by_name.get(name)?.object;
        (own.uid() == uid).then_some(own)
    }

    /// Lets the one of this uid go.
    pub(super) fn forget(&mut self, uid: &str) {
        if self.of_uid(uid).is_some()
            && let Some(name) = self.names.remove(&hash_text(uid))
        {
            self.by_name.remove(&name);
        }
    }

    /// Lets those go, by their keys, that are not to be kept.
    pub(super) fn retain(&mut self, mut is_kept: impl FnMut(u64, &mut Written) -> bool) {
        let names = &mut self.names;
        self.by_name.retain(|name, written| {
            let is_kept = is_kept(*name, written);
            if !is_kept {
                names.remove(&hash_text(written.object.uid()));
            }
            is_kept
        });
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Written> {
        self.by_name.values()
    }

    /// To change what has the same name and uid.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Written> {
        self.by_name.values_mut()
    }
}

impl FromIterator<Written> for Writes {
    fn from_iter<T: IntoIterator<Item = Written>>(all: T) -> Self {
        let mut writes = Self::default();
        for written in all {
            writes.insert(written);
        }
        writes
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn written(rule: usize, name: &str, uid: &str) -> Written {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "namespace": "ns", "name": name, "uid": uid, "resourceVersion": "1" },
        });
        let object = Object::parse(object.to_string()).unwrap();
        Written {
            rule,
            object: Arc::new(object),
            passes: 0,
        }
    }

    fn names(writes: &Writes) -> Vec<(usize, String)> {
        let mut all: Vec<_> = writes
            .iter()
            .map(|it| (it.rule, format!("{}:{}", it.object.name(), it.object.uid())))
            .collect();
        all.sort();
        all
    }

    #[test]
    fn of_a_name_the_last_write_counts_and_the_uid_before_is_forgotten() {
        let mut writes = Writes::default();
        for (rule, name, uid) in [(0, "a", "1"), (1, "a", "2"), (0, "a", "3")] {
            writes.insert(written(rule, name, uid));
        }

        assert_eq!(names(&writes), [(0, "a:3".into()), (1, "a:2".into())]);
        assert!(writes.of_uid("1").is_none());
        let like = written(0, "a", "other").object;
        let (_, found) = writes.named_as(0, &like).unwrap();
        assert_eq!(found.uid(), "3");
    }

    #[test]
    fn what_is_let_go_is_found_neither_by_name_nor_by_uid() {
        let all = ["a", "b", "c"].map(|name| written(0, name, name));
        let mut writes: Writes = all.into_iter().collect();

        writes.forget("a");
        writes.forget("nobody");
        writes.retain(|_, it| it.object.name() != "b");

        assert_eq!(names(&writes), [(0, "c:c".into())]);
        assert!(writes.of_uid("a").is_none() && writes.of_uid("b").is_none());
        assert_eq!(writes.names.len(), 1);
    }
}
