//! What one pass over one parent came to.

use std::sync::Arc;

use crate::{memory::Memory, object::Object, requeue::Requeue};

/// What one pass over one parent came to.
#[derive(Debug)]
pub struct Outcome {
    /// In one word, for metrics, logs and conditions.
    pub verdict: Verdict,
    /// When to come back.
    pub requeue: Requeue,
    /// Events to record on the parent.
    pub events: Vec<Event>,
    /// What to pass in with the next sync of this parent.
    pub memory: Memory,
    /// What was written.
    pub counts: Counts,
    /// Objects as our writes left them, for whoever waits until caches have caught up.
    pub written: Vec<Arc<Object>>,
}

/// The outcome in one word, with a text where there is one to tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The parent is not this controller's: nothing was done.
    Unselected,
    /// The parent has gone meanwhile.
    Gone,
    /// Everything is as desired: nothing was written.
    Unchanged,
    /// All writes that were needed were made.
    Changed,
    /// Something was no longer as observed; a later sync goes on.
    Stale,
    /// The hook asked to wait (429).
    Throttled,
    /// The call of the hook failed, with the reason.
    HookFailed(String),
    /// The hook's answer was refused whole, nothing was written; with the reason.
    AnswerRefused(String),
    /// The delete guard holds the answer back and asks the hook again.
    Held(String),
    /// The parent itself, or a write, stands in the way; with the reason.
    Failed(String),
    /// This worker lost its right to write.
    NoAuthority,
}

impl Verdict {
    /// A word for labels of metrics and fields of logs.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Unselected => "unselected",
            Self::Gone => "gone",
            Self::Unchanged => "unchanged",
            Self::Changed => "changed",
            Self::Stale => "stale",
            Self::Throttled => "throttled",
            Self::HookFailed(_) => "hook_failed",
            Self::AnswerRefused(_) => "answer_refused",
            Self::Held(_) => "held",
            Self::Failed(_) => "failed",
            Self::NoAuthority => "no_authority",
        }
    }
}

/// One event to record on the parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Whether it warns, or just tells.
    pub warning: bool,
    /// One of `metashard_api::names::event`.
    pub reason: &'static str,
    /// For people; never holds content of a Secret or of a hook's answer beyond names and fields.
    pub message: String,
}

/// How many writes of each sort were made and answered well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Children created.
    pub created: u32,
    /// Children updated in place.
    pub updated: u32,
    /// Children deleted because they are no longer desired, or to be recreated.
    pub deleted: u32,
    /// Children adopted, released or relabelled.
    pub claimed: u32,
    /// Writes to the parent: status and finalizer.
    pub parent: u32,
}

impl Counts {
    /// All writes.
    pub const fn total(&self) -> u32 {
        self.created + self.updated + self.deleted + self.claimed + self.parent
    }
}
