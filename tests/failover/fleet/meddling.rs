//! What people do to a fleet's objects by hand, and to its ports.

use anyhow::{Context, ensure};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Event};
use kube::{
    Api,
    api::{ApiResource, DeleteParams, DynamicObject, PostParams},
    core::GroupVersionKind,
};
use metashard_api::{
    names::{ANNOTATION_ADDRESS, SYSTEM_NAMESPACE, WORKER_LEASE_PREFIX},
    shard_map,
};
use metashard_testkit::{Replica, replica::Options};
use serde_json::Value;

use super::Fleet;

impl Fleet {
    /// Changes the map as an editor does, until that goes through.
    pub(crate) async fn edit_map(&self, change: impl Fn(&mut Value)) -> anyhow::Result<()> {
        let maps = self.raw_maps();
        self.eventually("the map to be edited", async || {
            let mut map = maps.get(shard_map::NAME).await?;
            change(&mut map.data);
            maps.replace(shard_map::NAME, &PostParams::default(), &map)
                .await?;
            Ok(())
        })
        .await
    }

    /// Puts a label on the map.
    pub(crate) async fn label_map(&self) -> anyhow::Result<()> {
        let maps = self.raw_maps();
        self.eventually("the map to be labelled", async || {
            let mut map = maps.get(shard_map::NAME).await?;
            let labels = map.metadata.labels.get_or_insert_default();
            labels.insert("looked-at-by".to_owned(), "somebody".to_owned());
            maps.replace(shard_map::NAME, &PostParams::default(), &map)
                .await?;
            Ok(())
        })
        .await
    }

    /// Deletes the map.
    pub(crate) async fn delete_map(&self) -> anyhow::Result<()> {
        let maps = self.raw_maps();
        maps.delete(shard_map::NAME, &DeleteParams::default())
            .await?;
        Ok(())
    }

    fn raw_maps(&self) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk("metashard.io", "v1beta1", "ShardMap");
        let resource = ApiResource::from_gvk_with_plural(&gvk, "shardmaps");
        Api::namespaced_with(self.client.clone(), SYSTEM_NAMESPACE, &resource)
    }

    /// Gives the Lease of a replica's worker to somebody else.
    pub(crate) async fn take_lease_of(&self, replica: &str) -> anyhow::Result<()> {
        let leases = self.worker_leases();
        self.eventually("a worker's Lease to be taken", async || {
            let mut lease = self.lease_of(replica).await?;
            let name = lease.metadata.name.clone().unwrap_or_default();
            if let Some(spec) = &mut lease.spec {
                spec.holder_identity = Some("somebody else".to_owned());
            }
            leases
                .replace(&name, &PostParams::default(), &lease)
                .await?;
            Ok(())
        })
        .await
    }

    /// Deletes the Lease of a replica's worker.
    pub(crate) async fn delete_lease_of(&self, replica: &str) -> anyhow::Result<()> {
        let name = self.lease_of(replica).await?.metadata.name;
        let leases = self.worker_leases();
        leases
            .delete(&name.unwrap_or_default(), &DeleteParams::default())
            .await?;
        Ok(())
    }

    async fn lease_of(&self, replica: &str) -> anyhow::Result<Lease> {
        let members = self.map().await?.members;
        let member = members.into_iter().find(|it| it.replica == replica);
        let member = member.with_context(|| format!("{replica} owns nothing"))?;
        let name = format!("{WORKER_LEASE_PREFIX}{}", member.incarnation);
        Ok(self.worker_leases().get(&name).await?)
    }

    fn worker_leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), SYSTEM_NAMESPACE)
    }

    /// Waits until so many workers of this name own something.
    pub(crate) async fn has_members(&self, replica: &str, wanted: usize) -> anyhow::Result<()> {
        self.eventually("workers of one name to have a share", async || {
            let members = self.map().await?.members;
            let count = members.iter().filter(|it| it.replica == replica).count();
            ensure!(count == wanted, "{count} have one");
            Ok(())
        })
        .await
    }

    /// Waits until some replica logs `text`, and says which.
    pub(crate) async fn says(&self, text: &str) -> anyhow::Result<&'static str> {
        self.eventually("a line of the log", async || {
            let found = self.replicas.iter();
            let mut found = found.filter(|(_, it)| it.whole_log().contains(text));
            let found = found.next().map(|(name, _)| *name);
            found.with_context(|| format!("nobody says {text:?}"))
        })
        .await
    }

    /// How often replicas have logged `text`.
    pub(crate) fn n_said(&self, text: &str) -> usize {
        let logs = self.replicas.values().map(Replica::whole_log);
        logs.map(|log| log.matches(text).count()).sum()
    }

    /// Waits for a Warning about the map.
    pub(crate) async fn warns(&self, reason: &str) -> anyhow::Result<()> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), SYSTEM_NAMESPACE);
        self.eventually("an event", async || {
            let events = events.list(&kube::api::ListParams::default()).await?;
            let mut reasons = events.items.iter().filter_map(|it| it.reason.as_deref());
            ensure!(reasons.any(|it| it == reason), "no event {reason}");
            Ok(())
        })
        .await
    }

    /// Starts one more process, which this fleet does not know of.
    pub(crate) async fn stranger(&self, name: &str, flags: &[&str]) -> anyhow::Result<Replica> {
        self.planted_stranger("", name, flags).await
    }

    /// The same with faults.
    pub(crate) async fn planted_stranger(
        &self,
        faults: &str,
        name: &str,
        flags: &[&str],
    ) -> anyhow::Result<Replica> {
        let options = Options::new(&self.cluster, name, SYSTEM_NAMESPACE)?;
        let options = options.flags(flags.iter().copied()).faults(faults);
        let mut replica = Replica::start(self.cluster.group(), &options)?;
        replica.ready(super::WITHIN).await?;
        Ok(replica)
    }

    /// Waits until the leader's Lease is released, and nobody takes it.
    pub(crate) async fn is_led_by_nobody(&self) -> anyhow::Result<()> {
        self.eventually("nobody to lead", async || {
            let spec = self.leader_lease().await?.spec.unwrap_or_default();
            let holder = spec.holder_identity.unwrap_or_default();
            ensure!(holder.is_empty(), "{holder} leads");
            Ok(())
        })
        .await
    }

    /// Waits until a replica has logged `text` so many times.
    pub(crate) async fn has_said(
        &self,
        replica: &str,
        text: &str,
        times: usize,
    ) -> anyhow::Result<()> {
        self.eventually("lines of the log", async || {
            let said = self.n_said_by(replica, text);
            ensure!(said >= times, "{replica} says {text:?} {said} times");
            Ok(())
        })
        .await
    }

    /// How often a replica has logged `text`.
    pub(crate) fn n_said_by(&self, replica: &str, text: &str) -> usize {
        let replica = self.replicas.get(replica);
        replica.map_or(0, |it| it.whole_log().matches(text).count())
    }

    /// Folder of the fleet's files.
    pub(crate) fn folder(&self) -> &std::path::Path {
        self.cluster.folder()
    }

    /// Where the leader takes sessions.
    pub(crate) async fn address_of_leader(&self) -> anyhow::Result<String> {
        let lease = self.leader_lease().await?;
        let annotations = lease.metadata.annotations.unwrap_or_default();
        let address = annotations.get(ANNOTATION_ADDRESS).cloned();
        address.context("it tells no address")
    }

    /// Waits until the map is made anew, after so many times.
    pub(crate) async fn is_made_anew(&self, times: usize) -> anyhow::Result<()> {
        self.eventually("a new map", async || {
            ensure!(self.n_said("ShardMap lost") > times, "nobody says so");
            self.map().await?;
            Ok(())
        })
        .await
    }

    /// Waits until so many memberships were lost in all.
    pub(crate) async fn loses_its_membership(&self, times: usize) -> anyhow::Result<()> {
        let text = "membership lost: the Lease is not ours any more";
        self.eventually("a membership to be lost", async || {
            let lost = self.n_said(text);
            ensure!(lost >= times, "only {lost}");
            Ok(())
        })
        .await
    }
}
