//! Sessions over real connections on loopback: who gets in, and what ends a session.

use std::{net::SocketAddr, sync::Arc};

use hyper_util::rt::TokioIo;
use metashard_api::id::{Epoch, Seq, ShardId, Term};
use metashard_fleet::message::{Claim, Order};
use metashard_runtime::{
    shutdown::Shutdown,
    tls::{Certificate, DEFAULT_TRUST_DOMAIN, Roots, client_config},
};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tonic::{Code, transport::Endpoint};
use wire::fleet_client::FleetClient;

use super::*;

/// A leading server and the authority of its fleet.
struct Fixture {
    authority: Arc<Authority>,
    address: SocketAddr,
    sessions: Arc<Sessions>,
    events: mpsc::Receiver<SessionEvent>,
    _stop: Shutdown,
}

/// One end of a session as a worker has it.
struct Session {
    says: mpsc::Sender<wire::WorkerMessage>,
    orders: Streaming<wire::LeaderMessage>,
}

impl Fixture {
    async fn leading() -> Self {
        let clock = Clock::system();
        let authority = Arc::new(Authority::generate(DEFAULT_TRUST_DOMAIN, clock.wall()).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = GrpcServer::new(listener, &authority, &subject("r0", "leader"), clock);
        let stop = Shutdown::new();
        let (sessions, events) = server.unwrap().start(stop.token());
        sessions.set_leads(true);
        Self {
            authority,
            address,
            sessions,
            events,
            _stop: stop,
        }
    }

    fn certificate(&self, subject: &Subject) -> Certificate {
        let now = Clock::system().wall();
        self.authority.issue(subject, now).unwrap()
    }

    /// Opens a session that begins with `first`, over a connection with `certificate`.
    async fn open(
        &self,
        certificate: &Certificate,
        first: impl Into<wire::WorkerMessage>,
    ) -> Result<Session, Status> {
        let roots = Roots::from_pem(self.authority.cert_pem()).unwrap();
        let tls = client_config(&roots, certificate, None).unwrap();
        let (tls, name) = (TlsConnector::from(Arc::new(tls)), roots.server_name());
        let (name, address) = (name.unwrap(), self.address);
        let connect = tower::service_fn(move |_| {
            let (tls, name) = (tls.clone(), name.clone());
            async move {
                let tcp = TcpStream::connect(address).await?;
                Ok::<_, std::io::Error>(TokioIo::new(tls.connect(name, tcp).await?))
            }
        });
        let channel = Endpoint::from_static("http://leader").connect_with_connector_lazy(connect);
        let (says, said) = mpsc::channel(1_000);
        says.send(first.into()).await.unwrap();
        let mut client = FleetClient::new(channel);
        let answer = client.session(ReceiverStream::new(said)).await?;
        let orders = answer.into_inner();
        Ok(Session { says, orders })
    }

    /// A session of `incarnation` as it should be.
    async fn session(&self, incarnation: &str) -> Session {
        let certificate = self.certificate(&subject("r1", incarnation));
        let session = self.open(&certificate, hello("r1", incarnation)).await;
        session.unwrap()
    }

    async fn said(&mut self) -> FromWorker {
        match self.events.recv().await.unwrap() {
            SessionEvent::Said(_, message) => message,
            SessionEvent::Closed(incarnation) => panic!("{incarnation} is closed"),
        }
    }

    async fn closed(&mut self) -> Incarnation {
        match self.events.recv().await.unwrap() {
            SessionEvent::Closed(incarnation) => incarnation,
            SessionEvent::Said(_, message) => panic!("said {message:?}"),
        }
    }
}

fn subject(replica: &str, incarnation: &str) -> Subject {
    Subject {
        replica: ReplicaId::new(replica),
        incarnation: Incarnation::new(incarnation),
    }
}

fn hello(replica: &str, incarnation: &str) -> FromWorker {
    FromWorker::Hello {
        replica: ReplicaId::new(replica),
        incarnation: Incarnation::new(incarnation),
        held: Vec::new(),
        released: Vec::new(),
    }
}

fn warm(shard: u16) -> FromLeader {
    FromLeader {
        term: Term(3),
        seq: Seq(7),
        order: Order::Warm {
            shard: ShardId(shard),
        },
    }
}

#[tokio::test]
async fn both_sides_hear_each_other_in_order() {
    let mut fixture = Fixture::leading().await;
    let mut session = fixture.session("a").await;
    let to = Incarnation::new("a");

    for shard in 0..100 {
        fixture.sessions.send(&to, warm(shard));
        let shard = ShardId(shard);
        let ready = FromWorker::WarmReady { shard };
        session.says.send(ready.into()).await.unwrap();
    }

    assert_eq!(fixture.said().await, hello("r1", "a"));
    for shard in 0..100 {
        let order = session.orders.message().await.unwrap().unwrap();
        assert_eq!(FromLeader::try_from(order), Ok(warm(shard)));
        let shard = ShardId(shard);
        assert_eq!(fixture.said().await, FromWorker::WarmReady { shard });
    }
}

#[tokio::test]
async fn replica_that_does_not_lead_sends_workers_away() {
    let fixture = Fixture::leading().await;
    fixture.sessions.set_leads(false);
    let certificate = fixture.certificate(&subject("r1", "a"));

    let refused = fixture.open(&certificate, hello("r1", "a")).await;

    assert_eq!(
        refused.err().map(|it| it.code()),
        Some(Code::FailedPrecondition)
    );
}

#[tokio::test]
async fn hello_has_to_name_the_replica_and_incarnation_of_the_certificate() {
    let fixture = Fixture::leading().await;
    let certificate = fixture.certificate(&subject("r1", "a"));

    for hello in [hello("r2", "a"), hello("r1", "b")] {
        let refused = fixture.open(&certificate, hello).await;

        assert_eq!(
            refused.err().map(|it| it.code()),
            Some(Code::PermissionDenied)
        );
    }
}

#[tokio::test]
async fn session_begins_with_a_hello_that_makes_sense() {
    let fixture = Fixture::leading().await;
    let certificate = fixture.certificate(&subject("r1", "a"));
    let shard = ShardId(1);
    let ready = wire::WorkerMessage::from(FromWorker::WarmReady { shard });

    for first in [ready, wire::WorkerMessage { body: None }] {
        let refused = fixture.open(&certificate, first).await;

        assert_eq!(
            refused.err().map(|it| it.code()),
            Some(Code::InvalidArgument)
        );
    }
}

#[tokio::test]
async fn certificate_of_another_authority_opens_nothing() {
    let mut fixture = Fixture::leading().await;
    let other = Fixture::leading().await;
    let certificate = other.certificate(&subject("r1", "a"));

    let session = fixture.open(&certificate, hello("r1", "a")).await;

    assert!(session.is_err());
    assert!(fixture.events.try_recv().is_err(), "nobody is heard");
}

#[tokio::test]
async fn newer_session_of_the_same_incarnation_replaces_the_older() {
    let mut fixture = Fixture::leading().await;
    let mut older = fixture.session("a").await;
    fixture.said().await;

    let mut newer = fixture.session("a").await;

    assert_eq!(fixture.said().await, hello("r1", "a"));
    let end = older.orders.message().await.unwrap_err();
    assert_eq!(end.code(), Code::Aborted);
    drop(older);
    fixture.sessions.send(&Incarnation::new("a"), warm(1));
    assert!(newer.orders.message().await.unwrap().is_some());
    drop(newer);
    assert_eq!(fixture.closed().await, Incarnation::new("a"));
    assert!(
        fixture.events.try_recv().is_err(),
        "the older one's end is not told"
    );
}

#[tokio::test]
async fn sessions_end_with_the_lead() {
    let mut fixture = Fixture::leading().await;
    let mut session = fixture.session("a").await;
    fixture.said().await;

    fixture.sessions.set_leads(false);

    let end = session.orders.message().await.unwrap_err();
    assert_eq!(end.code(), Code::Unavailable);
    drop(session);
    assert_eq!(fixture.closed().await, Incarnation::new("a"));
}

#[tokio::test]
async fn nonsense_ends_the_session_that_carried_it() {
    let mut fixture = Fixture::leading().await;
    let mut session = fixture.session("a").await;
    fixture.said().await;

    let nonsense = wire::WorkerMessage { body: None };
    session.says.send(nonsense).await.unwrap();

    assert_eq!(fixture.closed().await, Incarnation::new("a"));
    assert!(session.orders.message().await.unwrap().is_none());
}

#[tokio::test]
async fn message_of_more_than_a_mebibyte_ends_the_session() {
    let mut fixture = Fixture::leading().await;
    let session = fixture.session("a").await;
    fixture.said().await;

    let claim = wire::Claim {
        shard: 1,
        epoch: u64::MAX,
    };
    let huge = wire::Hello {
        held: vec![claim; 100_000],
        ..wire::Hello::default()
    };
    let body = Some(wire::worker_message::Body::Hello(huge));
    session
        .says
        .send(wire::WorkerMessage { body })
        .await
        .unwrap();

    assert_eq!(fixture.closed().await, Incarnation::new("a"));
}

#[tokio::test]
async fn worker_that_does_not_read_its_orders_loses_its_session() {
    let mut fixture = Fixture::leading().await;
    let mut session = fixture.session("a").await;
    fixture.said().await;
    let to = Incarnation::new("a");
    let order = Order::Drain {
        claim: Claim {
            shard: ShardId(1),
            epoch: Epoch(1),
        },
        grace: Duration::from_secs(2),
    };

    for _ in 0..=OUTBOX {
        let order = order.clone();
        fixture.sessions.send(&to, FromLeader { order, ..warm(1) });
    }

    let mut n_orders = 0;
    while session.orders.message().await.unwrap().is_some() {
        n_orders += 1;
    }
    assert_eq!(n_orders, OUTBOX);
    drop(session);
    assert_eq!(fixture.closed().await, to);
}
