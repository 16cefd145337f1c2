//! The worker: one membership after another, and what it may do in each. See [`Worker`].

mod leave;
mod machine;
mod maps;
mod session;
mod shards;
mod standing;
#[cfg(test)]
mod tests;

use std::time::Duration;

use metashard_api::id::{Incarnation, ReplicaId, ShardId};

pub use self::{
    machine::Worker,
    standing::{Authority, Held, HeldState, Phase, Standing},
};
use serde::{Deserialize, Serialize};

use crate::{
    lease, map,
    message::{Claim, FromLeader, FromWorker, LastWritten},
    record::{About, Seen},
    rules::Rules,
};

/// What a worker is told at its start.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Config {
    /// Name of the replica.
    pub replica: ReplicaId,
    /// What it says of itself in its Lease.
    pub about: About,
    /// `--lease-duration`: whole seconds, at least 2; default 4 s.
    pub lease_duration: Duration,
    /// `--drain-hook-grace`: how long running hook calls may take when the worker drains without a leader; default 2 s.
    pub drain_hook_grace: Duration,
    /// All rules, except in a model.
    pub rules: Rules,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Input {
    /// The watch showed the map.
    MapSeen(map::Seen),
    /// What [`Action::ReadMap`] showed; `None` if there was no answer.
    MapRead(Option<map::Seen>),
    /// A UUID for the next membership, as [`Action::DrawIncarnation`] asked.
    IncarnationDrawn(Incarnation),
    /// How an [`Action::Lease`] that writes ended, or what one that reads showed.
    LeaseAnswered {
        /// Whose Lease it was for.
        incarnation: Incarnation,
        /// The answer.
        answer: lease::Input,
    },
    /// The session that [`Action::OpenSession`] asked for is open; it may close and open again any number of times.
    SessionOpened,
    /// It is closed.
    SessionClosed,
    /// The leader sent this on the open session.
    OrderReceived(FromLeader),
    /// The dispatcher answered a ping.
    DispatcherAnswered,
    /// The caches for this shard are filled.
    Warmed(ShardId),
    /// The caches of this ownership are as new as its [`Freshness`] asks.
    Fresh(Claim),
    /// Gate closed and nothing in flight: the answer to [`Action::Drain`] and to [`Action::Drop`].
    Drained {
        /// The ownership.
        claim: Claim,
        /// Where its writes ended, for each kind of it; empty if not known.
        last_written: Vec<LastWritten>,
    },
    /// The process was told to end within `grace`.
    ShutdownAsked {
        /// Length from now.
        grace: Duration,
    },
}

/// What to do. Carry them out in order, after publishing [`Worker::standing`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Action {
    /// Read the map with a quorum; answer `MapRead` in every case.
    ReadMap,
    /// Draw a UUID; answer `IncarnationDrawn`.
    DrawIncarnation,
    /// Send this for the Lease of `incarnation`; answer `LeaseAnswered` in every case, within a second.
    Lease {
        /// Which incarnation's Lease: `metashard-worker-<incarnation>`.
        incarnation: Incarnation,
        /// The request.
        request: lease::Request,
    },
    /// Keep a session with whoever leads, as this incarnation, until `CloseSession`.
    OpenSession(Incarnation),
    /// End the session and forget what it has not delivered.
    CloseSession,
    /// Send this on the open session; without one, drop it.
    Send(FromWorker),
    /// Say why the incarnation ends.
    ReportLoss(Loss),
    /// Ask the dispatcher for a sign of life.
    PingDispatcher,
    /// Fill the caches for this shard.
    Warm(ShardId),
    /// Serve this ownership, once the caches are fresh. Told again for the same one: only the freshness has changed.
    Start {
        /// The ownership.
        claim: Claim,
        /// What its caches must have seen before its first sync.
        freshness: Freshness,
    },
    /// Take no more keys of it, let what runs end within `grace`, close the gate, wait for what is in flight.
    Drain {
        /// The ownership.
        claim: Claim,
        /// Length from now.
        grace: Duration,
    },
    /// The ownership is lost: cancel what runs, close the gate, wait for what is in flight.
    Drop(Claim),
    /// The deadline has passed: cancel running syncs and queue their keys again.
    Suspend,
    /// The Lease is renewed: go on.
    Resume,
    /// The worker has left; end.
    Finish {
        /// What was not drained in time.
        unfinished: Vec<Claim>,
    },
}

/// What the caches of a new ownership must have seen before its first sync.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Freshness {
    /// The last owner released it: these writes of it.
    Released(Vec<LastWritten>),
    /// It is not known where the last owner's writes ended: all that a list shows that begins now.
    Crash,
}

/// Why an incarnation ends.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Loss {
    /// Its Lease is not its own any more; what a read showed.
    Lease(Seen),
    /// The map was made anew.
    MapReplaced,
    /// A quorum read shows an older map than one seen before: the API server was set back.
    MapWentBack,
    /// The map has another number of shards, which no leader changes: somebody edited it.
    ShardsRenumbered,
}
