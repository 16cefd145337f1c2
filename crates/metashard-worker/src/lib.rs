//! Service: keeps this worker's Lease and session, runs the reconcile loops of its shards.

pub mod shards;
