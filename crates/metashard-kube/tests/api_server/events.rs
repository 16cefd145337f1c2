//! Kubernetes Events.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, ensure};
use bytes::Bytes;
use k8s_openapi::api::core::v1::Event as Written;
use kube::{Api, api::ListParams};
use metashard_api::{id::ControllerKind, resource::Resource};
use metashard_kube::events::{About, Event, Options, Recorder};
use metashard_reconcile::object::Object;
use metashard_testkit::{Cluster, wait::eventually};
use serde_json::to_vec;

use crate::kit::{Kit, SOON, config_maps};

/// Fewer than may wait.
const MANY: usize = 400;

#[tokio::test]
async fn an_event_is_written_once_and_counted_when_it_comes_again_later() -> anyhow::Result<()> {
    let cluster = Cluster::shared().await?;
    let kubeconfig = cluster.kubeconfig(metashard_testkit::cluster::ADMIN)?;
    let manual = crate::pulse::manual();
    let kit = Kit::timed(cluster, kubeconfig, manual.clock()).await?;
    let object = kit.create("one", &[]).await?;
    let mut value = serde_json::to_value(&object)?;
    value["apiVersion"] = "v1".into();
    value["kind"] = "ConfigMap".into();
    let about = Arc::new(About::object(&Object::parse(Bytes::from(to_vec(&value)?))?));
    let recorder = Recorder::start(&kit.clients, Options::new("metacontroller", "replica-1"));
    let event = Event {
        is_warning: true,
        reason: "SyncError".into(),
        message: "Sync error: no answer".to_owned(),
    };

    for _ in 0..2 {
        recorder.record(&about, &event);
    }
    eventually(SOON, "the second one to be held", async || {
        let held = kit.metric("metashard_kube_events_dropped_total", "repeated");
        ensure!(held > 0.0, "none is");
        Ok(())
    })
    .await?;
    manual.advance(Duration::from_mins(5));
    recorder.record(&about, &event);

    let api: Api<Written> = Api::namespaced(cluster.admin().await?, &kit.namespace);
    let written = eventually(SOON, "an Event with a count of 3", async || {
        let events = api.list(&ListParams::default()).await?.items;
        ensure!(events.len() == 1, "{} Events", events.len());
        let event = events.into_iter().next().context("an Event")?;
        ensure!(event.count == Some(3), "count {:?}", event.count);
        Ok(event)
    })
    .await?;
    assert_eq!(written.type_.as_deref(), Some("Warning"));
    assert_eq!(written.reason.as_deref(), Some("SyncError"));
    assert_eq!(
        written
            .source
            .and_then(|source| source.component)
            .as_deref(),
        Some("metacontroller")
    );
    assert_eq!(written.involved_object.uid, object.metadata.uid);
    Ok(())
}

#[tokio::test]
async fn an_event_about_a_controller_waits_for_none_about_other_objects() -> anyhow::Result<()> {
    let cluster = Cluster::shared().await?;
    let kubeconfig = cluster.kubeconfig(metashard_testkit::cluster::ADMIN)?;
    let kit = Kit::timed(cluster, kubeconfig, crate::pulse::manual().clock()).await?;
    let recorder = Recorder::start(&kit.clients, Options::new("metacontroller", "replica-1"));
    let about = |resource: &Resource, uid: &str| {
        Arc::new(About::named(resource, Some(&kit.namespace), "one", uid))
    };
    let event = Event {
        is_warning: true,
        reason: "CreateError".into(),
        message: "Cannot create new controller".to_owned(),
    };

    for number in 0..MANY {
        recorder.record(&about(&config_maps(), &format!("parent-{number}")), &event);
    }
    let controllers = Resource::of_controllers(ControllerKind::Composite);
    recorder.record(&about(&controllers, "controller"), &event);

    let api: Api<Written> = Api::namespaced(cluster.admin().await?, &kit.namespace);
    let before = eventually(SOON, "the Event about the controller", async || {
        let events = api.list(&ListParams::default()).await?.items;
        let is_controllers =
            |it: &&Written| it.involved_object.uid.as_deref() == Some("controller");
        let found = events.iter().find(is_controllers);
        let own = version(found.with_context(|| format!("not among {}", events.len()))?)?;
        let versions: Vec<u64> = events.iter().map(version).collect::<Result<_, _>>()?;
        Ok(versions.into_iter().filter(|it| *it < own).count())
    })
    .await?;
    assert!(before < MANY / 2, "{before} were written before it");
    Ok(())
}

/// By which the writes of the API server can be put in order.
fn version(event: &Written) -> anyhow::Result<u64> {
    let version = event.metadata.resource_version.as_deref();
    Ok(version.context("a version")?.parse()?)
}
