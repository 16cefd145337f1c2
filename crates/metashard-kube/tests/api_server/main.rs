//! The talk with the API server, against a real one.

mod authority;
mod discovery;
mod events;
mod faults;
mod gate;
mod informer;
mod kit;
mod lease;
mod pages;
mod placement;
mod proxy;
mod pulse;
mod scripted;
mod shard_map;
