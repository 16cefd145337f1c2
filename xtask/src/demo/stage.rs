//! Everything that the demo starts: a cluster, the tenants' hooks, the replicas; and what can be done to them.

mod cleanup;
mod hooks;
mod setting;

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use anyhow::{Context, ensure};
use k8s_openapi::{api::coordination::v1::Lease, jiff::Timestamp};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use metashard_api::names::LEADER_LEASE;
use metashard_testkit::{Cluster, Replica, group::Group, replica, wait::eventually};
use tokio::time::Instant;

use super::{
    snapshot::Snapshot,
    story::settled,
    tenants::{Cast, PARENTS, cast},
    truth::Truth,
};
use hooks::Hooks;

/// Replicas at the start.
const REPLICAS: usize = 3;

/// Time for a replica to be ready; in practice a second.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// A replica, as long as it runs and after.
#[derive(Debug)]
pub(super) struct Actor {
    pub(super) name: String,
    /// `None` once it was killed.
    pub(super) replica: Option<Replica>,
    /// When it was killed.
    pub(super) died: Option<Instant>,
}

/// The running demo.
pub(super) struct Stage {
    /// Where it plays: version and URL of the API server.
    pub(super) place: String,
    pub(super) start: Instant,
    pub(super) actors: Vec<Actor>,
    /// Time from the beginning until all was started.
    pub(super) took: Duration,
    pub(super) kubeconfig: PathBuf,
    client: Client,
    system_namespace: &'static str,
    hooks: Hooks,
    truth: Truth,
    /// Number of the next edit: no two are the same.
    edition: usize,
    /// Dropped last: ends all processes.
    ground: Ground,
}

/// What the processes run on.
#[derive(Debug)]
enum Ground {
    /// A control plane of our own.
    Own(Box<Cluster>),
    /// A user's cluster; only our processes are ours.
    Lent(Group),
}

impl Ground {
    fn group(&self) -> &Group {
        match self {
            Self::Own(cluster) => cluster.group(),
            Self::Lent(group) => group,
        }
    }
}

impl Stage {
    /// Starts everything and waits until the replicas are ready.
    ///
    /// # Errors
    /// If something cannot be started.
    pub(super) async fn open(context: Option<&str>) -> anyhow::Result<Self> {
        let start = Instant::now();
        let setting = setting::open(context).await?;
        let hooks = Hooks::start(setting.ground.group()).await?;
        let mut stage = Self {
            place: setting.place,
            start,
            actors: Vec::new(),
            took: Duration::ZERO,
            kubeconfig: setting.kubeconfig,
            truth: Truth::new(setting.client.clone(), setting.system_namespace),
            client: setting.client,
            system_namespace: setting.system_namespace,
            hooks,
            edition: 0,
            ground: setting.ground,
        };
        for _ in 0..REPLICAS {
            stage.add_replica()?;
        }
        for actor in &mut stage.actors {
            if let Some(replica) = &mut actor.replica {
                replica.ready(READY_WITHIN).await?;
            }
        }
        setting::put_manifests(&stage.client, &stage.hooks).await?;
        stage.took = start.elapsed();
        Ok(stage)
    }

    /// Stops everything; takes away again what was put into a user's cluster.
    ///
    /// # Errors
    /// If something cannot be taken away.
    pub(super) async fn close(self) -> anyhow::Result<()> {
        match self.ground {
            Ground::Own(_) => Ok(()),
            Ground::Lent(_) => {
                drop(self.actors);
                cleanup::run(&self.client, self.system_namespace).await
            }
        }
    }

    /// The present state.
    ///
    /// # Errors
    /// If the API server or a hook does not answer.
    pub(super) async fn read(&mut self) -> anyhow::Result<Snapshot> {
        let calls = self.hooks.calls().await?;
        self.truth.read(&calls).await
    }

    /// Waits until every replica has its part of the work, and every controller is ready and has served all its
    /// parents and children.
    ///
    /// # Errors
    /// If that is not so in time; the text says which controller is how far.
    pub(super) async fn converged(&mut self, within: Duration) -> anyhow::Result<Snapshot> {
        eventually(within, "all controllers to converge", async || {
            let snapshot = self.read().await?;
            for actor in self.actors.iter().filter(|it| it.replica.is_some()) {
                let shards = snapshot.workers.get(&actor.name).map_or(0, |it| it.shards);
                ensure!(shards > 0, "{} has no shards yet", actor.name);
            }
            let expected = cast();
            ensure!(
                snapshot.controllers.len() == expected.len(),
                "controllers are missing"
            );
            for (controller, cast) in snapshot.controllers.iter().zip(&expected) {
                let complete = controller.parents == PARENTS
                    && settled(controller)
                    && controller.children == PARENTS * cast.example.children();
                ensure!(controller.state == "Ready" && complete, "{controller:?}");
            }
            Ok(snapshot)
        })
        .await
    }

    /// Starts one more replica.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(super) fn add_replica(&mut self) -> anyhow::Result<String> {
        let name = format!("replica-{}", self.actors.len() + 1);
        let options = replica::Options {
            name: name.clone(),
            kubeconfig: self.kubeconfig.clone(),
            system_namespace: self.system_namespace.to_owned(),
            flags: Vec::new(),
            is_reachable: false,
            faults: String::new(),
            environment: Vec::new(),
        };
        let replica = Replica::start(self.ground.group(), &options)?;
        self.actors.push(Actor {
            name: name.clone(),
            replica: Some(replica),
            died: None,
        });
        Ok(name)
    }

    /// Kills a replica by SIGKILL: it says goodbye to nobody.
    ///
    /// # Errors
    /// If there is no such replica.
    pub(super) fn kill(&mut self, name: &str) -> anyhow::Result<Instant> {
        let actor = self.actors.iter_mut().find(|it| it.name == name);
        let actor = actor.with_context(|| format!("find {name}"))?;
        let mut replica = actor
            .replica
            .take()
            .with_context(|| format!("{name} runs no more"))?;
        let now = Instant::now();
        replica.kill()?;
        actor.died = Some(now);
        Ok(now)
    }

    /// The end of a replica's log.
    pub(super) fn logs(&self) -> String {
        let running = self.actors.iter().filter_map(|it| it.replica.as_ref());
        let logs: Vec<String> = running
            .map(|it| format!("--- {}\n{}", it.name(), it.log()))
            .collect();
        logs.join("\n")
    }

    /// Edits one parent of each controller; gives, by controller, the parent and its generation since.
    ///
    /// # Errors
    /// If the API server refuses.
    pub(super) async fn edit_all(&mut self) -> anyhow::Result<BTreeMap<String, (String, i64)>> {
        let mut edits = BTreeMap::new();
        for cast in cast() {
            let edit = self.edit(&cast).await?;
            edits.insert(cast.controller, edit);
        }
        Ok(edits)
    }

    /// Edits the next parent of a controller; gives its name and its generation since.
    ///
    /// # Errors
    /// If the API server refuses.
    pub(super) async fn edit(&mut self, cast: &Cast) -> anyhow::Result<(String, i64)> {
        self.edition += 1;
        let name = cast
            .parents()
            .nth(self.edition % PARENTS)
            .context("choose a parent")?;
        let (kind, plural) = cast.example.kind();
        let gvk = GroupVersionKind::gvk("examples.metashard.io", "v1", kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &cast.namespace(), &resource);
        let patch = Patch::Merge(cast.example.edit(self.edition));
        let edited = api.patch(&name, &PatchParams::default(), &patch).await;
        let edited = edited.with_context(|| format!("edit {kind} {name}"))?;
        Ok((name, edited.metadata.generation.unwrap_or_default()))
    }

    /// Writes a stranger's name into the leader's Lease, as a faulty program might.
    ///
    /// # Errors
    /// If the API server refuses.
    pub(super) async fn take_lead(&self) -> anyhow::Result<()> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), self.system_namespace);
        eventually(
            Duration::from_secs(5),
            "the leader's Lease to be taken",
            async || {
                let mut lease = leases.get(LEADER_LEASE).await?;
                let spec = lease.spec.get_or_insert_default();
                spec.holder_identity = Some("a-stranger".to_owned());
                spec.renew_time = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime(
                    Timestamp::now(),
                ));
                // Fails if the leader has renewed in between; then once more.
                leases
                    .replace(&lease.name_any(), &PostParams::default(), &lease)
                    .await?;
                Ok(())
            },
        )
        .await
    }
}
