//! Ids: newtypes whose `Display` is the form used in logs, labels and metrics.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

/// Kind of a controller object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ControllerKind {
    /// Watches a parent kind and owns children.
    Composite,
    /// Watches target kinds and attaches objects to them.
    Decorator,
}

impl ControllerKind {
    /// The Kubernetes kind, which is also the value of the metric label `controller_type`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Composite => "CompositeController",
            Self::Decorator => "DecoratorController",
        }
    }
}

impl fmt::Display for ControllerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// `metadata.uid` of a controller object: a deleted and recreated controller is another one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ControllerUid(Arc<str>);

/// Who owns controllers; the boundary of identity, quota and fairness.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(Arc<str>);

/// Name of one replica, unique among the running ones, such as its Pod's name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReplicaId(Arc<str>);

/// One membership of a replica: a UUID drawn at each join, never used again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Incarnation(Arc<str>);

macro_rules! text_id {
    ($($name:ident),+) => {$(
        impl $name {
            /// Takes the text as it is.
            pub fn new(text: impl Into<Arc<str>>) -> Self {
                Self(text.into())
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )+};
}

text_id!(ControllerUid, TenantId, ReplicaId, Incarnation);

/// A fixed slot of the hash space of controllers, from 0 to the map's `shardCount` - 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ShardId(pub u16);

/// Part of a split controller; 0 is the whole of one that is not split.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Slice(pub u16);

/// Number of one leadership; only grows. 0: nobody has led yet.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Term(pub u64);

/// Number of a map within its term; (term, seq) orders all maps.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Seq(pub u64);

/// Number of one ownership of a shard; only grows. 0: never owned.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Epoch(pub u64);

macro_rules! number_id {
    ($($name:ident),+) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    )+};
}

number_id!(ShardId, Slice, Term, Seq, Epoch);

impl Epoch {
    /// The next ownership.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl Term {
    /// The next leadership.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl Seq {
    /// The next map of the same term.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}
