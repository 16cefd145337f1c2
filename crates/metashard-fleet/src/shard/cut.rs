//! Which parents of a controller belong to one shard.

use metashard_api::{
    id::{ControllerUid, ShardId, Slice},
    shard_map::MAX_SLICES,
};

use super::{shard_of, slice_of};

/// The slices of a controller that belong to one shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cut {
    /// Into how many slices the controller is split.
    slices: u16,
    /// One bit for each slice of the shard.
    mine: u64,
}

impl Cut {
    /// All parents: the controller is not split.
    pub const WHOLE: Self = Self { slices: 1, mine: 1 };

    /// The part of `controller`, split into `slices`, that belongs to `shard`; `None`: nothing of it.
    pub fn of(
        controller: &ControllerUid,
        slices: u16,
        shard: ShardId,
        shard_count: u16,
    ) -> Option<Self> {
        let slices = slices.clamp(1, MAX_SLICES);
        let mine = (0..slices)
            .filter(|slice| shard_of(controller, Slice(*slice), shard_count) == shard)
            .fold(0, |mine, slice| mine | 1 << slice);
        (mine != 0).then_some(Self { slices, mine })
    }

    /// Into how many slices the controller is split.
    pub fn slices(self) -> u16 {
        self.slices
    }

    /// Its slices, in order.
    pub fn mine(self) -> impl Iterator<Item = Slice> {
        (0..self.slices).map(Slice).filter(move |it| self.has(*it))
    }

    /// Whether it is the part that speaks for the controller as a whole: the one with slice 0.
    pub fn leads(self) -> bool {
        self.has(Slice(0))
    }

    /// Whether the parent of this name belongs to it. Costs nothing if the controller is not split.
    pub fn takes(self, namespace: Option<&str>, name: &str) -> bool {
        self.slices == 1 || self.has(slice_of(namespace, name, self.slices))
    }

    fn has(self, slice: Slice) -> bool {
        self.mine & (1 << slice.0) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parent_belongs_to_exactly_one_shard_however_the_controller_is_split() {
        for n_controllers in 0..20 {
            let controller = ControllerUid::new(format!("uid-{n_controllers}"));
            for slices in [1, 2, 8, 64] {
                let cuts: Vec<Cut> = (0..16)
                    .filter_map(|shard| Cut::of(&controller, slices, ShardId(shard), 16))
                    .collect();
                for n in 0..50 {
                    let name = format!("parent-{n}");
                    let takers = cuts.iter().filter(|cut| cut.takes(Some("ns"), &name));
                    assert_eq!(takers.count(), 1, "{controller} in {slices}");
                }
                assert_eq!(cuts.iter().filter(|cut| cut.leads()).count(), 1);
                let n_slices: usize = cuts.iter().map(|cut| cut.mine().count()).sum();
                assert_eq!(n_slices, usize::from(slices));
            }
        }
    }

    #[test]
    fn a_controller_that_is_not_split_belongs_to_one_shard_as_a_whole() {
        let controller = ControllerUid::new("uid");
        let home = shard_of(&controller, Slice(0), 16);

        assert_eq!(Cut::of(&controller, 1, home, 16), Some(Cut::WHOLE));
        assert_eq!(
            Cut::of(&controller, 1, ShardId((home.0 + 1) % 16), 16),
            None
        );
    }
}
