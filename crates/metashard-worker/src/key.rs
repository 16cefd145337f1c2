//! The key of a parent within its controller's flow of the queue.

use std::{fmt, sync::Arc};

use metashard_reconcile::object::Object;

/// `namespace/name`, or `name` for a cluster-scoped parent: the peer's form.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ParentKey(Arc<str>);

impl ParentKey {
    /// The key of the object of this name.
    pub(crate) fn new(namespace: Option<&str>, name: &str) -> Self {
        match namespace {
            Some(namespace) => Self(format!("{namespace}/{name}").into()),
            None => Self(name.into()),
        }
    }

    /// The key of `parent`.
    pub(crate) fn of(parent: &Object) -> Self {
        Self::new(parent.namespace(), parent.name())
    }

    /// Namespace and name. Neither can hold a slash.
    pub(crate) fn parts(&self) -> (Option<&str>, &str) {
        match self.0.split_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, &self.0),
        }
    }
}

impl fmt::Display for ParentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_gives_back_namespace_and_name() {
        assert_eq!(
            ParentKey::new(Some("team-a"), "web").parts(),
            (Some("team-a"), "web")
        );
        assert_eq!(ParentKey::new(None, "web").parts(), (None, "web"));
    }
}
