//! Reads the truth: Leases, the ShardMap, controllers, parents and children from the API server, call counts from
//! the hooks. Nothing is taken from logs.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anyhow::Context;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client, Resource as _, ResourceExt as _,
    api::{DynamicObject, ListParams},
    core::{ApiResource, GroupVersionKind},
};
use metashard_api::{
    id::ControllerUid,
    names::{LABEL_CONTROLLER_UID, LABEL_REPLICA, LEADER_LEASE, WORKER_LEASE_PREFIX},
    shard_map::{self, ShardMap, ShardMapSpec},
};
use metashard_fleet::{record::Holder, shard::Layout};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    snapshot::{Controller, Snapshot, Standing, Worker},
    tenants::{Cast, Example, LABEL, cast},
};

/// Kinds of the children of the examples.
const CHILD_KINDS: [(&str, &str, &str, &str); 5] = [
    ("", "v1", "ConfigMap", "configmaps"),
    ("apps", "v1", "Deployment", "deployments"),
    ("", "v1", "ResourceQuota", "resourcequotas"),
    ("rbac.authorization.k8s.io", "v1", "Role", "roles"),
    (
        "rbac.authorization.k8s.io",
        "v1",
        "RoleBinding",
        "rolebindings",
    ),
];

/// Reads snapshots, and remembers when it last saw each Lease change.
pub(super) struct Truth {
    client: Client,
    system_namespace: String,
    /// By Lease: its resourceVersion and when we first saw it.
    seen: HashMap<String, (String, Instant)>,
}

impl Truth {
    pub(super) fn new(client: Client, system_namespace: &str) -> Self {
        Self {
            client,
            system_namespace: system_namespace.to_owned(),
            seen: HashMap::new(),
        }
    }

    /// The present state; `calls` are the hooks' counts by controller.
    ///
    /// # Errors
    /// If the API server does not answer.
    pub(super) async fn read(&mut self, calls: &BTreeMap<String, u64>) -> anyhow::Result<Snapshot> {
        let map = self.shard_map().await?;
        let (leader, workers) = self.leases(&map).await?;
        let children = self.children().await?;
        let mut parents = Vec::new();
        for example in Example::ALL {
            let (kind, plural) = example.kind();
            parents.extend(
                self.list("examples.metashard.io", "v1", (kind, plural), LABEL)
                    .await?,
            );
        }
        let controllers = self
            .list(
                "metacontroller.k8s.io",
                "v1alpha1",
                ("CompositeController", "compositecontrollers"),
                "",
            )
            .await?;
        let controllers = cast()
            .iter()
            .filter_map(|it| {
                let object = controllers
                    .iter()
                    .find(|object| object.name_any() == it.controller)?;
                Some(controller(it, object, &map, &parents, &children, calls))
            })
            .collect();
        Ok(Snapshot {
            leader,
            term: map.term.0,
            workers,
            controllers,
            children: children.iter().filter_map(DynamicObject::uid).collect(),
        })
    }

    /// The map; an empty one while there is none.
    async fn shard_map(&self) -> anyhow::Result<ShardMapSpec> {
        let maps: Api<ShardMap> = Api::namespaced(self.client.clone(), &self.system_namespace);
        let map = maps
            .get_opt(shard_map::NAME)
            .await
            .context("read the ShardMap")?;
        Ok(map.map(|it| it.spec).unwrap_or_default())
    }

    /// The leader, and the workers by replica.
    async fn leases(
        &mut self,
        map: &ShardMapSpec,
    ) -> anyhow::Result<(Option<String>, BTreeMap<String, Worker>)> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.system_namespace);
        let list = leases
            .list(&ListParams::default())
            .await
            .context("list Leases")?;
        let mut leader = None;
        let mut workers = BTreeMap::new();
        for lease in list {
            let name = lease.name_any();
            let version = lease.meta().resource_version.clone().unwrap_or_default();
            let seen = self
                .seen
                .entry(name.clone())
                .or_insert_with(|| (String::new(), Instant::now()));
            if seen.0 != version {
                *seen = (version, Instant::now());
            }
            let silent = seen.1.elapsed();
            let replica = lease.labels().get(LABEL_REPLICA).cloned();
            let holder = lease.spec.and_then(|it| it.holder_identity);
            let holder = Holder::parse(holder.as_deref());
            if name == LEADER_LEASE {
                if let Holder::Member(replica, _) = holder {
                    leader = Some(replica.to_string());
                }
            } else if let (Some(replica), Some(incarnation)) =
                (replica, name.strip_prefix(WORKER_LEASE_PREFIX))
            {
                let worker = Worker {
                    standing: standing(&holder),
                    silent,
                    shards: shards_of(map, incarnation),
                };
                // A replica that has joined anew has Leases of earlier incarnations too.
                let known = workers.entry(replica).or_insert_with(|| worker.clone());
                if known.standing < worker.standing {
                    *known = worker;
                }
            }
        }
        Ok((leader, workers))
    }

    async fn children(&self) -> anyhow::Result<Vec<DynamicObject>> {
        let mut children = Vec::new();
        for (group, version, kind, plural) in CHILD_KINDS {
            children.extend(
                self.list(group, version, (kind, plural), LABEL_CONTROLLER_UID)
                    .await?,
            );
        }
        Ok(children)
    }

    /// All objects of a kind that carry `label`, in all namespaces.
    async fn list(
        &self,
        group: &str,
        version: &str,
        (kind, plural): (&str, &str),
        label: &str,
    ) -> anyhow::Result<Vec<DynamicObject>> {
        let gvk = GroupVersionKind::gvk(group, version, kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let list = api.list(&ListParams::default().labels(label)).await;
        Ok(list.with_context(|| format!("list {plural}"))?.items)
    }
}

fn standing(holder: &Holder) -> Standing {
    match holder {
        Holder::Member(..) | Holder::Foreign(_) => Standing::Holds,
        Holder::Fenced => Standing::Fenced,
        Holder::Evicted => Standing::Evicted,
        Holder::Released => Standing::Released,
    }
}

fn shards_of(map: &ShardMapSpec, incarnation: &str) -> usize {
    let index = map
        .members
        .iter()
        .position(|it| it.incarnation == incarnation);
    let owner = index.and_then(|it| u16::try_from(it).ok());
    map.shards
        .iter()
        .filter(|it| owner.is_some() && it.owner == owner)
        .count()
}

fn controller(
    cast: &Cast,
    object: &DynamicObject,
    map: &ShardMapSpec,
    parents: &[DynamicObject],
    children: &[DynamicObject],
    calls: &BTreeMap<String, u64>,
) -> Controller {
    let uid = ControllerUid::new(object.uid().unwrap_or_default());
    let shard = Layout::of(map).home(&uid);
    let owner = map.owner(shard);
    let parents: Vec<&DynamicObject> = parents
        .iter()
        .filter(|it| it.labels().get(LABEL) == Some(&cast.controller))
        .collect();
    let uids: BTreeSet<String> = parents.iter().filter_map(|it| it.uid()).collect();
    let is_ours = |child: &&DynamicObject| {
        child
            .owner_references()
            .iter()
            .any(|it| uids.contains(&it.uid))
    };
    let observed = |it: &DynamicObject| {
        it.data["status"]["observedGeneration"]
            .as_i64()
            .unwrap_or(0)
    };
    Controller {
        name: cast.controller.clone(),
        shard: shard.0,
        epoch: owner.map_or(0, |(_, epoch)| epoch.0),
        worker: owner.map(|(member, _)| member.replica.clone()),
        state: state(&object.data["status"]["conditions"]),
        parents: parents.len(),
        settled: parents
            .iter()
            .filter(|it| Some(observed(it)) == it.meta().generation)
            .count(),
        children: children.iter().filter(is_ours).count(),
        calls: calls.get(&cast.controller).copied().unwrap_or(0),
        observed: parents
            .iter()
            .map(|it| (it.name_any(), observed(it)))
            .collect(),
    }
}

/// `Ready`, or the reason of the condition `Ready`, or of the first condition that is false.
fn state(conditions: &Value) -> String {
    let conditions = conditions.as_array().map(Vec::as_slice).unwrap_or_default();
    let ready = conditions.iter().find(|it| it["type"] == "Ready");
    match ready {
        Some(it) if it["status"] == "True" => "Ready".to_owned(),
        Some(it) => it["reason"].as_str().unwrap_or("NotReady").to_owned(),
        None => "Unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_controller_that_is_not_ready_shows_why() {
        let not_ready =
            json!([{ "type": "Ready", "status": "False", "reason": "HookUnreachable" }]);

        assert_eq!(state(&not_ready), "HookUnreachable");
        assert_eq!(
            state(&json!([{ "type": "Ready", "status": "True", "reason": "AllTrue" }])),
            "Ready"
        );
        assert_eq!(state(&Value::Null), "Unknown");
    }

    #[test]
    fn shards_are_counted_for_the_incarnation_not_for_the_name() {
        let map: ShardMapSpec = serde_json::from_value(json!({
            "shardCount": 3,
            "members": [{ "replica": "a", "incarnation": "old" }, { "replica": "a", "incarnation": "new" }],
            "shards": [{ "owner": 0, "epoch": 1 }, { "owner": 1, "epoch": 2 }, { "epoch": 1 }],
        }))
        .unwrap();

        assert_eq!(shards_of(&map, "new"), 1);
        assert_eq!(shards_of(&map, "gone"), 0);
    }
}
