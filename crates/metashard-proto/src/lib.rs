//! The gRPC contract between leader and workers: generated code and conversions.
//!
//! The protocol is documented in `proto/metashard/fleet/v1/fleet.proto`. Everything beyond this crate speaks
//! `metashard_fleet::message`; what arrives is checked here, once.

pub mod convert;
pub mod wire;

pub use convert::Error;

/// Most bytes of one message, in both directions.
pub const MAX_MESSAGE_BYTES: usize = 1024 * 1024;
