//! The write gate: where the right to write is checked, right before a write is sent.
//!
//! A write needs an [`Identity`] and an [`Authority`]; code that has none of them cannot write. Every request runs in a
//! task of its own that ends with the answer or with its time-out, whatever becomes of the caller, and is counted for
//! its ownership of a shard until then: that is what lets a drain know that nothing is in flight any more.

mod claims;
mod request;

use std::{sync::Arc, time::Duration};

use metashard_fleet::{
    message::{Claim, LastWritten},
    worker::Authority,
};
use metashard_reconcile::{
    object::Object,
    write::{Aim, Op, Write, WriteError, WriteResult},
};
use metashard_runtime::task;
use tokio::sync::Semaphore;
use tracing::debug;

use self::claims::{Claims, Entry};
pub use self::request::{Wire, wire};
use crate::{
    client::{Clients, object},
    error::{Cause, Error},
    identity::Identity,
};

/// Longest time-out of a write; an authority is usually shorter. A write that takes longer is tried again.
pub const LONGEST_WRITE: Duration = Duration::from_secs(10);

/// A write is not begun with less authority than this left: it would hardly be answered in time, and its end not known.
pub const LEAST_AUTHORITY: Duration = Duration::from_millis(100);

/// Writes in flight at once, over all shards; each has a connection of its own.
const MAX_IN_FLIGHT: usize = 32;

/// Lets writes through while they have authority. Cheap to clone.
#[derive(Debug, Clone)]
pub struct WriteGate {
    inner: Arc<Inner>,
    observes: bool,
}

#[derive(Debug)]
struct Inner {
    clients: Clients,
    claims: Claims,
    slots: Arc<Semaphore>,
}

impl WriteGate {
    /// A gate that is closed for every ownership.
    pub fn new(clients: &Clients) -> Self {
        Self {
            inner: Arc::new(Inner {
                clients: clients.clone(),
                claims: Claims::default(),
                slots: Arc::new(Semaphore::new(MAX_IN_FLIGHT)),
            }),
            observes: false,
        }
    }

    /// The same gate for one who only observes what would be written: no write is sent, each is
    /// [`WriteError::Observed`].
    #[must_use]
    pub fn observing(&self) -> Self {
        Self {
            observes: true,
            ..self.clone()
        }
    }

    /// Whether writes are only observed.
    pub fn observes(&self) -> bool {
        self.observes
    }

    /// Lets writes of `claim` through from now on. The gate of an older ownership of the same shard closes.
    pub fn open(&self, claim: Claim) {
        self.inner.claims.open(claim);
    }

    /// Lets no write of `claim` through any more. Those that were sent go on; see [`Self::drained`].
    pub fn close(&self, claim: Claim) {
        self.inner.claims.close(claim);
    }

    /// Closes the gate for `claim`, and returns once every write of it that was sent is answered or past its time-out:
    /// for each resource written to, how far the writes had come.
    ///
    /// It takes no longer than [`LONGEST_WRITE`]. A delete is not in the result: its answer names no resourceVersion.
    pub async fn drained(&self, claim: Claim) -> Vec<LastWritten> {
        self.inner.claims.close(claim);
        self.inner.claims.drained(claim).await
    }

    /// Returns once nothing of `claim` was in flight for a moment, or everything that was is past its time-out. The gate
    /// stays open.
    pub async fn quiet(&self, claim: Claim) {
        tokio::select! {
            _ = self.inner.claims.drained(claim) => {}
            () = self.inner.clients.clock().sleep(LONGEST_WRITE) => {}
        }
    }

    /// How many writes of `claim` are in flight.
    pub fn in_flight(&self, claim: Claim) -> usize {
        self.inner.claims.in_flight(claim)
    }

    /// Carries out one write, on behalf of `identity`, by the right of `authority`.
    ///
    /// It is not sent without [`LEAST_AUTHORITY`], or if the gate is closed for the authority's ownership. Once it is
    /// sent, dropping the future neither recalls nor ends it.
    ///
    /// # Errors
    ///
    /// [`WriteError::Unavailable`] is also the end of a write whose answer did not come in time: it may have happened.
    pub async fn write(
        &self,
        identity: &Identity,
        authority: &Authority,
        write: &Write,
    ) -> WriteResult {
        let result = if self.observes {
            Err(WriteError::Observed)
        } else {
            self.admitted(identity, authority, write).await
        };
        let metrics = self.inner.clients.metrics();
        metrics.write(verb(&write.op), outcome(&result), write.purpose.as_str());
        if matches!(result, Err(WriteError::NoAuthority)) {
            metrics.fenced();
        }
        if let Err(error) = &result {
            debug!(%write, shard = %authority.shard(), epoch = %authority.epoch(), %error, "write refused");
        }
        result
    }

    async fn admitted(
        &self,
        identity: &Identity,
        authority: &Authority,
        write: &Write,
    ) -> WriteResult {
        let inner = &self.inner;
        // Whoever waits here has sent nothing yet; the semaphore is never closed.
        let Ok(slot) = Arc::clone(&inner.slots).acquire_owned().await else {
            return Err(WriteError::NoAuthority);
        };
        inner.clients.limit().admit(inner.clients.clock()).await;
        let timeout = authority
            .remaining(inner.clients.clock().now())
            .min(LONGEST_WRITE);
        if timeout < LEAST_AUTHORITY {
            return Err(WriteError::NoAuthority);
        }
        let Some(entry) = inner.claims.enter(authority) else {
            return Err(WriteError::NoAuthority);
        };
        let (clients, identity, write) = (inner.clients.clone(), identity.clone(), write.clone());
        let sent = task::spawn("write", async move {
            let result = send(&clients, &identity, &write, &entry, timeout).await;
            drop((entry, slot));
            result
        });
        sent.await
            .unwrap_or_else(|error| Err(WriteError::Unavailable(error.to_string())))
    }
}

/// Sends one write and waits for its answer, at most `timeout`.
async fn send(
    clients: &Clients,
    identity: &Identity,
    write: &Write,
    entry: &Entry,
    timeout: Duration,
) -> WriteResult {
    let began = clients.clock().now().mono;
    let call = request::of(write, identity, timeout).user_agent(entry.user_agent());
    let answered = clients.writes().call(call).await;
    clients
        .metrics()
        .write_took(verb(&write.op), clients.clock().now().mono.since(began));
    let answer = answered.map_err(|error| refused(&error, &write.op))?;
    if matches!(write.op, Op::Delete { .. }) {
        // A `Status`, or the object that waits for its finalizers: its deletion is seen in the cache.
        return Ok(None);
    }
    let object = object(&answer).map_err(|error| refused(&error, &write.op))?;
    if !matches!(
        write.op,
        Op::TryCreate { .. } | Op::Apply { aim: Aim::Try, .. }
    ) {
        entry.written(&write.resource, object.resource_version());
    }
    Ok(Some(object))
}

/// What a failed call means to a sync.
fn refused(error: &Error, op: &Op) -> WriteError {
    let refusal = match &error.cause {
        Cause::Refused(refusal) => refusal,
        // The write was carried out, but what it led to is not known.
        Cause::Answer(_) | Cause::TimedOut(_) | Cause::Unreachable(_) => {
            return WriteError::Unavailable(metashard_runtime::log::chain(error));
        }
    };
    match (refusal.code.as_u16(), refusal.reason.as_str()) {
        // A create in a namespace that is gone is refused with 404 too; nothing to wait for there either.
        (404, _) => WriteError::NotFound,
        (409, "AlreadyExists") => WriteError::AlreadyExists,
        // It carries a version that no object has.
        (409, "Conflict")
            if matches!(
                op,
                Op::Apply {
                    aim: Aim::Create,
                    ..
                }
            ) =>
        {
            WriteError::AlreadyExists
        }
        (409, _) if matches!(op, Op::Create { .. } | Op::TryCreate { .. }) => {
            WriteError::Unavailable(refusal.to_string())
        }
        (409, _) => WriteError::Conflict,
        (403, _) => WriteError::Forbidden(refusal.message.clone()),
        _ if error.is_transient() => WriteError::Unavailable(refusal.to_string()),
        _ => WriteError::Invalid(refusal.message.clone()),
    }
}

fn verb(op: &Op) -> &'static str {
    match op {
        Op::Create { .. } => "create",
        Op::Update { .. } => "update",
        Op::UpdateStatus { .. } => "update_status",
        Op::Apply { aim: Aim::Try, .. } => "try_apply",
        Op::Apply { .. } => "apply",
        Op::TryCreate { .. } => "try_create",
        Op::Delete { .. } => "delete",
    }
}

fn outcome(result: &Result<Option<Arc<Object>>, WriteError>) -> &'static str {
    match result {
        Ok(_) => "accepted",
        Err(WriteError::NotFound) => "not_found",
        Err(WriteError::Conflict) => "conflict",
        Err(WriteError::AlreadyExists) => "already_exists",
        Err(WriteError::Forbidden(_)) => "forbidden",
        Err(WriteError::Invalid(_)) => "invalid",
        Err(WriteError::Unavailable(_)) => "unavailable",
        Err(WriteError::Observed) => "observed",
        Err(WriteError::NoAuthority) => "no_authority",
    }
}
