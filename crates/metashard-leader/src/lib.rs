//! Service: drives the election, keeps the shard map, serves the assignment gRPC.
//!
//! All decisions are `metashard_fleet::leader`'s; this crate hands it what happened and carries out what it asks for.

pub mod ca;
mod controllers;
pub mod grpc;
mod metrics;
mod report;
mod requests;
mod service;
pub mod shards;
mod tls;
mod wishes;
pub mod witness;

pub use service::{Config, Coordinator, Handle, Parts};
