//! Related objects: the rules of a customize hook's answer, compiled, and the objects that they pick.

use std::{collections::BTreeMap, sync::Arc};

use metashard_api::{
    hook::{self, RelatedRule, Version},
    resource::Resource,
    selector::{self, Selector},
    validate::MAX_RESOURCES,
};
use xxhash_rust::xxh3::Xxh3;

use crate::object::Object;

/// Most rules in one answer.
pub const MAX_RULES: usize = 200;

/// One rule, compiled: which objects of which resource a hook wants to see.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rule {
    /// The resource.
    pub resource: Arc<Resource>,
    /// In which namespaces the objects lie.
    pub namespaces: Namespaces,
    /// Which of the objects there.
    pub pick: Pick,
}

/// In which namespaces a rule's objects lie.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Namespaces {
    /// In all of them; also for a cluster-scoped resource.
    All,
    /// In this one.
    One(Box<str>),
    /// In those whose labels match.
    Matching(Selector),
}

/// Which objects a rule picks in its namespaces.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pick {
    /// Those of these names, which are sorted.
    Named(Box<[Box<str>]>),
    /// Those whose labels match.
    Labelled(Selector),
}

/// Why rules are refused. The texts are Metacontroller's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Both ways to pick at once.
    #[error(
        "related rule cannot have both names and labelSelector/namespaceSelector specified: relatedResources[{0}]"
    )]
    NamesAndSelector(usize),
    /// Both ways to say where at once.
    #[error(
        "related rule cannot have both namespace and namespaceSelector specified: relatedResources[{0}]"
    )]
    NamespaceAndSelector(usize),
    /// A namespaced parent of a v1 hook sees its own namespace only.
    #[error(
        "requested related object namespace {asked} differs from parent object namespace {parent}"
    )]
    OtherNamespace {
        /// The namespace of the rule.
        asked: String,
        /// That of the parent.
        parent: String,
    },
    /// As above.
    #[error("namespaceSelector is not supported for namespaced parent in v1 hook version")]
    SelectorInV1,
    /// The resource has no namespaces.
    #[error("namespaceSelector is only supported for namespaced related resources")]
    ClusterScoped,
    /// A selector that is none.
    #[error("relatedResources[{index}].{field}: {source}")]
    Selector {
        /// Which rule.
        index: usize,
        /// Which of its selectors.
        field: &'static str,
        /// What is wrong with it.
        source: selector::Error,
    },
    /// More than [`MAX_RULES`].
    #[error("{0} rules in relatedResources are too many; return at most {MAX_RULES}")]
    TooMany(usize),
    /// With these, the controller would watch more than [`MAX_RESOURCES`].
    #[error(
        "relatedResources would have the controller watch {0} resources, and {MAX_RESOURCES} is the most; name fewer, or split the controller"
    )]
    TooManyResources(usize),
    /// The API server does not serve the resource. Compile anew when discovery changes.
    #[error("discovery: can't find resource {resource} in apiVersion {api_version}")]
    NotFound {
        /// Lower-case plural, as the rule has it.
        resource: String,
        /// `group/version`, as the rule has it.
        api_version: String,
    },
    /// Why rules were refused when a pass was recorded.
    #[error("{0}")]
    Recorded(String),
}

/// Compiles the rules of an answer for one parent. `version` is that of the customize hook; `lookup` finds the resource
/// of an apiVersion and plural in discovery.
///
/// # Errors
/// When one of them is refused; that it is no rule is told before that its resource is not served.
pub fn compile(
    rules: &[RelatedRule],
    version: Version,
    parent_namespace: Option<&str>,
    lookup: &dyn Fn(&str, &str) -> Option<Arc<Resource>>,
) -> Result<Vec<Rule>, Error> {
    if rules.len() > MAX_RULES {
        return Err(Error::TooMany(rules.len()));
    }
    // What holds a namespaced parent of a v1 hook in.
    let home = parent_namespace.filter(|_| version == Version::V1);
    let checked = rules
        .iter()
        .enumerate()
        .map(|(index, rule)| Checked::new(index, rule))
        .collect::<Result<Vec<_>, _>>()?;
    let mut compiled: Vec<Rule> = Vec::with_capacity(rules.len());
    for (rule, checked) in rules.iter().zip(checked) {
        let resource =
            lookup(&rule.api_version, &rule.resource).ok_or_else(|| Error::NotFound {
                resource: rule.resource.clone(),
                api_version: rule.api_version.clone(),
            })?;
        let rule = checked.place(resource, &rule.namespace, home)?;
        if !compiled.contains(&rule) {
            compiled.push(rule);
        }
    }
    Ok(compiled)
}

/// A rule that is well-formed; whether it suits its resource and parent is not known yet.
struct Checked {
    namespaces: Option<Selector>,
    pick: Pick,
}

impl Checked {
    fn new(index: usize, rule: &RelatedRule) -> Result<Self, Error> {
        let has_selector = rule.label_selector.is_some() || rule.namespace_selector.is_some();
        if !rule.names.is_empty() && has_selector {
            return Err(Error::NamesAndSelector(index));
        }
        if !rule.namespace.is_empty() && rule.namespace_selector.is_some() {
            return Err(Error::NamespaceAndSelector(index));
        }
        let compile = |field, selector: &_| {
            Selector::compile(selector).map_err(|source| Error::Selector {
                index,
                field,
                source,
            })
        };
        let namespaces = rule.namespace_selector.as_ref();
        let namespaces = namespaces
            .map(|it| compile("namespaceSelector", it))
            .transpose()?;
        let labels = rule.label_selector.as_ref();
        let labels = labels.map(|it| compile("labelSelector", it)).transpose()?;
        let pick = if rule.names.is_empty() {
            Pick::Labelled(labels.unwrap_or_default())
        } else {
            let mut names: Vec<Box<str>> = rule.names.iter().map(|it| it.as_str().into()).collect();
            names.sort_unstable();
            names.dedup();
            Pick::Named(names.into())
        };
        Ok(Self { namespaces, pick })
    }

    fn place(
        self,
        resource: Arc<Resource>,
        namespace: &str,
        home: Option<&str>,
    ) -> Result<Rule, Error> {
        let namespaces = match (self.namespaces, home) {
            (Some(_), _) if !resource.namespaced => return Err(Error::ClusterScoped),
            (Some(_), Some(_)) => return Err(Error::SelectorInV1),
            (Some(selector), None) => Namespaces::Matching(selector),
            (None, _) if !resource.namespaced => Namespaces::All,
            (None, Some(home)) if !namespace.is_empty() && namespace != home => {
                return Err(Error::OtherNamespace {
                    asked: namespace.to_owned(),
                    parent: home.to_owned(),
                });
            }
            (None, Some(home)) => Namespaces::One(home.into()),
            (None, None) if namespace.is_empty() => Namespaces::All,
            (None, None) => Namespaces::One(namespace.into()),
        };
        Ok(Rule {
            resource,
            namespaces,
            pick: self.pick,
        })
    }
}

impl Rule {
    /// Whether it picks `object`, which is of its resource. `selects` says whether the labels of a namespace match.
    pub fn matches(&self, object: &Object, selects: &dyn Fn(&Selector, &str) -> bool) -> bool {
        let is_picked = match &self.pick {
            Pick::Named(names) => names
                .binary_search_by(|name| (**name).cmp(object.name()))
                .is_ok(),
            Pick::Labelled(selector) => selector.matches(|key| object.label(key)),
        };
        is_picked
            && match (&self.namespaces, object.namespace()) {
                (Namespaces::All, _) => true,
                (Namespaces::One(one), Some(namespace)) => **one == *namespace,
                (Namespaces::Matching(selector), Some(namespace)) => selects(selector, namespace),
                (Namespaces::One(_) | Namespaces::Matching(_), None) => false,
            }
    }
}

/// The related objects of one parent, as its hooks see them.
#[derive(Debug, Clone, Default)]
pub struct Related {
    /// In the order of their keys.
    groups: Vec<Group>,
}

/// The objects of one kind.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    /// Key of the kind in a request.
    pub(crate) key: String,
    /// In the order of namespace and name, each once.
    pub(crate) objects: Vec<Arc<Object>>,
}

impl Related {
    /// Puts together what each rule picks. Several rules of one kind make one group; one that picks nothing makes an empty one.
    pub fn new(rules: impl IntoIterator<Item = (Arc<Resource>, Vec<Arc<Object>>)>) -> Self {
        let mut groups: BTreeMap<String, Vec<Arc<Object>>> = BTreeMap::new();
        for (resource, objects) in rules {
            let group = groups.entry(hook::outer_key(&resource)).or_default();
            group.extend(objects);
        }
        let groups = groups.into_iter().map(|(key, mut objects)| {
            objects
                .sort_unstable_by(|a, b| (a.namespace(), a.name()).cmp(&(b.namespace(), b.name())));
            objects.dedup_by(|a, b| a.name() == b.name() && a.namespace() == b.namespace());
            Group { key, objects }
        });
        Self {
            groups: groups.collect(),
        }
    }

    /// All objects, by kind.
    pub fn objects(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.groups.iter().flat_map(|group| &group.objects)
    }

    /// Whether no rule asked for anything.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// The groups as they were recorded.
    pub(crate) fn from_groups(groups: Vec<Group>) -> Self {
        Self { groups }
    }

    pub(crate) fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Two that are equal in this are the same objects in the same versions, in the same groups.
    pub fn fingerprint(&self) -> u64 {
        let mut hash = Xxh3::new();
        self.hash(&mut hash);
        hash.digest()
    }

    /// Adds what identifies these states of these objects to a hash.
    pub(crate) fn hash(&self, hash: &mut Xxh3) {
        for group in &self.groups {
            hash.update(group.key.as_bytes());
            hash.update(&(group.objects.len() as u64).to_le_bytes());
            for object in &group.objects {
                object.hash_version(hash);
            }
        }
    }
}

#[cfg(test)]
mod tests;
