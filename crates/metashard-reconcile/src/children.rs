//! What happens to each child: desired and observed against each other, by update strategy.

pub(crate) mod change;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use metashard_api::{id::ControllerKind, resource::Resource};
use serde_json::Value;

use crate::{
    answer::Desired,
    apply,
    children::change::Change,
    claim::{is_made_for, owner},
    controller::{ChildRule, Controller, Strategy, UpdateStrategy},
    fights,
    memory::{Known, Memory, hash_name, hash_version},
    object::Object,
    outcome::chain,
    policies::{self, may_take_over},
    serverside::Applied,
    write::{Aim, Op, Propagation, Purpose, Write},
};

/// What is to be done to the children of one parent, and what was found on the way.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Children that should not exist.
    pub(crate) deletes: Vec<Planned>,
    /// Children to create, update, or delete to be recreated.
    pub(crate) applies: Vec<Planned>,
    /// Children of which the API server is asked first whether they would change.
    pub(crate) trials: Vec<Trial>,
    /// What is known of children that need no write.
    pub(crate) known: Vec<Known>,
    /// Desired children whose names are taken by objects that are not the parent's.
    pub(crate) taken: Vec<String>,
    /// Children that cannot be compared, with the reason.
    pub(crate) broken: Vec<String>,
    /// How many observed children are not being deleted already.
    pub(crate) living: usize,
}

/// One write, and what it is about.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) write: Write,
    /// Index of the child's rule.
    pub(crate) rule: usize,
    /// Uid of the observed child.
    pub(crate) uid: Option<Box<str>>,
    /// The desired object, for what is to be known once it is written.
    pub(crate) desired: Option<Box<Desired>>,
    /// Set if the child was as desired before.
    pub(crate) repair: Option<Repair>,
}

/// A write of a child whose desired state has not changed since it was last found or made as desired.
#[derive(Debug)]
pub(crate) struct Repair {
    /// Hash of the child's name.
    pub(crate) name: u64,
    /// Hash of what is desired of it.
    pub(crate) wish: u64,
    /// If it is one too many: what is told of it.
    pub(crate) text: Option<String>,
}

/// A question to the API server: does this child differ from the desired one, so that it must be recreated?
#[derive(Debug)]
pub(crate) struct Trial {
    /// What is tried.
    pub(crate) planned: Planned,
    pub(crate) child: Arc<Object>,
    /// What differs, as far as it is known.
    pub(crate) why: String,
}

/// What children are planned from.
pub(crate) struct Scope<'a> {
    pub(crate) controller: &'a Controller,
    /// The parent's.
    pub(crate) resource: &'a Resource,
    pub(crate) parent: &'a Object,
    /// The claimed children of each rule, sorted by namespace and name.
    pub(crate) mine: &'a [Vec<Arc<Object>>],
    /// All candidates of each rule.
    pub(crate) candidates: &'a [Vec<Arc<Object>>],
    pub(crate) memory: &'a Memory,
}

impl Scope<'_> {
    /// Plans all children.
    pub(crate) fn plan(&self, desired: Vec<Desired>) -> Plan {
        let mut plan = Plan::default();
        let all = self.mine.iter().flatten();
        plan.living = all.filter(|child| !self.is_going(child)).count();
        let mut is_desired: Vec<_> = self.mine.iter().map(|it| vec![false; it.len()]).collect();
        let mut strangers = None;
        let mut rest = desired.into_iter();
        while let Some(desired) = rest.next() {
            if let Some((index, child)) = self.find(&desired) {
                let child = Arc::clone(child);
                let marks = is_desired.get_mut(desired.rule);
                if let Some(mark) = marks.and_then(|it| it.get_mut(index)) {
                    *mark = true;
                }
                self.compare(desired, &child, &mut plan);
            } else {
                let missing = || self.strangers([&desired].into_iter().chain(rest.as_slice()));
                let strangers = strangers.get_or_insert_with(missing);
                let other = strangers.get(&name_of(&desired)).copied().flatten();
                let other = other.filter(|it| {
                    it.name() == desired.name && it.namespace() == desired.namespace.as_deref()
                });
                self.create(desired, other, &mut plan);
            }
        }
        self.delete_others(&is_desired, &mut plan);
        plan
    }

    /// Plans the end of the claimed children of each rule that are not desired.
    fn delete_others(&self, is_desired: &[Vec<bool>], plan: &mut Plan) {
        for (rule, is_desired) in is_desired.iter().enumerate() {
            let Some(of) = self.controller.children.get(rule) else {
                continue;
            };
            let children = self.mine.get(rule).into_iter().flatten().zip(is_desired);
            let left =
                children.filter(|(child, is_desired)| !**is_desired && !self.is_going(child));
            for (child, _) in left {
                let write = if of.orphans {
                    policies::orphan(of, self.parent, child)
                } else {
                    let why = "it is not desired any more";
                    delete(of, child, Purpose::DeleteChild, why)
                };
                let uid = Some(child.uid().into());
                plan.deletes.push(Planned {
                    write,
                    rule,
                    uid,
                    desired: None,
                    repair: None,
                });
            }
        }
    }

    /// Whether an observed child needs no write to be as desired, under the strategy by which its kind is changed.
    pub(crate) fn is_current(&self, desired: &Desired, child: &Object) -> bool {
        let Some(rule) = self.controller.children.get(desired.rule) else {
            return false;
        };
        let known = self.known(desired);
        if known.is_some_and(|known| known.observed == hash_version(child)) {
            return true;
        }
        let last = known.map_or(0, |known| known.disagreement);
        let change = self.change(rule.update, child, &desired.object, last);
        matches!(change, Ok(Change::None { .. }))
    }

    /// Whether it is remembered that an observed child is as desired: nothing is parsed.
    pub(crate) fn is_known(&self, desired: &Desired, child: &Object) -> bool {
        self.known(desired)
            .is_some_and(|known| known.observed == hash_version(child))
    }

    fn known(&self, desired: &Desired) -> Option<Known> {
        self.memory.known(name_of(desired), desired.wish)
    }

    /// The claimed child of a desired one's name.
    pub(crate) fn find(&self, desired: &Desired) -> Option<(usize, &Arc<Object>)> {
        let children = self.mine.get(desired.rule)?;
        let name = (desired.namespace.as_deref(), desired.name.as_str());
        let index = children
            .binary_search_by(|it| (it.namespace(), it.name()).cmp(&name))
            .ok()?;
        children.get(index).map(|child| (index, child))
    }

    /// Whether a child is being deleted, or was deleted by us.
    pub(crate) fn is_going(&self, child: &Object) -> bool {
        child.is_deleting() || self.memory.has_deleted(child)
    }

    /// `other`: an object of that name that is in the way.
    fn create(&self, desired: Desired, other: Option<&Object>, plan: &mut Plan) {
        let Some(rule) = self.controller.children.get(desired.rule) else {
            return;
        };
        let write = Write {
            resource: Arc::clone(&rule.resource),
            namespace: desired.namespace.as_deref().map(Into::into),
            name: desired.name.as_str().into(),
            op: Op::Create {
                body: Vec::new().into(),
            },
            purpose: Purpose::CreateChild,
            why: "it is desired and not there".into(),
        };
        if let Some(other) = other.filter(|it| may_take_over(rule, self.parent, it)) {
            let object = &desired.object;
            plan.applies.push(Planned {
                write: policies::take_over(self.resource, rule, self.parent, other, object),
                rule: desired.rule,
                uid: Some(other.uid().into()),
                desired: None,
                repair: None,
            });
            return;
        }
        if let Some(other) = other {
            plan.taken.push(taken(self.controller, &write, Some(other)));
            return;
        }
        let known = self.known(&desired);
        if let Some(known) = known.filter(|known| self.is_held(known)) {
            plan.known.push(known);
            return;
        }
        let repair = known.map(|known| {
            let text = || fights::text(&write, "it is deleted", None);
            self.repair(&known, text)
        });
        match self.creation(&desired.object) {
            Ok(op) => plan.applies.push(Planned {
                write: Write { op, ..write },
                rule: desired.rule,
                uid: None,
                desired: Some(Box::new(desired)),
                repair,
            }),
            Err(error) => plan.broken.push(format!("{write}: {}", chain(&error))),
        }
    }

    /// Whether a child is fought over, and let be for now.
    fn is_held(&self, known: &Known) -> bool {
        let hold = |now| self.memory.fights.hold(known.name, known.wish, now);
        self.memory.now.and_then(hold).is_some()
    }

    /// One more repair of a child. `text` is made up only if it is one too many.
    fn repair(&self, known: &Known, text: impl FnOnce() -> String) -> Repair {
        let Known { name, wish, .. } = *known;
        let fights = &self.memory.fights;
        let is_too_many = |now: &Duration| fights.is_next_too_many(name, wish, *now);
        let text = self.memory.now.filter(is_too_many).map(|_| text());
        Repair { name, wish, text }
    }

    /// For each of these desired children that is not there, by the hash of its name, an object of that name which is in
    /// the way: it is known, it stays, and it is not the parent's.
    fn strangers<'b>(
        &self,
        desired: impl Iterator<Item = &'b Desired>,
    ) -> BTreeMap<u64, Option<&Object>> {
        if self.candidates.iter().all(Vec::is_empty) {
            return BTreeMap::new();
        }
        let missing = desired.filter(|it| self.find(it).is_none());
        let mut strangers: BTreeMap<_, _> = missing.map(|it| (name_of(it), None)).collect();
        for (rule, candidates) in self.candidates.iter().enumerate() {
            for object in candidates {
                let name = hash_name(rule, object.namespace(), object.name());
                if let Some(stranger @ None) = strangers.get_mut(&name)
                    && !self.is_going(object)
                    && !is_made_for(self.controller, self.parent, object)
                {
                    *stranger = Some(&**object);
                }
            }
        }
        strangers
    }

    fn creation(&self, desired: &Value) -> Result<Op, apply::Error> {
        match self.controller.apply.strategy {
            Strategy::ServerSide => self.applied(desired).create(),
            Strategy::Dynamic => {
                let mut object = apply::create(desired)?;
                add_owner(&mut object, self.resource, self.parent);
                Ok(Op::Create {
                    body: object.to_string().into(),
                })
            }
        }
    }

    fn applied<'b>(&'b self, desired: &'b Value) -> Applied<'b> {
        Applied {
            apply: &self.controller.apply,
            resource: self.resource,
            parent: self.parent,
            desired,
        }
    }

    /// What is to be done to a child. `last`: what the API server had otherwise when it was last written.
    pub(crate) fn change(
        &self,
        strategy: UpdateStrategy,
        child: &Object,
        desired: &Value,
        last: u64,
    ) -> Result<Change, apply::Error> {
        let applied = self.applied(desired);
        match self.controller.apply.strategy {
            Strategy::ServerSide => applied.change(strategy, child, last),
            Strategy::Dynamic => change::dynamic(strategy, &applied, child, last),
        }
    }

    fn compare(&self, desired: Desired, child: &Arc<Object>, plan: &mut Plan) {
        let Some(rule) = self.controller.children.get(desired.rule) else {
            return;
        };
        if desired.held || self.is_going(child) {
            return;
        }
        let known = self.known(&desired);
        let observed = hash_version(child);
        if let Some(known) = known.filter(|known| known.observed == observed) {
            plan.known.push(known);
            return;
        }
        let last = known.map_or(0, |known| known.disagreement);
        let change = self.change(rule.update, child, &desired.object, last);
        let change =
            change.and_then(|change| Ok((self.op(&change, child, &desired.object)?, change)));
        let ((op, purpose), change) = match change {
            Ok((Some(op), change)) => (op, change),
            Ok((None, Change::None { disagreement })) => {
                plan.known.push(Known::of(&desired, observed, disagreement));
                return;
            }
            Ok((None, _)) => return,
            Err(error) => {
                plan.broken
                    .push(format!("compare {child}: {}", chain(&error)));
                return;
            }
        };
        if let Some(known) = known.filter(|known| self.is_held(known)) {
            plan.known.push(known);
            return;
        }
        let why = change.why();
        let write = to(rule, child, op, purpose, &why);
        let text = || {
            let rival = self.applied(&desired.object).rival(child);
            fights::text(&write, &format!("{why} is changed"), rival)
        };
        let repair = known.map(|known| self.repair(&known, text));
        let planned = Planned {
            write,
            rule: desired.rule,
            uid: Some(child.uid().into()),
            desired: Some(Box::new(desired)),
            repair,
        };
        if purpose == Purpose::TryChild {
            let child = Arc::clone(child);
            plan.trials.push(Trial {
                planned,
                child,
                why,
            });
        } else {
            plan.applies.push(planned);
        }
    }

    /// The write that makes a change; none where nothing is to be done.
    fn op(
        &self,
        change: &Change,
        child: &Object,
        desired: &Value,
    ) -> Result<Option<(Op, Purpose)>, apply::Error> {
        let applied = self.applied(desired);
        Ok(match change {
            Change::None { .. } => None,
            Change::Update { object, .. } => {
                let body = object.to_string().into();
                Some((Op::Update { body }, Purpose::UpdateChild))
            }
            Change::Recreate { .. } => Some((deletion(child), Purpose::RecreateChild)),
            Change::Apply { .. } => {
                Some((applied.update(child, Aim::Change)?, Purpose::UpdateChild))
            }
            Change::Try { .. } => Some((applied.update(child, Aim::Try)?, Purpose::TryChild)),
            Change::HandOver { body, .. } => {
                let body = Bytes::clone(body);
                Some((Op::Update { body }, Purpose::HandOverChild))
            }
        })
    }
}

fn name_of(desired: &Desired) -> u64 {
    hash_name(desired.rule, desired.namespace.as_deref(), &desired.name)
}

/// Why a desired child cannot be created: its name is taken.
pub(crate) fn taken(controller: &Controller, write: &Write, other: Option<&Object>) -> String {
    if controller.kind == ControllerKind::Decorator {
        return format!(
            "{write}: an object of this name exists, and it is no attachment of this controller; rename the attachment, or delete that object"
        );
    }
    let why = match other.map(Object::controller_owner) {
        Some(None) => {
            "an object of this name exists, and its labels don't match the parent's selector"
        }
        Some(Some(_)) => "an object of this name exists, and another object controls it",
        None => "an object of this name exists, and it is not the parent's",
    };
    format!("{write}: {why}; rename the child, or delete or label that object")
}

pub(crate) fn delete(rule: &ChildRule, child: &Object, purpose: Purpose, why: &str) -> Write {
    to(rule, child, deletion(child), purpose, why)
}

fn deletion(child: &Object) -> Op {
    Op::Delete {
        uid: child.uid().into(),
        resource_version: child.resource_version().into(),
        propagation: Propagation::Background,
    }
}

/// A write to an observed child.
fn to(rule: &ChildRule, child: &Object, op: Op, purpose: Purpose, why: &str) -> Write {
    Write {
        resource: Arc::clone(&rule.resource),
        namespace: child.namespace().map(Into::into),
        name: child.name().into(),
        op,
        purpose,
        why: why.into(),
    }
}

/// Appends our owner reference, unless there is one with the parent's uid.
pub(crate) fn add_owner(object: &mut Value, resource: &Resource, parent: &Object) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    let owners = metadata.entry("ownerReferences").or_insert(Value::Null);
    if owners.is_null() {
        *owners = Value::Array(Vec::new());
    }
    if let Value::Array(owners) = owners
        && !owners.iter().any(|owner| owner["uid"] == parent.uid())
    {
        owners.push(owner(resource, parent));
    }
}
