//! Where controllers belong, read from a map once, and what differs between two maps.

use std::collections::{BTreeMap, BTreeSet};

use metashard_api::{
    id::{ControllerUid, ShardId, Slice},
    shard_map::{ShardMapSpec, Split},
};
use serde::{Deserialize, Serialize};

use super::{Cut, shard_of};

/// Where controllers belong by one map: every question about it is answered here, so that nobody takes the number of shards
/// from one map and the splits from another.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Layout {
    shard_count: u16,
    /// Slices of the controllers that have more than one.
    splits: BTreeMap<ControllerUid, u16>,
}

/// One controller that is split otherwise in another map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Recut {
    /// Slices before.
    pub before: u16,
    /// Slices after.
    pub after: u16,
}

impl Layout {
    /// That of `spec`. A map without shards counts as one of a single shard.
    pub fn of(spec: &ShardMapSpec) -> Self {
        let mut splits = BTreeMap::new();
        for split in &spec.splits {
            // Of several the first one counts.
            splits
                .entry(ControllerUid::new(split.controller.as_str()))
                .or_insert_with(|| split.effective());
        }
        splits.retain(|_, slices| *slices > 1);
        Self {
            shard_count: spec.shard_count,
            splits,
        }
    }

    /// Into how many slices `controller` is split.
    pub fn slices(&self, controller: &ControllerUid) -> u16 {
        self.splits.get(controller).copied().unwrap_or(1)
    }

    /// The shard of one slice of `controller`.
    pub fn shard(&self, controller: &ControllerUid, slice: Slice) -> ShardId {
        shard_of(controller, slice, self.shard_count)
    }

    /// The shard of the first slice: what concerns the controller as a whole is done there.
    pub fn home(&self, controller: &ControllerUid) -> ShardId {
        self.shard(controller, Slice::default())
    }

    /// The shards of all slices of `controller`.
    pub fn shards(&self, controller: &ControllerUid) -> BTreeSet<ShardId> {
        self.shards_in(controller, self.slices(controller))
    }

    /// The part of `controller` that belongs to `shard`; `None`: nothing of it.
    pub fn cut(&self, controller: &ControllerUid, shard: ShardId) -> Option<Cut> {
        Cut::of(controller, self.slices(controller), shard, self.shard_count)
    }

    /// Every shard that a slice of `controller` belongs to before or after a change.
    pub fn concerned(&self, controller: &ControllerUid, recut: Recut) -> BTreeSet<ShardId> {
        let mut shards = self.shards_in(controller, recut.before);
        shards.extend(self.shards_in(controller, recut.after));
        shards
    }

    fn shards_in(&self, controller: &ControllerUid, slices: u16) -> BTreeSet<ShardId> {
        (0..slices.max(1))
            .map(|slice| self.shard(controller, Slice(slice)))
            .collect()
    }

    /// The controllers with more slices than one.
    pub fn split(&self) -> impl Iterator<Item = (&ControllerUid, u16)> {
        self.splits
            .iter()
            .map(|(controller, slices)| (controller, *slices))
    }

    /// The controllers that `next` splits otherwise.
    pub fn changes(&self, next: &Self) -> BTreeMap<ControllerUid, Recut> {
        let mut all: BTreeSet<&ControllerUid> = self.splits.keys().collect();
        all.extend(next.splits.keys());
        let changes = all.into_iter().map(|controller| {
            let recut = Recut {
                before: self.slices(controller),
                after: next.slices(controller),
            };
            (controller.clone(), recut)
        });
        changes.filter(|(_, it)| it.before != it.after).collect()
    }

    /// The same with `changes`.
    #[must_use]
    pub fn with(&self, changes: &BTreeMap<ControllerUid, Recut>) -> Self {
        let mut splits = self.splits.clone();
        let after = changes.iter().map(|(it, recut)| (it.clone(), recut.after));
        splits.extend(after);
        splits.retain(|_, slices| *slices > 1);
        Self {
            shard_count: self.shard_count,
            splits,
        }
    }

    /// The splits as a map writes them.
    pub fn to_spec(&self) -> Vec<Split> {
        self.split()
            .map(|(controller, slices)| Split {
                controller: controller.to_string(),
                slices,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(of: &[(&str, u16)]) -> Layout {
        Layout::of(&ShardMapSpec {
            splits: of
                .iter()
                .map(|(controller, slices)| Split {
                    controller: (*controller).to_owned(),
                    slices: *slices,
                })
                .collect(),
            ..ShardMapSpec::default()
        })
    }

    #[test]
    fn changes_lead_from_one_map_to_the_next() {
        let before = layout(&[("a", 2), ("b", 4), ("c", 8)]);
        let after = layout(&[("a", 2), ("b", 8), ("d", 16)]);

        let changes = before.changes(&after);

        let named: Vec<_> = changes.keys().map(ControllerUid::as_str).collect();
        assert_eq!(named, ["b", "c", "d"]);
        assert_eq!(before.with(&changes), after);
        assert_eq!(after.changes(&after), BTreeMap::new());
    }

    #[test]
    fn of_several_numbers_of_slices_the_first_counts_and_one_that_makes_no_sense_as_one() {
        for (slices, counted) in [(0, 1), (1, 1), (2, 2), (3, 1), (64, 64), (128, 1)] {
            let layout = layout(&[("c", slices), ("c", 32)]);

            assert_eq!(layout.slices(&ControllerUid::new("c")), counted);
            assert_eq!(layout.slices(&ControllerUid::new("d")), 1);
        }
    }

    #[test]
    fn every_slice_has_a_shard_of_its_controllers_and_the_first_one_is_its_home() {
        let mut layout = layout(&[("a", 8)]);
        layout.shard_count = 64;
        let (split, whole) = (ControllerUid::new("a"), ControllerUid::new("b"));

        let slices = (0..8).map(|slice| layout.shard(&split, Slice(slice)));
        assert_eq!(slices.collect::<BTreeSet<_>>(), layout.shards(&split));
        assert!(layout.shards(&split).contains(&layout.home(&split)));
        assert_eq!(layout.shards(&whole), [layout.home(&whole)].into());
        let cuts = (0..64).filter_map(|shard| layout.cut(&whole, ShardId(shard)));
        assert_eq!(cuts.collect::<Vec<_>>(), [Cut::WHOLE]);

        let merged = Recut {
            before: 8,
            after: 1,
        };
        assert_eq!(layout.concerned(&split, merged), layout.shards(&split));
    }

    #[test]
    fn splits_are_written_as_they_are_read() {
        let split = layout(&[("b", 4), ("a", 2), ("a", 8), ("one", 1), ("odd", 3)]);

        let spec = ShardMapSpec {
            splits: split.to_spec(),
            ..ShardMapSpec::default()
        };

        assert_eq!(spec.splits.len(), 2, "{spec:?}");
        assert_eq!(Layout::of(&spec), split);
        assert_eq!(split.slices(&ControllerUid::new("a")), 2);
    }
}
