//! The ShardMap: which incarnation owns which shard, at which epoch. Written by the leader only.
//!
//! Group `metashard.io`, version `v1beta1`, namespaced, one object named [`NAME`] in the system namespace.
//! Every write is a compare-and-swap on `resourceVersion`.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{Epoch, Seq, ShardId, Term};

/// Name of the one map of the default worker pool.
pub const NAME: &str = "metashard";

/// Shards of a new installation; best at 20 or more per worker.
pub const DEFAULT_SHARDS: u16 = 1024;

/// Most shards of one map: such a map stays under 512 KiB.
pub const MAX_SHARDS: u16 = 4096;

/// Content of a ShardMap.
///
/// A map as an installation ships it is empty: term 0, no shards. The first leader fills it.
#[derive(
    CustomResource, Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema,
)]
#[kube(
    group = "metashard.io",
    version = "v1beta1",
    kind = "ShardMap",
    plural = "shardmaps",
    namespaced,
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct ShardMapSpec {
    /// Number of the leadership that wrote this map; only grows. 0: nobody has led yet.
    #[serde(default)]
    #[schemars(with = "u64")]
    pub term: Term,
    /// Number of this map within its term; only grows.
    #[serde(default)]
    #[schemars(with = "u64")]
    pub seq: Seq,
    /// The leader that wrote this map. Absent: nobody has led yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<Member>,
    /// Number of shards, set once at installation. 0: not set yet.
    #[serde(default)]
    pub shard_count: u16,
    /// The incarnations that `shards` points into.
    #[serde(default)]
    pub members: Vec<Member>,
    /// One entry a shard, in the order of shard ids.
    #[serde(default)]
    pub shards: Vec<ShardEntry>,
}

/// A replica in one of its incarnations.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// Name of the replica.
    pub replica: String,
    /// The UUID of this membership.
    pub incarnation: String,
}

/// Who owns one shard, at which epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShardEntry {
    /// Index into `members`. Absent: nobody owns the shard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<u16>,
    /// Number of this ownership; raised at each change of owner. 0: never owned.
    #[serde(default)]
    #[schemars(with = "u64")]
    pub epoch: Epoch,
}

impl ShardMapSpec {
    /// The owner of `shard` and its epoch; `None` where nobody owns it or it is not in the map.
    pub fn owner(&self, shard: ShardId) -> Option<(&Member, Epoch)> {
        let entry = self.shards.get(usize::from(shard.0))?;
        let member = self.members.get(usize::from(entry.owner?))?;
        Some((member, entry.epoch))
    }

    /// (term, seq): the order of all maps.
    pub fn version(&self) -> (Term, Seq) {
        (self.term, self.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a map may have in the API server's store.
    const MOST_BYTES: usize = 512 * 1024;

    #[test]
    fn the_largest_map_stays_under_512_kib() {
        let member = |n: u16| Member {
            replica: format!("metashard-7c9f8d7b6c-{n:05}.a-namespace-with-a-long-name"),
            incarnation: format!("{n:08}-1111-4111-8111-111111111111"),
        };
        let members: Vec<Member> = (0..1_000).map(member).collect();
        let entry = |shard: u16| ShardEntry {
            owner: Some(shard % 1_000),
            epoch: Epoch(1_900_000_000 + u64::from(shard)),
        };
        let spec = ShardMapSpec {
            term: Term(1_900_000_000),
            seq: Seq(1_000_000),
            leader: members.first().cloned(),
            shard_count: MAX_SHARDS,
            members,
            shards: (0..MAX_SHARDS).map(entry).collect(),
        };

        let bytes = serde_json::to_vec(&ShardMap::new(NAME, spec))
            .unwrap()
            .len();

        assert!(bytes < MOST_BYTES / 2, "{bytes}: the rest is for splits");
    }
}
