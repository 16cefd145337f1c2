//! What people do to a fleet, by mistake or with other plans for it.

use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use metashard_api::{
    names::{LEADER_LEASE, SYSTEM_NAMESPACE, WORKER_LEASE_PREFIX},
    shard_map::{self, ShardMap},
    v1alpha1::composite::CompositeController,
};
use serde_json::json;
use tokio::time::Instant;

use super::fault::Dice;
use crate::{
    bed::{self, Bed},
    objects,
};

/// Numbers of slices that somebody may ask for.
const SLICES: [u16; 4] = [1, 2, 4, 8];

/// Takes the leader's Lease away, as somebody with other plans for it might.
pub(crate) async fn take_lead(bed: &mut Bed) -> anyhow::Result<()> {
    let leases = bed.leases();
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let mut lease = leases.get(LEADER_LEASE).await?;
        if let Some(spec) = &mut lease.spec {
            spec.holder_identity = Some("somebody else".to_owned());
        }
        match leases
            .replace(LEADER_LEASE, &PostParams::default(), &lease)
            .await
        {
            Ok(_) => {
                bed.leads_taken += 1;
                return Ok(());
            }
            Err(error) if Instant::now() > deadline => return Err(error.into()),
            // The leader has renewed it in between.
            Err(_) => {}
        }
    }
}

/// Deletes the Lease of a worker, which lives. Returns the worker's name.
pub(crate) async fn delete_lease(bed: &Bed, dice: &mut Dice) -> anyhow::Result<String> {
    let leases = bed.leases();
    let mut all = leases.list(&ListParams::default()).await?.items;
    all.retain(|it| it.name_any().starts_with(WORKER_LEASE_PREFIX));
    let holder = |it: &Lease| {
        let replica = bed::holder(it)?;
        bed.slot_of(&replica).map(|_| replica.to_string())
    };
    let held: Vec<_> = all
        .iter()
        .filter_map(|it| Some((it.name_any(), holder(it)?)))
        .collect();
    let (lease, worker) = held
        .get(dice.below(held.len()))
        .context("no worker has a Lease")?;
    unless_gone(leases.delete(lease, &DeleteParams::default()).await)?;
    Ok(worker.clone())
}

/// Deletes the ShardMap.
pub(crate) async fn delete_map(bed: &Bed) -> anyhow::Result<()> {
    let maps: Api<ShardMap> = Api::namespaced(bed.client.clone(), SYSTEM_NAMESPACE);
    let params = DeleteParams::default();
    unless_gone(maps.delete(shard_map::NAME, &params).await)
}

/// What is not there need not be deleted.
fn unless_gone<T>(deleted: kube::Result<T>) -> anyhow::Result<()> {
    match deleted {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => Ok(other.map(drop)?),
    }
}

/// Asks for another number of slices of some controller.
pub(crate) async fn split(bed: &Bed, dice: &mut Dice) -> anyhow::Result<()> {
    let controllers: Api<CompositeController> = Api::all(bed.client.clone());
    let name = objects::controller_name(dice.below(bed.settings.controllers));
    let slices = SLICES
        .get(dice.below(SLICES.len()))
        .context("some number")?;
    let patch = Patch::Merge(json!({ "spec": { "sharding": { "slices": slices } } }));
    controllers
        .patch(&name, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}
