//! What one pass over one parent came to.

use std::{borrow::Cow, error::Error, fmt::Write as _, sync::Arc};

use metashard_api::names::event;

use crate::{
    memory::Memory,
    object::Object,
    requeue::Requeue,
    write::{Purpose, Write, WriteError},
};

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
    /// Writes, and reads of the parent, that the API server refused: for want of a right, for their content, or because it could not.
    pub refused: Vec<Refused>,
    /// What is told of each child that is fought over, and therefore let be for a while.
    pub fights: Vec<Box<str>>,
    /// Whether `requeue` is for one of these, and not for the hook's own timer.
    pub for_fight: bool,
    /// Objects as our writes left them, for whoever waits until caches have caught up.
    pub written: Vec<Arc<Object>>,
}

/// A write that the API server refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// What was attempted: `create ConfigMap ns/name`.
    pub write: String,
    /// What it was for; `None` of what was only to be read.
    pub purpose: Option<Purpose>,
    /// Why not.
    pub error: WriteError,
}

impl Refused {
    pub(crate) fn new(write: &Write, error: WriteError) -> Self {
        Self {
            write: write.to_string(),
            purpose: Some(write.purpose),
            error,
        }
    }

    /// Of a write to the parent.
    pub(crate) fn parent(purpose: Purpose, parent: &Object, error: WriteError) -> Self {
        Self {
            write: format!("{} {parent}", purpose.verb()),
            purpose: Some(purpose),
            error,
        }
    }

    /// Of reading the parent anew.
    pub(crate) fn read(parent: &Object, error: WriteError) -> Self {
        Self {
            write: format!("read {parent}"),
            purpose: None,
            error,
        }
    }
}

/// The outcome in one word, with a text where there is one to tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The parent is not this controller's: nothing was done.
    Unselected,
    /// The parent rests, by its annotation: nothing was done.
    Paused,
    /// The parent has gone meanwhile.
    Gone,
    /// Everything is as desired: nothing was written.
    Unchanged,
    /// All writes that were needed were made.
    Changed,
    /// Writes are needed, and none was sent: it is only observed what would be written.
    Observed,
    /// Something was no longer as observed; a later sync goes on.
    Stale,
    /// The related objects are not all known yet: whoever fetches them starts the next sync.
    Waiting,
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
            Self::Paused => "paused",
            Self::Gone => "gone",
            Self::Unchanged => "unchanged",
            Self::Changed => "changed",
            Self::Observed => "observed",
            Self::Stale => "stale",
            Self::Waiting => "waiting",
            Self::Throttled => "throttled",
            Self::HookFailed(_) => "hook_failed",
            Self::AnswerRefused(_) => "answer_refused",
            Self::Held(_) => "held",
            Self::Failed(_) => "failed",
            Self::NoAuthority => "no_authority",
        }
    }

    /// The text of a verdict that has one, for people.
    pub fn message(&self) -> Option<&str> {
        match self {
            Self::HookFailed(text)
            | Self::AnswerRefused(text)
            | Self::Held(text)
            | Self::Failed(text) => Some(text),
            Self::Unselected
            | Self::Paused
            | Self::Gone
            | Self::Unchanged
            | Self::Changed
            | Self::Observed
            | Self::Stale
            | Self::Waiting
            | Self::Throttled
            | Self::NoAuthority => None,
        }
    }
}

/// One event to record on the parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Whether its type is `Warning` and not `Normal`.
    pub is_warning: bool,
    /// One of `metashard_api::names::event`, or the hook's own word.
    pub reason: Cow<'static, str>,
    /// For people, at most [`MAX_MESSAGE`] bytes; holds names and fields of a hook's answer, never its values.
    pub message: String,
}

/// Longest message of an event, in bytes: the API server's limit.
pub const MAX_MESSAGE: usize = 1024;

impl Event {
    /// A warning.
    pub(crate) fn warning(reason: &'static str, mut message: String) -> Self {
        message.truncate(message.floor_char_boundary(MAX_MESSAGE));
        Self {
            is_warning: true,
            reason: Cow::Borrowed(reason),
            message,
        }
    }

    /// News that nobody need do anything about.
    pub(crate) fn note(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            is_warning: false,
            reason: Cow::Borrowed(reason),
            message: message.into(),
        }
    }

    /// A failed sync, in Metacontroller's words.
    pub(crate) fn sync_error(error: &str) -> Self {
        Self::warning(event::SYNC_ERROR, format!("Sync error: {error}"))
    }
}

/// An error with its sources.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let _ok = write!(text, ": {error}");
        source = error.source();
    }
    text
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
    /// Writes to ControllerRevisions.
    pub revisions: u32,
}

impl Counts {
    /// All writes.
    pub const fn total(&self) -> u32 {
        self.created + self.updated + self.deleted + self.claimed + self.parent + self.revisions
    }
}
