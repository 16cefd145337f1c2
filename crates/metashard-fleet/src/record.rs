//! A Lease as this crate sees it: what was read, without its stamps of other machines' clocks.

use serde::{Deserialize, Serialize};
use std::time::Duration;

use metashard_api::id::{Incarnation, ReplicaId};

/// Holder that a leader writes into a worker's Lease whose claim has ended.
pub const FENCED: &str = "fenced";

/// Holder that a leader writes into the Lease of a live worker that does not release.
pub const EVICTED: &str = "evicted";

/// One state of a Lease. Two records of one Lease are the same exactly if uid and resourceVersion are.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Record {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`; compared for equality only.
    pub resource_version: String,
    /// Who holds it.
    pub holder: Holder,
    /// `spec.leaseDurationSeconds` as written: how long the claim lasts without a renewal.
    pub duration: Duration,
    /// Annotation `metashard.io/attempt`: number of the holder's write; 0 if there is none (a foreign holder).
    pub attempt: u64,
    /// What the holder says of itself, kept as it was for the next write.
    pub about: About,
}

/// Who holds a Lease.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Holder {
    /// Nobody: the holder released it (empty or absent `holderIdentity`).
    Released,
    /// Fenced by a leader: its holder's claim had ended.
    Fenced,
    /// Evicted by a leader: its holder must stop, and may act until its own deadline.
    Evicted,
    /// A replica of ours in one incarnation, written `<replica>_<incarnation>`.
    Member(ReplicaId, Incarnation),
    /// Any other text, for example of another program.
    Foreign(String),
}

impl Holder {
    /// Reads `holderIdentity`.
    pub fn parse(text: Option<&str>) -> Self {
        match text.unwrap_or_default() {
            "" => Self::Released,
            FENCED => Self::Fenced,
            EVICTED => Self::Evicted,
            text => match text.rsplit_once('_') {
                Some((replica, incarnation)) if !replica.is_empty() && incarnation.len() == 36 => {
                    Self::Member(ReplicaId::new(replica), Incarnation::new(incarnation))
                }
                _ => Self::Foreign(text.to_owned()),
            },
        }
    }

    /// The text of `holderIdentity`; empty where nobody holds it.
    pub fn to_text(&self) -> String {
        match self {
            Self::Released => String::new(),
            Self::Fenced => FENCED.to_owned(),
            Self::Evicted => EVICTED.to_owned(),
            Self::Member(replica, incarnation) => format!("{replica}_{incarnation}"),
            Self::Foreign(text) => text.clone(),
        }
    }

    /// Whether this is `incarnation` of ours.
    pub fn is_incarnation(&self, incarnation: &Incarnation) -> bool {
        matches!(self, Self::Member(_, it) if it == incarnation)
    }
}

/// What a holder says of itself in its Lease's annotations.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct About {
    /// gRPC address that others reach it at, `host:port`.
    pub address: String,
    /// Version of the program.
    pub version: String,
    /// Zone of its node, if known.
    pub zone: String,
    /// Weight that it can carry relative to others, in hundredths; 0 stands for 100.
    pub capacity: u32,
}

/// The weight that a told capacity stands for, in hundredths: 0 is none told.
pub(crate) fn weight_of(capacity: u32) -> u32 {
    if capacity == 0 { 100 } else { capacity }
}

/// What a read of a Lease, or a watch event, showed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Seen {
    /// It exists like this.
    Present(Record),
    /// It does not exist.
    Absent,
}

/// How a write of a Lease or of the map ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Written<T> {
    /// Accepted; this is the new state.
    Accepted(T),
    /// Refused by its precondition (409), or for a create: it exists already.
    Conflict,
    /// Refused for another reason that a repetition will not mend soon (403, 404, 422); the text says which.
    Refused(String),
    /// No answer in time, or a server error: it may or may not have been carried out.
    Unknown,
}
