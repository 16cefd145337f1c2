//! What the fleet driver tells the code that runs shards, and what that code answers.

use std::time::Duration;

use metashard_api::id::ShardId;
use metashard_fleet::{
    message::{Claim, LastWritten, Load},
    worker::Freshness,
};

/// From the fleet driver. `Standing` is published before each command, so its authority is in force already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShardCommand {
    /// Show that commands are still taken; answer `DispatcherAlive`. Without an answer the Lease is not renewed.
    Ping,
    /// Fill the caches that this shard needs; answer `Warmed`.
    Warm(ShardId),
    /// Serve this ownership as soon as its caches are fresh; answer `Fresh` then.
    ///
    /// Told again for the same ownership, only the freshness has changed: the release of the old owner became known
    /// after the map did.
    Start {
        /// The ownership.
        claim: Claim,
        /// What its caches must have seen before its first sync.
        freshness: Freshness,
    },
    /// Take no more keys of it, cancel waits, let running syncs end within `grace` and then cancel them, close the
    /// gate, wait for what is in flight; answer `Drained`.
    Drain {
        /// The ownership.
        claim: Claim,
        /// Length from receipt.
        grace: Duration,
    },
    /// It is lost: cancel its syncs at once, close the gate, wait for what is in flight; answer `Drained`.
    /// May follow a `Drain` of the same ownership; one answer is enough.
    Drop {
        /// The ownership.
        claim: Claim,
    },
    /// The acting deadline has passed: cancel all running syncs and queue their keys again.
    Suspend,
    /// Go on.
    Resume,
}

/// From the code that runs shards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShardEvent {
    /// The answer to a `Ping`.
    DispatcherAlive,
    /// The caches of this shard are filled.
    Warmed(ShardId),
    /// The caches of this ownership are fresh; it works.
    Fresh {
        /// The ownership.
        claim: Claim,
    },
    /// Gate closed, nothing in flight.
    Drained {
        /// The ownership.
        claim: Claim,
        /// For each kind that the shard's controllers use: the newest resourceVersion that a write was answered with,
        /// or else the one that its cache had reached when it was fresh. Empty: not known; the next owner then lists.
        last_written: Vec<LastWritten>,
    },
    /// What the work has cost since the last such event; every 5 s.
    Load(Load),
}
