//! Leases, from both sides: [`Hold`] keeps one's own, [`Observation`] judges when another's claim has ended.
//!
//! A holder may act until the *sending* of its last confirmed write, plus the duration it wrote, less a margin;
//! an observer waits the whole duration from the *receipt* of what it saw. So the one has stopped before the other
//! begins, whatever their clocks show. Stamps of other machines are never compared.

mod hold;
mod observation;

use std::time::Duration;

use metashard_api::id::{Incarnation, ReplicaId};

pub use self::{
    hold::{Hold, Input, Status},
    observation::Observation,
};
use serde::{Deserialize, Serialize};

use crate::{
    record::{About, Holder, Record},
    rules::Rules,
};

/// Default of `--lease-duration`.
pub const DEFAULT_DURATION: Duration = Duration::from_secs(4);

/// Longest time that a driver waits for the answer to one [`Request`]; then it reports that there was none.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// Least margin between a holder's deadline and the end of its claim; above 3 s it is a tenth of the duration.
const LEAST_MARGIN: Duration = Duration::from_millis(300);

/// What one incarnation writes into a Lease, and how.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Config {
    /// Name of the replica.
    pub replica: ReplicaId,
    /// Its membership or candidacy.
    pub incarnation: Incarnation,
    /// What it says of itself.
    pub about: About,
    /// How long its claim lasts without a renewal: whole seconds, at least 2.
    pub duration: Duration,
    /// All rules, except in a model.
    pub rules: Rules,
}

/// One request for the API server, about one Lease. The driver carries out one at a time, waits for at most
/// [`REQUEST_TIMEOUT`], and hands back how it ended as an [`Input`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Request {
    /// `POST` this content (uid and resourceVersion are empty).
    Create(Record),
    /// `PUT` this content over the state that its uid and resourceVersion name.
    Put(Record),
    /// Read it with a quorum (`GET` without resourceVersion).
    Read,
}

impl Config {
    /// The holder that it writes.
    pub(crate) fn holder(&self) -> Holder {
        Holder::Member(self.replica.clone(), self.incarnation.clone())
    }
}

/// How long before the end of a claim of `duration` its holder stops acting.
pub fn margin(duration: Duration) -> Duration {
    LEAST_MARGIN.max(duration / 10)
}
