//! What the tests share: clients of a cluster, views, a subscriber that writes down what it is told.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use metashard_api::{endpoint::SourceKind, resource::Resource};
use metashard_kube::{
    client::{Clients, Options},
    identity::Identity,
    informer::{Event, Informers, Subscriber, View, ViewKey, ViewState},
    metrics::Metrics,
};
use metashard_runtime::clock::Clock;
use metashard_testkit::{Cluster, wait::eventually};
use parking_lot::Mutex;
use prometheus::Registry;
use serde_json::json;

/// Long against everything that a test waits for.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Clients of a cluster, a namespace of the test's own, and the cluster's own client beside them.
pub(crate) struct Kit {
    pub(crate) clients: Clients,
    pub(crate) informers: Informers,
    pub(crate) registry: Registry,
    pub(crate) namespace: String,
    pub(crate) config_maps: Api<ConfigMap>,
}

impl Kit {
    /// On the cluster that all tests share.
    pub(crate) async fn shared() -> anyhow::Result<Self> {
        Self::on(Cluster::shared().await?).await
    }

    pub(crate) async fn on(cluster: &Cluster) -> anyhow::Result<Self> {
        let kubeconfig = cluster.kubeconfig(metashard_testkit::cluster::ADMIN)?;
        Self::with(cluster, kubeconfig).await
    }

    /// With the clients of another kubeconfig than the cluster's own.
    pub(crate) async fn with(cluster: &Cluster, kubeconfig: PathBuf) -> anyhow::Result<Self> {
        Self::timed(cluster, kubeconfig, Clock::system()).await
    }

    /// With another clock.
    pub(crate) async fn timed(
        cluster: &Cluster,
        kubeconfig: PathBuf,
        clock: Clock,
    ) -> anyhow::Result<Self> {
        let namespace = cluster.namespace("kube").await?;
        let registry = Registry::new();
        let clients = connect_with(kubeconfig, &registry, clock).await?;
        let informers = Informers::new(&clients);
        informers.register(&registry)?;
        let config_maps = Api::namespaced(cluster.admin().await?, &namespace);
        Ok(Self {
            clients,
            informers,
            registry,
            namespace,
            config_maps,
        })
    }

    /// The ConfigMaps of the test's namespace.
    pub(crate) fn key(&self) -> ViewKey {
        ViewKey::new(Identity::process(), Arc::new(config_maps())).in_namespace(&*self.namespace)
    }

    /// Opens a view of the ConfigMaps, and waits for its first list.
    pub(crate) async fn open(&self) -> anyhow::Result<(View, Arc<Recorder>)> {
        let recorder = Arc::new(Recorder::default());
        let view = self
            .informers
            .open(self.key(), Some(Arc::clone(&recorder) as _));
        synced(&view).await?;
        Ok((view, recorder))
    }

    pub(crate) async fn create(
        &self,
        name: &str,
        labels: &[(&str, &str)],
    ) -> anyhow::Result<ConfigMap> {
        let map: std::collections::BTreeMap<_, _> = labels.iter().copied().collect();
        let object =
            serde_json::from_value(json!({ "metadata": { "name": name, "labels": map } }))?;
        self.config_maps
            .create(&PostParams::default(), &object)
            .await
            .context("create a ConfigMap")
    }

    /// One that another one controls.
    pub(crate) async fn create_owned(
        &self,
        name: &str,
        owner: &ConfigMap,
    ) -> anyhow::Result<ConfigMap> {
        let metadata = &owner.metadata;
        let owner = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "controller": true,
            "name": metadata.name, "uid": metadata.uid,
        });
        let object = serde_json::from_value(
            json!({ "metadata": { "name": name, "ownerReferences": [owner] } }),
        )?;
        self.config_maps
            .create(&PostParams::default(), &object)
            .await
            .context("create a ConfigMap")
    }

    pub(crate) async fn delete(&self, name: &str) -> anyhow::Result<()> {
        self.config_maps
            .delete(name, &DeleteParams::default())
            .await
            .context("delete a ConfigMap")?;
        Ok(())
    }

    /// Sum of the series of a metric of which some label has this value.
    pub(crate) fn metric(&self, name: &str, label: &str) -> f64 {
        let families = self.registry.gather();
        let series = families
            .iter()
            .filter(|family| family.name() == name)
            .flat_map(prometheus::proto::MetricFamily::get_metric);
        series
            .filter(|series| series.get_label().iter().any(|pair| pair.value() == label))
            .map(|series| series.get_counter().get_value() + series.get_gauge().get_value())
            .sum()
    }
}

pub(crate) async fn connect(kubeconfig: PathBuf, registry: &Registry) -> anyhow::Result<Clients> {
    connect_with(kubeconfig, registry, Clock::system()).await
}

async fn connect_with(
    kubeconfig: PathBuf,
    registry: &Registry,
    clock: Clock,
) -> anyhow::Result<Clients> {
    let options = Options {
        kubeconfig: Some(kubeconfig),
        ..Options::default()
    };
    Ok(Clients::connect(options, clock, Metrics::register(registry)?).await?)
}

pub(crate) async fn synced(view: &View) -> anyhow::Result<()> {
    tokio::time::timeout(SOON, view.synced())
        .await
        .with_context(|| format!("no first list of {view:?}"))
}

/// Waits until the view is followed.
pub(crate) async fn live(view: &View) -> anyhow::Result<()> {
    let mut state = view.state();
    let live = state.wait_for(|it| *it == ViewState::Live);
    drop(tokio::time::timeout(SOON, live).await??);
    Ok(())
}

/// Waits until the view has an object of this name.
pub(crate) async fn seen(view: &View, namespace: &str, name: &str) -> anyhow::Result<()> {
    eventually(SOON, name, async || {
        ensure!(
            view.get(Some(namespace), name).is_some(),
            "the view does not show it"
        );
        Ok(())
    })
    .await
}

pub(crate) fn config_maps() -> Resource {
    SourceKind::ConfigMap.resource()
}

/// The kinds of the test kit.
pub(crate) fn things() -> Resource {
    Resource {
        group: metashard_testkit::crds::GROUP.to_owned(),
        version: "v1".to_owned(),
        plural: "things".to_owned(),
        kind: "Thing".to_owned(),
        namespaced: true,
        has_status: true,
    }
}

/// Writes down what it is told: `+name`, `~name`, `-name`, `synced`.
#[derive(Default)]
pub(crate) struct Recorder(Mutex<Vec<String>>);

impl Subscriber for Recorder {
    fn on_event(&self, event: Event) {
        let text = match event {
            Event::Applied { old: None, new } => format!("+{}", new.name()),
            Event::Applied { old: Some(_), new } => format!("~{}", new.name()),
            Event::Deleted { old } => format!("-{}", old.name()),
            Event::Synced => "synced".to_owned(),
        };
        self.0.lock().push(text);
    }
}

impl Recorder {
    /// What it was told since the last call, in order, apart from what every namespace has.
    pub(crate) fn take(&self) -> Vec<String> {
        let mut told = std::mem::take(&mut *self.0.lock());
        told.retain(|event| !event.contains("kube-root-ca.crt"));
        told
    }
}
