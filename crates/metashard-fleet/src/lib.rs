//! Who does the work and when: election, membership, placement, hand-over, and the work queue.
//!
//! Pure machines and functions: events in, actions out. No clock, no sockets, no randomness.

pub mod map;
pub mod message;
pub mod record;
pub mod time;
