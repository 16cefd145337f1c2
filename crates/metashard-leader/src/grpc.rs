//! The gRPC server: one bidirectional stream a worker. It speaks the protocol and decides nothing.

use std::{
    collections::BTreeMap,
    fmt, io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use metashard_api::id::{Incarnation, ReplicaId};
use metashard_fleet::message::{FromLeader, FromWorker};
use metashard_proto::{MAX_MESSAGE_BYTES, wire};
use metashard_runtime::{
    clock::Clock,
    log::chain,
    shutdown::Token,
    task,
    tls::{self, Authority, Roots, Subject, server_config},
};
use parking_lot::Mutex;
use tokio::{net::TcpListener, sync::mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming, transport::Server};
use tracing::{debug, warn};
use wire::fleet_server::{Fleet, FleetServer};

use crate::tls::accept;

/// How often a silent connection is probed, and how long an answer may take.
const PROBE: (Duration, Duration) = (Duration::from_secs(20), Duration::from_secs(5));

/// Streams of one connection: a worker needs one.
const MAX_STREAMS: u32 = 100;

/// Orders that wait for a slow worker. A worker that is behind by more has its session closed, and says Hello anew.
const OUTBOX: usize = 1024;

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
    orders: mpsc::Sender<Result<wire::LeaderMessage, Status>>,
}

/// The listening server.
pub struct GrpcServer {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    roots: Roots,
    clock: Clock,
    sessions: Arc<Sessions>,
    events: mpsc::Receiver<SessionEvent>,
}

/// Why the server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The address is taken or not ours.
    #[error("listen for gRPC on {address}")]
    Listen {
        /// The address.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// Its own certificate cannot be used.
    #[error("make the gRPC server's certificate")]
    Certificate(#[from] tls::Error),
}

impl GrpcServer {
    /// Listens on `address`; serves nobody yet.
    ///
    /// # Errors
    ///
    /// When it cannot listen there, or `authority` issues no usable certificate.
    pub async fn bind(
        address: &str,
        authority: &Authority,
        subject: &Subject,
        clock: Clock,
    ) -> Result<Self, BindError> {
        let roots = Roots::from_pem(authority.cert_pem())?;
        let own = authority.issue(subject, clock.wall())?;
        let acceptor = TlsAcceptor::from(Arc::new(server_config(&roots, &own)?));
        let listener = TcpListener::bind(address)
            .await
            .map_err(|source| BindError::Listen {
                address: address.to_owned(),
                source,
            })?;
        let (sender, events) = mpsc::channel(INBOX);
        let sessions = Arc::new(Sessions {
            open: Mutex::default(),
            next: AtomicU64::new(0),
            leads: AtomicBool::new(false),
            events: sender,
        });
        Ok(Self {
            listener,
            acceptor,
            roots,
            clock,
            sessions,
            events,
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    ///
    /// When the system does not say.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Starts to serve, until `stop`.
    pub(crate) fn start(self, stop: Token) -> (Arc<Sessions>, mpsc::Receiver<SessionEvent>) {
        let sessions = Arc::clone(&self.sessions);
        let incoming = accept(
            self.listener,
            self.acceptor,
            self.roots,
            self.clock,
            stop.clone(),
        );
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
        self.leads.store(leads, Ordering::Release);
        if !leads {
            self.open.lock().clear();
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

    fn open(
        &self,
        incarnation: &Incarnation,
        orders: mpsc::Sender<Result<wire::LeaderMessage, Status>>,
    ) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        // A newer session of the same incarnation replaces the older, whose stream ends with its sender.
        self.open
            .lock()
            .insert(incarnation.clone(), Open { number, orders });
        number
    }

    /// Whether this was the newest session of its incarnation.
    fn close(&self, incarnation: &Incarnation, number: u64) -> bool {
        let mut open = self.open.lock();
        match open.get(incarnation) {
            Some(newest) if newest.number != number => false,
            Some(_) | None => {
                open.remove(incarnation);
                true
            }
        }
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
        if !self.0.leads.load(Ordering::Acquire) {
            return Err(Status::failed_precondition("this replica does not lead"));
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
        let number = self.0.open(&incarnation, orders);
        let sessions = Arc::clone(&self.0);
        task::spawn("session", async move {
            listen(&sessions, &incarnation, number, hello, said).await;
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
    hello: FromWorker,
    mut said: Streaming<wire::WorkerMessage>,
) {
    let mut message = Some(hello);
    while let Some(known) = message {
        let event = SessionEvent::Said(incarnation.clone(), known);
        if sessions.events.send(event).await.is_err() {
            return;
        }
        message = match next(&mut said).await {
            Ok(message) => message,
            Err(status) => {
                debug!(%incarnation, %status, "session broke");
                None
            }
        };
    }
    if sessions.close(incarnation, number) {
        let event = SessionEvent::Closed(incarnation.clone());
        drop(sessions.events.send(event).await);
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
