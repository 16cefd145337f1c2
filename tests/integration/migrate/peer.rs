//! A Metacontroller, as far as the API server shows one.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use kube::Client;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::support::{Kind, Objects, POD};

pub(super) const IMAGE: &str = "ghcr.io/metacontroller/metacontroller:v4.17.2";

pub(super) const STATEFUL_SET: Kind = Kind {
    api_version: "apps/v1",
    kind: "StatefulSet",
    plural: "statefulsets",
    namespaced: true,
};

pub(super) const LEASE: Kind = Kind {
    api_version: "coordination.k8s.io/v1",
    kind: "Lease",
    plural: "leases",
    namespaced: true,
};

/// Seconds that its Lease lasts.
const LASTS: u32 = 2;

/// Plays kubelet and Metacontroller until it is dropped.
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
    pub(super) async fn start(client: &Client, namespace: &str) -> anyhow::Result<Self> {
        let labels = json!({ "app": "mc" });
        let set = json!({
            "metadata": { "name": "mc" },
            "spec": {
                "replicas": 2, "serviceName": "", "selector": { "matchLabels": labels },
                "template": {
                    "metadata": { "labels": labels },
                    "spec": { "containers": [{
                        "name": "mc", "image": IMAGE, "command": ["/usr/bin/metacontroller"],
                        "args": ["--leader-election", "--workers=3"],
                    }] },
                },
            },
        });
        let (keeps_lease, elects) = (
            Arc::<AtomicBool>::default(),
            Arc::new(AtomicBool::new(true)),
        );
        let sets = Objects::new(client, STATEFUL_SET, namespace);
        sets.create(set).await?;
        let played = Played {
            sets,
            pods: Objects::new(client, POD, namespace),
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

struct Played {
    sets: Objects,
    pods: Objects,
    leases: Objects,
    keeps_lease: Arc<AtomicBool>,
    elects: Arc<AtomicBool>,
}

impl Played {
    /// Has as many Pods as are asked for, none or one, and renews the Lease if it may.
    async fn play(&self, renewal: u32) -> anyhow::Result<()> {
        let set = self.sets.get("mc").await?;
        let is_asked = set["spec"]["replicas"].as_i64() > Some(0);
        let pod_ = self.pods.find("mc-0").await?;
        match (is_asked, pod_) {
            (true, None) => {
                let labels = json!({ "app": "mc" });
                self.pods.create(pod("mc-0", &labels)).await?;
            }
            (false, Some(_)) => self.pods.delete("mc-0").await?,
            _ => {}
        }
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
