//! The order of all maps: I3 and I4.

use std::{collections::BTreeSet, sync::Arc};

use metashard_api::shard_map::Member;

use crate::{
    invariants::{Invariant, Table},
    map::Map,
};

/// The newest map that was seen.
#[derive(Debug, Default)]
pub(super) struct Maps {
    newest: Option<Arc<Map>>,
}

impl Maps {
    pub(super) fn newest(&self) -> Option<&Map> {
        self.newest.as_deref()
    }

    /// Takes a map that was read or written. An older one is no news: watches lag behind reads. One that was made anew
    /// begins another order.
    pub(super) fn see(&mut self, map: &Arc<Map>) -> BTreeSet<Invariant> {
        let Some(newest) = &self.newest else {
            self.newest = Some(Arc::clone(map));
            return BTreeSet::new();
        };
        if newest.resource_version == map.resource_version && newest.uid == map.uid {
            return BTreeSet::new();
        }
        if newest.uid == map.uid && map.version() < newest.version() {
            return BTreeSet::new();
        }
        let broken = if newest.uid == map.uid {
            table(newest).broken_by(&table(map), true)
        } else {
            BTreeSet::new()
        };
        self.newest = Some(Arc::clone(map));
        broken
    }
}

fn table(map: &Map) -> Table<&Member> {
    let spec = &map.spec;
    let entry = |entry: &metashard_api::shard_map::ShardEntry| {
        let owner = entry.owner.and_then(|it| spec.members.get(usize::from(it)));
        (owner, entry.epoch)
    };
    Table {
        term: spec.term,
        seq: spec.seq,
        leader: spec.leader.as_ref(),
        shards: spec.shards.iter().map(entry).collect(),
    }
}
