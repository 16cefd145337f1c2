//! What is in the cluster, each kind listed once, however many parents there are.

use std::{collections::BTreeMap, sync::Arc};

use metashard_api::resource::Resource;
use metashard_reconcile::{controller::Controller, object::Object};

use crate::cluster::Cluster;

/// Objects by namespace.
type ByNamespace = BTreeMap<Option<String>, Vec<Arc<Object>>>;

/// What is in the cluster.
#[derive(Debug)]
pub(super) struct Stock<'a> {
    cluster: &'a Cluster,
    /// The one namespace of all parents; `None`: they are in several, or in none.
    namespace: Option<String>,
    /// What was listed of each kind, by namespace.
    near: BTreeMap<Arc<Resource>, ByNamespace>,
    /// What was listed of each kind in all namespaces.
    everywhere: BTreeMap<Arc<Resource>, Vec<Arc<Object>>>,
}

impl<'a> Stock<'a> {
    /// Nothing is listed yet.
    pub(super) fn new<'b>(
        cluster: &'a Cluster,
        parents: impl IntoIterator<Item = &'b Object>,
    ) -> Self {
        let mut namespaces = parents.into_iter().map(Object::namespace);
        let first = namespaces.next().flatten();
        let is_one = namespaces.all(|it| it == first);
        Self {
            cluster,
            namespace: first.filter(|_| is_one).map(str::to_owned),
            near: BTreeMap::new(),
            everywhere: BTreeMap::new(),
        }
    }

    /// What may be a child of a parent, or in the way of one.
    pub(super) async fn beside(
        &mut self,
        parent: &Object,
        controller: &Controller,
    ) -> anyhow::Result<Vec<Arc<Object>>> {
        let rules = controller.children.iter().map(|rule| &rule.resource);
        let mut kinds: Vec<_> = rules.cloned().collect();
        if controller.history.is_some() && parent.namespace().is_some() {
            kinds.push(Arc::new(Resource::of_revisions()));
        }
        let mut found = Vec::new();
        for kind in kinds {
            let listed = self.of_kind(&kind).await?;
            match parent.namespace().filter(|_| kind.namespaced) {
                Some(namespace) => {
                    let here = listed.get(&Some(namespace.to_owned()));
                    found.extend(here.into_iter().flatten().cloned());
                }
                None => found.extend(listed.values().flatten().cloned()),
            }
        }
        Ok(found)
    }

    /// All objects of a kind.
    pub(super) async fn all(&mut self, kind: &Arc<Resource>) -> anyhow::Result<&[Arc<Object>]> {
        if !self.everywhere.contains_key(kind) {
            let listed = self.cluster.list(kind, None, "").await?;
            self.everywhere.insert(Arc::clone(kind), listed);
        }
        Ok(self.everywhere.get(kind).map_or(&[], Vec::as_slice))
    }

    async fn of_kind(&mut self, kind: &Arc<Resource>) -> anyhow::Result<&ByNamespace> {
        if !self.near.contains_key(kind) {
            let namespace = self.namespace.as_deref().filter(|_| kind.namespaced);
            let mut listed = ByNamespace::new();
            for object in self.cluster.list(kind, namespace, "").await? {
                let namespace = object.namespace().map(str::to_owned);
                listed.entry(namespace).or_default().push(object);
            }
            self.near.insert(Arc::clone(kind), listed);
        }
        Ok(self.near.entry(Arc::clone(kind)).or_default())
    }
}
