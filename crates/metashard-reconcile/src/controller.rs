//! One controller, compiled for reconciling: what its spec says, resolved once.

mod compile;
mod edition;
mod parents;
mod source;
mod strategy;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use metashard_api::{
    endpoint::Demand,
    hook::{Mode, Version, outer_key},
    id::{ControllerKind, ControllerUid},
    names::{ANNOTATION_DECORATOR, reason},
    resource::Resource,
    selector::Selector,
    v1alpha1::{
        composite::{CompositeController, StatusCondition},
        decorator::DecoratorController,
        webhook::Webhook,
    },
    validate::Finding,
};

pub use self::edition::Edition;
pub use self::strategy::{Apply, ApplyError, Strategy};

use crate::{
    claim,
    object::{Object, OwnerReference},
    request::Frame,
    sync::HookKind,
};

/// One controller, compiled for reconciling.
#[derive(Debug)]
pub struct Controller {
    /// Kind of the controller object.
    pub kind: ControllerKind,
    /// Uid of the controller object.
    pub uid: ControllerUid,
    /// Name of the controller object.
    pub name: String,
    /// What its object asks of whoever serves it.
    pub edition: Edition,
    /// The finalizer that it puts on its parents.
    pub finalizer: String,
    /// The kinds of parents, each once: one for a CompositeController, any number for a DecoratorController.
    pub parents: Vec<ParentRule>,
    /// Whether children are selected by the label `controller-uid`.
    pub generate_selector: bool,
    /// The kinds of children, in the order of the spec, without those in `missing`.
    pub children: Vec<ChildRule>,
    /// How revisions of parents are kept; `None` if no kind of children is moved one at a time.
    pub history: Option<History>,
    /// The hook that says which children should exist.
    pub sync: Option<Hook>,
    /// The hook that is called for parents that are on their way out; its presence puts the finalizer on parents.
    pub finalize: Option<Hook>,
    /// The hook that says which other objects these two want to see.
    pub customize: Option<Hook>,
    /// How often every parent is synced anyway; at least 1 s.
    pub resync_period: Option<Duration>,
    /// Whether the controller rests. Nothing here looks at it: the worker does not start it.
    pub paused: bool,
    /// How children are written.
    pub apply: Apply,
    /// Kinds of children, and of a decorator's targets, that the API server does not serve. The others are handled; compile anew when discovery changes.
    pub missing: Vec<Finding>,
    /// Fields without effect.
    pub notes: Vec<Finding>,
    /// The kinds of children that are missing.
    pub(crate) missing_children: Vec<Unserved>,
    /// Those of them that were served before: hooks see an empty group of each.
    pub(crate) lost: Vec<Arc<Resource>>,
    /// What all requests to its hooks have in common.
    pub(crate) frame: Frame,
    /// Tells memories of one compilation from those of another.
    pub(crate) fingerprint: u64,
}

/// One kind of parents; of targets, in the words of a DecoratorController.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParentRule {
    /// The resource.
    pub resource: Arc<Resource>,
    /// Which parents are handled, by their labels.
    pub labels: Selector,
    /// Which of those, by their annotations.
    pub annotations: Selector,
    /// Whether a change of a parent's status alone starts no sync.
    pub ignore_status_changes: bool,
}

/// A resource that the spec names and the API server does not serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unserved {
    pub(crate) api_version: String,
    pub(crate) plural: String,
}

/// One kind of children.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildRule {
    /// The resource.
    pub resource: Arc<Resource>,
    /// What is done to a child that differs from the desired one.
    pub update: UpdateStrategy,
    /// Whether objects without a controller that match the parent's selector become children.
    pub adopts: bool,
    /// Whether also an object without a controller becomes a child that has the name of a desired one, whatever its labels.
    pub takes_over: bool,
    /// Whether a child is let go where others are deleted.
    pub orphans: bool,
    /// Set if children are moved one at a time when the parent changes: the conditions that a moved child must show before the next.
    pub rolling: Option<Vec<StatusCondition>>,
}

/// How revisions of parents are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// The resource of ControllerRevisions.
    pub resource: Arc<Resource>,
    /// The fields of a parent that make a revision, as paths with dots.
    pub(crate) paths: Vec<String>,
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

/// One hook that is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// Version of the bodies.
    pub version: Version,
    /// Whether odd answers are refused.
    pub mode: Mode,
    /// Where it is reached.
    pub webhook: Webhook,
    /// Certificates and credentials that it is called with.
    pub security: Option<Demand>,
}

/// Why a controller cannot be run. Each finding names the field and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Its spec is wrong, or asks for what this version does not serve.
    #[error("{}", findings(.0))]
    Refused(Vec<Finding>),
    /// The API server does not serve the parent resource. Compile anew when discovery changes.
    #[error("{0}")]
    ParentNotFound(Finding),
    /// The parent resource has no status subresource. Compile anew when discovery changes.
    #[error("{0}")]
    NoStatus(Finding),
    /// The controller object has no uid or name, or its bytes are not those of an object.
    #[error("read the controller object: {0}")]
    Unreadable(String),
}

impl Error {
    /// The findings, for conditions and events.
    pub fn findings(&self) -> &[Finding] {
        match self {
            Self::Refused(findings) => findings,
            Self::ParentNotFound(finding) | Self::NoStatus(finding) => {
                std::slice::from_ref(finding)
            }
            Self::Unreadable(_) => &[],
        }
    }

    /// The reason for a condition.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Refused(findings) => findings
                .first()
                .map_or(reason::INVALID_SPEC, Finding::reason),
            Self::ParentNotFound(_) => reason::RESOURCE_NOT_FOUND,
            Self::NoStatus(_) => reason::NO_STATUS_SUBRESOURCE,
            Self::Unreadable(_) => reason::UNREADABLE,
        }
    }
}

fn findings(all: &[Finding]) -> String {
    all.iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(" | ")
}

impl Controller {
    /// Compiles a CompositeController. `raw` is the JSON that `object` was read from; `lookup` finds the resource of an
    /// apiVersion and plural in discovery.
    ///
    /// # Errors
    /// When it cannot be run. A kind of children that is not served is no error: see [`Controller::missing`].
    pub fn compile(
        object: &CompositeController,
        raw: &Bytes,
        lookup: &dyn Fn(&str, &str) -> Option<Arc<Resource>>,
    ) -> Result<Self, Error> {
        compile::composite(object, raw, lookup)
    }

    /// Compiles a DecoratorController, as [`Self::compile`] does a CompositeController.
    ///
    /// # Errors
    /// When it cannot be run. A kind of targets or attachments that is not served is no error as long as one kind of targets
    /// is: see [`Controller::missing`].
    pub fn compile_decorator(
        object: &DecoratorController,
        raw: &Bytes,
        lookup: &dyn Fn(&str, &str) -> Option<Arc<Resource>>,
    ) -> Result<Self, Error> {
        compile::decorator(object, raw, lookup)
    }

    /// The path of the list of children's kinds in its spec.
    pub(crate) fn child_list(&self) -> &'static str {
        child_list(self.kind)
    }

    /// The field of its hooks' answers that holds the children.
    pub(crate) fn answer_list(&self) -> &'static str {
        match self.kind {
            ControllerKind::Composite => "children",
            ControllerKind::Decorator => "attachments",
        }
    }

    /// Whether an object that its parent controls can be a child: an attachment carries the name of its decorator, so that
    /// several can decorate one target.
    pub fn can_be_child(&self, object: &Object) -> bool {
        self.kind == ControllerKind::Composite
            || object
                .annotation(ANNOTATION_DECORATOR)
                .is_some_and(|name| name == self.name)
    }

    /// The same controller with children written in another way. Memories of the one are nothing to the other.
    #[must_use]
    pub fn applying(mut self, apply: Apply) -> Self {
        // The same way twice is the same controller.
        self.fingerprint ^= self.apply.fingerprint() ^ apply.fingerprint();
        self.apply = apply;
        self
    }

    /// The same controller, whose hooks see an empty group of each missing kind of children that `known` still knows: a
    /// hook that has always found a group must find it also while the kind is away. What a kind that was never there is
    /// called, nobody can say.
    #[must_use]
    pub fn showing(mut self, known: &dyn Fn(&str, &str) -> Option<Arc<Resource>>) -> Self {
        let missing = self.missing_children.iter();
        self.lost = missing
            .filter_map(|it| known(&it.api_version, &it.plural))
            .collect();
        let keys = self.lost.iter().map(|it| outer_key(it));
        self.frame.show_empty(keys);
        self
    }

    /// Whether it holds its parents by its finalizer: the finalize hook is to be called, or children are to be let go.
    pub fn finalizes(&self) -> bool {
        self.finalize.is_some() || self.children.iter().any(|rule| rule.orphans)
    }

    /// The hook of a kind, if the controller has it.
    pub fn hook(&self, kind: HookKind) -> Option<&Hook> {
        match kind {
            HookKind::Sync => self.sync.as_ref(),
            HookKind::Finalize => self.finalize.as_ref(),
            HookKind::Customize => self.customize.as_ref(),
        }
    }

    /// The rule of a parent's kind, in any version.
    pub fn rule_of(&self, parent: &Object) -> Option<&ParentRule> {
        let is_of = |rule: &&ParentRule| rule.resource.is_of(parent.api_version(), parent.kind());
        self.parents.iter().find(is_of)
    }

    /// Whether a parent is selected by the rule of its kind.
    pub fn selects(&self, parent: &Object) -> bool {
        self.rule_of(parent).is_some_and(|rule| {
            rule.labels.matches(|key| parent.label(key))
                && rule.annotations.matches(|key| parent.annotation(key))
        })
    }

    /// Whether a parent is this controller's to handle: it is selected, or still carries the finalizer.
    pub fn concerns(&self, parent: &Object) -> bool {
        self.selects(parent)
            || (parent.has_finalizer(&self.finalizer) && self.rule_of(parent).is_some())
    }

    /// Whether an update of a parent starts no sync because nothing but its status changed and the spec says to ignore that.
    /// A deletion is never ignored, nor a kind without `metadata.generation`, whose other changes would not be seen.
    pub fn ignores_update(&self, old: &Object, new: &Object) -> bool {
        self.rule_of(new)
            .is_some_and(|rule| rule.ignore_status_changes)
            && new.generation() != 0
            && new.generation() == old.generation()
            && new.uid() == old.uid()
            && !new.is_deleting()
            && new.same_labels(old)
            && new.same_annotations(old)
    }

    /// Whether an ownerless object is one that a parent's selector picks, so that the parent would adopt it.
    pub fn picks(&self, parent: &Object, orphan: &Object) -> bool {
        claim::selector(self, parent).is_ok_and(|it| it.matches(|key| orphan.label(key)))
    }

    /// The reference of a child to its controlling parent, and the index of the rule of that parent's kind in any version;
    /// `None` if it can be no child of this controller.
    pub fn parent_of<'a>(&self, child: &'a Object) -> Option<(usize, OwnerReference<'a>)> {
        let owner = child.controller_owner()?;
        let is_of = |rule: &ParentRule| rule.resource.is_of(owner.api_version, owner.kind);
        let rule = self.parents.iter().position(is_of)?;
        self.can_be_child(child).then_some((rule, owner))
    }
}

/// The field of a spec that lists the kinds of children.
fn child_list(kind: ControllerKind) -> &'static str {
    match kind {
        ControllerKind::Composite => "childResources",
        ControllerKind::Decorator => "attachments",
    }
}
