//! The words the whole system shares: custom resources, hook bodies, ids, names; and the rules about them.
//!
//! Pure: no clock, no I/O, no randomness.

pub mod id;
pub mod resource;
pub mod shard_map;
