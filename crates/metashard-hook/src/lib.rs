//! All talk with tenants' hooks: requests spliced from bytes, limits, answers.
//!
//! Start reading at [`Invoker`]. Nothing else in this program opens a connection to what a tenant names.

mod answer;
mod client;
mod connection;
mod endpoint;
mod error;
mod etag;
mod expiry;
mod metrics;
mod pool;
mod probe;
mod redirect;
pub mod retry_after;
mod rope;
mod security;
mod tls;
pub mod url;

pub use client::{Invoker, Request};
pub use endpoint::{Endpoint, Target};
pub use error::Error;
pub use metrics::Metrics;
pub use security::{Certificate, Found, Role};

#[cfg(test)]
mod tests;
