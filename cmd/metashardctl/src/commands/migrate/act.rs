//! Carries out one step of a move: one write, by compare-and-swap with what the step was decided from.

use std::sync::Arc;

use anyhow::Context;
use metashard_api::{
    endpoint::SourceKind,
    id::ControllerKind,
    names::{ANNOTATION_MIGRATION, ANNOTATION_OBSERVE, MIGRATION_RECORD},
    resource::Resource,
};
use metashard_kube::{error::Error, identity::Identity};
use metashard_plan::migrate::{
    record::{Record, Workload},
    stages::{Mark, Next},
};
use metashard_reconcile::object::Object;
use serde_json::json;

use super::look::{Look, Scene};

/// What became of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Done {
    /// It was written.
    Written,
    /// Somebody was faster: look again.
    Overtaken,
}

/// Carries out a step.
pub(super) async fn act(look: &Look, scene: &Scene, next: &Next) -> anyhow::Result<Done> {
    let written = match next {
        Next::Record(record) => keep(look, scene, record).await,
        Next::Mark { kind, name, mark } => {
            let mut all = scene.controllers.iter();
            let found = all.find(|it| it.kind() == kind && it.name() == name);
            let found = found.context("the controller is gone")?;
            set_mark(look, found, *mark).await
        }
        Next::Scale(workload) => {
            let mut all = scene.workloads.iter();
            let found = all.find(|it| {
                it.kind() == workload.kind
                    && it.name() == workload.name
                    && it.namespace() == Some(workload.namespace.as_str())
            });
            scale(look, found.context("the workload is gone")?, workload).await
        }
        Next::Wait(_) | Next::Stop(_) | Next::Finished(_) => return Ok(Done::Written),
    };
    match written {
        Ok(_) => Ok(Done::Written),
        Err(error) if error.is_conflict() => Ok(Done::Overtaken),
        Err(error) => Err(error.into()),
    }
}

async fn keep(look: &Look, scene: &Scene, record: &Record) -> Result<Arc<Object>, Error> {
    let (clients, identity) = (&look.cluster.clients, Identity::process());
    let resource = SourceKind::ConfigMap.resource();
    let data = record.to_data();
    if let Some(seen) = &scene.record {
        let patch = json!({ "data": data });
        return clients.patch(&identity, &resource, seen, patch).await;
    }
    let body = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": MIGRATION_RECORD },
        "data": data,
    });
    let namespace = Some(look.system.as_str());
    clients.create(&identity, &resource, namespace, &body).await
}

async fn set_mark(look: &Look, seen: &Object, mark: Option<Mark>) -> Result<Arc<Object>, Error> {
    let kind = if seen.kind() == ControllerKind::Composite.as_str() {
        ControllerKind::Composite
    } else {
        ControllerKind::Decorator
    };
    let patch = json!({ "metadata": { "annotations": {
        ANNOTATION_OBSERVE: mark.filter(|it| it.observe).map(|_| "true"),
        ANNOTATION_MIGRATION: mark.map(|it| it.round.to_string()),
    }}});
    let (clients, identity) = (&look.cluster.clients, Identity::process());
    let resource = Resource::of_controllers(kind);
    clients.patch(&identity, &resource, seen, patch).await
}

async fn scale(look: &Look, seen: &Object, workload: &Workload) -> Result<Arc<Object>, Error> {
    let (clients, identity) = (&look.cluster.clients, Identity::process());
    let plural = format!("{}s", workload.kind.to_lowercase());
    let resource = Resource {
        group: "apps".to_owned(),
        version: "v1".to_owned(),
        plural,
        kind: workload.kind.clone(),
        namespaced: true,
        has_status: true,
    };
    let patch = json!({ "spec": { "replicas": workload.replicas } });
    clients.patch(&identity, &resource, seen, patch).await
}
