//! The replicas of a cluster, found through the API server: who serves a controller, and how each of them is asked.
//!
//! The ShardMap names the owner of each shard, Leases the replicas that live. A replica is asked through the API server's
//! proxy of its Pod; it answers who knows its incarnation, which stands in both.

use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use metashard_api::{
    id::ControllerUid,
    names::{ANNOTATION_ADDRESS, LABEL_ROLE, SYSTEM_NAMESPACE},
    resource::Resource,
    shard_map::{self, Member, ShardMapSpec},
};
use metashard_fleet::{record::Holder, shard::Layout};
use metashard_kube::client::PodPort;
use metashard_plan::suggest;
use metashard_reconcile::object::Object;
use serde_json::Value;

use crate::{argv::Asking, cluster::Cluster, replica};

/// Port of the health server where nothing tells another: the default of `--health-probe-bind-address`.
const HEALTH_PORT: u16 = 8081;

/// The flag of the health server's address.
const HEALTH_FLAG: &str = "--health-probe-bind-address";

/// ShardMaps, as they are named to the API server.
const MAPS: &str = "shardmaps.metashard.io";

/// The replicas of one system namespace.
#[derive(Debug)]
pub(crate) struct Fleet {
    namespace: String,
    map: ShardMapSpec,
    replicas: Vec<Replica>,
    pods: Arc<Resource>,
    port: Option<u16>,
}

/// One replica that lives, or is said to own shards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Replica {
    pub(crate) name: String,
    incarnation: String,
    /// `host:port` of its gRPC server; empty if that is not known.
    address: String,
}

impl Fleet {
    /// All fleets of a cluster, or the one of the namespace that is asked for.
    pub(crate) async fn all(cluster: &Cluster, asking: &Asking) -> anyhow::Result<Vec<Self>> {
        let maps = cluster
            .resource(MAPS)
            .context("no replica of metashard has run in this cluster")?;
        let found = maps_of(cluster, &maps, asking.system_namespace.as_deref()).await?;
        let mut fleets = Vec::new();
        for map in found {
            let namespace = map.namespace().unwrap_or_default().to_owned();
            let map = content(&map)?;
            fleets.push(Self {
                replicas: replicas(cluster, &namespace, &map).await,
                pods: cluster.resource("pods")?,
                port: asking.health_port,
                namespace,
                map,
            });
        }
        fleets.retain(|it| it.map.shard_count > 0);
        anyhow::ensure!(
            !fleets.is_empty(),
            "no replica of metashard owns anything in this cluster: is it running?"
        );
        Ok(fleets)
    }

    /// The only fleet of a cluster, or that of the namespace that is asked for.
    pub(crate) async fn one(cluster: &Cluster, asking: &Asking) -> anyhow::Result<Self> {
        let mut fleets = Self::all(cluster, asking).await?;
        match (fleets.pop(), fleets.is_empty()) {
            (Some(fleet), true) => Ok(fleet),
            _ => anyhow::bail!(
                "there are several fleets in this cluster: choose by --system-namespace"
            ),
        }
    }

    /// Its system namespace.
    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The ShardMap as it was read.
    pub(crate) fn map(&self) -> &ShardMapSpec {
        &self.map
    }

    /// The ShardMap as it is now.
    pub(crate) async fn map_now(&self, cluster: &Cluster) -> anyhow::Result<ShardMapSpec> {
        let maps = cluster.resource(MAPS)?;
        let found = maps_of(cluster, &maps, Some(&self.namespace)).await?;
        let map = found.into_iter().next().context("the ShardMap is gone")?;
        content(&map)
    }

    /// The replica of this name that lives.
    pub(crate) fn named(&self, name: &str) -> anyhow::Result<&Replica> {
        let found = self.replicas.iter().find(|it| it.name == name);
        found.with_context(|| {
            let hint = suggest::hint(name, self.replicas.iter().map(|it| it.name.as_str()));
            format!("no replica {name:?} lives{hint}")
        })
    }

    /// The replica that owns the shard of a controller.
    pub(crate) fn owner(&self, controller: &str) -> Option<Replica> {
        let uid = ControllerUid::new(controller);
        let home = Layout::of(&self.map).home(&uid);
        let (member, _) = self.map.owner(home)?;
        let known = self
            .replicas
            .iter()
            .find(|it| it.incarnation == member.incarnation);
        Some(known.cloned().unwrap_or_else(|| Replica::of(member)))
    }

    /// The replica that leads, as the map says.
    pub(crate) fn leader(&self) -> Option<Replica> {
        self.map.leader.as_ref().map(Replica::of)
    }

    /// All replicas that live.
    pub(crate) fn replicas(&self) -> &[Replica] {
        &self.replicas
    }

    /// The syncs that a replica remembers and that match; each says who remembers it.
    pub(crate) async fn syncs(
        &self,
        cluster: &Cluster,
        replica: &Replica,
        query: &[(&str, &str)],
    ) -> anyhow::Result<Vec<Value>> {
        let body = self.ask(cluster, replica, &replica::target(query)).await?;
        replica::read(&body, &replica.name)
    }

    /// What a replica answers at a path.
    pub(crate) async fn ask(
        &self,
        cluster: &Cluster,
        replica: &Replica,
        target: &str,
    ) -> anyhow::Result<Bytes> {
        let ask = async {
            let pod = self.pod(cluster, replica).await?;
            let header = (
                HeaderName::from_static(replica::HEADER),
                HeaderValue::from_str(&replica.incarnation)?,
            );
            anyhow::Ok(cluster.ask_pod(&pod, target, header).await?)
        };
        ask.await
            .with_context(|| format!("ask replica {}", replica.name))
    }

    /// The Pod of a replica: by its name, or else by its address.
    async fn pod(&self, cluster: &Cluster, replica: &Replica) -> anyhow::Result<PodPort> {
        let namespace = self.namespace.as_str();
        let of = |name: &str, port: u16| PodPort {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            port: self.port.unwrap_or(port),
        };
        let found = match cluster.find_in(&self.pods, namespace, &replica.name).await {
            Ok(found) => found,
            // Who may use the proxy need not be allowed to read Pods.
            Err(error) if error.is_forbidden() => return Ok(of(&replica.name, HEALTH_PORT)),
            Err(error) => return Err(error.into()),
        };
        if let Some(pod) = found {
            return Ok(of(&replica.name, health_port(&pod)));
        }
        let host = replica.address.rsplit_once(':').map(|(host, _)| host);
        if let Some(host) = host.filter(|it| !it.is_empty()) {
            let pods = cluster.list(&self.pods, Some(namespace), "").await?;
            let is_it = |pod: &&Arc<Object>| {
                let pod: Value = serde_json::from_slice(pod.bytes()).unwrap_or_default();
                pod["status"]["podIP"] == host
            };
            if let Some(pod) = pods.iter().find(is_it) {
                return Ok(of(pod.name(), health_port(pod)));
            }
        }
        anyhow::bail!(
            "it is no Pod of namespace {namespace}; `--server URL` asks it, from its own host"
        )
    }
}

impl Replica {
    fn of(member: &Member) -> Self {
        Self {
            name: member.replica.clone(),
            incarnation: member.incarnation.clone(),
            address: String::new(),
        }
    }

    /// From the Lease of one that lives.
    fn of_lease(lease: &Object) -> Option<Self> {
        let spec: Value = serde_json::from_slice(lease.spec()?).ok()?;
        match Holder::parse(spec["holderIdentity"].as_str()) {
            Holder::Member(replica, incarnation) => Some(Self {
                name: replica.as_str().to_owned(),
                incarnation: incarnation.as_str().to_owned(),
                address: lease
                    .annotation(ANNOTATION_ADDRESS)
                    .unwrap_or_default()
                    .into_owned(),
            }),
            Holder::Released | Holder::Fenced | Holder::Evicted | Holder::Foreign(_) => None,
        }
    }
}

fn content(map: &Object) -> anyhow::Result<ShardMapSpec> {
    let spec = map.spec().map(serde_json::from_slice).transpose();
    Ok(spec.context("read the ShardMap")?.unwrap_or_default())
}

/// The ShardMaps to look at: that of a namespace, or all of the cluster, or as much of them as may be seen.
async fn maps_of(
    cluster: &Cluster,
    resource: &Resource,
    namespace: Option<&str>,
) -> anyhow::Result<Vec<Arc<Object>>> {
    let in_one = async |namespace: &str| {
        let found = cluster
            .find_in(resource, namespace, shard_map::NAME)
            .await?;
        let text = "there is no ShardMap in namespace";
        let found = found.with_context(|| format!("{text} {namespace}"))?;
        anyhow::Ok(vec![found])
    };
    if let Some(namespace) = namespace {
        return in_one(namespace).await;
    }
    match cluster.list_all(resource).await {
        Ok(all) => Ok(all),
        Err(error) if error.is_forbidden() => in_one(SYSTEM_NAMESPACE).await,
        Err(error) => Err(error.into()),
    }
}

/// The replicas that live; where Leases may not be read, those that own shards.
async fn replicas(cluster: &Cluster, namespace: &str, map: &ShardMapSpec) -> Vec<Replica> {
    let selector = format!("{LABEL_ROLE}=worker");
    let listed = match cluster.resource("leases.coordination.k8s.io") {
        Ok(leases) => cluster.list(&leases, Some(namespace), &selector).await,
        Err(error) => Err(error),
    };
    match listed {
        Ok(leases) => leases
            .iter()
            .filter_map(|lease| Replica::of_lease(lease))
            .collect(),
        Err(_) => map.members.iter().map(Replica::of).collect(),
    }
}

/// The port of a Pod's health server: as its flag says, or its probe.
fn health_port(pod: &Object) -> u16 {
    let pod: Value = serde_json::from_slice(pod.bytes()).unwrap_or_default();
    let containers = pod["spec"]["containers"].as_array();
    let ports = containers
        .into_iter()
        .flatten()
        .filter_map(|it| by_flag(it).or_else(|| by_probe(it)));
    ports.into_iter().next().unwrap_or(HEALTH_PORT)
}

fn by_flag(container: &Value) -> Option<u16> {
    let words = ["command", "args"].map(|field| container[field].as_array());
    let mut words = words.into_iter().flatten().flatten();
    let mut words = words.by_ref().filter_map(Value::as_str);
    while let Some(word) = words.next() {
        let address = match word.strip_prefix(HEALTH_FLAG) {
            Some("") => words.next(),
            Some(rest) => rest.strip_prefix('='),
            None => None,
        };
        if let Some((_, port)) = address.and_then(|it| it.rsplit_once(':')) {
            return port.parse().ok();
        }
    }
    None
}

fn by_probe(container: &Value) -> Option<u16> {
    let probes = ["readinessProbe", "livenessProbe"].map(|it| &container[it]["httpGet"]["port"]);
    let port = probes.into_iter().find(|it| !it.is_null())?;
    let number = match port.as_str() {
        None => port.as_u64(),
        Some(name) => {
            let ports = container["ports"].as_array()?;
            let named = ports.iter().find(|it| it["name"] == name)?;
            named["containerPort"].as_u64()
        }
    };
    number.and_then(|it| u16::try_from(it).ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn port_of(container: &Value) -> u16 {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "1"},
            "spec": {"containers": [container]},
        });
        health_port(&Object::parse(pod.to_string()).unwrap())
    }

    #[test]
    fn the_port_is_that_of_the_flag_or_of_the_probe_or_the_default() {
        let flag = json!({"args": ["--workers=5", "--health-probe-bind-address=:9000"],
                          "readinessProbe": {"httpGet": {"port": 1}}});
        let two_words =
            json!({"command": ["metashard", "--health-probe-bind-address", "1.2.3.4:9001"]});
        let named = json!({"livenessProbe": {"httpGet": {"port": "probes"}},
                           "ports": [{"name": "metrics", "containerPort": 1}, {"name": "probes", "containerPort": 9002}]});
        let number = json!({"readinessProbe": {"httpGet": {"port": 9003}}});

        assert_eq!(
            [flag, two_words, named, number, json!({})].map(|it| port_of(&it)),
            [9000, 9001, 9002, 9003, HEALTH_PORT]
        );
    }
}
