//! Which shard a controller, or one slice of it, belongs to, and which parents belong to a slice.

mod cut;
mod layout;

use metashard_api::id::{ControllerUid, ShardId, Slice};
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

pub use self::{
    cut::Cut,
    layout::{Layout, Recut},
};

/// The shard of one slice of a controller, in a map of `shard_count` shards (0 counts as 1).
///
/// It is `xxh3_64` of the uid's text, seeded with the slice's number, modulo the number of shards. All replicas of all
/// versions must agree on it, or two of them would serve one controller at once: it may never change.
pub fn shard_of(controller: &ControllerUid, slice: Slice, shard_count: u16) -> ShardId {
    let hash = xxh3_64_with_seed(controller.as_str().as_bytes(), u64::from(slice.0));
    let shard = hash % u64::from(shard_count.max(1));
    // A remainder of a u16 fits.
    ShardId(u16::try_from(shard).unwrap_or_default())
}

/// The slice of a parent, of a controller that is split into `slices` (0 counts as 1).
///
/// It is `xxh3_64` of `namespace/name`, or of `name` for a cluster-scoped parent, modulo the number of slices. The kind does
/// not count. As with [`shard_of`], it may never change.
pub fn slice_of(namespace: Option<&str>, name: &str, slices: u16) -> Slice {
    let mut hasher = Xxh3::new();
    if let Some(namespace) = namespace {
        hasher.update(namespace.as_bytes());
        hasher.update(b"/");
    }
    hasher.update(name.as_bytes());
    let slice = hasher.digest() % u64::from(slices.max(1));
    // A remainder of a u16 fits.
    Slice(u16::try_from(slice).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard(uid: &str, slice: u16, shard_count: u16) -> u16 {
        shard_of(&ControllerUid::new(uid), Slice(slice), shard_count).0
    }

    #[test]
    fn shards_of_known_controllers_never_change() {
        let uid = "8a1e7f2c-54b3-4c0d-9f6a-2f3d1c0b9e87";
        let other = "00000000-0000-0000-0000-000000000000";

        let shards = [
            shard(uid, 0, 1024),
            shard(uid, 1, 1024),
            shard(uid, 2, 1024),
            shard(uid, 0, 4096),
            shard(other, 0, 1024),
        ];

        assert_eq!(shards, [784, 297, 465, 1808, 745]);
    }

    #[test]
    fn slices_of_known_parents_never_change() {
        let slice = |namespace, name| slice_of(namespace, name, 64).0;

        assert_eq!(
            [
                slice(Some("team-a"), "web"),
                slice(Some("team-b"), "web"),
                slice(None, "web"),
                slice(Some(""), ""),
            ],
            [14, 27, 31, 46]
        );
        let whole = xxhash_rust::xxh3::xxh3_64(b"team-a/web");
        assert_eq!(whole % 64, 14, "the text in one piece");
        assert_eq!(slice_of(Some("team-a"), "web", 1), Slice(0));
        assert_eq!(slice_of(Some("team-a"), "web", 0), Slice(0));
    }

    #[test]
    fn parents_spread_evenly_over_slices_and_half_of_them_stays_when_their_number_doubles() {
        let mut counts = [0_u32; 8];
        for n in 0..8_000 {
            let name = format!("parent-{n}");
            let slice = slice_of(Some("default"), &name, 8).0;
            counts[usize::from(slice)] += 1;
            assert_eq!(slice_of(Some("default"), &name, 16).0 % 8, slice);
        }

        // Mean 1,000, standard deviation 30.
        assert!(
            counts.iter().all(|count| (850..1_150).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn a_map_of_one_shard_or_none_has_one_home() {
        assert_eq!(shard("a", 0, 1), 0);
        assert_eq!(shard("a", 7, 0), 0);
    }

    #[test]
    fn controllers_spread_evenly_over_the_shards() {
        let mut counts = [0_u32; 16];
        for n in 0..16_000 {
            counts[usize::from(shard(&format!("uid-{n}"), 0, 16))] += 1;
        }

        // Mean 1,000, standard deviation 31.
        assert!(
            counts.iter().all(|count| (850..1_150).contains(count)),
            "{counts:?}"
        );
    }
}
