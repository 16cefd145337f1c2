//! What happens to each child: desired and observed against each other, by update strategy.

use std::sync::Arc;

use metashard_api::{id::ControllerKind, resource::Resource};
use serde_json::Value;

use crate::{
    answer::Desired,
    apply,
    claim::{is_made_for, owner},
    controller::{ChildRule, Controller, UpdateStrategy},
    diff,
    memory::{Known, Memory, hash_name, hash_version},
    object::Object,
    outcome::chain,
    write::{Op, Propagation, Purpose, Write},
};

/// What is to be done to the children of one parent, and what was found on the way.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Children that should not exist.
    pub(crate) deletes: Vec<Planned>,
    /// Children to create, update, or delete to be recreated.
    pub(crate) applies: Vec<Planned>,
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

/// What is to be done to one observed child.
#[derive(Debug)]
pub(crate) enum Change {
    /// Nothing; `disagreement` is what the API server has otherwise for good.
    None { disagreement: u64 },
    /// It is updated to this.
    Update { object: Box<Value>, why: String },
    /// It is deleted, to be created anew.
    Recreate { why: String },
}

impl Scope<'_> {
    /// Plans all children.
    pub(crate) fn plan(&self, desired: Vec<Desired>) -> Plan {
        let mut plan = Plan::default();
        let all = self.mine.iter().flatten();
        plan.living = all.filter(|child| !self.is_going(child)).count();
        let mut is_desired: Vec<_> = self.mine.iter().map(|it| vec![false; it.len()]).collect();
        for desired in desired {
            match self.find(&desired) {
                Some((index, child)) => {
                    if let Some(mark) = is_desired
                        .get_mut(desired.rule)
                        .and_then(|it| it.get_mut(index))
                    {
                        *mark = true;
                    }
                    self.compare(desired, child, &mut plan);
                }
                None => self.create(desired, &mut plan),
            }
        }
        for (rule, is_desired) in is_desired.iter().enumerate() {
            let Some(of) = self.controller.children.get(rule) else {
                continue;
            };
            let children = self.mine.get(rule).into_iter().flatten().zip(is_desired);
            let left =
                children.filter(|(child, is_desired)| !**is_desired && !self.is_going(child));
            for (child, _) in left {
                let write = delete(
                    of,
                    child,
                    Purpose::DeleteChild,
                    "it is not desired any more",
                );
                let uid = Some(child.uid().into());
                plan.deletes.push(Planned {
                    write,
                    rule,
                    uid,
                    desired: None,
                });
            }
        }
        plan
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
        let change = change(rule.update, self.parent, child, &desired.object, last);
        matches!(change, Ok(Change::None { .. }))
    }

    /// Whether it is remembered that an observed child is as desired: nothing is parsed.
    pub(crate) fn is_known(&self, desired: &Desired, child: &Object) -> bool {
        self.known(desired)
            .is_some_and(|known| known.observed == hash_version(child))
    }

    fn known(&self, desired: &Desired) -> Option<Known> {
        let name = hash_name(desired.rule, desired.namespace.as_deref(), &desired.name);
        self.memory.known(name, desired.wish)
    }

    /// The claimed child of a desired one's name.
    pub(crate) fn find(&self, desired: &Desired) -> Option<(usize, &Object)> {
        let children = self.mine.get(desired.rule)?;
        let name = (desired.namespace.as_deref(), desired.name.as_str());
        let index = children
            .binary_search_by(|it| (it.namespace(), it.name()).cmp(&name))
            .ok()?;
        children.get(index).map(|child| (index, &**child))
    }

    /// Whether a child is being deleted, or was deleted by us.
    pub(crate) fn is_going(&self, child: &Object) -> bool {
        child.is_deleting() || self.memory.has_deleted(child)
    }

    fn create(&self, desired: Desired, plan: &mut Plan) {
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
        if let Some(other) = self.bystander(&desired) {
            plan.taken.push(taken(self.controller, &write, Some(other)));
            return;
        }
        match apply::create(&desired.object) {
            Ok(mut object) => {
                add_owner(&mut object, self.resource, self.parent);
                let write = Write {
                    op: Op::Create {
                        body: object.to_string().into(),
                    },
                    ..write
                };
                let rule = desired.rule;
                let desired = Some(Box::new(desired));
                plan.applies.push(Planned {
                    write,
                    rule,
                    uid: None,
                    desired,
                });
            }
            Err(error) => plan.broken.push(format!("{write}: {}", chain(&error))),
        }
    }

    /// An object of the desired name that is in the way: it is known, it stays, and it is not the parent's.
    fn bystander(&self, desired: &Desired) -> Option<&Object> {
        self.candidates
            .get(desired.rule)?
            .iter()
            .map(|it| &**it)
            .find(|object| {
                object.name() == desired.name
                    && object.namespace() == desired.namespace.as_deref()
                    && !self.is_going(object)
                    && !is_made_for(self.controller, self.parent, object)
            })
    }

    fn compare(&self, desired: Desired, child: &Object, plan: &mut Plan) {
        let Some(rule) = self.controller.children.get(desired.rule) else {
            return;
        };
        if desired.held || self.is_going(child) {
            return;
        }
        let name = hash_name(desired.rule, desired.namespace.as_deref(), &desired.name);
        let known = self.memory.known(name, desired.wish);
        let observed = hash_version(child);
        if let Some(known) = known.filter(|known| known.observed == observed) {
            plan.known.push(known);
            return;
        }
        let wish = desired.wish;
        let learn = |disagreement| Known {
            name,
            wish,
            observed,
            disagreement,
        };
        let last = known.map_or(0, |known| known.disagreement);
        let change = change(rule.update, self.parent, child, &desired.object, last);
        let write = match change {
            Ok(Change::None { disagreement }) => {
                plan.known.push(learn(disagreement));
                return;
            }
            Ok(Change::Update { object, why }) => Write {
                resource: Arc::clone(&rule.resource),
                namespace: child.namespace().map(Into::into),
                name: child.name().into(),
                op: Op::Update {
                    body: object.to_string().into(),
                },
                purpose: Purpose::UpdateChild,
                why: why.into(),
            },
            Ok(Change::Recreate { why }) => delete(rule, child, Purpose::RecreateChild, &why),
            Err(error) => {
                plan.broken
                    .push(format!("compare {child}: {}", chain(&error)));
                return;
            }
        };
        let desired_rule = desired.rule;
        let uid = Some(child.uid().into());
        let desired = Some(Box::new(desired));
        plan.applies.push(Planned {
            write,
            rule: desired_rule,
            uid,
            desired,
        });
    }
}

/// What is to be done to a child. `last`: what the API server had otherwise when it was last written.
fn change(
    strategy: UpdateStrategy,
    parent: &Object,
    child: &Object,
    desired: &Value,
    last: u64,
) -> Result<Change, apply::Error> {
    if strategy == UpdateStrategy::OnDelete {
        return Ok(Change::None { disagreement: 0 });
    }
    let observed = child.to_value()?;
    let mut updated = apply::update(&observed, desired)?;
    if updated.changed && keep_owner(&observed, &mut updated.object, parent.uid()) {
        updated.changed = !diff::equal(&observed, &updated.object);
    }
    if !updated.changed {
        return Ok(Change::None { disagreement: 0 });
    }
    let found = diff::differences(&observed, &updated.object);
    let disagreement = diff::disagreement(&found);
    if disagreement == last {
        return Ok(Change::None { disagreement });
    }
    let why = diff::describe(&found);
    drop(found);
    match strategy {
        // A child is not deleted for what the API server added to lists, or left out because it is empty.
        UpdateStrategy::Recreate if updated.same_wish && diff::covers(Some(&observed), desired) => {
            Ok(Change::None { disagreement })
        }
        UpdateStrategy::Recreate => Ok(Change::Recreate { why }),
        _ => Ok(Change::Update {
            object: Box::new(updated.object),
            why,
        }),
    }
}

/// What is known of a child once it is written as desired: what came of it needs no write.
pub(crate) fn learn(desired: &Desired, stored: &Object) -> Known {
    let disagreement = stored
        .to_value()
        .ok()
        .and_then(|observed| {
            let updated = apply::update(&observed, &desired.object).ok()?;
            let found = diff::differences(&observed, &updated.object);
            Some(diff::disagreement(&found))
        })
        .unwrap_or(0);
    Known {
        name: hash_name(desired.rule, desired.namespace.as_deref(), &desired.name),
        wish: desired.wish,
        observed: hash_version(stored),
        disagreement,
    }
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

fn delete(rule: &ChildRule, child: &Object, purpose: Purpose, why: &str) -> Write {
    Write {
        resource: Arc::clone(&rule.resource),
        namespace: child.namespace().map(Into::into),
        name: child.name().into(),
        op: Op::Delete {
            uid: child.uid().into(),
            resource_version: child.resource_version().into(),
            propagation: Propagation::Background,
        },
        purpose,
        why: why.into(),
    }
}

/// Appends our owner reference, unless there is one with the parent's uid.
fn add_owner(object: &mut Value, resource: &Resource, parent: &Object) {
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

/// Puts the parent's owner reference back if a merge of lists has lost it. Whether it had.
fn keep_owner(observed: &Value, object: &mut Value, uid: &str) -> bool {
    let of = |owners: &Value| {
        owners
            .as_array()
            .and_then(|all| all.iter().find(|owner| owner["uid"] == uid).cloned())
    };
    let Some(ours) = of(&observed["metadata"]["ownerReferences"]) else {
        return false;
    };
    if of(&object["metadata"]["ownerReferences"]).is_some() {
        return false;
    }
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return false;
    };
    match metadata.entry("ownerReferences").or_insert(Value::Null) {
        Value::Array(owners) => owners.push(ours),
        other => *other = Value::Array(vec![ours]),
    }
    true
}
