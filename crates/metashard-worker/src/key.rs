//! The key of a parent within its controller's flow of the queue.

use std::{fmt, sync::Arc};

use metashard_reconcile::object::Object;

/// Kind and name of a parent, or of a decorator's target.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ParentKey {
    /// `namespace/name`, or `name` for a cluster-scoped parent.
    name: Arc<str>,
    /// Index of the parent rule of its kind.
    rule: u32,
}

impl ParentKey {
    /// The key of the object of this name, of the kind of parent rule `rule`.
    pub(crate) fn new(rule: usize, namespace: Option<&str>, name: &str) -> Self {
        let name = match namespace {
            Some(namespace) => format!("{namespace}/{name}").into(),
            None => name.into(),
        };
        // Nobody writes so many rules; one out of range leads to no parent.
        let rule = u32::try_from(rule).unwrap_or(u32::MAX);
        Self { name, rule }
    }

    /// The key of `parent`.
    pub(crate) fn of(rule: usize, parent: &Object) -> Self {
        Self::new(rule, parent.namespace(), parent.name())
    }

    /// Index of the parent rule of its kind.
    pub(crate) fn rule(&self) -> usize {
        self.rule as usize
    }

    /// Namespace and name. Neither can hold a slash.
    pub(crate) fn parts(&self) -> (Option<&str>, &str) {
        match self.name.split_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, &self.name),
        }
    }
}

impl fmt::Display for ParentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_gives_back_kind_namespace_and_name() {
        let key = ParentKey::new(1, Some("team-a"), "web");

        assert_eq!((key.rule(), key.parts()), (1, (Some("team-a"), "web")));
        assert_eq!(ParentKey::new(0, None, "web").parts(), (None, "web"));
    }

    #[test]
    fn targets_of_two_kinds_and_one_name_have_two_keys() {
        assert_ne!(
            ParentKey::new(0, Some("a"), "web"),
            ParentKey::new(1, Some("a"), "web")
        );
    }
}
