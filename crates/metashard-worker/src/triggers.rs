//! Which events of parents and children start a sync, and of which parent.
//!
//! The rules are Metacontroller's, and those about one object are the compiled controller's own; here keys are pushed.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use metashard_api::{id::ControllerKind, names};
use metashard_fleet::{
    queue::{Cause, FlowId},
    shard::Cut,
};
use metashard_kube::informer::{Event, Subscriber, View};
use metashard_reconcile::{controller::Controller, object::Object};

use crate::{dispatch::Dispatcher, key::ParentKey};

/// The parents that may adopt an ownerless `child`, among those of the cache.
///
/// With a generated selector only the parent that the label names; else those in its namespace whose own selectors pick it.
fn possible_parents(child: &Object, controller: &Controller, parents: &[View]) -> Vec<ParentKey> {
    // A decorator adopts nothing.
    let adopts = controller.kind == ControllerKind::Composite;
    if !adopts || child.is_deleting() || child.labels().next().is_none() {
        return Vec::new();
    }
    let named = child.label(names::LABEL_CONTROLLER_UID);
    if controller.generate_selector && named.is_none() {
        return Vec::new();
    }
    let is_possible = |parent: &&Arc<Object>| {
        parent
            .namespace()
            .is_none_or(|it| child.namespace() == Some(it))
            && if controller.generate_selector {
                named == Some(parent.uid())
            } else {
                controller.picks(parent, child)
            }
    };
    let mut keys = Vec::new();
    for (rule, view) in parents.iter().enumerate() {
        let found = view.list();
        let possible = found.iter().filter(is_possible);
        keys.extend(possible.map(|parent| ParentKey::of(rule, parent)));
    }
    keys
}

/// Whether the objects that were there at the start have been told: those are no news, but a controller that begins.
#[derive(Debug, Default)]
pub(crate) struct Begun(AtomicBool);

impl Begun {
    fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// The cause of an event, which is the controller's own begin until that is over.
    fn or_move(&self, cause: Cause) -> Cause {
        if self.0.load(Ordering::Relaxed) {
            cause
        } else {
            Cause::ShardMove
        }
    }
}

/// Whether a change of a controller object asks for a sync of all its parents. An edit of a parent needs no such thing: any
/// change of its annotations starts a sync.
pub(crate) fn asks_for_sync(old: &Object, new: &Object) -> bool {
    let asked = |object: &Object| {
        let value = object.annotation(names::ANNOTATION_SYNC_NOW);
        value.map(std::borrow::Cow::into_owned)
    };
    asked(new).is_some_and(|value| asked(old) != Some(value))
}

/// Where keys go, and of which parents.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    /// The queue.
    pub(crate) dispatcher: Arc<Dispatcher>,
    /// The controller's flow.
    pub(crate) flow: FlowId,
    /// The part of the parents that is served here.
    pub(crate) cut: Cut,
}

impl Keys {
    /// Pushes the keys that are served here.
    fn push(&self, keys: impl IntoIterator<Item = ParentKey>, cause: Cause) {
        let ours = keys.into_iter().filter(|key| {
            let (namespace, name) = key.parts();
            self.cut.takes(namespace, name)
        });
        self.dispatcher.push_all(self.flow, ours, cause);
    }
}

/// Pushes the keys of parents that changed.
pub(crate) struct ParentEvents {
    /// The controller that they are parents of.
    pub(crate) controller: Arc<Controller>,
    /// Index of the rule of their kind.
    pub(crate) rule: usize,
    /// Where their keys go.
    pub(crate) keys: Keys,
    /// Whether the start is over.
    pub(crate) begun: Begun,
}

impl ParentEvents {
    /// Why a sync of a parent starts that was `old` and is `new`.
    fn cause(&self, old: Option<&Object>, new: &Object) -> Cause {
        let asked = |it: &Object| it.annotation(names::ANNOTATION_SYNC_NOW).map(Into::into);
        match old {
            Some(old) if asked(old) != asked(new) as Option<String> => Cause::Asked,
            _ => self.begun.or_move(Cause::Parent),
        }
    }
}

impl Subscriber for ParentEvents {
    fn on_event(&self, event: Event) {
        // First of all: of a split controller, most are others'.
        let (Event::Applied { new: of, .. } | Event::Deleted { old: of }) = &event else {
            return self.begun.set();
        };
        if !self.keys.cut.takes(of.namespace(), of.name()) {
            return;
        }
        let concerns = |parent: &Object| self.controller.concerns(parent);
        let (parent, cause) = match event {
            Event::Applied { old, new } => {
                let old = old.as_deref();
                let is_ours = concerns(&new) || old.is_some_and(concerns);
                if !is_ours || old.is_some_and(|old| self.controller.ignores_update(old, &new)) {
                    return;
                }
                let cause = self.cause(old, &new);
                (new, cause)
            }
            Event::Deleted { old } => (old, Cause::Parent),
            Event::Synced => return,
        };
        self.keys.push([ParentKey::of(self.rule, &parent)], cause);
    }
}

/// Pushes the keys of parents whose children changed.
pub(crate) struct ChildEvents {
    /// The controller that they are children of.
    pub(crate) controller: Arc<Controller>,
    /// The caches of parents, by parent rule.
    pub(crate) parents: Arc<[View]>,
    /// Where their keys go.
    pub(crate) keys: Keys,
    /// Whether the start is over.
    pub(crate) begun: Begun,
}

impl ChildEvents {
    /// The key of the child's controlling parent, if the cache has that very parent.
    fn controlling_parent(&self, child: &Object) -> Option<ParentKey> {
        let (rule, owner) = self.controller.parent_of(child)?;
        let parents = self.parents.get(rule)?;
        let namespace = child
            .namespace()
            .filter(|_| parents.key().resource().namespaced);
        if !self.keys.cut.takes(namespace, owner.name) {
            return None;
        }
        let parent = parents.get(namespace, owner.name)?;
        (owner.uid == parent.uid()).then(|| ParentKey::of(rule, &parent))
    }

    fn changed_hands(&self, old: &Object, new: &Object) -> bool {
        let can_be_child = |object| self.controller.can_be_child(object);
        old.controller_owner().is_some_and(|before| {
            let after = new.controller_owner();
            after.is_none_or(|after| after.uid != before.uid)
                || (can_be_child(old) && !can_be_child(new))
        })
    }

    fn push(&self, child: &Object) {
        let cause = self.begun.or_move(Cause::Child);
        if child.controller_owner().is_some() {
            if let Some(key) = self.controlling_parent(child) {
                self.keys.push([key], cause);
            }
        } else if cause == Cause::Child {
            // At the start every parent is synced anyway.
            let keys = possible_parents(child, &self.controller, &self.parents);
            self.keys.push(keys, cause);
        }
    }
}

impl Subscriber for ChildEvents {
    fn on_event(&self, event: Event) {
        match event {
            Event::Applied { old, new } => {
                // A child that was given away, or lost its decorator's mark, concerns the parent that had it.
                if let Some(old) = old.filter(|old| self.changed_hands(old, &new)) {
                    self.push(&old);
                }
                self.push(&new);
            }
            Event::Deleted { old } => {
                if let Some(key) = self.controlling_parent(&old) {
                    self.keys.push([key], Cause::Child);
                }
            }
            Event::Synced => self.begun.set(),
        }
    }
}
