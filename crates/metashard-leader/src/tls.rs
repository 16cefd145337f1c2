//! Accepts connections of other replicas: mutual TLS, and who the peer is.

use std::{
    fmt, io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, SystemTime},
};

use metashard_runtime::{
    clock::Clock,
    log::chain,
    net::{Connection, Listener},
    shutdown::Token,
    task,
    tls::{Authority, Error, Roots, Subject, peer_subject, server_config},
};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::{Semaphore, mpsc},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tonic::transport::server::Connected;
use tracing::{debug, warn};

/// A peer that takes longer to prove itself is dropped.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Handshakes under way at once; more connections wait in the listener's backlog.
const CONCURRENT_HANDSHAKES: usize = 64;

/// Connections that wait to be served.
const ACCEPTED: usize = 16;

/// What this replica shows to those who connect. Its certificate is made anew before it runs out.
pub(crate) struct Own {
    authority: Arc<Authority>,
    subject: Subject,
    roots: Roots,
    clock: Clock,
    current: Mutex<Current>,
}

struct Current {
    acceptor: TlsAcceptor,
    renew_at: SystemTime,
}

/// A connection whose peer has shown a certificate of ours.
#[derive(Debug)]
pub(crate) struct Peer {
    stream: TlsStream<Connection>,
    subject: Subject,
}

impl Own {
    /// Has `authority` issue a certificate for `subject`.
    ///
    /// # Errors
    ///
    /// When it issues no usable one.
    pub(crate) fn new(
        authority: Arc<Authority>,
        subject: Subject,
        clock: Clock,
    ) -> Result<Self, Error> {
        let roots = Roots::from_pem(authority.cert_pem())?;
        let current = Mutex::new(issue(&authority, &subject, &roots, &clock)?);
        Ok(Self {
            authority,
            subject,
            roots,
            clock,
            current,
        })
    }

    /// With a certificate that counts for a while yet.
    fn acceptor(&self) -> TlsAcceptor {
        let mut current = self.current.lock();
        if self.clock.wall() >= current.renew_at {
            match issue(&self.authority, &self.subject, &self.roots, &self.clock) {
                Ok(renewed) => *current = renewed,
                Err(error) => warn!(error = chain(&error), "gRPC certificate not renewed"),
            }
        }
        current.acceptor.clone()
    }
}

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Own")
            .field("subject", &self.subject)
            .finish_non_exhaustive()
    }
}

fn issue(
    authority: &Authority,
    subject: &Subject,
    roots: &Roots,
    clock: &Clock,
) -> Result<Current, Error> {
    let certificate = authority.issue(subject, clock.wall())?;
    Ok(Current {
        renew_at: certificate.validity()?.renew_at(),
        acceptor: TlsAcceptor::from(Arc::new(server_config(roots, &certificate)?)),
    })
}

/// Accepts connections until `stop`; gives those whose peer has proved itself.
pub(crate) fn accept(
    listener: Listener,
    own: Own,
    stop: Token,
) -> mpsc::Receiver<io::Result<Peer>> {
    let (accepted, incoming) = mpsc::channel(ACCEPTED);
    let (clock, roots) = (own.clock.clone(), own.roots.clone());
    task::spawn("accept", async move {
        let slots = Arc::new(Semaphore::new(CONCURRENT_HANDSHAKES));
        let has_told = Arc::new(AtomicBool::new(false));
        loop {
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
                return;
            };
            let stream = tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok(stream) => stream,
                    Err(error) => {
                        debug!(%error, "connection not accepted");
                        // Out of file descriptors, most likely: it passes, and must not spin.
                        clock.sleep(Duration::from_millis(100)).await;
                        continue;
                    }
                },
                () = stop.requested() => return,
            };
            let (acceptor, roots) = (own.acceptor(), roots.clone());
            let (clock, accepted) = (clock.clone(), accepted.clone());
            let has_told = Arc::clone(&has_told);
            task::spawn("handshake", async move {
                let _slot = slot;
                tokio::select! {
                    peer = handshake(stream, &acceptor, &roots) => match peer {
                        Ok(peer) => drop(accepted.send(Ok(peer)).await),
                        Err(error) => refused(&has_told, &chain(&error)),
                    },
                    () = clock.sleep(HANDSHAKE_TIMEOUT) => debug!("peer too slow to prove itself"),
                }
            });
        }
    });
    incoming
}

/// Tells of the first one; whoever looks for open ports must not fill the log.
fn refused(has_told: &AtomicBool, error: &str) {
    if has_told.swap(true, Ordering::Relaxed) {
        debug!(error, "connection refused: no TLS of the fleet");
    } else {
        warn!(
            error,
            "connection refused: no TLS of the fleet; further ones are told of at level debug"
        );
    }
}

async fn handshake(stream: Connection, acceptor: &TlsAcceptor, roots: &Roots) -> io::Result<Peer> {
    let stream = acceptor.accept(stream).await?;
    let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let subject = peer_subject(roots, certificates).map_err(io::Error::other)?;
    Ok(Peer { stream, subject })
}

impl Connected for Peer {
    type ConnectInfo = Subject;

    fn connect_info(&self) -> Subject {
        self.subject.clone()
    }
}

impl AsyncRead for Peer {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Peer {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
