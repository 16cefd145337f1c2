//! The children that a hook asks for, checked before anything is written: one that is wrong refuses the whole answer.

use std::{
    borrow::Cow,
    collections::{BTreeMap, btree_map::Entry},
};

use metashard_api::{
    id::ControllerKind,
    names::{ANNOTATION_DECORATOR, LABEL_CONTROLLER_UID, event},
    selector::Selector,
};
use serde_json::{Map, Value};
use xxhash_rust::xxh3::Xxh3;

use crate::{apply::SYSTEM_FIELDS, controller::Controller, diff, lastapplied, object::Object};

/// Longest name of an object.
const MAX_NAME: usize = 253;

/// One child that should exist.
#[derive(Debug)]
pub(crate) struct Desired {
    /// Index of its rule.
    pub(crate) rule: usize,
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    /// The object: with its namespace, without what only the API server writes.
    pub(crate) object: Value,
    /// Hash of `object`.
    pub(crate) wish: u64,
    /// Whether an observed child stays as it is, whatever `object` says.
    pub(crate) held: bool,
}

/// All children that should exist.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) children: Vec<Desired>,
    /// Children of kinds that are declared but not served now: passed over.
    pub(crate) unserved: Vec<String>,
    /// What is told of children that are returned more than once, and not the same each time.
    pub(crate) repeated: Vec<String>,
}

/// Why an answer is refused whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// Reason of the event.
    pub(crate) reason: &'static str,
    /// Names object, field and fix.
    pub(crate) text: String,
}

/// What children are checked against.
pub(crate) struct Scope<'a> {
    pub(crate) controller: &'a Controller,
    pub(crate) parent: &'a Object,
    pub(crate) selector: &'a Selector,
}

impl Scope<'_> {
    /// Checks all children of an answer.
    pub(crate) fn check(&self, children: Vec<Value>) -> Result<Wanted, Refusal> {
        let mut wanted = Wanted::default();
        let mut seen = BTreeMap::new();
        for (index, child) in children.into_iter().enumerate() {
            let at = At::new(self.controller.answer_list(), index, &child);
            let Some(desired) = self.child(&at, child)? else {
                wanted.unserved.push(at.object);
                continue;
            };
            let key = (
                desired.rule,
                desired.namespace.clone(),
                desired.name.clone(),
            );
            match seen.entry(key) {
                Entry::Vacant(free) => {
                    free.insert(wanted.children.len());
                    wanted.children.push(desired);
                }
                // As in Metacontroller the last one counts.
                Entry::Occupied(place) => {
                    let Some(earlier) = wanted.children.get_mut(*place.get()) else {
                        continue;
                    };
                    if earlier.wish != desired.wish {
                        let At { path, object } = at;
                        wanted.repeated.push(format!(
                            "desired child {object} is returned more than once, and {path} counts; return each child once"
                        ));
                    }
                    *earlier = desired;
                }
            }
        }
        Ok(wanted)
    }

    /// Checks one child; `None` if its kind is not served now.
    fn child(&self, at: &At, child: Value) -> Result<Option<Desired>, Refusal> {
        let Value::Object(mut object) = child else {
            return Err(at.refuse("", "it is no object", "return objects only"));
        };
        let Some(rule) = self.rule(at, &object)? else {
            return Ok(None);
        };
        let Some(Value::Object(metadata)) = object.get_mut("metadata") else {
            return Err(at.refuse("metadata", "it is no object", "give it a name"));
        };
        let name = self.name(at, metadata)?;
        let namespace = self.namespace(at, rule, metadata)?;
        if let Some(namespace) = &namespace {
            metadata.insert("namespace".to_owned(), namespace.clone().into());
        }
        for field in SYSTEM_FIELDS {
            metadata.remove(field);
        }
        texts(at, metadata, "annotations")?;
        texts(at, metadata, "labels")?;
        self.labels(at, metadata)?;
        self.mark(metadata);
        let mut object = Value::Object(object);
        lastapplied::strip(&mut object);
        let mut hash = Xxh3::new();
        diff::hash(&object, &mut hash);
        Ok(Some(Desired {
            rule,
            namespace,
            name,
            object,
            wish: hash.digest(),
            held: false,
        }))
    }

    /// The rule of a child's kind; `None` if that kind is declared and not served now.
    fn rule(&self, at: &At, object: &Map<String, Value>) -> Result<Option<usize>, Refusal> {
        let text = |field| {
            object
                .get(field)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        if kind.is_empty() {
            return Err(at.refuse("kind", "it is no text", "give it the kind of the child"));
        }
        if api_version.is_empty() {
            return Err(at.refuse("apiVersion", "it is no text", "give it group/version"));
        }
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let same_kind = |resource: &metashard_api::resource::Resource| {
            resource.kind == kind && resource.group == group
        };
        let rules = &self.controller.children;
        match rules.iter().position(|rule| same_kind(&rule.resource)) {
            Some(rule)
                if rules
                    .get(rule)
                    .is_some_and(|it| it.resource.version == version) =>
            {
                Ok(Some(rule))
            }
            Some(rule) => {
                let declared = rules.get(rule).map(|it| it.resource.api_version());
                let fix = format!(
                    "use {}, as spec.{} does",
                    declared.unwrap_or_default(),
                    self.controller.child_list()
                );
                Err(at.refuse(
                    "apiVersion",
                    &format!("{api_version:?} is not declared"),
                    &fix,
                ))
            }
            None if self
                .controller
                .missing_children
                .iter()
                .any(|it| it.api_version == api_version) =>
            {
                Ok(None)
            }
            None => {
                let problem = format!("{kind} in {api_version} is not declared");
                let list = self.controller.child_list();
                let fix = format!("list it in spec.{list} of the controller");
                Err(at.refuse("kind", &problem, &fix))
            }
        }
    }

    #[expect(clippy::unused_self, reason = "beside the other checks of a child")]
    fn name(&self, at: &At, metadata: &Map<String, Value>) -> Result<String, Refusal> {
        match metadata.get("name") {
            Some(Value::String(name)) if is_name(name) => Ok(name.clone()),
            Some(Value::String(name)) if !name.is_empty() => Err(at.refuse(
                "metadata.name",
                "it cannot be a name",
                "use letters, digits, '-' and '.'",
            )),
            _ => Err(at.refuse(
                "metadata.name",
                "it is missing",
                "name every child; generateName does not work",
            )),
        }
    }

    /// The namespace of a child; an absent one is that of the parent.
    fn namespace(
        &self,
        at: &At,
        rule: usize,
        metadata: &Map<String, Value>,
    ) -> Result<Option<String>, Refusal> {
        let field = "metadata.namespace";
        let given = match metadata.get("namespace") {
            None | Some(Value::Null) => "",
            Some(Value::String(namespace)) => namespace,
            Some(_) => return Err(at.refuse(field, "it is no text", "leave it out")),
        };
        let namespaced = self
            .controller
            .children
            .get(rule)
            .is_some_and(|it| it.resource.namespaced);
        match (namespaced, self.parent.namespace()) {
            (false, Some(_)) => Err(at.refuse(
                field,
                "a namespaced parent cannot own a cluster-scoped child",
                "return namespaced children only, or make the parent's kind cluster-scoped",
            )),
            (false, None) if given.is_empty() => Ok(None),
            (false, None) => Err(at.refuse(field, "its kind is cluster-scoped", "leave it out")),
            (true, Some(parent)) if given.is_empty() || given == parent => {
                Ok(Some(parent.to_owned()))
            }
            (true, Some(parent)) => Err(at.refuse(
                field,
                &format!("it is not the parent's namespace {parent:?}"),
                "leave it out: a namespaced parent owns children of its own namespace only",
            )),
            (true, None) if given.is_empty() => Err(at.refuse(
                field,
                "it is missing, and the parent is cluster-scoped",
                "say in which namespace the child belongs",
            )),
            (true, None) if is_dns_label(given) => Ok(Some(given.to_owned())),
            (true, None) => {
                Err(at.refuse(field, "it cannot be a namespace", "use a-z, 0-9 and '-'"))
            }
        }
    }

    /// Marks an attachment with the name of its decorator.
    fn mark(&self, metadata: &mut Map<String, Value>) {
        if self.controller.kind != ControllerKind::Decorator {
            return;
        }
        let annotations = metadata
            .entry("annotations")
            .or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(annotations) = annotations {
            let name = self.controller.name.as_str();
            annotations.insert(ANNOTATION_DECORATOR.to_owned(), name.into());
        }
    }

    /// Adds the generated label, and checks that the child will be found again.
    fn labels(&self, at: &At, metadata: &mut Map<String, Value>) -> Result<(), Refusal> {
        if self.controller.generate_selector {
            let labels = metadata
                .entry("labels")
                .or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(labels) = labels {
                labels
                    .entry(LABEL_CONTROLLER_UID)
                    .or_insert_with(|| self.parent.uid().into());
            }
        }
        let labels = metadata.get("labels").and_then(Value::as_object);
        let label = |key: &str| labels.and_then(|it| it.get(key)).and_then(Value::as_str);
        if self.selector.matches(label) {
            return Ok(());
        }
        let text = format!(
            "labels on desired child {} don't match parent selector: {}.metadata.labels must match {:?}",
            at.object,
            at.path,
            self.selector.to_query().unwrap_or_default(),
        );
        Err(Refusal {
            reason: event::SYNC_ERROR,
            text,
        })
    }
}

/// A map of texts. A null in it counts as absent, as does a null in its place; anything else is refused.
fn texts(at: &At, metadata: &mut Map<String, Value>, field: &str) -> Result<(), Refusal> {
    let path = || format!("metadata.{field}");
    match metadata.get_mut(field) {
        None => Ok(()),
        Some(Value::Null) => {
            metadata.remove(field);
            Ok(())
        }
        Some(Value::Object(map)) => {
            map.retain(|_, value| !value.is_null());
            match map.iter().find(|(_, value)| !value.is_string()) {
                None => Ok(()),
                Some((key, _)) if field == "labels" => {
                    let text = format!(
                        "invalid labels on desired child {}: {}.metadata.labels[{key:?}] is no text; put it in quotes",
                        at.object, at.path
                    );
                    Err(Refusal {
                        reason: event::SYNC_ERROR,
                        text,
                    })
                }
                Some((key, _)) => {
                    let path = format!("{}[{key:?}]", path());
                    Err(at.refuse(&path, "it is no text", "put it in quotes"))
                }
            }
        }
        Some(_) => Err(at.refuse(&path(), "it is no map of texts", "return a map")),
    }
}

/// Which child of the answer is looked at.
struct At {
    /// `children[2]`
    path: String,
    /// `ConfigMap ns/name`, as far as the child says so.
    object: String,
}

impl At {
    fn new(list: &str, index: usize, child: &Value) -> Self {
        let text = |pointer: &str| {
            child
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let namespace = match text("/metadata/namespace") {
            "" => Cow::Borrowed(""),
            namespace => Cow::Owned(format!("{namespace}/")),
        };
        let object = format!("{} {namespace}{}", text("/kind"), text("/metadata/name"));
        Self {
            path: format!("{list}[{index}]"),
            object,
        }
    }

    fn refuse(&self, field: &str, problem: &str, fix: &str) -> Refusal {
        let dot = if field.is_empty() { "" } else { "." };
        let text = format!(
            "desired child {}: {}{dot}{field}: {problem}; {fix}",
            self.object, self.path
        );
        Refusal {
            reason: event::CHILD_REFUSED,
            text,
        }
    }
}

/// Whether a name is one segment of a path, and no other.
fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_NAME
        && name != "."
        && name != ".."
        && name
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !b"/%?#\\".contains(&byte))
}

fn is_dns_label(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.len() <= 63
        && text.bytes().next().is_some_and(is_plain)
        && text.bytes().next_back().is_some_and(is_plain)
        && text.bytes().all(|byte| is_plain(byte) || byte == b'-')
}
