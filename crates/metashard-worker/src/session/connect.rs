//! One connection to a leader: TCP, mutual TLS, HTTP/2.

use std::{io, sync::Arc, time::Duration};

use hyper_util::rt::TokioIo;
use metashard_api::id::{Incarnation, ReplicaId};
use metashard_proto::{MAX_MESSAGE_BYTES, wire::fleet_client::FleetClient};
use metashard_runtime::{
    clock::Clock,
    net::Dialer,
    tls::{self, Authority, Roots, Subject, client_config, peer_subject},
};
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint};

use super::Leader;

/// An address that does not answer must not keep a worker from the next leader.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// A session without traffic is probed this often, and is given up when the answer takes as long.
const PROBE: Duration = Duration::from_secs(2);

/// Stands for every leader; whom a connection leads to is decided by address and certificate.
const ORIGIN: &str = "http://leader";

/// Connects to leaders on behalf of one replica.
pub(crate) struct Connector {
    clock: Clock,
    dialer: Dialer,
    replica: ReplicaId,
    authority: Arc<Authority>,
    roots: Roots,
    leader: watch::Receiver<Option<Leader>>,
}

/// Why there is no session, or no session any more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// No certificate of one's own.
    #[error("make a certificate for the session")]
    Certificate(#[source] tls::Error),
    /// No connection.
    #[error("connect to {address}")]
    Connect {
        address: String,
        #[source]
        source: tonic::transport::Error,
    },
    /// No connection in time.
    #[error("connect to {address}: no answer within {} ms", CONNECT_TIMEOUT.as_millis())]
    ConnectTimedOut { address: String },
    /// Ended by the leader, or cut.
    #[error("hold a session")]
    Session(#[source] tonic::Status),
    /// The leader says something that makes no sense.
    #[error("understand the leader")]
    Order(#[source] metashard_proto::Error),
}

impl Connector {
    /// Certificates are issued by `authority`, and only its own are believed.
    pub(crate) fn new(
        clock: Clock,
        dialer: Dialer,
        replica: ReplicaId,
        authority: Arc<Authority>,
        leader: watch::Receiver<Option<Leader>>,
    ) -> Result<Self, tls::Error> {
        let roots = Roots::from_pem(authority.cert_pem())?;
        Ok(Self {
            clock,
            dialer,
            replica,
            authority,
            roots,
            leader,
        })
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Who leads.
    pub(crate) fn leader(&self) -> watch::Receiver<Option<Leader>> {
        self.leader.clone()
    }

    /// Connects to `leader` as `incarnation`, with a certificate made for this connection.
    pub(crate) async fn connect(
        &self,
        leader: &Leader,
        incarnation: &Incarnation,
    ) -> Result<FleetClient<Channel>, Error> {
        let subject = Subject {
            replica: self.replica.clone(),
            incarnation: incarnation.clone(),
        };
        let own = self
            .authority
            .issue(&subject, self.clock.wall())
            .map_err(Error::Certificate)?;
        let tls = client_config(&self.roots, &own, None).map_err(Error::Certificate)?;
        let server_name = self.roots.server_name().map_err(Error::Certificate)?;
        let target = Arc::new(Target {
            address: leader.address.clone(),
            replica: leader.replica.clone(),
            roots: self.roots.clone(),
            tls: TlsConnector::from(Arc::new(tls)),
        });
        let dialer = self.dialer.clone();
        let connector = tower::service_fn(move |_| {
            let (target, dialer) = (Arc::clone(&target), dialer.clone());
            let server_name = server_name.clone();
            async move {
                let connection = dialer.connect(&target.address).await?;
                let stream = target.tls.connect(server_name, connection).await?;
                let chain = stream.get_ref().1.peer_certificates();
                let peer = peer_subject(&target.roots, chain.unwrap_or_default());
                target.check(&peer.map_err(io::Error::other)?)?;
                Ok::<_, io::Error>(TokioIo::new(stream))
            }
        });
        let endpoint = Endpoint::from_static(ORIGIN)
            .http2_keep_alive_interval(PROBE)
            .keep_alive_timeout(PROBE)
            .keep_alive_while_idle(true);
        let address = || leader.address.clone();
        let channel = tokio::select! {
            channel = endpoint.connect_with_connector(connector) => {
                channel.map_err(|source| Error::Connect { address: address(), source })?
            }
            () = self.clock.sleep(CONNECT_TIMEOUT) => {
                return Err(Error::ConnectTimedOut { address: address() });
            }
        };
        Ok(FleetClient::new(channel)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES))
    }
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Connector({})", self.replica)
    }
}

/// Whom one connection is to reach.
struct Target {
    address: String,
    replica: ReplicaId,
    roots: Roots,
    tls: TlsConnector,
}

impl Target {
    /// Whoever listens at the leader's address by now may be another replica.
    fn check(&self, peer: &Subject) -> io::Result<()> {
        if peer.replica == self.replica {
            return Ok(());
        }
        let found = &peer.replica;
        let expected = &self.replica;
        Err(io::Error::other(format!(
            "{found} answers there, not {expected}"
        )))
    }
}
