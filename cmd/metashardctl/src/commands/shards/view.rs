//! All shards as the leader tells of them; where it cannot be asked, as much as the map says.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::Context;
use metashard_api::{
    id::{ControllerUid, ShardId, Slice},
    shard_map::ShardMapSpec,
};
use metashard_fleet::{
    shard::Layout,
    shards::{Shard, Shards},
};
use metashard_reconcile::object::Object;

use super::cost;
use crate::{argv::Asking, cluster::Cluster, fleet::Fleet, output, replica};

/// Where a leader tells of them.
const TARGET: &str = "/api/v1/fleet/shards";

/// All shards, with what else is known of them.
#[derive(Debug)]
pub(in crate::commands) struct View {
    pub(in crate::commands) fleet: Fleet,
    pub(in crate::commands) shards: Shards,
    /// The leader has told; otherwise all of it is from the map, and costs are not known.
    is_told: bool,
    /// Names of the controllers in each shard; of one that is split, with the number of the slice.
    names: BTreeMap<ShardId, Vec<String>>,
}

impl View {
    /// Asks the leader: at these URLs, or through the API server. Why it cannot be asked is told beside the output.
    pub(in crate::commands) async fn of(
        cluster: &Cluster,
        servers: &[String],
        asking: &Asking,
    ) -> anyhow::Result<Self> {
        let fleet = Fleet::one(cluster, asking).await?;
        let controllers = match cluster.controllers().await {
            Ok(controllers) => controllers,
            Err(error) => {
                output::complain(&format!("names of controllers are left out: {error:#}"));
                Vec::new()
            }
        };
        let names = names(fleet.map(), &controllers);
        let told = ask(cluster, &fleet, servers).await;
        let is_told = told.is_ok();
        let shards = told.unwrap_or_else(|error| {
            output::complain(&format!(
                "phases, costs and hand-overs are left out: {error:#}"
            ));
            let counts = names.iter();
            let counts = counts.map(|(shard, it)| (*shard, u32::try_from(it.len()).unwrap_or(0)));
            Shards::of_map(fleet.map(), &counts.collect())
        });
        Ok(Self {
            fleet,
            shards,
            is_told,
            names,
        })
    }

    /// Of the controllers in a shard, as far as the replicas serve any in it.
    pub(in crate::commands) fn names(&self, shard: &Shard) -> Vec<String> {
        let names = self.names.get(&shard.shard).cloned();
        names.filter(|_| shard.controllers > 0).unwrap_or_default()
    }

    /// What a weight stands for; nothing where costs are not known.
    pub(in crate::commands) fn cost_of(&self, weight: u64) -> String {
        if self.is_told {
            cost(weight)
        } else {
            String::new()
        }
    }
}

async fn ask(cluster: &Cluster, fleet: &Fleet, servers: &[String]) -> anyhow::Result<Shards> {
    let body = if servers.is_empty() {
        let leader = fleet.leader().context("nobody has led this fleet yet")?;
        fleet.ask(cluster, &leader, TARGET).await?
    } else {
        let mut errors = Vec::new();
        let mut found = None;
        for server in servers {
            match replica::ask(server, TARGET).await {
                Ok(body) => {
                    found = Some(body);
                    break;
                }
                Err(error) => errors.push(format!("{server}: {error:#}")),
            }
        }
        found.with_context(|| format!("no leader answers at {}", errors.join("; ")))?
    };
    serde_json::from_slice(&body).context("read the leader's answer")
}

/// The names of all controllers by the shards that they belong to.
fn names(map: &ShardMapSpec, controllers: &[Arc<Object>]) -> BTreeMap<ShardId, Vec<String>> {
    let mut names: BTreeMap<ShardId, Vec<String>> = BTreeMap::new();
    let layout = Layout::of(map);
    for controller in controllers {
        let uid = ControllerUid::new(controller.uid());
        let slices = layout.slices(&uid);
        for slice in 0..slices {
            let shard = layout.shard(&uid, Slice(slice));
            let name = controller.name();
            names.entry(shard).or_default().push(if slices == 1 {
                name.to_owned()
            } else {
                format!("{name}[{slice}]")
            });
        }
    }
    for it in names.values_mut() {
        it.sort();
    }
    names
}
