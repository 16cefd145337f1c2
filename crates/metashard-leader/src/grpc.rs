//! The gRPC server: one bidirectional stream a worker. It speaks the protocol and decides nothing.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use metashard_api::{
    id::{Incarnation, ReplicaId},
    shard_map::MAX_SHARDS,
};
use metashard_fleet::message::{FromLeader, FromWorker};
use metashard_proto::{MAX_MESSAGE_BYTES, wire};
use metashard_runtime::{
    clock::Clock,
    log::chain,
    net::Listener,
    shutdown::Token,
    task,
    tls::{self, Authority, Subject},
};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming, transport::Server};
use tracing::{debug, warn};
use wire::fleet_server::{Fleet, FleetServer};

use crate::tls::{Own, accept};

/// How often a silent connection is probed, and how long an answer may take.
const PROBE: (Duration, Duration) = (Duration::from_secs(20), Duration::from_secs(5));

/// Streams of one connection: a worker needs one.
const MAX_STREAMS: u32 = 100;

/// Orders that wait for a slow worker: room for one of each kind for every shard, since a first map gives all shards to
/// one worker at once. A worker that is behind by more has its session closed, and says Hello anew.
const OUTBOX: usize = 3 * MAX_SHARDS as usize;

/// Messages of all workers that wait for the leader machine; workers wait once it is full.
const INBOX: usize = 256;

/// What happened on a session.
#[derive(Debug)]
pub(crate) enum SessionEvent {
    /// The worker said this; the first is its Hello.
    Said(Incarnation, FromWorker),
    /// The newest session of this incarnation has ended.
    Closed(Incarnation),
}

/// The open sessions.
#[derive(Debug)]
pub(crate) struct Sessions {
    open: Mutex<BTreeMap<Incarnation, Open>>,
    next: AtomicU64,
    /// Whether this replica leads: others are sent away.
    leads: AtomicBool,
    events: mpsc::Sender<SessionEvent>,
}

#[derive(Debug)]
struct Open {
    number: u64,
    orders: Orders,
}

type Orders = mpsc::Sender<Result<wire::LeaderMessage, Status>>;

/// The listening server.
pub struct GrpcServer {
    listener: Listener,
    own: Own,
    sessions: Arc<Sessions>,
    events: mpsc::Receiver<SessionEvent>,
}

impl GrpcServer {
    /// Will serve the connections of `listener`, as `subject`; serves nobody yet.
    ///
    /// # Errors
    ///
    /// When `authority` issues no usable certificate.
    pub fn new(
        listener: impl Into<Listener>,
        authority: &Arc<Authority>,
        subject: &Subject,
        clock: Clock,
    ) -> Result<Self, tls::Error> {
        let own = Own::new(Arc::clone(authority), subject.clone(), clock)?;
        let (sender, events) = mpsc::channel(INBOX);
        let sessions = Arc::new(Sessions {
            open: Mutex::default(),
            next: AtomicU64::new(0),
            leads: AtomicBool::new(false),
            events: sender,
        });
        Ok(Self {
            listener: listener.into(),
            own,
            sessions,
            events,
        })
    }

    /// Starts to serve, until `stop`.
    pub(crate) fn start(self, stop: Token) -> (Arc<Sessions>, mpsc::Receiver<SessionEvent>) {
        let sessions = Arc::clone(&self.sessions);
        let incoming = accept(self.listener, self.own, stop.clone());
        let service = FleetServer::new(Service(self.sessions))
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        let server = Server::builder()
            .http2_keepalive_interval(Some(PROBE.0))
            .http2_keepalive_timeout(Some(PROBE.1))
            .max_concurrent_streams(MAX_STREAMS)
            .add_service(service);
        task::spawn("grpc", async move {
            let incoming = ReceiverStream::new(incoming);
            let ended = server
                .serve_with_incoming_shutdown(incoming, stop.into_requested())
                .await;
            if let Err(error) = ended {
                warn!(error = chain(&error), "gRPC server ended");
            }
        });
        (sessions, self.events)
    }
}

impl fmt::Debug for GrpcServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrpcServer")
            .field("listener", &self.listener)
            .finish_non_exhaustive()
    }
}

impl Sessions {
    /// Takes sessions from now on, or ends all and takes none.
    pub(crate) fn set_leads(&self, leads: bool) {
        let mut open = self.open.lock();
        self.leads.store(leads, Ordering::Release);
        if !leads {
            for session in std::mem::take(&mut *open).into_values() {
                session.end(Status::unavailable("this replica leads no more"));
            }
        }
    }

    /// Sends an order; without a session it is dropped.
    pub(crate) fn send(&self, to: &Incarnation, order: FromLeader) {
        let mut open = self.open.lock();
        let Some(session) = open.get(to) else {
            return;
        };
        if session.orders.try_send(Ok(order.into())).is_err() {
            debug!(incarnation = %to, "session given up: the worker does not read");
            open.remove(to);
        }
    }

    /// Opens a session with its Hello, unless the lead was lost since it was asked for: nobody would ever speak on it.
    ///
    /// `room` is for the Hello. That it is told under the lock keeps Hellos and ends in the order in which they count.
    fn open(
        &self,
        hello: FromWorker,
        incarnation: &Incarnation,
        orders: Orders,
        room: mpsc::Permit<'_, SessionEvent>,
    ) -> Option<u64> {
        let mut open = self.open.lock();
        if !self.leads.load(Ordering::Acquire) {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let older = open.insert(incarnation.clone(), Open { number, orders });
        if let Some(older) = older {
            older.end(Status::aborted("replaced by a newer session"));
        }
        room.send(SessionEvent::Said(incarnation.clone(), hello));
        Some(number)
    }

    /// Closes a session, and tells so unless a newer one has replaced it.
    fn close(&self, incarnation: &Incarnation, number: u64, room: mpsc::Permit<'_, SessionEvent>) {
        let mut open = self.open.lock();
        let newest = open.get(incarnation).map(|newest| newest.number);
        if newest.is_none_or(|newest| newest == number) {
            open.remove(incarnation);
            room.send(SessionEvent::Closed(incarnation.clone()));
        }
    }
}

impl Open {
    /// Ends the stream. One that has no room for the reason ends without.
    fn end(self, reason: Status) {
        drop(self.orders.try_send(Err(reason)));
    }
}

struct Service(Arc<Sessions>);

#[tonic::async_trait]
impl Fleet for Service {
    type SessionStream = ReceiverStream<Result<wire::LeaderMessage, Status>>;

    async fn session(
        &self,
        request: Request<Streaming<wire::WorkerMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let not_leader = || Status::failed_precondition("this replica does not lead");
        if !self.0.leads.load(Ordering::Acquire) {
            return Err(not_leader());
        }
        let peer = request
            .extensions()
            .get::<Subject>()
            .cloned()
            .ok_or_else(|| Status::unauthenticated("no certificate"))?;
        let mut said = request.into_inner();
        let hello = next(&mut said)
            .await?
            .ok_or_else(|| Status::invalid_argument("the session ended before its Hello"))?;
        let incarnation = check_hello(&hello, &peer)?;
        let (orders, stream) = mpsc::channel(OUTBOX);
        let room = self.0.events.reserve().await;
        let room = room.map_err(|_| Status::unavailable("this replica ends"))?;
        let number = self
            .0
            .open(hello, &incarnation, orders, room)
            .ok_or_else(not_leader)?;
        let sessions = Arc::clone(&self.0);
        task::spawn("session", async move {
            listen(&sessions, &incarnation, number, said).await;
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }
}

/// A Hello must come first, and from the replica and incarnation that the certificate names.
fn check_hello(hello: &FromWorker, peer: &Subject) -> Result<Incarnation, Status> {
    let FromWorker::Hello {
        replica,
        incarnation,
        ..
    } = hello
    else {
        return Err(Status::invalid_argument("the first message is no Hello"));
    };
    let said: (&ReplicaId, &Incarnation) = (replica, incarnation);
    if said != (&peer.replica, &peer.incarnation) {
        return Err(Status::permission_denied(
            "the Hello names another replica or incarnation than the certificate",
        ));
    }
    Ok(incarnation.clone())
}

/// Hands on what one worker says until the session ends.
async fn listen(
    sessions: &Sessions,
    incarnation: &Incarnation,
    number: u64,
    mut said: Streaming<wire::WorkerMessage>,
) {
    loop {
        match next(&mut said).await {
            Ok(Some(message)) => {
                let event = SessionEvent::Said(incarnation.clone(), message);
                if sessions.events.send(event).await.is_err() {
                    return;
                }
            }
            Ok(None) => break,
            Err(status) => {
                debug!(%incarnation, %status, "session broke");
                break;
            }
        }
    }
    if let Ok(room) = sessions.events.reserve().await {
        sessions.close(incarnation, number, room);
    }
}

async fn next(said: &mut Streaming<wire::WorkerMessage>) -> Result<Option<FromWorker>, Status> {
    let Some(message) = said.message().await? else {
        return Ok(None);
    };
    FromWorker::try_from(message)
        .map(Some)
        .map_err(|error| Status::invalid_argument(error.to_string()))
}

#[cfg(test)]
mod tests;
