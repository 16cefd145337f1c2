//! Looks at all that a move is decided from.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::Context;
use metashard_api::{
    crd,
    endpoint::SourceKind,
    names::{LABEL_ROLE, MIGRATION_RECORD},
    selector::Selector,
};
use metashard_fleet::time::MonoTime;
use metashard_kube::access::{Rights, lacking};
use metashard_plan::migrate::{
    self,
    record::{Record, Workload},
    seen::{ControllerSeen, LeaseSeen, PeerSeen, Seen},
};
use metashard_reconcile::object::Object;
use serde_json::Value;

use super::{lease_of, leases::Watched};
use crate::{argv::Live, cluster::Cluster};

/// How long a look at all Pods of the cluster is good for.
const PODS_FOR: Duration = Duration::from_secs(20);

/// Whoever looks again and again.
pub(super) struct Look {
    pub(super) cluster: Cluster,
    pub(super) system: String,
    watched: Watched,
    strays: Option<(MonoTime, Vec<String>)>,
    lacks: Vec<String>,
}

/// What was seen, and the objects that it was seen by: what is written is based on them.
pub(super) struct Scene {
    pub(super) seen: Seen,
    pub(super) record: Option<Arc<Object>>,
    pub(super) workloads: Vec<Arc<Object>>,
    pub(super) controllers: Vec<Arc<Object>>,
}

impl Look {
    /// Connects, and looks for what a move needs of the cluster.
    pub(super) async fn new(live: &Live, system: &str) -> anyhow::Result<Self> {
        let cluster = Cluster::connect(live).await?;
        let lacks = lacks(&cluster).await?;
        Ok(Self {
            cluster,
            system: system.to_owned(),
            watched: Watched::default(),
            strays: None,
            lacks,
        })
    }

    /// Looks.
    pub(super) async fn see(&mut self) -> anyhow::Result<Scene> {
        let now = self.cluster.clock.now().mono;
        let record = self.record().await?;
        let workloads = self.workloads().await?;
        let values = parsed(&workloads)?;
        let peers = migrate::peers(&values);
        let is_peer = |object: &Object| {
            peers.iter().any(|peer| {
                peer.kind == object.kind()
                    && peer.name == object.name()
                    && object.namespace() == Some(peer.namespace.as_str())
            })
        };
        let workloads: Vec<_> = workloads.into_iter().filter(|it| is_peer(it)).collect();
        let (seen_peers, pods) = self.peers(&workloads).await?;
        let leases = self.leases(&peers, now).await?;
        let controllers = self.cluster.controllers().await?;
        let resources = self.cluster.resources();
        let mut seen_controllers = Vec::new();
        for value in parsed(&controllers)? {
            let moved = migrate::plan(&value, &resources, peers.first());
            seen_controllers.push(ControllerSeen::read(&value, moved));
        }
        let seen = Seen {
            record: record.as_deref().map(read).transpose()?,
            strays: self.strays(&seen_peers, &pods, now).await?,
            peers: seen_peers,
            leases,
            controllers: seen_controllers,
            replicas: self.replicas(now).await?,
            lacks: self.lacks.clone(),
        };
        Ok(Scene {
            seen,
            record,
            workloads,
            controllers,
        })
    }

    async fn record(&self) -> anyhow::Result<Option<Arc<Object>>> {
        let resource = SourceKind::ConfigMap.resource();
        self.cluster
            .find_in(&resource, &self.system, MIGRATION_RECORD)
            .await
            .context("read the record of the move")
    }

    async fn workloads(&self) -> anyhow::Result<Vec<Arc<Object>>> {
        let mut all = Vec::new();
        for plural in ["statefulsets", "deployments"] {
            let resource = self.cluster.resource(&format!("{plural}.apps"))?;
            let listed = self.cluster.list(&resource, None, "").await;
            all.extend(listed.context("look for Metacontroller's workloads")?);
        }
        Ok(all)
    }

    /// Metacontroller's workloads with their Pods, and the uids of these.
    async fn peers(
        &self,
        workloads: &[Arc<Object>],
    ) -> anyhow::Result<(Vec<PeerSeen>, Vec<String>)> {
        let resource = self.cluster.resource("pods")?;
        let (mut peers, mut uids) = (Vec::new(), Vec::new());
        for workload in workloads {
            let value: Value = serde_json::from_slice(workload.bytes())?;
            let selector = serde_json::from_value(value["spec"]["selector"].clone())?;
            let query = Selector::compile(&selector)?.to_query().unwrap_or_default();
            let pods = self
                .cluster
                .list(&resource, workload.namespace(), &query)
                .await
                .context("look for Metacontroller's Pods")?;
            let living = pods.iter().filter(|pod| has_not_ended(pod)).count();
            uids.extend(pods.iter().map(|pod| pod.uid().to_owned()));
            let replicas = value["spec"]["replicas"].as_i64().unwrap_or(1);
            let is_empty = replicas == 0 && living == 0;
            peers.push(PeerSeen {
                is_pending: is_empty && self.is_pending(workload, &value, &query).await?,
                workload: Workload {
                    kind: workload.kind().to_owned(),
                    namespace: workload.namespace().unwrap_or_default().to_owned(),
                    name: workload.name().to_owned(),
                    replicas,
                },
                pods: living,
            });
        }
        Ok((peers, uids))
    }

    /// Whether Pods of a workload that asks for none may still come: what makes them has not seen that yet. Of a Deployment
    /// that are its ReplicaSets, too.
    async fn is_pending(
        &self,
        workload: &Object,
        value: &Value,
        query: &str,
    ) -> anyhow::Result<bool> {
        if workload.kind() != "Deployment" || has_pending(value) {
            return Ok(has_pending(value));
        }
        let resource = self.cluster.resource("replicasets.apps")?;
        let sets = self.cluster.list(&resource, workload.namespace(), query);
        let sets = sets
            .await
            .context("look for the ReplicaSets of Metacontroller")?;
        Ok(parsed(&sets)?.iter().any(has_pending))
    }

    /// Pods that run Metacontroller and are not `known`. All Pods of a cluster are many: they are not looked at each time,
    /// but always while Metacontroller is stopped and something may still be there.
    async fn strays(
        &mut self,
        peers: &[PeerSeen],
        known: &[String],
        now: MonoTime,
    ) -> anyhow::Result<Vec<String>> {
        let is_quiet = peers
            .iter()
            .all(|it| it.workload.replicas == 0 && it.pods == 0);
        if let Some((at, strays)) = &self.strays
            && now.since(*at) < PODS_FOR
            && !(is_quiet && strays.is_empty() && now.since(*at) >= PODS_FOR / 10)
        {
            return Ok(strays.clone());
        }
        let resource = self.cluster.resource("pods")?;
        let mut strays = Vec::new();
        for pod in self.cluster.list(&resource, None, "").await? {
            let value: Value = serde_json::from_slice(pod.bytes())?;
            if migrate::is_run_by(&value) && !known.iter().any(|uid| uid == pod.uid()) {
                let namespace = pod.namespace().unwrap_or_default();
                strays.push(format!("Pod {namespace}/{}", pod.name()));
            }
        }
        self.strays = Some((now, strays.clone()));
        Ok(strays)
    }

    /// Metacontroller's leader Leases: where its arguments say, and where replicas look for one.
    async fn leases(
        &mut self,
        peers: &[migrate::Peer],
        now: MonoTime,
    ) -> anyhow::Result<Vec<LeaseSeen>> {
        let resource = self.cluster.resource("leases.coordination.k8s.io")?;
        let mut names: BTreeSet<_> = peers.iter().map(lease_of).collect();
        let usual = metashard_api::names::PEER_LEADER_LEASE.to_owned();
        names.insert((self.system.clone(), usual));
        let mut leases = Vec::new();
        for (namespace, name) in names {
            let found = self.cluster.find_in(&resource, &namespace, &name).await;
            let Some(lease) = found.context("look at Metacontroller's Lease")? else {
                continue;
            };
            let claim = self.watched.see(&lease, now);
            if !claim.is_ours {
                leases.push(LeaseSeen {
                    title: format!("{namespace}/{name}"),
                    holder: claim.holder.to_text(),
                    is_over: claim.is_over,
                });
            }
        }
        Ok(leases)
    }

    /// Live replicas of metashard, by their workers' Leases.
    async fn replicas(&mut self, now: MonoTime) -> anyhow::Result<Option<usize>> {
        let resource = self.cluster.resource("leases.coordination.k8s.io")?;
        let selector = format!("{LABEL_ROLE}=worker");
        let leases = self.cluster.list(&resource, Some(&self.system), &selector);
        let leases = leases.await.context("look for replicas of metashard")?;
        let claims: Vec<_> = leases
            .iter()
            .map(|it| self.watched.see(it, now).is_over)
            .collect();
        let live = claims.iter().filter(|it| **it == Some(false)).count();
        let is_open = claims.iter().any(Option::is_none);
        Ok((live > 0 || !is_open).then_some(live))
    }

    /// Says which rights are missing, before the first of them is needed.
    pub(super) async fn check_rights(&self, seen: &Seen) -> anyhow::Result<()> {
        let rights = |verbs: &[&'static str], group, resource, namespace: Option<&str>| Rights {
            verbs: verbs.to_vec(),
            group,
            resource,
            namespace: namespace.map(str::to_owned),
        };
        let group = "metacontroller.k8s.io";
        let mut needed = vec![
            rights(
                &["get", "create", "patch"],
                "",
                "configmaps",
                Some(&self.system),
            ),
            rights(&["list", "patch"], group, "compositecontrollers", None),
            rights(&["list", "patch"], group, "decoratorcontrollers", None),
        ];
        for peer in &seen.peers {
            let plural = match peer.workload.kind.as_str() {
                "StatefulSet" => "statefulsets",
                _ => "deployments",
            };
            let namespace = Some(peer.workload.namespace.as_str());
            needed.push(rights(&["patch"], "apps", plural, namespace));
            if plural == "deployments" {
                needed.push(rights(&["list"], "apps", "replicasets", namespace));
            }
        }
        let lacking = lacking(&self.cluster.clients, needed).await;
        let lacking: Vec<_> = lacking.iter().map(ToString::to_string).collect();
        anyhow::ensure!(
            lacking.is_empty(),
            "rights are missing, and nothing was written: {}",
            lacking.join("; ")
        );
        Ok(())
    }
}

fn read(record: &Object) -> anyhow::Result<Record> {
    let value: Value = serde_json::from_slice(record.bytes())?;
    let data = serde_json::from_value(value["data"].clone()).unwrap_or_default();
    Ok(Record::from_data(&data)?)
}

fn parsed(objects: &[Arc<Object>]) -> anyhow::Result<Vec<Value>> {
    let values = objects.iter().map(|it| serde_json::from_slice(it.bytes()));
    Ok(values.collect::<Result<_, _>>()?)
}

/// Whether a workload's own status tells of Pods, or is of an older generation than its spec.
fn has_pending(workload: &Value) -> bool {
    let status = &workload["status"];
    status["observedGeneration"].as_i64() < workload["metadata"]["generation"].as_i64()
        || status["replicas"].as_i64() > Some(0)
        || workload["spec"]["replicas"].as_i64() != Some(0)
}

fn has_not_ended(pod: &Object) -> bool {
    let status: Value =
        serde_json::from_slice(pod.status().unwrap_or_default()).unwrap_or_default();
    !matches!(status["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// The CRDs that would drop what replicas say of the move.
async fn lacks(cluster: &Cluster) -> anyhow::Result<Vec<String>> {
    let resource = cluster.resource("customresourcedefinitions.apiextensions.k8s.io")?;
    let mut lacks = Vec::new();
    for wanted in [crd::composite_controllers(), crd::decorator_controllers()] {
        let name = wanted.metadata.name.unwrap_or_default();
        let found = cluster.find_in(&resource, "", &name).await;
        let found = found.context("look at the CRDs of controllers")?;
        let keeps = found.is_some_and(|crd| {
            let crd: Value = serde_json::from_slice(crd.bytes()).unwrap_or_default();
            let versions = crd.pointer("/spec/versions").and_then(Value::as_array);
            versions.is_some_and(|all| {
                all.iter().any(|it| {
                    it.pointer("/schema/openAPIV3Schema/properties/status/properties/migration")
                        .is_some()
                })
            })
        });
        if !keeps {
            lacks.push(format!(
                "the CustomResourceDefinition {name} drops what replicas say of the move: `kubectl apply --server-side -f deploy/crds` brings ours, which serves Metacontroller as well"
            ));
        }
    }
    Ok(lacks)
}
