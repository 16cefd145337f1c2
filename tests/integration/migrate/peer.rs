//! A Metacontroller, as far as the API server shows one.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::ensure;
use kube::Client;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::support::{Kind, LEASE, Objects, POD, eventually};

pub(super) const IMAGE: &str = "ghcr.io/metacontroller/metacontroller:v4.17.2";

pub(super) const STATEFUL_SET: Kind = Kind {
    api_version: "apps/v1",
    kind: "StatefulSet",
    plural: "statefulsets",
    namespaced: true,
};

pub(super) const DEPLOYMENT: Kind = Kind {
    kind: "Deployment",
    plural: "deployments",
    ..STATEFUL_SET
};

/// Seconds that its Lease lasts.
const LASTS: u32 = 2;

/// Name of its workload.
const NAME: &str = "mc";

/// Plays Metacontroller until it is dropped; its Pods are made by kube-controller-manager, and never run.
pub(super) struct Peer {
    /// Its Lease is renewed also while it is stopped.
    pub(super) keeps_lease: Arc<AtomicBool>,
    /// It has a Lease.
    pub(super) elects: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

/// A Pod that runs Metacontroller.
pub(super) fn pod(name: &str, labels: &Value) -> Value {
    json!({
        "metadata": { "name": name, "labels": labels },
        "spec": {
            "automountServiceAccountToken": false,
            "containers": [{ "name": "mc", "image": IMAGE }],
        },
    })
}

impl Peer {
    pub(super) async fn start(
        client: &Client,
        namespace: &str,
        workload: Kind,
    ) -> anyhow::Result<Self> {
        let labels = json!({ "app": NAME });
        let mut object = json!({
            "metadata": { "name": NAME },
            "spec": {
                "replicas": 2, "selector": { "matchLabels": labels },
                "template": {
                    "metadata": { "labels": labels },
                    "spec": { "containers": [{
                        "name": NAME, "image": IMAGE, "command": ["/usr/bin/metacontroller"],
                        "args": ["--leader-election", "--workers=3"],
                    }] },
                },
            },
        });
        if workload.kind == STATEFUL_SET.kind {
            object["spec"]["serviceName"] = "".into();
            // The first will never be ready.
            object["spec"]["podManagementPolicy"] = "Parallel".into();
        }
        let (keeps_lease, elects) = (
            Arc::<AtomicBool>::default(),
            Arc::new(AtomicBool::new(true)),
        );
        let workloads = Objects::new(client, workload, namespace);
        workloads.create(object).await?;
        has_pods(client, namespace).await?;
        let played = Played {
            workloads,
            leases: Objects::new(client, LEASE, namespace),
            keeps_lease: Arc::clone(&keeps_lease),
            elects: Arc::clone(&elects),
        };
        played.play(0).await?;
        #[expect(
            clippy::disallowed_methods,
            reason = "it plays another process, and ends with its test"
        )]
        let task = tokio::spawn(async move {
            let mut period = tokio::time::interval(Duration::from_millis(300));
            for renewal in 1_u32.. {
                period.tick().await;
                // The API server may be busy, or the scene be taken down.
                drop(played.play(renewal).await);
            }
        });
        Ok(Self {
            keeps_lease,
            elects,
            task,
        })
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns once it has Pods.
pub(super) async fn has_pods(client: &Client, namespace: &str) -> anyhow::Result<()> {
    let pods = Objects::new(client, POD, namespace);
    eventually("the Pods of Metacontroller", async || {
        let pods = pods.list().await?;
        let is_its = |it: &Value| it["metadata"]["labels"]["app"] == NAME;
        ensure!(pods.iter().any(is_its), "{} Pods are there", pods.len());
        Ok(())
    })
    .await
}

struct Played {
    workloads: Objects,
    leases: Objects,
    keeps_lease: Arc<AtomicBool>,
    elects: Arc<AtomicBool>,
}

impl Played {
    /// Renews the Lease if it may.
    async fn play(&self, renewal: u32) -> anyhow::Result<()> {
        let workload = self.workloads.get(NAME).await?;
        let is_asked = workload["spec"]["replicas"].as_i64() > Some(0);
        if self.elects.load(Ordering::SeqCst)
            && (is_asked || self.keeps_lease.load(Ordering::SeqCst))
        {
            let spec = json!({
                "holderIdentity": "mc-0_1", "leaseDurationSeconds": LASTS, "leaseTransitions": renewal,
            });
            if self.leases.find("metacontroller").await?.is_none() {
                let lease = json!({ "metadata": { "name": "metacontroller" }, "spec": spec });
                self.leases.create(lease).await?;
            } else {
                let patch = json!({ "spec": spec });
                self.leases.patch("metacontroller", patch).await?;
            }
        }
        Ok(())
    }
}
