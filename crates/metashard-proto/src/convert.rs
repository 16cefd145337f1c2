//! Wire messages to `metashard_fleet::message` and back. What makes no sense is refused here, with the field's name.

mod load;

use std::time::Duration;

use metashard_api::{
    id::{Epoch, Incarnation, ReplicaId, Seq, ShardId, Term},
    shard_map::MAX_SHARDS,
};
use metashard_fleet::message::{Claim, FromLeader, FromWorker, LastWritten, Order};

use self::load::load;
use crate::wire;

/// Longest name of a replica or incarnation: a Pod's name has at most 253 bytes.
const MAX_NAME_BYTES: usize = 253;

/// Why a message was refused. The session that carried it should end with `INVALID_ARGUMENT`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A field that must be there is not: an empty message, one of a newer protocol, or a claim left out.
    #[error("read message: {0} is missing")]
    Missing(&'static str),
    /// A shard beyond the largest map.
    #[error("read message: shard {0} is out of range")]
    Shard(u32),
    /// Epoch 0, which no ownership has.
    #[error("read message: claim of shard {0} has epoch 0")]
    NeverOwned(u32),
    /// A text that must not be empty, or one that is too long.
    #[error("read message: {field} has {bytes} bytes")]
    Name {
        /// Which field.
        field: &'static str,
        /// Its length.
        bytes: usize,
    },
    /// A slice beyond the most that a controller is split into.
    #[error("read message: slice {0} is out of range")]
    Slice(u32),
    /// A list that is longer than anybody needs.
    #[error("read message: {field} has {count} entries")]
    TooMany {
        /// Which field.
        field: &'static str,
        /// How many.
        count: usize,
    },
}

impl TryFrom<wire::WorkerMessage> for FromWorker {
    type Error = Error;

    fn try_from(message: wire::WorkerMessage) -> Result<Self, Error> {
        use wire::worker_message::Body;
        Ok(match message.body.ok_or(Error::Missing("body"))? {
            Body::Hello(hello) => Self::Hello {
                replica: ReplicaId::new(name("replica", hello.replica)?),
                incarnation: Incarnation::new(name("incarnation", hello.incarnation)?),
                held: each(hello.held, claim)?,
                released: each(hello.released, claim)?,
            },
            Body::Load(told) => Self::Load(load(told)?),
            Body::WarmReady(ready) => Self::WarmReady {
                shard: shard(ready.shard)?,
            },
            Body::Released(released) => Self::Released {
                claim: claim(released.claim.ok_or(Error::Missing("released.claim"))?)?,
                last_written: each(released.last_written, last_written)?,
            },
            Body::Leaving(leaving) => Self::Leaving {
                grace: Duration::from_millis(leaving.grace_millis),
            },
        })
    }
}

impl From<FromWorker> for wire::WorkerMessage {
    fn from(message: FromWorker) -> Self {
        use wire::worker_message::Body;
        let body = match message {
            FromWorker::Hello {
                replica,
                incarnation,
                held,
                released,
            } => Body::Hello(wire::Hello {
                replica: replica.to_string(),
                incarnation: incarnation.to_string(),
                held: held.into_iter().map(Into::into).collect(),
                released: released.into_iter().map(Into::into).collect(),
            }),
            FromWorker::Load(load) => Body::Load(load.into()),
            FromWorker::WarmReady { shard } => Body::WarmReady(wire::WarmReady {
                shard: shard.0.into(),
            }),
            FromWorker::Released {
                claim,
                last_written,
            } => Body::Released(wire::Released {
                claim: Some(claim.into()),
                last_written: last_written.into_iter().map(Into::into).collect(),
            }),
            FromWorker::Leaving { grace } => Body::Leaving(wire::Leaving {
                grace_millis: millis(grace),
            }),
        };
        Self { body: Some(body) }
    }
}

impl TryFrom<wire::LeaderMessage> for FromLeader {
    type Error = Error;

    fn try_from(message: wire::LeaderMessage) -> Result<Self, Error> {
        use wire::leader_message::Order as Wire;
        let order = match message.order.ok_or(Error::Missing("order"))? {
            Wire::Warm(warm) => Order::Warm {
                shard: shard(warm.shard)?,
            },
            Wire::Assign(assign) => Order::Assign {
                claim: claim(assign.claim.ok_or(Error::Missing("assign.claim"))?)?,
                last_written: each(assign.last_written, last_written)?,
                splits_as_of: (Term(assign.splits_term), Seq(assign.splits_seq)),
            },
            Wire::Drain(drain) => Order::Drain {
                claim: claim(drain.claim.ok_or(Error::Missing("drain.claim"))?)?,
                grace: Duration::from_millis(drain.grace_millis),
            },
        };
        Ok(Self {
            term: Term(message.term),
            seq: Seq(message.seq),
            order,
        })
    }
}

impl From<FromLeader> for wire::LeaderMessage {
    fn from(message: FromLeader) -> Self {
        use wire::leader_message::Order as Wire;
        let order = match message.order {
            Order::Warm { shard } => Wire::Warm(wire::Warm {
                shard: shard.0.into(),
            }),
            Order::Assign {
                claim,
                last_written,
                splits_as_of,
            } => Wire::Assign(wire::Assign {
                claim: Some(claim.into()),
                last_written: last_written.into_iter().map(Into::into).collect(),
                splits_term: splits_as_of.0.0,
                splits_seq: splits_as_of.1.0,
            }),
            Order::Drain { claim, grace } => Wire::Drain(wire::Drain {
                claim: Some(claim.into()),
                grace_millis: millis(grace),
            }),
        };
        Self {
            term: message.term.0,
            seq: message.seq.0,
            order: Some(order),
        }
    }
}

impl From<Claim> for wire::Claim {
    fn from(claim: Claim) -> Self {
        Self {
            shard: claim.shard.0.into(),
            epoch: claim.epoch.0,
        }
    }
}

impl From<LastWritten> for wire::LastWritten {
    fn from(last: LastWritten) -> Self {
        Self {
            resource: last.resource,
            resource_version: last.resource_version,
        }
    }
}

fn each<W, T>(list: Vec<W>, read: impl Fn(W) -> Result<T, Error>) -> Result<Vec<T>, Error> {
    list.into_iter().map(read).collect()
}

fn name(field: &'static str, text: String) -> Result<String, Error> {
    match text.len() {
        1..=MAX_NAME_BYTES => Ok(text),
        bytes => Err(Error::Name { field, bytes }),
    }
}

fn shard(number: u32) -> Result<ShardId, Error> {
    u16::try_from(number)
        .ok()
        .filter(|shard| *shard < MAX_SHARDS)
        .map(ShardId)
        .ok_or(Error::Shard(number))
}

fn claim(claim: wire::Claim) -> Result<Claim, Error> {
    if claim.epoch == 0 {
        return Err(Error::NeverOwned(claim.shard));
    }
    Ok(Claim {
        shard: shard(claim.shard)?,
        epoch: Epoch(claim.epoch),
    })
}

fn last_written(last: wire::LastWritten) -> Result<LastWritten, Error> {
    Ok(LastWritten {
        resource: name("resource", last.resource)?,
        resource_version: name("resource_version", last.resource_version)?,
    })
}

/// Whole milliseconds; more than `u64` holds (584 million years) is cut off.
fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
