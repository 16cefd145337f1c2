//! One write to the API server, as data.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use metashard_api::resource::Resource;
use serde::{Deserialize, Serialize};

use crate::object::Object;

/// One write to the API server. The body names the same object as the fields here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The resource to write to.
    pub resource: Arc<Resource>,
    /// Namespace of the object; `None` for a cluster-scoped one.
    pub namespace: Option<Box<str>>,
    /// Name of the object.
    pub name: Box<str>,
    /// What to do.
    pub op: Op,
    /// What it is for: a word for logs and metrics.
    pub purpose: Purpose,
    /// Why it is needed, for logs and for people: which fields differ, for instance. May be empty.
    pub why: Box<str>,
}

/// What to do to one object. All that change one carry uid and resourceVersion of the observed object: the fence at the resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// POST to the collection.
    Create {
        /// The JSON object.
        body: Bytes,
    },
    /// PUT of the whole object; the body carries uid and resourceVersion.
    Update {
        /// The JSON object.
        body: Bytes,
    },
    /// PUT to the `status` subresource; the body carries uid and resourceVersion.
    UpdateStatus {
        /// The JSON object.
        body: Bytes,
    },
    /// PATCH of type `application/apply-patch+yaml`, by force: fields of other managers are taken over.
    Apply {
        /// The JSON object, with nothing but what its manager wants of it.
        body: Bytes,
        /// The field manager.
        manager: Arc<str>,
        /// What may come of it.
        aim: Aim,
    },
    /// POST to the collection that stores nothing: [`WriteError::AlreadyExists`] says that only the name is in the way.
    TryCreate {
        /// The JSON object.
        body: Bytes,
    },
    /// DELETE with preconditions.
    Delete {
        /// Precondition: the object's uid.
        uid: Box<str>,
        /// Precondition: the object's resourceVersion.
        resource_version: Box<str>,
        /// What becomes of its dependents.
        propagation: Propagation,
    },
}

/// What may come of a server-side apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aim {
    /// A new object. The body carries [`NO_VERSION`], so that an object that exists is never touched.
    Create,
    /// A change of the object whose uid and resourceVersion the body carries.
    Change,
    /// Nothing: the answer is what a change would come to.
    Try,
}

/// A resourceVersion that no object has: the counter of a new cluster is beyond it before the first object is written.
pub const NO_VERSION: &str = "1";

/// What becomes of the dependents of a deleted object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// The garbage collector deletes them afterwards. What children are deleted with.
    Background,
}

impl Propagation {
    /// The word of `DeleteOptions.propagationPolicy`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Background => "Background",
        }
    }
}

/// What a write is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// Puts our finalizer on the parent.
    AddFinalizer,
    /// Takes our finalizer from the parent.
    RemoveFinalizer,
    /// Makes an ownerless object a child.
    AdoptChild,
    /// Gives up a child whose labels no longer match.
    ReleaseChild,
    /// Gives up a child that is no longer desired, and leaves it alone for good.
    OrphanChild,
    /// Puts the generated label back on a child.
    RelabelChild,
    /// Creates a desired child.
    CreateChild,
    /// Updates a child in place.
    UpdateChild,
    /// Takes the record of dynamic apply from a child, and hands its fields to the manager of server-side apply.
    HandOverChild,
    /// Asks what an update would come to; stores nothing.
    TryChild,
    /// Deletes a child that differs, so that a later sync creates it anew.
    RecreateChild,
    /// Deletes a child that is no longer desired.
    DeleteChild,
    /// Writes the parent's status.
    UpdateStatus,
    /// Writes what a decorator wants of its target itself: labels, annotations, the end of its finalizer.
    Decorate,
    /// Keeps a new revision of the parent.
    CreateRevision,
    /// Writes which children are at a revision.
    UpdateRevision,
    /// Deletes a revision that no child is at.
    DeleteRevision,
    /// Records in the system namespace which kinds of parents carry a controller's finalizer.
    WriteRecord,
    /// Deletes such a record.
    DeleteRecord,
}

impl Purpose {
    /// A word for labels of metrics and fields of logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AddFinalizer => "add_finalizer",
            Self::RemoveFinalizer => "remove_finalizer",
            Self::AdoptChild => "adopt_child",
            Self::ReleaseChild => "release_child",
            Self::OrphanChild => "orphan_child",
            Self::RelabelChild => "relabel_child",
            Self::CreateChild => "create_child",
            Self::UpdateChild => "update_child",
            Self::HandOverChild => "hand_over_child",
            Self::TryChild => "try_child",
            Self::RecreateChild => "recreate_child",
            Self::DeleteChild => "delete_child",
            Self::UpdateStatus => "update_status",
            Self::Decorate => "decorate",
            Self::CreateRevision => "create_revision",
            Self::UpdateRevision => "update_revision",
            Self::DeleteRevision => "delete_revision",
            Self::WriteRecord => "write_record",
            Self::DeleteRecord => "delete_record",
        }
    }

    /// What was attempted, as errors begin.
    pub(crate) const fn verb(self) -> &'static str {
        match self {
            Self::AddFinalizer => "add finalizer to",
            Self::RemoveFinalizer => "remove finalizer from",
            Self::AdoptChild => "adopt",
            Self::ReleaseChild => "release",
            Self::OrphanChild => "orphan",
            Self::RelabelChild => "label",
            Self::CreateChild | Self::CreateRevision => "create",
            Self::UpdateChild | Self::UpdateRevision => "update",
            Self::HandOverChild => "hand over the fields of",
            Self::TryChild => "try to update",
            Self::RecreateChild => "delete to recreate",
            Self::DeleteChild | Self::DeleteRevision => "delete",
            Self::UpdateStatus => "update status of",
            Self::Decorate => "decorate",
            Self::WriteRecord => "write record",
            Self::DeleteRecord => "delete record",
        }
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// `create ConfigMap ns/name`: the object and what is done to it.
impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.purpose.verb(), self.resource.kind)?;
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        f.write_str(&self.name)
    }
}

/// What the API server answered: the object as it is now, or nothing where the answer holds none (a delete).
pub type WriteResult = Result<Option<Arc<Object>>, WriteError>;

/// Why a write did not happen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WriteError {
    /// 404: the object is gone.
    #[error("not found")]
    NotFound,
    /// 409: the object has another uid or resourceVersion by now.
    #[error("it has changed meanwhile")]
    Conflict,
    /// 409 of a create: an object of that name exists.
    #[error("an object of this name exists already")]
    AlreadyExists,
    /// 403, with the API server's message.
    #[error("{0}")]
    Forbidden(String),
    /// 400, 413, 422 or another refusal of the content, with the API server's message.
    #[error("{0}")]
    Invalid(String),
    /// 429, 5xx or no answer, with what is known.
    #[error("{0}")]
    Unavailable(String),
    /// The write was not sent: it is only observed what would be written.
    #[error("it is only observed")]
    Observed,
    /// The write gate refused: this worker may not write for this shard now.
    #[error("no authority to write")]
    NoAuthority,
}

impl WriteError {
    /// Whether the API server would have none of it, and not only of this version of the object.
    pub(crate) const fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Forbidden(_) | Self::Invalid(_) | Self::Unavailable(_)
        )
    }
}
