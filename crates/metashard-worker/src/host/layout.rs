//! Where controllers belong, by the newest map that this worker has seen.

use std::{collections::BTreeSet, sync::Arc};

use metashard_api::id::{ControllerUid, ShardId};
use metashard_fleet::{
    map::Map,
    shard::{self, Cut},
    worker::Standing,
};

/// What of a map says where controllers belong. Nothing belongs anywhere before there is one.
#[derive(Debug, Default)]
pub(super) struct Layout(Option<(Arc<Map>, shard::Layout)>);

impl Layout {
    /// Goes over to the map of `standing`.
    pub(super) fn look(&mut self, standing: &Standing) {
        let is_known = match (&self.0, standing.map()) {
            (Some((old, _)), Some(new)) => Arc::ptr_eq(old, new),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if !is_known {
            let map = standing.map();
            self.0 = map.map(|map| (Arc::clone(map), shard::Layout::of(&map.spec)));
        }
    }

    /// Into how many slices a controller is split.
    pub(super) fn slices(&self, controller: &ControllerUid) -> u16 {
        self.get().map_or(1, |it| it.slices(controller))
    }

    /// All shards of a controller.
    pub(super) fn shards(&self, controller: &ControllerUid) -> BTreeSet<ShardId> {
        let shards = self.get().map(|it| it.shards(controller));
        shards.unwrap_or_default()
    }

    /// The shard of the first slice: what concerns the controller as a whole is done there.
    pub(super) fn home(&self, controller: &ControllerUid) -> Option<ShardId> {
        self.get().map(|it| it.home(controller))
    }

    /// What of a controller belongs to a shard, if anything.
    pub(super) fn cut(&self, controller: &ControllerUid, shard: ShardId) -> Option<Cut> {
        self.get()?.cut(controller, shard)
    }

    fn get(&self) -> Option<&shard::Layout> {
        self.0.as_ref().map(|(_, layout)| layout)
    }
}
