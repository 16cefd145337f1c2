//! The cluster that a command looks at.

use std::sync::Arc;

use anyhow::Context;
use metashard_api::{id::ControllerKind, resource::Resource};
use metashard_kube::{
    client::{Clients, Options},
    discovery::Discovery,
    identity::Identity,
    informer::Informers,
    metrics::Metrics,
};
use metashard_plan::{resources::Resources, suggest};
use metashard_reconcile::object::Object;
use metashard_runtime::clock::Clock;
use prometheus::Registry;

use crate::argv::Live;

/// The cluster that a command looks at.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) clients: Clients,
    pub(crate) clock: Clock,
    identity: Identity,
    discovery: Discovery,
    /// `None`: all of them.
    namespace: Option<String>,
    /// Text of the label selector.
    selector: String,
}

impl Cluster {
    /// Connects, and asks what is served.
    pub(crate) async fn connect(live: &Live) -> anyhow::Result<Self> {
        let clock = Clock::system();
        let options = Options {
            kubeconfig: live.kubeconfig.clone(),
            context: live.context.clone(),
            ..Options::default()
        };
        let metrics = Metrics::register(&Registry::new())?;
        let clients = Clients::connect(options, clock.clone(), metrics).await?;
        let discovery = Discovery::new(&clients, &Informers::new(&clients));
        let refreshed = discovery.refresh().await;
        refreshed.with_context(|| format!("ask the API server at {}", clients.host()))?;
        let namespace = match &live.namespace {
            _ if live.all_namespaces => None,
            Some(namespace) => Some(namespace.clone()),
            None => Some(clients.namespace().to_owned()),
        };
        Ok(Self {
            clients,
            clock,
            identity: Identity::process(),
            discovery,
            namespace,
            selector: live.selector.clone(),
        })
    }

    /// The namespace that was asked for; `None`: all.
    pub(crate) fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// All resources that are served.
    pub(crate) fn served(&self) -> Vec<Arc<Resource>> {
        self.discovery.resources()
    }

    /// The resources that are served, for compiling controllers.
    pub(crate) fn resources(&self) -> Resources {
        let mut resources = Resources::empty();
        for resource in self.served() {
            resources.add((*resource).clone());
        }
        resources
    }

    /// All controllers of both kinds with the labels that were asked for. A kind that is not installed has none.
    pub(crate) async fn controllers(&self) -> anyhow::Result<Vec<Arc<Object>>> {
        let mut all = Vec::new();
        for kind in [ControllerKind::Composite, ControllerKind::Decorator] {
            let resource = Resource::of_controllers(kind);
            let is_served = self
                .discovery
                .lookup(&resource.api_version(), &resource.plural);
            if is_served.is_some() {
                let listed = self
                    .clients
                    .list(&self.identity, &resource, None, &self.selector);
                all.extend(listed.await?);
            }
        }
        Ok(all)
    }

    /// The objects of a kind: of the namespace, if they have one.
    pub(crate) async fn list(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        selector: &str,
    ) -> anyhow::Result<Vec<Arc<Object>>> {
        let listed = self
            .clients
            .list(&self.identity, resource, namespace, selector);
        Ok(listed.await?)
    }

    /// How many objects of a kind there are, in all namespaces.
    pub(crate) async fn count(&self, resource: &Resource, selector: &str) -> anyhow::Result<usize> {
        let counted = self.clients.count(&self.identity, resource, None, selector);
        Ok(counted.await?)
    }

    /// One object.
    pub(crate) async fn read(
        &self,
        resource: &Resource,
        name: &str,
    ) -> anyhow::Result<Arc<Object>> {
        let namespace = match (resource.namespaced, self.namespace()) {
            (true, None) => anyhow::bail!("name the namespace of {name}: -n"),
            (true, namespace) => namespace,
            (false, _) => None,
        };
        let read = self
            .clients
            .read(&self.identity, resource, namespace, name)
            .await?;
        if let Some(object) = read {
            return Ok(object);
        }
        let others = self.list(resource, namespace, "").await.unwrap_or_default();
        let meant = suggest::nearest(name, others.iter().map(|it| it.name()));
        let hint = meant.map_or_else(String::new, |it| format!("; did you mean {it}?"));
        anyhow::bail!("{} {name:?} not found{hint}", resource.plural)
    }

    /// The resource that a word means: a plural, a singular, a kind, or a plural with its group.
    pub(crate) fn resource(&self, word: &str) -> anyhow::Result<Arc<Resource>> {
        let served = self.served();
        let lower = word.to_lowercase();
        let is_it = |it: &Resource| {
            it.plural == lower
                || it.kind.to_lowercase() == lower
                || format!("{}.{}", it.plural, it.group) == lower
        };
        if let Some(found) = served.iter().find(|it| is_it(it)) {
            return Ok(Arc::clone(found));
        }
        let plurals = served.iter().map(|it| it.plural.as_str());
        let hint = match suggest::nearest(&lower, plurals) {
            Some(meant) => format!("; did you mean {meant}?"),
            None => String::new(),
        };
        anyhow::bail!("the API server has no resource {word:?}{hint}")
    }
}
