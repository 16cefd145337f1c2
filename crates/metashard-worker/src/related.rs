//! The caches of related objects of one controller: opened when a rule asks for them, closed some time after the last.
//!
//! Which parents a change of a related object concerns is known by rule, so that nobody else's hook is called for it.

mod caches;
mod interest;
mod namespaces;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use metashard_api::{hook::RelatedRule, resource::Resource, selector::Selector};
use metashard_fleet::{
    queue::{Cause, FlowId},
    time::MonoTime,
};
use metashard_kube::{
    identity::Identity,
    informer::{View, ViewKey},
};
use metashard_reconcile::{
    controller::Controller,
    object::Object,
    related::{Error, Namespaces as Where, Related, Rule, compile},
    sync::Unrelated,
};
use parking_lot::Mutex;
use tracing::debug;

use self::{caches::Caches, namespaces::Namespaces};
use crate::{context::Context, key::ParentKey};

/// The related objects of one controller's parents.
#[derive(Debug)]
pub(crate) struct RelatedObjects {
    controller: Arc<Controller>,
    context: Arc<Context>,
    /// Where keys of parents go.
    flow: FlowId,
    namespaces: Arc<Namespaces>,
    /// Never taken while an event is told: whoever holds it may open and drop views.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    caches: Caches,
    parents: BTreeMap<ParentKey, Bound>,
    /// Parents with a rule whose resource is not served, and what to tell of it.
    missing: BTreeMap<ParentKey, Missing>,
}

#[derive(Debug)]
struct Missing {
    rules: Arc<[RelatedRule]>,
    told: String,
}

/// What one parent asks for.
#[derive(Debug)]
struct Bound {
    asked: Arc<[RelatedRule]>,
    /// Each rule with the cache that it is read from.
    rules: Vec<(Arc<Rule>, ViewKey)>,
    /// All caches that must be complete.
    needs: BTreeSet<ViewKey>,
}

/// The related objects of one parent, and the rules that they are from.
#[derive(Debug)]
pub(crate) struct Found {
    asked: Arc<[RelatedRule]>,
    pub(crate) related: Related,
}

impl RelatedObjects {
    /// Those of `controller`, if it asks for any. `own`: what it caches anyway.
    pub(crate) fn new(
        controller: &Arc<Controller>,
        identity: &Identity,
        flow: FlowId,
        own: BTreeSet<ViewKey>,
        context: &Arc<Context>,
    ) -> Option<Arc<Self>> {
        controller.customize.as_ref()?;
        Some(Arc::new(Self {
            controller: Arc::clone(controller),
            context: Arc::clone(context),
            flow,
            namespaces: Arc::new(Namespaces::new(Arc::clone(&context.dispatcher), flow)),
            state: Mutex::new(State {
                caches: Caches::new(identity.clone(), own),
                parents: BTreeMap::new(),
                missing: BTreeMap::new(),
            }),
        }))
    }

    /// What `rules` ask for in the name of a parent. From here on their changes start a sync of it; so does the end of
    /// the wait that `NotYet` tells of.
    pub(crate) fn find(
        self: &Arc<Self>,
        key: &ParentKey,
        parent: &Object,
        rules: &Arc<[RelatedRule]>,
    ) -> Result<Found, Unrelated> {
        let mut state = self.state.lock();
        let is_bound = |it: &Bound| Arc::ptr_eq(&it.asked, rules);
        if !state.parents.get(key).is_some_and(is_bound) {
            self.bind(&mut state, key, parent, rules)
                .map_err(Unrelated::Refused)?;
        }
        let State {
            caches, parents, ..
        } = &mut *state;
        let Some(bound) = parents.get(key) else {
            return Err(Unrelated::NotYet);
        };
        if caches.wait_for(&bound.needs, key) {
            return Err(Unrelated::NotYet);
        }
        Ok(self.collect(caches, bound))
    }

    /// What is known of a parent's related objects; `None` if that is not all.
    pub(crate) fn known(&self, key: &ParentKey) -> Option<Found> {
        let state = self.state.lock();
        let bound = state.parents.get(key)?;
        let is_complete = state.caches.are_complete(&bound.needs);
        is_complete.then(|| self.collect(&state.caches, bound))
    }

    fn collect(&self, caches: &Caches, bound: &Bound) -> Found {
        let selects = |selector: &_, namespace: &str| self.namespaces.selects(selector, namespace);
        let groups = bound.rules.iter().map(|(rule, cache)| {
            let objects = caches.read(cache, rule, &selects);
            (Arc::clone(&rule.resource), objects)
        });
        Found {
            asked: Arc::clone(&bound.asked),
            related: Related::new(groups),
        }
    }

    fn bind(
        self: &Arc<Self>,
        state: &mut State,
        key: &ParentKey,
        parent: &Object,
        asked: &Arc<[RelatedRule]>,
    ) -> Result<(), Error> {
        let version = self.controller.customize.as_ref().map(|hook| hook.version);
        let compiled = compile(
            asked,
            version.unwrap_or_default(),
            parent.namespace(),
            &|api_version, plural| self.lookup(api_version, plural),
        );
        let compiled = compiled.and_then(|rules| state.caches.admit(rules));
        let before = state.parents.remove(key);
        state.missing.remove(key);
        let bound = compiled.map(|rules| self.attach(state, key, asked, rules));
        if let Some(before) = before {
            // Only now, so that what both need is not let go.
            self.detach(state, key, &before, bound.as_ref().ok());
        }
        match bound {
            Ok(bound) => {
                state.parents.insert(key.clone(), bound);
                Ok(())
            }
            Err(error) => {
                if let Error::NotFound { .. } = &error {
                    let missing = Missing {
                        rules: Arc::clone(asked),
                        told: format!(
                            "related objects of {parent}: {error}; install its CustomResourceDefinition, or correct the answer of the customize hook"
                        ),
                    };
                    state.missing.insert(key.clone(), missing);
                }
                Err(error)
            }
        }
    }

    fn attach(
        self: &Arc<Self>,
        state: &mut State,
        key: &ParentKey,
        asked: &Arc<[RelatedRule]>,
        rules: Vec<Rule>,
    ) -> Bound {
        let mut bound = Bound {
            asked: Arc::clone(asked),
            rules: Vec::with_capacity(rules.len()),
            needs: BTreeSet::new(),
        };
        for rule in rules {
            let cache = state.caches.join(self, key, &rule);
            bound.needs.insert(cache.clone());
            if let Where::Matching(selector) = &rule.namespaces {
                bound.needs.insert(state.caches.join_namespaces(self, key));
                self.namespaces.add(selector, key);
            }
            bound.rules.push((Arc::new(rule), cache));
        }
        bound
    }

    /// Lets go of what `bound` needs and `after` does not.
    fn detach(&self, state: &mut State, key: &ParentKey, bound: &Bound, after: Option<&Bound>) {
        let still = |rule: &Rule, cache: &ViewKey| {
            after.is_some_and(|after| {
                after
                    .rules
                    .iter()
                    .any(|(it, other)| **it == *rule && other == cache)
            })
        };
        for (rule, cache) in &bound.rules {
            if still(rule, cache) {
                continue;
            }
            state.caches.leave(cache, rule, key);
            if let Where::Matching(selector) = &rule.namespaces {
                let is_kept = after.is_some_and(|after| after.selects_namespaces(selector));
                if !is_kept {
                    self.namespaces.remove(selector, key);
                }
            }
        }
        let now = self.context.clock.now().mono;
        for cache in &bound.needs {
            if after.is_none_or(|after| !after.needs.contains(cache)) {
                state.caches.release(cache, key, now);
            }
        }
    }

    /// The parent is gone, or no longer this controller's.
    pub(crate) fn forget(&self, key: &ParentKey) {
        let mut state = self.state.lock();
        state.missing.remove(key);
        if let Some(bound) = state.parents.remove(key) {
            self.detach(&mut state, key, &bound, None);
        }
    }

    /// A new ownership begins: nothing is read before it was listed anew, as others may have acted on what is newer.
    pub(crate) fn renew(self: &Arc<Self>) {
        self.state.lock().caches.renew(self);
    }

    /// Closes what nobody has needed for a while.
    pub(crate) fn cool(&self, now: MonoTime) {
        let mut state = self.state.lock();
        if state.caches.cool(now) {
            self.namespaces.clear();
        }
    }

    /// Discovery changed: parents whose rules name a resource that is served otherwise by now are synced.
    pub(crate) fn reconsider(&self) {
        let mut state = self.state.lock();
        let served = |rule: &RelatedRule| self.lookup(&rule.api_version, &rule.resource);
        let is_outdated = |bound: &Bound| {
            bound.asked.iter().any(|asked| match served(asked) {
                None => true,
                Some(resource) => !bound
                    .rules
                    .iter()
                    .any(|(rule, _)| rule.resource == resource),
            })
        };
        let outdated = state.parents.iter().filter(|(_, bound)| is_outdated(bound));
        let mut keys: Vec<_> = outdated.map(|(key, _)| key.clone()).collect();
        for key in &keys {
            if let Some(bound) = state.parents.remove(key) {
                self.detach(&mut state, key, &bound, None);
            }
        }
        let found = state
            .missing
            .iter()
            .filter(|(_, missing)| missing.rules.iter().all(|rule| served(rule).is_some()));
        keys.extend(found.map(|(key, _)| key.clone()));
        drop(state);
        if !keys.is_empty() {
            debug!(controller = %self.controller.name, parents = keys.len(), "related resources changed");
            self.context
                .dispatcher
                .push_all(self.flow, keys, Cause::Related);
        }
    }

    /// The caches that are open.
    pub(crate) fn views(&self) -> Vec<Arc<View>> {
        self.state.lock().caches.views()
    }

    /// What to tell of resources that rules name and the API server does not serve.
    pub(crate) fn missing(&self) -> Option<String> {
        let state = self.state.lock();
        state.missing.values().next().map(|it| it.told.clone())
    }

    /// A cache is complete: whoever waited for it is synced.
    fn complete(&self, cache: &ViewKey, round: u64) {
        let waiting = self.state.lock().caches.complete(cache, round);
        self.context
            .dispatcher
            .push_all(self.flow, waiting, Cause::Related);
    }

    fn lookup(&self, api_version: &str, plural: &str) -> Option<Arc<Resource>> {
        self.context.discovery.lookup(api_version, plural)
    }
}

impl Bound {
    fn selects_namespaces(&self, selector: &Selector) -> bool {
        self.rules
            .iter()
            .any(|(rule, _)| matches!(&rule.namespaces, Where::Matching(it) if it == selector))
    }
}

impl Found {
    /// Whether it is what these rules ask for.
    pub(crate) fn is_of(&self, rules: &Arc<[RelatedRule]>) -> bool {
        Arc::ptr_eq(&self.asked, rules)
    }
}
