//! What must change: merge, diff, claim, apply, finalize. Objects in, a plan out.
//!
//! Pure: no clock, no I/O, no randomness. Start reading at [`sync::SyncMachine`], one pass over one parent;
//! the modules below come in the order in which it uses them.

pub mod controller;
pub mod memory;
pub mod object;
pub mod pretend;
pub mod recording;
pub mod requeue;
pub mod sync;
pub mod write;

mod answer;
mod children;
mod claim;
mod decorate;
mod fields;
pub mod fights;
pub mod finalize;
mod outcome;
mod policies;
pub mod related;
mod request;
pub mod revision;
mod serverside;
mod status;

pub mod apply;
pub mod diff;
pub mod lastapplied;
