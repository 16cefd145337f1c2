//! Measures how long a cache takes to prove that it is as new as a moment in the past, for kinds where nothing happens.
//!
//! The figures of `docs/adr/0006-cache-freshness-at-take-over.md` come from here: run
//! `cargo run -p metashard-kube --example cache_freshness` again when a new version of Kubernetes is supported.
//! It takes about 5 minutes, most of it waiting for bookmarks.

#![expect(clippy::print_stdout, reason = "its output is its purpose")]

use std::{
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use futures::{AsyncBufReadExt, StreamExt, TryStreamExt, stream};
use http::Request;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, Client,
    api::{ListParams, PostParams},
};
use metashard_api::endpoint::SourceKind;
use metashard_kube::{
    client::{Clients, Options},
    identity::Identity,
    informer::{Informers, View, ViewKey},
    metrics::Metrics,
};
use metashard_runtime::clock::Clock;
use metashard_testkit::{Cluster, cluster};
use serde_json::{Value, json};

/// Times that each figure is taken.
const ROUNDS: usize = 5;

/// Other ways to know.
#[derive(Clone, Copy)]
enum How {
    Metadata,
    FirstPage,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cluster = Cluster::start(cluster::Options::default()).await?;
    let admin = cluster.admin().await?;
    let clients = Clients::connect(
        Options {
            kubeconfig: Some(cluster.kubeconfig(cluster::ADMIN)?),
            ..Options::default()
        },
        Clock::system(),
        Metrics::register(&prometheus::Registry::new())?,
    )
    .await?;
    let informers = Informers::new(&clients);

    for n_objects in [0, 1_000, 10_000] {
        let namespace = cluster.namespace("fresh").await?;
        fill(&admin, &namespace, n_objects).await?;
        println!("\n{n_objects} ConfigMaps of 1 KiB");
        let began = now();
        let view = informers.open(key(&namespace), None);
        view.synced().await;
        println!(
            "  first list                         {}",
            shown(began.elapsed())
        );
        times("refresh (streaming list)", async || {
            refresh(&admin, &namespace, &view).await
        })
        .await?;
        let after_moment = async |what: &str, how: How| {
            times(what, async || {
                moment(&admin, &namespace).await?;
                let began = now();
                match how {
                    How::Metadata => metadata(&admin, &namespace).await?,
                    How::FirstPage => first_page(&admin, &namespace).await?,
                }
                Ok(began.elapsed())
            })
            .await
        };
        after_moment("streaming list of metadata, not kept", How::Metadata).await?;
        after_moment("list of one object (a quorum read)", How::FirstPage).await?;
    }
    bookmarks(&cluster, &admin).await
}

/// The moment: another kind is written to, so the database is newer than what the watch has shown.
async fn moment(admin: &Client, namespace: &str) -> anyhow::Result<u64> {
    let api: Api<Secret> = Api::namespaced(admin.clone(), namespace);
    let secret = serde_json::from_value(json!({ "metadata": { "generateName": "moment-" } }))?;
    let written = api.create(&PostParams::default(), &secret).await?;
    Ok(written
        .metadata
        .resource_version
        .context("a version")?
        .parse()?)
}

/// The database is newer than what the watch has shown, and so must the view be after the refresh.
async fn refresh(admin: &Client, namespace: &str, view: &View) -> anyhow::Result<Duration> {
    moment(admin, namespace).await?;
    let began = now();
    view.refresh().await;
    Ok(began.elapsed())
}

/// A streaming list of metadata, read to its last bookmark.
async fn metadata(admin: &Client, namespace: &str) -> anyhow::Result<()> {
    let query = "watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=30";
    let accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    lines_until(admin, namespace, query, accept, |line| {
        line.contains("initial-events-end")
    })
    .await
}

/// The least that a quorum read costs.
async fn first_page(admin: &Client, namespace: &str) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = Api::namespaced(admin.clone(), namespace);
    api.list_metadata(&ListParams::default().limit(1)).await?;
    Ok(())
}

async fn lines_until(
    admin: &Client,
    namespace: &str,
    query: &str,
    accept: &str,
    is_last: impl Fn(&str) -> bool,
) -> anyhow::Result<()> {
    let request = Request::get(format!("/api/v1/namespaces/{namespace}/configmaps?{query}"))
        .header("accept", accept)
        .body(Vec::new())?;
    let mut lines = pin!(admin.request_stream(request).await?.lines());
    while let Some(line) = lines.try_next().await? {
        if is_last(&line) {
            return Ok(());
        }
    }
    anyhow::bail!("the watch ended without its last line")
}

/// How often bookmarks come on a quiet watch, and when they show a moment that was before.
async fn bookmarks(cluster: &Cluster, admin: &Client) -> anyhow::Result<()> {
    let namespace = cluster.namespace("quiet").await?;
    let query = "watch=true&allowWatchBookmarks=true&timeoutSeconds=220";
    let request = Request::get(format!("/api/v1/namespaces/{namespace}/configmaps?{query}"))
        .body(Vec::new())?;
    let mut lines = pin!(admin.request_stream(request).await?.lines());
    let mut written = moment(admin, &namespace).await?;
    let mut since = now();
    println!(
        "\nBookmarks of a quiet watch of 220 s (a moment before the first and after each one)"
    );
    while let Some(line) = lines.try_next().await? {
        let line: Value = serde_json::from_str(&line)?;
        if line["type"] != "BOOKMARK" {
            continue;
        }
        let version = line["object"]["metadata"]["resourceVersion"]
            .as_str()
            .context("a version")?;
        let behind = if version.parse::<u64>()? >= written {
            "shows it"
        } else {
            "does not show it"
        };
        println!(
            "  bookmark {} after the moment: {behind}",
            shown(since.elapsed())
        );
        written = moment(admin, &namespace).await?;
        since = now();
    }
    println!(
        "  end of the watch {} after the last moment",
        shown(since.elapsed())
    );
    Ok(())
}

async fn times(
    what: &str,
    mut measured: impl AsyncFnMut() -> anyhow::Result<Duration>,
) -> anyhow::Result<()> {
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        times.push(measured().await.context(what.to_owned())?);
    }
    times.sort_unstable();
    let times: Vec<_> = times.into_iter().map(shown).collect();
    println!("  {what:<44} {}", times.join(" "));
    Ok(())
}

async fn fill(admin: &Client, namespace: &str, n_objects: usize) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = Api::namespaced(admin.clone(), namespace);
    stream::iter(0..n_objects)
        .map(|n| {
            let api = api.clone();
            async move {
                let object = json!({ "metadata": { "name": format!("map-{n}") }, "data": { "text": "x".repeat(700) } });
                api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
                anyhow::Ok(())
            }
        })
        .buffer_unordered(16)
        .try_collect::<Vec<_>>()
        .await?;
    Ok(())
}

fn key(namespace: &str) -> ViewKey {
    let resource = SourceKind::ConfigMap.resource();
    ViewKey::new(Identity::process(), Arc::new(resource)).in_namespace(namespace)
}

fn shown(time: Duration) -> String {
    format!("{:.3} s", time.as_secs_f64())
}

#[expect(
    clippy::disallowed_methods,
    reason = "a measurement needs no clock of its own"
)]
fn now() -> Instant {
    Instant::now()
}
