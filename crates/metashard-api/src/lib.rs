//! The words the whole system shares: custom resources, hook bodies, ids, names; and the rules about them.
//!
//! Pure: no clock, no I/O, no randomness.

pub mod crd;
pub mod duration;
pub mod endpoint;
pub mod hook;
pub mod id;
pub mod names;
pub mod placement;
pub mod resource;
pub mod selector;
pub mod shard_map;
pub mod v1alpha1;
pub mod validate;
