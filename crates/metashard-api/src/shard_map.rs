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

/// Most slices of one controller.
pub const MAX_SLICES: u16 = 64;

/// The newest [`ShardMapSpec::format`] that this version reads, and the one that it writes.
pub const FORMAT: u16 = 0;

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
    /// What a reader has to know. Raised by what no older version may ignore; absent: 0. A version that does not know the
    /// number neither goes by the map nor writes it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub format: u16,
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
    /// The controllers that are split, and into how many slices. One that is not named has one slice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub splits: Vec<Split>,
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

/// A controller whose parents are shared out among slices, each of which belongs to a shard of its own.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct Split {
    /// `metadata.uid` of the controller.
    pub controller: String,
    /// Number of slices: a power of two up to 64.
    #[schemars(range(min = 1, max = 64))]
    pub slices: u16,
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

impl Split {
    /// The number that counts: all replicas have to agree also on what makes no sense.
    pub fn effective(&self) -> u16 {
        if can_be_slices(self.slices) {
            self.slices
        } else {
            1
        }
    }
}

/// Whether a controller can be split into so many slices: a power of two up to [`MAX_SLICES`].
pub fn can_be_slices(slices: u16) -> bool {
    slices.is_power_of_two() && slices <= MAX_SLICES
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(format: &u16) -> bool {
    *format == 0
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
        let split = |n: u16| Split {
            controller: format!("{n:08}-1111-4111-8111-111111111111"),
            slices: 64,
        };
        let spec = ShardMapSpec {
            format: FORMAT,
            term: Term(1_900_000_000),
            seq: Seq(1_000_000),
            leader: members.first().cloned(),
            shard_count: MAX_SHARDS,
            splits: (0..500).map(split).collect(),
            members,
            shards: (0..MAX_SHARDS).map(entry).collect(),
        };

        let bytes = serde_json::to_vec(&ShardMap::new(NAME, spec))
            .unwrap()
            .len();

        assert!(bytes < MOST_BYTES * 2 / 3, "{bytes}: some room is left");
    }

    #[test]
    fn a_number_of_slices_that_makes_no_sense_counts_as_one() {
        for (slices, counted) in [(0, 1), (1, 1), (2, 2), (3, 1), (64, 64), (128, 1)] {
            let split = |slices| Split {
                controller: "c".to_owned(),
                slices,
            };
            assert_eq!(split(slices).effective(), counted);
        }
    }

    #[test]
    fn a_map_without_splits_is_read_and_written_as_before() {
        let spec: ShardMapSpec =
            serde_json::from_str(r#"{"term":1,"seq":2,"shardCount":0}"#).unwrap();

        let text = serde_json::to_string(&spec).unwrap();

        assert!(spec.splits.is_empty() && !text.contains("splits"), "{text}");
        assert!(spec.format == 0 && !text.contains("format"), "{text}");
    }
}
