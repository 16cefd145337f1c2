//! Who does the work and when: election, membership, placement, hand-over, and the work queue.
//!
//! Pure machines and functions: events in, actions out. No clock, no sockets, no randomness.

#![warn(clippy::wildcard_enum_match_arm)] // a new input must be thought about in every state

pub mod election;
pub mod handover;
pub mod invariants;
pub mod leader;
pub mod lease;
pub mod map;
pub mod membership;
pub mod message;
#[cfg(all(test, feature = "model"))]
mod model;
pub mod monitor;
pub mod placement;
pub mod queue;
pub mod record;
pub mod recording;
pub mod rules;
pub mod shard;
pub mod shards;
#[cfg(test)]
mod testing;
pub mod time;
pub mod wishes;
mod witness;
pub mod worker;
