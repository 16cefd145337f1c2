//! The ShardMap as the machines see it: one state of the object, read or to be written.

use serde::{Deserialize, Serialize};

use crate::invariants::Table;
use std::sync::Arc;

use metashard_api::{
    id::{Seq, Term},
    shard_map::{Member, ShardEntry, ShardMapSpec},
};

/// One state of the ShardMap. Two states of one map are the same exactly if uid and resourceVersion are.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Map {
    /// `metadata.uid`; another uid is another map, whatever its numbers say.
    pub uid: String,
    /// `metadata.resourceVersion`; compared for equality only.
    pub resource_version: String,
    /// The content.
    pub spec: ShardMapSpec,
}

impl Map {
    /// Number of shards; 0: not set yet.
    pub fn shard_count(&self) -> u16 {
        self.spec.shard_count
    }

    /// (term, seq): the order of all maps.
    pub fn version(&self) -> (Term, Seq) {
        self.spec.version()
    }
}

/// The owners of a map, for the invariants.
pub fn table(spec: &ShardMapSpec) -> Table<&Member> {
    let owner = |entry: &ShardEntry| spec.members.get(usize::from(entry.owner?));
    let shards = spec.shards.iter();
    Table {
        term: spec.term,
        seq: spec.seq,
        leader: spec.leader.as_ref(),
        shards: shards.map(|entry| (owner(entry), entry.epoch)).collect(),
    }
}

/// What a read of the map, or a watch event, showed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Seen {
    /// It exists like this.
    Present(Arc<Map>),
    /// It does not exist.
    Absent,
    /// It exists, and this version cannot read it: a newer one wrote it, or somebody edited it.
    Unreadable,
}

/// One write of the map.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Write {
    /// The state that it replaces: the `PUT` carries its uid and resourceVersion. `None`: create (`POST`).
    pub base: Option<Arc<Map>>,
    /// The new content.
    pub spec: ShardMapSpec,
}
