//! Measures what an object costs that nobody here wants, and one that is kept: CPU time of the thread that follows the watch, from
//! the socket to the store, TLS and HTTP included. In lists, where many come at once, and in events that come one by one, where
//! most of it is the wake-up.
//!
//! The figures of `docs/adr/0027-caches-keep-what-is-wanted.md` come from here: run
//! `cargo run --release -p metashard-kube --example foreign_events`.

#![expect(clippy::print_stdout, reason = "its output is its purpose")]

use std::{sync::Arc, thread, time::Duration};

use anyhow::Context;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use metashard_api::resource::Resource;
use metashard_fleet::shard::Cut;
use metashard_kube::{
    client::{Clients, Options},
    identity::Identity,
    informer::{Controlled, Informers, Interest, View, ViewKey},
    metrics::Metrics,
};
use metashard_runtime::clock::{Clock, thread_cpu_time};
use metashard_testkit::{Cluster, cluster};
use serde_json::json;

/// Objects, and how often each is changed.
const OBJECTS: usize = 100;
const CHANGES: usize = 20;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let cluster = Cluster::start(cluster::Options::default()).await?;
    let admin = cluster.admin().await?;
    // Once to be warm.
    for round in ["warm", "first", "second"] {
        for is_kept in [true, false] {
            let namespace = cluster.namespace("foreign").await?;
            fill(&admin, &namespace).await?;
            let options = Options {
                kubeconfig: Some(cluster.kubeconfig(cluster::ADMIN)?),
                ..Options::default()
            };
            let (ready, is_ready) = std::sync::mpsc::channel();
            let (end, ended) = tokio::sync::oneshot::channel();
            let place = namespace.clone();
            let follower = thread::spawn(move || follow(options, &place, is_kept, &ready, ended));
            is_ready.recv().context("the view is not synced")?;
            let last = change(&admin, &namespace).await?;
            _ = end.send(last);
            let spent = follower.join().map_err(|_| anyhow::anyhow!("panicked"))??;
            let count = u32::try_from(OBJECTS * CHANGES)?;
            let what = if is_kept { "kept" } else { "foreign" };
            let [listed, told] = spent.map(|it| it / count);
            println!("{round}, {what}: {listed:?} in a list, {told:?} as an event");
        }
    }
    Ok(())
}

/// Follows the Deployments in a runtime of one thread; returns the CPU time of that thread for so many lists as there are changes
/// of an object, and from then on until it has seen the last change.
#[tokio::main(flavor = "current_thread")]
async fn follow(
    options: Options,
    namespace: &str,
    is_kept: bool,
    ready: &std::sync::mpsc::Sender<()>,
    ended: tokio::sync::oneshot::Receiver<String>,
) -> anyhow::Result<[Duration; 2]> {
    let metrics = Metrics::register(&prometheus::Registry::new())?;
    let clients = Clients::connect(options, Clock::system(), metrics).await?;
    let informers = Informers::new(&clients);
    let view = open(&informers, namespace, is_kept).await;
    let before = thread_cpu_time();
    for _ in 0..CHANGES {
        view.refresh().await;
    }
    let listed = thread_cpu_time().saturating_sub(before);
    ready.send(())?;
    let before = thread_cpu_time();
    let last = ended.await?;
    view.reach(&last).await;
    let told = thread_cpu_time().saturating_sub(before);
    let kept = view.list().len();
    anyhow::ensure!((kept > 0) == is_kept, "{kept} are kept");
    Ok([listed, told])
}

async fn open(informers: &Informers, namespace: &str, is_kept: bool) -> View {
    let key = |plural: &str, kind: &str| {
        let resource = Resource {
            group: "apps".to_owned(),
            version: "v1".to_owned(),
            plural: plural.to_owned(),
            kind: kind.to_owned(),
            namespaced: true,
            has_status: true,
        };
        ViewKey::new(Identity::process(), Arc::new(resource)).in_namespace(namespace)
    };
    let owners = informers.open(key("statefulsets", "StatefulSet"), None);
    owners.synced().await;
    let interest = if is_kept {
        Interest::All
    } else {
        Interest::Controlled(Controlled {
            by: [owners].into(),
            cut: Cut::WHOLE,
            with_ownerless: false,
        })
    };
    let view = informers.open_for(key("deployments", "Deployment"), interest, None);
    view.synced().await;
    view
}

/// Everyday Deployments, each controlled by a StatefulSet that is not there.
async fn fill(admin: &Client, namespace: &str) -> anyhow::Result<()> {
    let api: Api<Deployment> = Api::namespaced(admin.clone(), namespace);
    let create = |n: usize| {
        let api = api.clone();
        async move {
            let owner = json!({
                "apiVersion": "apps/v1", "kind": "StatefulSet", "name": format!("owner-{n}"), "uid": format!("uid-{n}"),
                "controller": true,
            });
            let object = json!({
                "metadata": { "name": format!("web-{n}"), "labels": { "app": "web" }, "ownerReferences": [owner] },
                "spec": {
                    "selector": { "matchLabels": { "app": "web" } },
                    "template": {
                        "metadata": { "labels": { "app": "web" } },
                        "spec": { "containers": [{
                            "name": "web", "image": "web", "ports": [{ "containerPort": 80 }],
                            "env": [{ "name": "TEXT", "value": "x".repeat(500) }],
                            "readinessProbe": { "httpGet": { "path": "/", "port": 80 } },
                        }] },
                    },
                },
            });
            api.create(&PostParams::default(), &serde_json::from_value(object)?)
                .await?;
            anyhow::Ok(())
        }
    };
    let created = stream::iter(0..OBJECTS).map(create).buffer_unordered(8);
    created.try_collect::<Vec<_>>().await?;
    Ok(())
}

/// Changes each object again and again; returns the last resourceVersion.
async fn change(admin: &Client, namespace: &str) -> anyhow::Result<String> {
    let api: Api<Deployment> = Api::namespaced(admin.clone(), namespace);
    let mut last = None;
    for round in 0..CHANGES {
        let patch =
            Patch::Merge(json!({ "metadata": { "annotations": { "round": round.to_string() } } }));
        for n in 0..OBJECTS {
            let changed = api
                .patch(&format!("web-{n}"), &PatchParams::default(), &patch)
                .await?;
            last = changed.metadata.resource_version;
        }
    }
    last.context("nothing was changed")
}
