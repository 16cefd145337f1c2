//! The open caches: which one serves a rule, who needs it, and whether it is complete.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use metashard_api::{resource::Resource, selector::Selector, validate::MAX_RESOURCES};
use metashard_fleet::time::MonoTime;
use metashard_kube::{
    identity::Identity,
    informer::{Subscriber, View, ViewKey, ViewState, Wish},
};
use metashard_reconcile::{
    object::Object,
    related::{Error, Namespaces as Where, Pick, Rule},
};
use metashard_runtime::{fault, task};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    RelatedObjects,
    interest::{Interest, RelatedEvents},
};
use crate::key::ParentKey;

/// How long a cache is kept that nobody needs: parents that come and go do not have it filled again each time.
const IDLE: Duration = Duration::from_mins(1);

/// Of one resource so many caches hold only what a rule asks for. Further rules share one for all namespaces,
const MOST_NARROW: usize = 16;

/// and when there are so many, one for everything.
const MOST_SELECTING: usize = 24;

/// The open caches of one controller's related objects.
#[derive(Debug)]
pub(super) struct Caches {
    identity: Identity,
    /// What the controller caches anyway.
    own: BTreeSet<ViewKey>,
    open: BTreeMap<ViewKey, Cache>,
    rounds: u64,
}

#[derive(Debug)]
struct Cache {
    view: Arc<View>,
    /// `None` for that of namespaces, whose changes are looked at in another way.
    interest: Option<Arc<Interest>>,
    users: BTreeSet<ParentKey>,
    /// Those of them that are to be synced once it is complete.
    waiting: BTreeSet<ParentKey>,
    filling: Filling,
    /// Since when there are no users.
    idle_since: Option<MonoTime>,
}

/// Whether a cache shows everything up to the moment in which it was needed.
#[derive(Debug)]
enum Filling {
    Complete,
    Running {
        round: u64,
        /// Ends the task that waits for it.
        _stop: DropGuard,
    },
}

impl Caches {
    /// None yet.
    pub(super) fn new(identity: Identity, own: BTreeSet<ViewKey>) -> Self {
        Self {
            identity,
            own,
            open: BTreeMap::new(),
            rounds: 0,
        }
    }

    /// Lets rules through, unless the controller would watch too many resources with them.
    pub(super) fn admit(&self, rules: Vec<Rule>) -> Result<Vec<Rule>, Error> {
        let open = self
            .own
            .iter()
            .chain(self.open.keys())
            .map(ViewKey::resource);
        let asked = rules.iter().map(|rule| &rule.resource);
        let count = open.chain(asked).collect::<BTreeSet<_>>().len();
        if count > MAX_RESOURCES {
            return Err(Error::TooManyResources(count));
        }
        Ok(rules)
    }

    /// Opens the cache that serves a rule of a parent, if it is not open yet.
    pub(super) fn join(
        &mut self,
        owner: &Arc<RelatedObjects>,
        key: &ParentKey,
        rule: &Rule,
    ) -> ViewKey {
        let cache = self.choose(rule);
        if !self.open.contains_key(&cache) {
            let interest = Arc::new(Interest::default());
            let subscriber = RelatedEvents {
                interest: Arc::clone(&interest),
                namespaces: Arc::clone(&owner.namespaces),
                dispatcher: Arc::clone(&owner.context.dispatcher),
                flow: owner.flow,
            };
            self.open(owner, &cache, Arc::new(subscriber), Some(interest));
        }
        self.add_user(owner, &cache, key);
        if let Some(interest) = self.open.get(&cache).and_then(|it| it.interest.as_ref()) {
            interest.add(rule, key);
        }
        cache
    }

    /// Opens the cache of namespaces, if it is not open yet.
    pub(super) fn join_namespaces(
        &mut self,
        owner: &Arc<RelatedObjects>,
        key: &ParentKey,
    ) -> ViewKey {
        let cache =
            ViewKey::new(self.identity.clone(), Arc::new(namespace_resource())).metadata_only();
        if !self.open.contains_key(&cache) {
            let subscriber: Arc<dyn Subscriber> = Arc::clone(&owner.namespaces) as _;
            self.open(owner, &cache, subscriber, None);
        }
        self.add_user(owner, &cache, key);
        cache
    }

    fn choose(&self, rule: &Rule) -> ViewKey {
        let whole = ViewKey::new(self.identity.clone(), Arc::clone(&rule.resource));
        if matches!(rule.pick, Pick::Named(_)) && self.own.contains(&whole) {
            return whole;
        }
        let of_resource = |it: &&ViewKey| *it.resource() == rule.resource;
        let count = self.open.keys().filter(of_resource).count();
        narrowest(whole, rule, count, &|key| self.open.contains_key(key))
    }

    fn open(
        &mut self,
        owner: &Arc<RelatedObjects>,
        key: &ViewKey,
        subscriber: Arc<dyn Subscriber>,
        interest: Option<Arc<Interest>>,
    ) {
        let informers = &owner.context.informers;
        let (view, wish) = informers.open_fresh(key.clone(), Some(subscriber));
        let view = Arc::new(view);
        let filling = self.fill(owner, key, &view, wish);
        let cache = Cache {
            view,
            interest,
            users: BTreeSet::new(),
            waiting: BTreeSet::new(),
            filling,
            idle_since: None,
        };
        self.open.insert(key.clone(), cache);
    }

    /// Waits until the cache was listed by a request that began after this was needed: it then shows what anybody can have
    /// seen before.
    fn fill(
        &mut self,
        owner: &Arc<RelatedObjects>,
        key: &ViewKey,
        view: &Arc<View>,
        wish: Wish,
    ) -> Filling {
        self.rounds += 1;
        let round = self.rounds;
        let stop = CancellationToken::new();
        let (owner, key, view) = (Arc::downgrade(owner), key.clone(), Arc::clone(view));
        let stopped = stop.clone();
        task::spawn("related", async move {
            tokio::select! {
                () = stopped.cancelled() => return,
                () = view.fulfilled(wish) => {}
            }
            if let Some(owner) = owner.upgrade() {
                owner.complete(&key, round);
            }
        });
        Filling::Running {
            round,
            _stop: stop.drop_guard(),
        }
    }

    fn add_user(&mut self, owner: &Arc<RelatedObjects>, cache: &ViewKey, key: &ParentKey) {
        let Some(open) = self.open.get_mut(cache) else {
            return;
        };
        open.users.insert(key.clone());
        let was_idle = open.idle_since.take().is_some();
        // What was not followed meanwhile, as its kind was gone, shows what there was before that.
        if was_idle && !matches!(*open.view.state().borrow(), ViewState::Live) {
            let view = Arc::clone(&open.view);
            let filling = self.fill(owner, cache, &view, view.wish());
            if let Some(open) = self.open.get_mut(cache) {
                open.filling = filling;
            }
        }
    }

    /// A parent no longer has a rule.
    pub(super) fn leave(&mut self, cache: &ViewKey, rule: &Rule, key: &ParentKey) {
        if let Some(interest) = self.open.get(cache).and_then(|it| it.interest.as_ref()) {
            interest.remove(rule, key);
        }
    }

    /// A parent no longer needs a cache.
    pub(super) fn release(&mut self, cache: &ViewKey, key: &ParentKey, now: MonoTime) {
        if let Some(open) = self.open.get_mut(cache) {
            open.users.remove(key);
            open.waiting.remove(key);
            if open.users.is_empty() {
                open.idle_since = Some(now);
            }
        }
    }

    /// Whether all of these are complete.
    pub(super) fn are_complete(&self, needs: &BTreeSet<ViewKey>) -> bool {
        needs
            .iter()
            .all(|key| self.open.get(key).is_some_and(Cache::is_complete))
    }

    /// Whether a parent has to wait for some of these. It is then synced when one of them is complete.
    pub(super) fn wait_for(&mut self, needs: &BTreeSet<ViewKey>, key: &ParentKey) -> bool {
        let mut waits = false;
        for cache in needs {
            if let Some(open) = self.open.get_mut(cache)
                && !open.is_complete()
            {
                open.waiting.insert(key.clone());
                waits = true;
            }
        }
        waits
    }

    /// A round of filling has ended; returns who waited for it.
    pub(super) fn complete(&mut self, cache: &ViewKey, round: u64) -> BTreeSet<ParentKey> {
        let Some(open) = self.open.get_mut(cache) else {
            return BTreeSet::new();
        };
        if !matches!(open.filling, Filling::Running { round: it, .. } if it == round) {
            return BTreeSet::new();
        }
        open.filling = Filling::Complete;
        if let Some(interest) = &open.interest {
            interest.awake();
        }
        std::mem::take(&mut open.waiting)
    }

    /// Has all of them filled anew.
    pub(super) fn renew(&mut self, owner: &Arc<RelatedObjects>) {
        let open: Vec<_> = self
            .open
            .iter()
            .map(|(key, cache)| (key.clone(), Arc::clone(&cache.view)))
            .collect();
        for (key, view) in open {
            let filling = self.fill(owner, &key, &view, view.wish());
            if let Some(cache) = self.open.get_mut(&key) {
                cache.filling = filling;
            }
        }
    }

    /// Closes what nobody has needed for a while. Whether that of namespaces is closed.
    pub(super) fn cool(&mut self, now: MonoTime) -> bool {
        let limit = fault::number("related-idle").map_or(IDLE, Duration::from_secs);
        let is_cold = |it: &Cache| it.idle_since.is_some_and(|since| now.since(since) >= limit);
        let had_namespaces = self.open.values().any(|it| it.interest.is_none());
        self.open.retain(|_, cache| !is_cold(cache));
        had_namespaces && !self.open.values().any(|it| it.interest.is_none())
    }

    /// What a rule picks from a cache.
    pub(super) fn read(
        &self,
        cache: &ViewKey,
        rule: &Rule,
        selects: &dyn Fn(&Selector, &str) -> bool,
    ) -> Vec<Arc<Object>> {
        let Some(open) = self.open.get(cache) else {
            return Vec::new();
        };
        let by_name = |names: &[Box<str>], namespace: Option<&str>| {
            let found = names
                .iter()
                .filter_map(|name| open.view.get(namespace, name));
            found.collect()
        };
        match (&rule.pick, &rule.namespaces) {
            (Pick::Named(names), Where::One(namespace)) => by_name(names, Some(namespace)),
            (Pick::Named(names), _) if !rule.resource.namespaced => by_name(names, None),
            _ => open.view.filter(|object| rule.matches(object, selects)),
        }
    }

    /// All of them.
    pub(super) fn views(&self) -> Vec<Arc<View>> {
        let views = self.open.values().map(|it| Arc::clone(&it.view));
        views.collect()
    }
}

impl Cache {
    fn is_complete(&self) -> bool {
        matches!(self.filling, Filling::Complete)
    }
}

/// The cache for a rule: the narrowest, as long as few of its resource are open. `whole`: that of all its objects.
fn narrowest(
    whole: ViewKey,
    rule: &Rule,
    count: usize,
    is_open: &dyn Fn(&ViewKey) -> bool,
) -> ViewKey {
    let selecting = match &rule.pick {
        Pick::Named(_) => whole.clone(),
        Pick::Labelled(selector) => whole
            .clone()
            .selecting(selector.to_query().unwrap_or_default()),
    };
    let narrow = match &rule.namespaces {
        Where::One(namespace) => selecting.clone().in_namespace(namespace.clone()),
        Where::All | Where::Matching(_) => selecting.clone(),
    };
    [(narrow, MOST_NARROW), (selecting, MOST_SELECTING)]
        .into_iter()
        .find(|(key, most)| is_open(key) || count < *most)
        .map_or(whole, |(key, _)| key)
}

fn namespace_resource() -> Resource {
    Resource {
        group: String::new(),
        version: "v1".to_owned(),
        plural: "namespaces".to_owned(),
        kind: "Namespace".to_owned(),
        namespaced: false,
        has_status: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The caches for these rules, opened one after the other.
    fn open(rules: impl Iterator<Item = (String, String)>) -> BTreeSet<ViewKey> {
        let resource = Arc::new(Resource {
            plural: "secrets".to_owned(),
            kind: "Secret".to_owned(),
            namespaced: true,
            ..namespace_resource()
        });
        let whole = ViewKey::new(Identity::process(), Arc::clone(&resource));
        let mut open = BTreeSet::new();
        for (namespace, selector) in rules {
            let rule = Rule {
                resource: Arc::clone(&resource),
                namespaces: Where::One(namespace.into()),
                pick: Pick::Labelled(selector.parse().unwrap()),
            };
            let key = narrowest(whole.clone(), &rule, open.len(), &|key| open.contains(key));
            open.insert(key);
        }
        open
    }

    #[test]
    fn a_controller_watches_fifty_resources_with_those_that_its_hook_asks_for() {
        let resource = |number| {
            Arc::new(Resource {
                plural: format!("kind{number}s"),
                ..namespace_resource()
            })
        };
        let own = (0..40).map(|number| ViewKey::new(Identity::process(), resource(number)));
        let caches = Caches::new(Identity::process(), own.collect());
        let rules = |numbers: std::ops::Range<usize>| {
            let rule = |number| Rule {
                resource: resource(number),
                namespaces: Where::All,
                pick: Pick::Named(Box::default()),
            };
            numbers.map(rule).collect::<Vec<_>>()
        };

        assert!(caches.admit(rules(30..50)).is_ok());
        let refused = caches.admit(rules(30..51));
        assert_eq!(refused, Err(Error::TooManyResources(51)));
    }

    fn texts(open: &BTreeSet<ViewKey>) -> Vec<String> {
        open.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_few_rules_have_caches_of_just_what_they_ask_for() {
        let rules = [("a", "app=x"), ("b", ""), ("a", "app=x")];

        let open = open(rules.iter().map(|it| (it.0.to_owned(), it.1.to_owned())));

        assert_eq!(
            texts(&open),
            ["v1/secrets in a where app=x", "v1/secrets in b"]
        );
    }

    #[test]
    fn rules_for_many_namespaces_share_a_cache() {
        let open = open((0..1000).map(|number| (format!("n{number}"), "app=x".to_owned())));

        assert_eq!(open.len(), MOST_NARROW + 1);
        assert!(texts(&open).contains(&"v1/secrets where app=x".to_owned()));
    }

    #[test]
    fn any_number_of_rules_has_a_bounded_number_of_caches() {
        let open = open((0..1000).map(|number| (format!("n{number}"), format!("app=x{number}"))));

        assert_eq!(open.len(), MOST_SELECTING + 1);
        assert!(texts(&open).contains(&"v1/secrets".to_owned()));
    }
}
