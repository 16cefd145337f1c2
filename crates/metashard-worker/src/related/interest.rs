//! Which parents a change of one object of a cache concerns, found without looking at every parent.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use metashard_api::selector::Selector;
use metashard_fleet::queue::{Cause, FlowId};
use metashard_kube::informer::{Event, Subscriber};
use metashard_reconcile::{
    object::Object,
    related::{Namespaces as Where, Pick, Rule},
};
use parking_lot::Mutex;

use super::namespaces::Namespaces;
use crate::{dispatch::Dispatcher, key::ParentKey};

/// The rules that are read from one cache, with the parents that they are for.
#[derive(Debug, Default)]
pub(super) struct Interest {
    /// Whether the cache was complete once: before, all parents wait for that.
    is_awake: AtomicBool,
    rules: Mutex<BTreeMap<Anchor, Rules>>,
}

/// Equal rules are one.
type Rules = BTreeMap<Arc<Rule>, BTreeSet<ParentKey>>;

/// What the objects of a rule have in common, by which the rule is found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Anchor {
    Name(Box<str>),
    Namespace(Box<str>),
    Nothing,
}

impl Interest {
    /// Changes are told from here on.
    pub(super) fn awake(&self) {
        self.is_awake.store(true, Ordering::Release);
    }

    /// A parent has this rule.
    pub(super) fn add(&self, rule: &Rule, key: &ParentKey) {
        let mut all = self.rules.lock();
        let rule = Arc::new(rule.clone());
        for anchor in anchors(&rule) {
            all.entry(anchor)
                .or_default()
                .entry(Arc::clone(&rule))
                .or_default()
                .insert(key.clone());
        }
    }

    /// A parent no longer has this rule.
    pub(super) fn remove(&self, rule: &Rule, key: &ParentKey) {
        let mut all = self.rules.lock();
        for anchor in anchors(rule) {
            let Some(rules) = all.get_mut(&anchor) else {
                continue;
            };
            if let Some(keys) = rules.get_mut(rule) {
                keys.remove(key);
                if keys.is_empty() {
                    rules.remove(rule);
                }
            }
            if rules.is_empty() {
                all.remove(&anchor);
            }
        }
    }

    /// Adds the parents that have a rule for `object` to `keys`.
    fn find(
        &self,
        object: &Object,
        selects: &dyn Fn(&Selector, &str) -> bool,
        keys: &mut BTreeSet<ParentKey>,
    ) {
        let all = self.rules.lock();
        let namespace = object.namespace();
        let anchors = [
            Some(Anchor::Name(object.name().into())),
            namespace.map(|namespace| Anchor::Namespace(namespace.into())),
            Some(Anchor::Nothing),
        ];
        for (rule, parents) in anchors
            .into_iter()
            .flatten()
            .filter_map(|anchor| all.get(&anchor))
            .flatten()
        {
            if rule.matches(object, selects) {
                keys.extend(parents.iter().cloned());
            }
        }
    }
}

fn anchors(rule: &Rule) -> Vec<Anchor> {
    match (&rule.pick, &rule.namespaces) {
        (Pick::Named(names), _) => names.iter().cloned().map(Anchor::Name).collect(),
        (Pick::Labelled(_), Where::One(namespace)) => vec![Anchor::Namespace(namespace.clone())],
        (Pick::Labelled(_), Where::All | Where::Matching(_)) => vec![Anchor::Nothing],
    }
}

/// Pushes the keys of parents whose related objects changed.
pub(super) struct RelatedEvents {
    pub(super) interest: Arc<Interest>,
    pub(super) namespaces: Arc<Namespaces>,
    /// Where keys go.
    pub(super) dispatcher: Arc<Dispatcher>,
    pub(super) flow: FlowId,
}

impl Subscriber for RelatedEvents {
    fn on_event(&self, event: Event) {
        if !self.interest.is_awake.load(Ordering::Acquire) {
            return;
        }
        let mut keys = BTreeSet::new();
        let selects = |selector: &_, namespace: &str| self.namespaces.selects(selector, namespace);
        let mut find = |object: &Object| self.interest.find(object, &selects, &mut keys);
        match event {
            Event::Applied { old, new } => {
                // What no longer matches has gone for whoever saw it.
                if let Some(old) = old.filter(|old| !old.same_labels(&new)) {
                    find(&old);
                }
                find(&new);
            }
            Event::Deleted { old } => find(&old),
            Event::Synced => {}
        }
        if !keys.is_empty() {
            self.dispatcher.push_all(self.flow, keys, Cause::Related);
        }
    }
}

#[cfg(test)]
mod tests {
    use metashard_api::resource::Resource;

    use super::*;

    fn rule(namespaces: Where, pick: Pick) -> Rule {
        let resource = Resource {
            group: String::new(),
            version: "v1".to_owned(),
            plural: "secrets".to_owned(),
            kind: "Secret".to_owned(),
            namespaced: true,
            has_status: false,
        };
        Rule {
            resource: Arc::new(resource),
            namespaces,
            pick,
        }
    }

    fn named(names: &[&str]) -> Pick {
        Pick::Named(names.iter().map(|name| (*name).into()).collect())
    }

    fn labelled(selector: &str) -> Pick {
        Pick::Labelled(selector.parse().unwrap())
    }

    fn secret(namespace: &str, name: &str, app: &str) -> Object {
        let json = format!(
            r#"{{"apiVersion":"v1","kind":"Secret","metadata":{{"namespace":"{namespace}","name":"{name}",
            "uid":"u","resourceVersion":"1","labels":{{"app":"{app}"}}}}}}"#
        );
        Object::parse(json).unwrap()
    }

    fn found(interest: &Interest, object: &Object) -> Vec<String> {
        let mut keys = BTreeSet::new();
        interest.find(object, &|_, _| false, &mut keys);
        keys.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_object_concerns_the_parents_whose_rules_pick_it() {
        let interest = Interest::default();
        let one = |namespace: &str| Where::One(namespace.into());
        for (key, rule) in [
            ("named", rule(one("ns"), named(&["a", "b"]))),
            ("named-elsewhere", rule(one("other"), named(&["a"]))),
            ("labelled", rule(one("ns"), labelled("app=x"))),
            ("labelled-elsewhere", rule(one("other"), labelled("app=x"))),
            ("anywhere", rule(Where::All, labelled("app=x"))),
            ("anywhere-else", rule(Where::All, labelled("app=y"))),
            (
                "unknown-namespaces",
                rule(Where::Matching(Selector::everything()), labelled("app=x")),
            ),
        ] {
            interest.add(&rule, &ParentKey::new(0, None, key));
        }

        assert_eq!(
            found(&interest, &secret("ns", "a", "x")),
            ["anywhere", "labelled", "named"]
        );
        assert_eq!(found(&interest, &secret("ns", "b", "z")), ["named"]);
        assert!(found(&interest, &secret("ns", "c", "z")).is_empty());
    }

    #[test]
    fn a_rule_that_was_taken_back_concerns_nobody() {
        let interest = Interest::default();
        let rule = rule(Where::All, named(&["a", "b"]));
        let [one, two] = ["one", "two"].map(|name| ParentKey::new(0, None, name));
        interest.add(&rule, &one);
        interest.add(&rule, &two);

        interest.remove(&rule, &one);
        assert_eq!(found(&interest, &secret("ns", "b", "x")), ["two"]);

        interest.remove(&rule, &two);
        assert!(interest.rules.lock().is_empty(), "nothing is left behind");
    }
}
