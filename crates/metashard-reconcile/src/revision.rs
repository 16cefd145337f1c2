//! ControllerRevisions: states of a parent that some of its children are at, and the roll-out that moves children to the latest.
//!
//! All state of a roll-out is in the cluster: each revision names the children that are at it. Names, labels and content are
//! Metacontroller's, so that either can go on with what the other began.

mod content;
mod health;
pub mod patch;
mod rollout;

pub(crate) use content::{Members, Revisions, Scope};
pub(crate) use rollout::{Older, Progress, roll};
