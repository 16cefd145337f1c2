//! The cluster that a command looks at.

mod words;

use std::{collections::BTreeSet, sync::Arc};

use anyhow::Context;
use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use metashard_api::{endpoint::Source, id::ControllerKind, resource::Resource};
use metashard_kube::{
    client::{Clients, Options, PodPort},
    discovery::Discovery,
    error::Error,
    identity::Identity,
    informer::Informers,
    metrics::Metrics,
};
use metashard_plan::{hook::Holders, resources::Resources, suggest};
use metashard_reconcile::object::Object;
use metashard_runtime::clock::Clock;
use prometheus::Registry;
use serde_json::Value;

use crate::argv::Live;

/// The cluster that a command looks at.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) clients: Clients,
    pub(crate) clock: Clock,
    identity: Identity,
    discovery: Discovery,
    resources: Arc<Resources>,
    /// `None`: all of them.
    namespace: Option<String>,
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
        let host = format!("ask the API server at {}", clients.host());
        // A short question first: what is served may be long, and is given more time.
        if let Err(error) = clients.version().await
            && error.code().is_none()
        {
            return Err(error).context(host);
        }
        let discovery = Discovery::new(&clients, &Informers::new(&clients));
        discovery.refresh().await.context(host)?;
        let namespace = match &live.namespace {
            _ if live.all_namespaces => None,
            Some(namespace) => Some(namespace.clone()),
            None => Some(clients.namespace().to_owned()),
        };
        let mut resources = Resources::empty();
        for resource in discovery.resources() {
            resources.add((*resource).clone());
        }
        Ok(Self {
            resources: Arc::new(resources),
            clients,
            clock,
            identity: Identity::process(),
            discovery,
            namespace,
        })
    }

    /// The namespace that was asked for; `None`: all.
    pub(crate) fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// The namespace of objects that name none.
    pub(crate) fn default_namespace(&self) -> &str {
        self.namespace().unwrap_or_else(|| self.clients.namespace())
    }

    /// All resources that are served.
    pub(crate) fn served(&self) -> Vec<Arc<Resource>> {
        self.discovery.resources()
    }

    /// The resources that are served, for compiling controllers.
    pub(crate) fn resources(&self) -> Arc<Resources> {
        Arc::clone(&self.resources)
    }

    /// All controllers of both kinds. A kind that is not installed has none.
    pub(crate) async fn controllers(&self) -> anyhow::Result<Vec<Arc<Object>>> {
        self.controllers_with("").await
    }

    /// The controllers of both kinds with these labels.
    pub(crate) async fn controllers_with(
        &self,
        selector: &str,
    ) -> anyhow::Result<Vec<Arc<Object>>> {
        let mut all = Vec::new();
        for kind in [ControllerKind::Composite, ControllerKind::Decorator] {
            let resource = Resource::of_controllers(kind);
            let is_served = self
                .discovery
                .lookup(&resource.api_version(), &resource.plural);
            if is_served.is_some() {
                let listed = self.clients.list(&self.identity, &resource, None, selector);
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

    /// The objects of a kind in all namespaces.
    pub(crate) async fn list_all(&self, resource: &Resource) -> Result<Vec<Arc<Object>>, Error> {
        self.clients.list(&self.identity, resource, None, "").await
    }

    /// One object of a namespace; `None` if it is not there.
    pub(crate) async fn find_in(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<Object>>, Error> {
        let namespace = Some(namespace).filter(|_| resource.namespaced);
        self.clients
            .read(&self.identity, resource, namespace, name)
            .await
    }

    /// What a Pod answers to a GET, through the API server.
    pub(crate) async fn ask_pod(
        &self,
        pod: &PodPort,
        target: &str,
        header: (HeaderName, HeaderValue),
    ) -> Result<Bytes, Error> {
        self.clients
            .ask_pod(&self.identity, pod, target, header)
            .await
    }

    /// Adds what is lacking of the objects that hold what hooks are called with, read with the user's own rights.
    pub(crate) async fn hold(&self, sources: BTreeSet<Source>, holders: &mut Holders) {
        let lacking: Vec<_> = holders.lacking(sources).collect();
        for source in lacking {
            let (namespace, name) = (&source.namespace, &source.name);
            match self.find_in(&source.kind.resource(), namespace, name).await {
                Ok(Some(object)) => holders.add(source, object.bytes().clone()),
                Ok(None) => {}
                Err(error) => {
                    let why = metashard_runtime::log::chain(&error);
                    holders.add_unreadable(source, why);
                }
            }
        }
    }

    /// How many objects of a kind there are, in all namespaces.
    pub(crate) async fn count(&self, resource: &Resource, selector: &str) -> anyhow::Result<usize> {
        let counted = self.clients.count(&self.identity, resource, None, selector);
        Ok(counted.await?)
    }

    /// One object; `None` if it is not there.
    pub(crate) async fn find(
        &self,
        resource: &Resource,
        name: &str,
    ) -> anyhow::Result<Option<Arc<Object>>> {
        let namespace = self.namespace_of(resource, name)?;
        let found = self
            .clients
            .read(&self.identity, resource, namespace, name)
            .await;
        Ok(found?)
    }

    /// One object.
    pub(crate) async fn read(
        &self,
        resource: &Resource,
        name: &str,
    ) -> anyhow::Result<Arc<Object>> {
        match self.find(resource, name).await? {
            Some(object) => Ok(object),
            None => Err(self.not_found(resource, name).await),
        }
    }

    /// That an object is not there, with the name that was probably meant.
    pub(crate) async fn not_found(&self, resource: &Resource, name: &str) -> anyhow::Error {
        let namespace = self.namespace().filter(|_| resource.namespaced);
        let others = self.list(resource, namespace, "").await.unwrap_or_default();
        let hint = suggest::hint(name, others.iter().map(|it| it.name()));
        let place = namespace.map_or_else(String::new, |it| format!(" in namespace {it}"));
        anyhow::anyhow!("{} {name:?} not found{place}{hint}", resource.plural)
    }

    /// The namespace that an object of this name is looked for in.
    pub(crate) fn namespace_of(
        &self,
        resource: &Resource,
        name: &str,
    ) -> anyhow::Result<Option<&str>> {
        match (resource.namespaced, self.namespace()) {
            (true, None) => anyhow::bail!("name the namespace of {name}: -n"),
            (true, namespace) => Ok(namespace),
            (false, _) => Ok(None),
        }
    }

    /// The resource that a word means, as kubectl takes it.
    pub(crate) fn resource(&self, word: &str) -> anyhow::Result<Arc<Resource>> {
        let served = self.served();
        words::find(word, &served).ok_or_else(|| words::unknown(word, &served))
    }

    /// As [`Self::resource`]; short names of custom resources, which are in their CRDs, are taken too.
    pub(crate) async fn resource_called(&self, word: &str) -> anyhow::Result<Arc<Resource>> {
        let served = self.served();
        if let Some(found) = words::find(word, &served) {
            return Ok(found);
        }
        match self.by_short_name(word).await {
            Some(plural) => words::find(&plural, &served),
            None => None,
        }
        .ok_or_else(|| words::unknown(word, &served))
    }

    /// Plural and group of the custom resource with this short name.
    async fn by_short_name(&self, word: &str) -> Option<String> {
        let crds = words::find("customresourcedefinitions", &self.served())?;
        // Who may not read them has to write names out.
        let crds = self.list_all(&crds).await.ok()?;
        crds.iter().find_map(|crd| {
            let crd: Value = serde_json::from_slice(crd.bytes()).ok()?;
            let names = &crd["spec"]["names"];
            let short = names["shortNames"].as_array()?;
            let has = short.iter().any(|it| it == word);
            let (plural, group) = (names["plural"].as_str()?, crd["spec"]["group"].as_str()?);
            has.then(|| format!("{plural}.{group}"))
        })
    }
}
