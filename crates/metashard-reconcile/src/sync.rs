//! One pass over one parent, as a machine: it says what to do next and is fed with what came of it.
//!
//! The worker, and whoever renders or replays a plan, drive the same machine:
//!
//! ```text
//! let mut machine = SyncMachine::new(input);
//! loop {
//!     match machine.next() {
//!         Step::Write(writes) => machine.feed(Fed::Written(carry out all, results in order)),
//!         Step::ReadParent => machine.feed(Fed::Parent(read it from the API server)),
//!         Step::CallHook(call) => machine.feed(Fed::Hook(call it)),
//!         Step::Relate(rules) => machine.feed(Fed::Related(compile them, find the objects)),
//!         Step::Done(outcome) => break outcome,
//!     }
//! }
//! ```

mod carry;
mod decorate;
mod leaving;
mod machine;
mod relate;
mod report;
mod rest;
mod rolling;
mod trial;
mod work;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use metashard_api::{hook::RelatedRule, resource::Resource, selector::Selector};
use serde_json::Value;

use self::{
    relate::Relating,
    report::Report,
    rolling::{Answered, Collecting, RevisionWrites},
};
pub use crate::outcome::{Counts, Event, MAX_MESSAGE, Outcome, Refused, Verdict};
use crate::{
    children::{Plan, Planned},
    claim::Claims,
    controller::Controller,
    decorate::Decoration,
    memory::Memory,
    object::Object,
    related::{self, Related},
    write::{Write, WriteError, WriteResult},
};

/// Time for which the delete guard holds an answer before the hook is asked again.
pub const GUARD_DELAY: Duration = Duration::from_secs(1);

/// More children than this, and more than half, must be about to vanish for the delete guard to hold an answer.
pub const GUARD_CHILDREN: usize = 20;

/// What a pass starts from.
#[derive(Debug)]
pub struct SyncInput {
    /// The controller, compiled.
    pub controller: Arc<Controller>,
    /// The resource that the parent is of: that of one of the controller's parent rules.
    pub resource: Arc<Resource>,
    /// The parent as the cache has it.
    pub parent: Arc<Object>,
    /// For each child rule of the controller, in its order: what may be a child.
    pub candidates: Vec<Candidates>,
    /// What may be revisions of the parent; empty if the controller keeps none.
    pub revisions: Candidates,
    /// What the last sync of this parent handed back.
    pub memory: Memory,
}

/// What the cache has of one child rule: objects controlled by the parent's uid, and objects without a controller,
/// in the parent's namespace (in all of them if the parent is cluster-scoped). Others may be among them and are passed over.
#[derive(Debug, Default)]
pub struct Candidates {
    /// The objects, in any order.
    pub objects: Vec<Arc<Object>>,
    /// The resourceVersion that the cache had reached, or `None` if it does not know.
    /// With it, an object of our own making that has not come in yet is told from one that is gone.
    pub reached: Option<Box<str>>,
}

impl From<Vec<Arc<Object>>> for Candidates {
    fn from(objects: Vec<Arc<Object>>) -> Self {
        Self {
            objects,
            reached: None,
        }
    }
}

/// What to do next.
#[derive(Debug)]
pub enum Step {
    /// Carry these out, concurrently; feed [`Fed::Written`] with the results in the same order.
    Write(Vec<Write>),
    /// Read the parent from the API server, not from a cache; feed [`Fed::Parent`].
    ReadParent,
    /// Call a hook; feed [`Fed::Hook`].
    CallHook(HookCall),
    /// Find what these rules of the customize hook ask for; feed [`Fed::Related`]. They are the same `Arc` as in the last
    /// sync of this parent if the hook was not asked anew.
    Relate(Arc<[RelatedRule]>),
    /// The pass is over.
    Done(Box<Outcome>),
}

/// Which hook to call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HookKind {
    /// `spec.hooks.sync`.
    Sync,
    /// `spec.hooks.finalize`.
    Finalize,
    /// `spec.hooks.customize`.
    Customize,
}

impl HookKind {
    /// The hook's name, as in the spec, in metrics and in error texts.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Finalize => "finalize",
            Self::Customize => "customize",
        }
    }
}

/// One call of a hook.
#[derive(Debug, Clone)]
pub struct HookCall {
    /// Which one.
    pub hook: HookKind,
    /// The JSON body, as pieces to be sent one after the other.
    pub body: Vec<Bytes>,
    /// Name of the older revision that the parent is shown at; `None`: as it is.
    pub revision: Option<Box<str>>,
}

/// What came of a step.
#[derive(Debug)]
pub enum Fed {
    /// The results of [`Step::Write`], in order.
    Written(Vec<WriteResult>),
    /// What [`Step::ReadParent`] found; `Ok(None)`: it is gone.
    Parent(Result<Option<Arc<Object>>, WriteError>),
    /// What came of [`Step::CallHook`].
    Hook(HookResult),
    /// What [`Step::Relate`] found.
    Related(Result<Related, Unrelated>),
}

/// Why there are no related objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unrelated {
    /// They are not all known yet. Whoever says so starts another sync once they are.
    NotYet,
    /// The rules cannot be followed.
    Refused(related::Error),
}

/// What came of one call of a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookResult {
    /// Status 200, with the body.
    Answer(Bytes),
    /// Status 429.
    TooManyRequests {
        /// The time the hook asked for, within sane limits; `None`: the normal backoff.
        retry_after: Option<Duration>,
    },
    /// Status 503 with the time after which the hook wants to be asked again.
    Unavailable {
        /// For people.
        error: String,
        /// That time, within sane limits.
        retry_after: Duration,
    },
    /// Anything else, with a text for people.
    Failed(String),
    /// The answer came without authority, or the call was cancelled: nothing is known.
    NoAuthority,
}

/// One pass over one parent.
#[derive(Debug)]
pub struct SyncMachine {
    controller: Arc<Controller>,
    /// The parent's.
    resource: Arc<Resource>,
    parent: Arc<Object>,
    /// What may be a child, by rule.
    candidates: Vec<Vec<Arc<Object>>>,
    /// What may be revisions of the parent; once children are claimed, those that are.
    revisions: Vec<Arc<Object>>,
    /// The objects that the hooks see beside parent and children.
    related: Related,
    /// The selector of the parent's children, once it is needed.
    selector: Option<Selector>,
    /// Whether `parent` was read from the API server in this pass.
    is_fresh: bool,
    memory: Memory,
    report: Report,
    stage: Stage,
    pending: Option<Step>,
}

/// Where a pass stands: what the next result is about.
#[derive(Debug)]
enum Stage {
    /// The last pass found the parent gone.
    Confirming,
    AddingFinalizer,
    /// After the finalizer was set: a deletion may have overtaken it.
    Rereading,
    /// The finalizer of a hook that is no more.
    DroppingFinalizer,
    /// Before an adoption: the parent must still be there.
    ReadingForAdoption,
    Claiming(Vec<Claims>),
    Customizing(Relating),
    Relating(Relating),
    Calling(Called),
    /// The hook is called for one older revision after the other.
    CallingOlder(Box<Collecting>),
    WritingRevisions(Box<Work>, Vec<Write>),
    /// Of a deleted parent: its children stay.
    LettingGo(Vec<Planned>),
    /// Before an object is taken over: the parent must still be there.
    ReadingForTakeOver(Box<Work>),
    RemovingFinalizer(Box<Work>),
    Deleting(Box<Work>),
    /// Before children are recreated: would they change?
    Trying(Box<Work>),
    Applying(Box<Work>),
    WritingStatus(Box<Work>),
    /// What a decorator wants of its target; the status is in it if that has no subresource.
    WritingTarget(Box<Work>),
    Over,
}

/// A call of a hook under way.
#[derive(Debug)]
struct Called {
    hook: HookKind,
    /// Hash of all that the request is made of.
    inputs: u128,
    /// The claimed children of each rule.
    mine: Vec<Vec<Arc<Object>>>,
    /// The older revisions of a parent whose children are moved one at a time, with their answers.
    older: Option<Box<Answered>>,
}

/// What an answer asks for.
#[derive(Debug)]
struct Work {
    plan: Plan,
    /// The status to be; `None`: it stays.
    status: Option<Value>,
    /// What a decorator wants of its target itself.
    decoration: Option<Decoration>,
    revisions: RevisionWrites,
}
