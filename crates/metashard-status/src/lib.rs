//! Service: health, metrics and status endpoints.
//!
//! It listens and answers; what there is to say comes in from others: a metrics registry, and [`check::Check`]s that
//! the other services report to.

pub mod address;
pub mod answers;
pub mod check;
mod health;
mod metrics;
pub mod options;
mod pprof;
pub mod service;
