//! Where controllers belong, by the newest map that this worker has seen.

use std::{collections::BTreeSet, sync::Arc};

use metashard_api::id::{ControllerUid, ShardId, Slice};
use metashard_fleet::{
    map::Map,
    shard::{Cut, Splits, shard_of, shards_of},
    worker::Standing,
};

/// What of a map says where controllers belong. Nothing belongs anywhere before there is one.
#[derive(Debug, Default)]
pub(super) struct Layout {
    map: Option<Arc<Map>>,
    splits: Splits,
}

impl Layout {
    /// Goes over to the map of `standing`.
    pub(super) fn look(&mut self, standing: &Standing) {
        let is_known = match (&self.map, standing.map()) {
            (Some(old), Some(new)) => Arc::ptr_eq(old, new),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if !is_known {
            self.map = standing.map().cloned();
            let splits = self.map.as_ref().map(|map| Splits::of(&map.spec));
            self.splits = splits.unwrap_or_default();
        }
    }

    /// Into how many slices a controller is split.
    pub(super) fn slices(&self, controller: &ControllerUid) -> u16 {
        self.splits.slices(controller)
    }

    /// All shards of a controller.
    pub(super) fn shards(&self, controller: &ControllerUid) -> BTreeSet<ShardId> {
        self.count().map_or_else(BTreeSet::new, |count| {
            shards_of(controller, self.slices(controller), count)
        })
    }

    /// The shard of the first slice: what concerns the controller as a whole is done there.
    pub(super) fn home(&self, controller: &ControllerUid) -> Option<ShardId> {
        Some(shard_of(controller, Slice::default(), self.count()?))
    }

    /// What of a controller belongs to a shard, if anything.
    pub(super) fn cut(&self, controller: &ControllerUid, shard: ShardId) -> Option<Cut> {
        let count = self.count()?;
        match self.slices(controller) {
            1 => (self.home(controller) == Some(shard)).then_some(Cut::WHOLE),
            slices => Cut::of(controller, slices, shard, count),
        }
    }

    fn count(&self) -> Option<u16> {
        Some(self.map.as_ref()?.shard_count())
    }
}
