//! Which controllers are split, read from a map once, and what differs between two maps.

use std::collections::{BTreeMap, BTreeSet};

use metashard_api::{
    id::{ControllerUid, ShardId},
    shard_map::{ShardMapSpec, Split},
};
use serde::{Deserialize, Serialize};

use super::shards_of;

/// The controllers that a map splits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Splits(BTreeMap<ControllerUid, u16>);

/// One controller that is split otherwise in another map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Recut {
    /// Slices before.
    pub before: u16,
    /// Slices after.
    pub after: u16,
}

impl Splits {
    /// Those of `spec`.
    pub fn of(spec: &ShardMapSpec) -> Self {
        let mut splits = BTreeMap::new();
        for split in &spec.splits {
            // As `ShardMapSpec::slices_of`: the first one counts.
            splits
                .entry(ControllerUid::new(split.controller.as_str()))
                .or_insert_with(|| split.effective());
        }
        splits.retain(|_, slices| *slices > 1);
        Self(splits)
    }

    /// Into how many slices `controller` is split.
    pub fn slices(&self, controller: &ControllerUid) -> u16 {
        self.0.get(controller).copied().unwrap_or(1)
    }

    /// The controllers with more slices than one.
    pub fn iter(&self) -> impl Iterator<Item = (&ControllerUid, u16)> {
        self.0
            .iter()
            .map(|(controller, slices)| (controller, *slices))
    }

    /// The controllers that `next` splits otherwise.
    pub fn changes(&self, next: &Self) -> BTreeMap<ControllerUid, Recut> {
        let mut all: BTreeSet<&ControllerUid> = self.0.keys().collect();
        all.extend(next.0.keys());
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
        let mut splits = self.0.clone();
        let after = changes.iter().map(|(it, recut)| (it.clone(), recut.after));
        splits.extend(after);
        splits.retain(|_, slices| *slices > 1);
        Self(splits)
    }

    /// As a map writes them.
    pub fn to_spec(&self) -> Vec<Split> {
        self.iter()
            .map(|(controller, slices)| Split {
                controller: controller.to_string(),
                slices,
            })
            .collect()
    }
}

impl Recut {
    /// Every shard that a slice of `controller` belongs to before or after.
    pub fn shards(self, controller: &ControllerUid, shard_count: u16) -> BTreeSet<ShardId> {
        let mut shards = shards_of(controller, self.before, shard_count);
        shards.extend(shards_of(controller, self.after, shard_count));
        shards
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn splits(of: &[(&str, u16)]) -> Splits {
        Splits::of(&ShardMapSpec {
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
        let before = splits(&[("a", 2), ("b", 4), ("c", 8)]);
        let after = splits(&[("a", 2), ("b", 8), ("d", 16)]);

        let changes = before.changes(&after);

        let named: Vec<_> = changes.keys().map(ControllerUid::as_str).collect();
        assert_eq!(named, ["b", "c", "d"]);
        assert_eq!(before.with(&changes), after);
        assert_eq!(after.changes(&after), BTreeMap::new());
    }

    #[test]
    fn splits_are_written_as_they_are_read() {
        let split = splits(&[("b", 4), ("a", 2), ("a", 8), ("one", 1), ("odd", 3)]);

        let spec = ShardMapSpec {
            splits: split.to_spec(),
            ..ShardMapSpec::default()
        };

        assert_eq!(spec.splits.len(), 2, "{spec:?}");
        assert_eq!(Splits::of(&spec), split);
        assert_eq!(split.slices(&ControllerUid::new("a")), 2);
    }
}
