//! What must change: merge, diff, claim, apply, finalize. Objects in, a plan out.
//!
//! Pure: no clock, no I/O, no randomness. Start reading at [`sync::SyncMachine`].

pub mod controller;
pub mod memory;
pub mod object;
mod outcome;
pub mod requeue;
pub mod sync;
pub mod write;
