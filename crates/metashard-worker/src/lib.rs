//! Service: keeps this worker's Lease and session, runs the reconcile loops of its shards.

mod catalog;
mod conditions;
mod context;
mod departed;
mod dispatch;
mod feedback;
pub mod fleet;
mod hooks;
mod host;
mod instance;
pub mod journal;
mod key;
mod ledger;
mod meter;
mod metrics;
mod reconcile;
pub mod recordings;
mod related;
mod report;
mod security;
pub mod service;
mod session;
pub mod shards;
mod tenure;
mod trial;
mod triggers;
mod troubles;

pub use context::{Config, MAX_SYNCS};
pub use metashard_reconcile::controller::{Apply, Strategy};
