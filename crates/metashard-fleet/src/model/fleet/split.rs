//! A controller that is split in two while the fleet is disturbed, and which of its parents each worker may act for.

use std::{collections::BTreeMap, sync::Arc};

use metashard_api::id::{ControllerUid, Slice};

use super::{Fleet, State, process::Input};
use crate::{
    leader,
    shard::{Layout, shard_of, slice_of},
    time::Now,
    worker::Standing,
};

/// Slices that it is to have.
const SLICES: u16 = 2;

impl Fleet {
    /// Every leader sees that the spec asks for slices.
    pub(super) fn split(&self, state: &mut State) {
        let asked = BTreeMap::from([(controller(self.n_shards), Some(SLICES))]);
        let asked = Arc::new(asked);
        for n in 0..self.n_leaders {
            let input = leader::Input::ControllersSeen(Arc::clone(&asked));
            self.feed(state, n, Input::Leader(input));
        }
    }
}

impl State {
    /// Whether a worker acts for one slice, by a map that splits the controller.
    pub(super) fn serves_split(&self) -> bool {
        self.processes.iter().any(|process| {
            let worker = process.worker().map(crate::worker::Worker::standing);
            let map = worker.and_then(|it| it.map());
            let is_split = map.is_some_and(|map| !map.spec.splits.is_empty());
            is_split && worker.is_some_and(|it| it.shards().len() > 0)
        })
    }
}

/// The parents that a worker with this standing may act for, with its incarnation.
pub(super) fn parents(
    standing: &Arc<Standing>,
    now: Now,
) -> Vec<(Box<str>, metashard_api::id::Incarnation)> {
    let (Some(map), Some(incarnation)) = (standing.map(), standing.incarnation()) else {
        return Vec::new();
    };
    let layout = Layout::of(&map.spec);
    let controller = controller(map.shard_count());
    let mut parents = Vec::new();
    for (shard, _) in standing.shards() {
        let cut = layout.cut(&controller, shard);
        let Some(cut) = cut.filter(|_| standing.authority(shard, now).is_some()) else {
            continue;
        };
        let names = (0..SLICES).map(|slice| parent(Slice(slice)));
        let taken = names.filter(|name| cut.takes(None, name));
        parents.extend(taken.map(|name| (name.into(), incarnation.clone())));
    }
    parents
}

/// A controller whose slices belong to different shards, if there are several.
fn controller(n_shards: u16) -> ControllerUid {
    let mut uids = (0..8).map(|n| ControllerUid::new(format!("c{n}")));
    let home = |uid: &ControllerUid, slice| shard_of(uid, Slice(slice), n_shards);
    let found = uids.find(|uid| home(uid, 0) != home(uid, 1));
    found.unwrap_or_else(|| ControllerUid::new("c"))
}

/// A parent of this slice.
fn parent(slice: Slice) -> String {
    let mut names = (0..32).map(|n| format!("p{n}"));
    let found = names.find(|name| slice_of(None, name, SLICES) == slice);
    found.unwrap_or_default()
}
