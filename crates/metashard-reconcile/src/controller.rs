//! One controller, compiled for reconciling: what its spec says, resolved once.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use metashard_api::{id::ControllerUid, resource::Resource};

/// One CompositeController, compiled for reconciling.
#[derive(Debug)]
pub struct Controller {
    /// Uid of the controller object.
    pub uid: ControllerUid,
    /// Name of the controller object.
    pub name: String,
    /// `metadata.generation` of the controller object that was compiled.
    pub generation: i64,
    /// The controller object as hooks see it: with an empty status.
    pub raw: Bytes,
    /// The finalizer that it puts on its parents.
    pub finalizer: String,
    /// The parent resource.
    pub parent: Arc<Resource>,
    /// Whether a change of a parent's status alone starts no sync.
    pub ignore_status_changes: bool,
    /// Whether children are selected by the label `controller-uid`.
    pub generate_selector: bool,
    /// The kinds of children, in the order of the spec.
    pub children: Vec<ChildRule>,
    /// How often every parent is synced anyway; at least 1 s.
    pub resync_period: Option<Duration>,
}

/// One kind of children.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildRule {
    /// The resource.
    pub resource: Arc<Resource>,
    /// What is done to a child that differs from the desired one.
    pub update: UpdateStrategy,
}

/// What is done to a child that differs from the desired one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateStrategy {
    /// Nothing, until somebody deletes it.
    OnDelete,
    /// It is deleted, and created anew by a later sync.
    Recreate,
    /// It is updated.
    InPlace,
}
