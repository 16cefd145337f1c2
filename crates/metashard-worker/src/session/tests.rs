//! Tests of sessions, against a leader of their own that listens on loopback with real certificates.

use std::{
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use metashard_api::id::{ReplicaId, Seq, ShardId, Term};
use metashard_fleet::message::Order;
use metashard_proto::wire::fleet_server::{Fleet, FleetServer};
use metashard_runtime::{
    net::Dialer,
    tls::{Authority, Roots, Subject, server_config},
};
use tokio::net::TcpListener;
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tonic::{Request, Response, Status, Streaming, transport::Server};

use super::*;

const PATIENCE: Duration = Duration::from_secs(10);

/// What a fake leader received, and the end of the stream to answer on.
struct Taken {
    first: wire::WorkerMessage,
    orders: mpsc::Sender<Result<wire::LeaderMessage, Status>>,
}

/// A leader that hands each session to the test, or refuses all of them.
struct FakeLeader {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    sessions: mpsc::Receiver<Taken>,
    _tasks: Tasks<()>,
}

struct Service {
    refuses: bool,
    sessions: mpsc::Sender<Taken>,
}

#[tonic::async_trait]
impl Fleet for Service {
    type SessionStream =
        Pin<Box<dyn futures::Stream<Item = Result<wire::LeaderMessage, Status>> + Send + 'static>>;

    async fn session(
        &self,
        request: Request<Streaming<wire::WorkerMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        if self.refuses {
            return Err(Status::failed_precondition("does not lead"));
        }
        let mut messages = request.into_inner();
        let first = messages.message().await?.expect("a Hello comes first");
        let (orders, answers) = mpsc::channel(8);
        let taken = Taken { first, orders };
        assert!(self.sessions.send(taken).await.is_ok());
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }
}

impl FakeLeader {
    /// Listens, and shows a certificate of `replica`.
    async fn listen(authority: &Authority, replica: &str, refuses: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = acceptor(authority, replica);
        let connections = Arc::new(AtomicUsize::new(0));
        let (incoming, accepted) = mpsc::channel::<Result<TlsStream<_>, std::io::Error>>(8);
        let counter = Arc::clone(&connections);
        let mut tasks = Tasks::new();
        tasks.spawn("accept", async move {
            while let Ok((stream, _)) = listener.accept().await {
                counter.fetch_add(1, Ordering::Relaxed);
                if let Ok(stream) = acceptor.accept(stream).await {
                    drop(incoming.send(Ok(stream)).await);
                }
            }
        });
        let (sender, sessions) = mpsc::channel(8);
        tasks.spawn("serve", async move {
            let service = FleetServer::new(Service {
                refuses,
                sessions: sender,
            });
            let served = Server::builder().add_service(service);
            let ended = served.serve_with_incoming(ReceiverStream::new(accepted));
            ended.await.unwrap();
        });
        Self {
            address,
            connections,
            sessions,
            _tasks: tasks,
        }
    }

    async fn next(&mut self) -> Taken {
        let next = tokio::time::timeout(PATIENCE, self.sessions.recv()).await;
        next.expect("a session in time").unwrap()
    }
}

fn acceptor(authority: &Authority, replica: &str) -> TlsAcceptor {
    let subject = Subject {
        replica: ReplicaId::new(replica),
        incarnation: Incarnation::new("leader"),
    };
    let certificate = authority.issue(&subject, Clock::system().wall()).unwrap();
    let roots = Roots::from_pem(authority.cert_pem()).unwrap();
    TlsAcceptor::from(Arc::new(server_config(&roots, &certificate).unwrap()))
}

fn authority() -> Arc<Authority> {
    Arc::new(Authority::generate("metashard.local", Clock::system().wall()).unwrap())
}

fn leader(replica: &str, address: SocketAddr) -> Leader {
    Leader {
        replica: ReplicaId::new(replica),
        incarnation: Incarnation::new(replica),
        address: address.to_string(),
    }
}

/// A session of a worker that is told who leads through the sender.
fn session(
    authority: &Arc<Authority>,
    leader: Option<Leader>,
) -> (Session, watch::Sender<Option<Leader>>) {
    let (sender, receiver) = watch::channel(leader);
    let replica = ReplicaId::new("worker-1");
    let connector = Connector::new(
        Clock::system(),
        Dialer::tcp(),
        replica,
        Arc::clone(authority),
        receiver,
    )
    .unwrap();
    let session = Session::open(Arc::new(connector), Incarnation::new("inc-1"));
    (session, sender)
}

async fn next(session: &mut Session) -> Event {
    let next = tokio::time::timeout(PATIENCE, session.next()).await;
    next.expect("an event in time")
}

fn hello() -> FromWorker {
    FromWorker::Hello {
        replica: ReplicaId::new("worker-1"),
        incarnation: Incarnation::new("inc-1"),
        held: Vec::new(),
        released: Vec::new(),
    }
}

/// Waits until the session is open, and says hello as the machine does.
async fn open(session: &mut Session) {
    assert!(matches!(next(session).await, Event::Opened));
    session.send(hello());
}

fn warm(shard: u16) -> FromLeader {
    FromLeader {
        term: Term(1),
        seq: Seq(2),
        order: Order::Warm {
            shard: ShardId(shard),
        },
    }
}

#[tokio::test]
async fn hello_reaches_the_leader_and_orders_come_back() {
    let authority = authority();
    let mut fake = FakeLeader::listen(&authority, "r1", false).await;
    let (mut session, _leader) = session(&authority, Some(leader("r1", fake.address)));

    open(&mut session).await;
    let taken = fake.next().await;
    assert_eq!(FromWorker::try_from(taken.first), Ok(hello()));
    taken.orders.send(Ok(warm(7).into())).await.unwrap();

    let event = next(&mut session).await;
    assert!(matches!(event, Event::Ordered(order) if order == warm(7)));
}

#[tokio::test]
async fn session_that_the_leader_closes_is_opened_again() {
    let authority = authority();
    let mut fake = FakeLeader::listen(&authority, "r1", false).await;
    let (mut session, _leader) = session(&authority, Some(leader("r1", fake.address)));
    open(&mut session).await;

    drop(fake.next().await);
    assert!(matches!(next(&mut session).await, Event::Closed));
    open(&mut session).await;

    let taken = fake.next().await;
    assert_eq!(FromWorker::try_from(taken.first), Ok(hello()));
}

#[tokio::test]
async fn session_moves_to_the_next_leader_though_the_last_one_keeps_it_open() {
    let authority = authority();
    let mut last = FakeLeader::listen(&authority, "r1", false).await;
    let mut new = FakeLeader::listen(&authority, "r2", false).await;
    let (mut session, leads) = session(&authority, Some(leader("r1", last.address)));
    open(&mut session).await;
    let _held_open = last.next().await;

    leads.send_replace(None);
    leads.send_replace(Some(leader("r2", new.address)));

    assert!(matches!(next(&mut session).await, Event::Closed));
    open(&mut session).await;
    new.next().await;
}

#[tokio::test]
async fn session_opens_as_soon_as_somebody_leads() {
    let authority = authority();
    let mut fake = FakeLeader::listen(&authority, "r1", false).await;
    let (mut session, leads) = session(&authority, None);

    leads.send_replace(Some(leader("r1", fake.address)));

    open(&mut session).await;
    fake.next().await;
}

#[tokio::test]
async fn replica_that_does_not_lead_is_asked_again() {
    let authority = authority();
    let fake = FakeLeader::listen(&authority, "r1", true).await;
    let (mut session, _leader) = session(&authority, Some(leader("r1", fake.address)));

    for _ in 0..2 {
        open(&mut session).await;
        assert!(matches!(next(&mut session).await, Event::Closed));
    }
}

#[tokio::test]
async fn another_replica_at_the_leaders_address_is_told_nothing() {
    let authority = authority();
    let mut fake = FakeLeader::listen(&authority, "r2", false).await;
    let (mut session, _leader) = session(&authority, Some(leader("r1", fake.address)));

    // Several attempts, none of which gets as far as a session.
    let attempts = async {
        while fake.connections.load(Ordering::Relaxed) < 3 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        event = next(&mut session) => panic!("{event:?}"),
        () = attempts => {}
    }

    assert!(fake.sessions.try_recv().is_err());
}

#[tokio::test]
async fn leader_of_another_authority_is_told_nothing() {
    let (ours, theirs) = (authority(), authority());
    let fake = FakeLeader::listen(&theirs, "r1", false).await;
    let (mut session, _leader) = session(&ours, Some(leader("r1", fake.address)));

    let attempts = async {
        while fake.connections.load(Ordering::Relaxed) < 3 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        event = next(&mut session) => panic!("{event:?}"),
        () = attempts => {}
    }
}

#[tokio::test]
async fn dropped_session_ends_at_the_leader() {
    let authority = authority();
    let mut fake = FakeLeader::listen(&authority, "r1", false).await;
    let (mut session, _leader) = session(&authority, Some(leader("r1", fake.address)));
    open(&mut session).await;
    let taken = fake.next().await;

    drop(session);

    let closed = tokio::time::timeout(PATIENCE, taken.orders.closed()).await;
    assert!(closed.is_ok());
}
