//! All talk with the API server: connections, discovery, caches of bytes, Leases, the write gate, Events.
//!
//! Nothing else in the workspace holds a connection to it. What one identity reads is cached for that identity only;
//! what is written for a shard passes the write gate, which asks for an [`identity::Identity`] and an authority.
//!
//! Objects are kept as the bytes that they came in.

pub mod access;
pub mod client;
pub mod crd;
pub mod discovery;
pub mod error;
pub mod events;
pub mod gate;
pub mod identity;
pub mod informer;
mod latest;
pub mod lease;
pub mod metrics;
pub mod migration;
pub mod placement;
pub mod shard_map;
pub mod status;
mod store;
pub mod system;
