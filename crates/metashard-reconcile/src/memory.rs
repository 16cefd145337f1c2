//! What a sync remembers for the next one of the same parent: what was found to need no write, and what was written.

mod form;
mod writes;

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use metashard_api::hook::RelatedRule;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

pub(crate) use self::form::Form;
use self::writes::{Writes, Written};
use crate::{
    answer::Desired,
    controller::Controller,
    fights::Fights,
    object::{Object, compare_versions},
    sync::Candidates,
};

/// Most passes for which a child of our own making that does not come in is taken to exist.
/// Only a cache that went back in time needs the bound.
const MAX_PASSES: u8 = 16;

/// What a sync remembers for the next one of the same parent. Kept by the worker; an empty one costs a sync that looks at everything.
#[derive(Debug, Default)]
pub struct Memory {
    /// The compilation and the parent that all of this is about.
    about: u64,
    /// The last pass, if it found everything as desired.
    pass: Option<Pass>,
    /// What is known of children, sorted by name.
    children: Vec<Known>,
    /// What the last status write wanted, and what the API server made of it.
    pub(crate) status: Option<StatusWrite>,
    /// What the customize hook asked for.
    pub(crate) customized: Option<Customized>,
    /// The deletions that the delete guard holds back; 0: none.
    pub(crate) held: u64,
    /// The creations that met an existing object in the last pass; 0: none.
    pub(crate) collided: u64,
    /// The children that the last pass found missing at older revisions and could not create; 0: none.
    pub(crate) missed: u64,
    /// The last pass found the parent gone, which a cache shows later: before anything is done for it, it is read.
    pub(crate) gone: bool,
    /// The last pass found the parent paused.
    pub(crate) paused: bool,
    /// Children that were repaired lately.
    pub(crate) fights: Fights,
    /// The time of the pass; `None`: nobody says, and no repairs are counted.
    pub(crate) now: Option<Duration>,
    /// The parent as our last write left it.
    parent: Option<Arc<Object>>,
    /// Children as our last writes left them.
    written: Writes,
    /// Uids of children that were deleted, hashed.
    deleted: BTreeSet<u64>,
}

/// The answer of a customize hook.
#[derive(Debug)]
pub(crate) struct Customized {
    /// Hash of the parent's state that it counts for.
    pub(crate) about: u64,
    pub(crate) rules: Arc<[RelatedRule]>,
}

/// A pass in which everything was as desired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pass {
    /// Hash of all that went into the request.
    pub(crate) inputs: u128,
    /// Hash of the answer.
    pub(crate) answer: u128,
    /// The `resyncAfterSeconds` of the answer.
    pub(crate) resync: Option<Duration>,
}

/// What is known of one child.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Known {
    /// Hash of its rule, namespace and name.
    pub(crate) name: u64,
    /// Hash of the desired object.
    pub(crate) wish: u64,
    /// Hash of uid and resourceVersion of the state that needs no write.
    pub(crate) observed: u64,
    /// Hash of what the API server has otherwise although we wrote it; 0: nothing.
    pub(crate) disagreement: u64,
}

impl Known {
    /// What is known of a desired child in this state.
    pub(crate) fn of(desired: &Desired, observed: u64, disagreement: u64) -> Self {
        Self {
            name: hash_name(desired.rule, desired.namespace.as_deref(), &desired.name),
            wish: desired.wish,
            observed,
            disagreement,
        }
    }
}

/// A status write, by hashes of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StatusWrite {
    pub(crate) wanted: u64,
    pub(crate) stored: u64,
}

impl Memory {
    /// Whether an object is exactly as one of our writes left it: news of it tell nothing new.
    pub fn wrote(&self, object: &Object) -> bool {
        let mut mine = self
            .written
            .of_uid(object.uid())
            .into_iter()
            .chain(&self.parent);
        mine.any(|own| {
            own.uid() == object.uid() && own.resource_version() == object.resource_version()
        })
    }

    /// Tells the memory that a cache shows this state of the parent or of a child: a write of ours that it holds is let go.
    /// Whether the state is exactly as our write left it, as [`Memory::wrote`] says.
    pub fn saw(&mut self, object: &Object) -> bool {
        let is_own = self.wrote(object);
        let is_behind = |own: &Arc<Object>| own.uid() == object.uid() && !own.is_newer_than(object);
        if self.written.of_uid(object.uid()).is_some_and(is_behind) {
            self.written.forget(object.uid());
        }
        self.parent.take_if(|own| is_behind(own));
        is_own
    }

    /// Keeps the caches' own copy of each write of ours that they show already, so that no bytes are held twice.
    /// `cached` gives the object of that name which a cache shows: of a child rule, or `None` for the parent.
    pub fn share(&mut self, cached: impl Fn(Option<usize>, &Object) -> Option<Arc<Object>>) {
        let held = self.written.iter_mut();
        let children = held.map(|written| (Some(written.rule), &mut written.object));
        let parent = self.parent.as_mut().map(|own| (None, own));
        for (rule, own) in children.chain(parent) {
            let is_same = |found: &Arc<Object>| {
                found.uid() == own.uid() && found.resource_version() == own.resource_version()
            };
            if let Some(found) = cached(rule, own).filter(is_same) {
                *own = found;
            }
        }
    }

    /// Forgets what the customize hook asked for: it is called by the next sync.
    pub fn forget_customized(&mut self) {
        self.customized = None;
    }

    /// What the customize hook asked for when the parent was in this state.
    pub(crate) fn customized(&self, about: u64) -> Option<Arc<[RelatedRule]>> {
        let customized = self.customized.as_ref();
        customized
            .filter(|it| it.about == about)
            .map(|it| Arc::clone(&it.rules))
    }

    /// What is left to remember of a parent that was found gone.
    pub(crate) fn of_gone(self) -> Self {
        Self {
            about: self.about,
            gone: true,
            ..Self::default()
        }
    }

    /// Forgets everything if it is about another parent or another compilation of the controller.
    pub(crate) fn open(&mut self, controller: &Controller, parent: &Object) {
        let mut hash = Xxh3::new();
        hash.update(&controller.fingerprint.to_le_bytes());
        hash.update(parent.uid().as_bytes());
        let about = hash.digest();
        self.now = None;
        if self.about != about {
            *self = Self {
                about,
                ..Self::default()
            };
        }
    }

    /// The parent, or what our last write made of it if the cache has not come that far.
    pub(crate) fn newest_parent(&mut self, cached: Arc<Object>) -> Arc<Object> {
        match &self.parent {
            Some(own) if own.is_newer_than(&cached) => Arc::clone(own),
            _ => {
                self.parent = None;
                cached
            }
        }
    }

    /// The candidates of a rule, with our own writes that the cache does not show yet.
    pub(crate) fn newest_children(&mut self, rule: usize, from: Candidates) -> Vec<Arc<Object>> {
        let Candidates {
            mut objects,
            reached,
        } = from;
        let mut shown = BTreeMap::new();
        for found in &mut objects {
            if let Some((name, own)) = self.written.named_as(rule, found) {
                let is_behind = own.is_newer_than(found);
                if is_behind {
                    *found = Arc::clone(own);
                }
                shown.insert(name, is_behind);
            }
        }
        self.written.retain(|name, written| {
            if written.rule != rule {
                return true;
            }
            if let Some(is_behind) = shown.get(&name) {
                return *is_behind;
            }
            let own = &written.object;
            let version = own.resource_version();
            let is_behind = reached
                .as_deref()
                .is_some_and(|reached| compare_versions(reached, version) == Some(Ordering::Less));
            written.passes += 1;
            let keep = is_behind && written.passes <= MAX_PASSES;
            if keep {
                objects.push(Arc::clone(own));
            }
            keep
        });
        objects
    }

    /// Drops what is remembered of deletions that the caches show by now.
    pub(crate) fn retain_deleted(&mut self, candidates: &[Vec<Arc<Object>>]) {
        if self.deleted.is_empty() {
            return;
        }
        let there = candidates.iter().flatten().map(|it| hash_text(it.uid()));
        self.deleted = there.filter(|uid| self.deleted.contains(uid)).collect();
    }

    /// Whether we have deleted this very object: it is gone, or on its way.
    pub(crate) fn has_deleted(&self, object: &Object) -> bool {
        !self.deleted.is_empty() && self.deleted.contains(&hash_text(object.uid()))
    }

    /// The last pass, if this one is the same.
    pub(crate) fn same_pass(&self, inputs: u128, answer: u128) -> Option<Pass> {
        self.pass
            .filter(|pass| pass.inputs == inputs && pass.answer == answer)
    }

    /// What is known of a child whose desired object has not changed.
    pub(crate) fn known(&self, name: u64, wish: u64) -> Option<Known> {
        let index = self
            .children
            .binary_search_by_key(&name, |known| known.name)
            .ok()?;
        self.children
            .get(index)
            .copied()
            .filter(|known| known.wish == wish)
    }

    /// Notes what the parent is after a write of ours.
    pub(crate) fn note_parent(&mut self, parent: &Arc<Object>) {
        self.parent = Some(Arc::clone(parent));
    }

    /// Forgets our writes to the parent: the API server does not agree with them.
    pub(crate) fn forget_parent(&mut self) {
        self.parent = None;
    }

    /// Notes what a child is after a write of ours.
    pub(crate) fn note_child(&mut self, rule: usize, object: &Arc<Object>) {
        self.written.insert(Written {
            rule,
            object: Arc::clone(object),
            passes: 0,
        });
    }

    /// Forgets our writes to a child: the API server does not agree with them.
    pub(crate) fn forget_child(&mut self, uid: &str) {
        self.written.forget(uid);
    }

    /// Forgets our writes to all children of a rule.
    pub(crate) fn forget_written(&mut self, rule: usize) {
        self.written.retain(|_, written| written.rule != rule);
    }

    /// Notes that a child was deleted by us.
    pub(crate) fn note_deleted(&mut self, uid: &str) {
        self.forget_child(uid);
        self.deleted.insert(hash_text(uid));
    }

    /// Replaces what is known of children and of the pass.
    pub(crate) fn learn(&mut self, mut children: Vec<Known>, pass: Option<Pass>) {
        children.sort_unstable_by_key(|known| known.name);
        children.shrink_to_fit();
        self.children = children;
        self.pass = pass;
    }
}

/// Hash of a child's name in its rule.
pub(crate) fn hash_name(rule: usize, namespace: Option<&str>, name: &str) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(&(rule as u64).to_le_bytes());
    hash.update(namespace.unwrap_or_default().as_bytes());
    hash.update(b"/");
    hash.update(name.as_bytes());
    hash.digest()
}

/// Hash of a state of an object.
pub(crate) fn hash_version(object: &Object) -> u64 {
    let mut hash = Xxh3::new();
    object.hash_version(&mut hash);
    hash.digest()
}

fn hash_text(text: &str) -> u64 {
    xxh3_64(text.as_bytes())
}
