//! One connection to a hook: making it, sending a request over it, reading what comes back.

mod io;

use std::{
    net::{IpAddr, SocketAddr},
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::{Request, Response, Version, header::HOST};
use http_body_util::BodyExt;
use hyper::{
    body::Incoming,
    client::conn::{TrySendError, http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use metashard_runtime::{clock::Clock, task};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::{io::AsyncReadExt, net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;

use self::io::Stream;
use crate::{
    Error,
    endpoint::Origin,
    metrics::{Event, Series},
    rope::RopeBody,
    security::end_of,
};

/// Longest wait for one address to accept a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// Longest wait for a TLS handshake.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(3);
/// How long a server that was greeted is given to object to our certificate.
const OBJECTION_LIMIT: Duration = Duration::from_millis(300);
/// Longest head of an answer. hyper allows 100 headers.
const MAX_HEAD: u32 = 64 * 1024;

/// A connection over which one request at a time is sent (HTTP/1.1) or many (HTTP/2).
pub(crate) enum Connection {
    Http1(Box<Http1>),
    Http2(Http2),
}

/// An HTTP/1.1 connection, driven by the call that uses it: no task of its own, and a call that is dropped takes its
/// connection with it.
pub(crate) struct Http1 {
    sender: http1::SendRequest<RopeBody>,
    driver: Driver,
    /// Whether anything came back since the current request began.
    heard: Arc<AtomicBool>,
}

/// A handle to an HTTP/2 connection, which a task of its own drives while there are handles.
#[derive(Clone)]
pub(crate) struct Http2(http2::SendRequest<RopeBody>);

/// A request got no answer.
pub(crate) struct Unanswered {
    pub(crate) error: hyper::Error,
    /// Not a byte came back: the hook has most likely closed the connection before the request reached it.
    pub(crate) in_silence: bool,
}

struct Driver {
    /// `None` once it has ended: only its drop tells a request that it did not take any more.
    connection: Option<http1::Connection<TokioIo<Stream>, RopeBody>>,
}

/// Tells the metrics about the steps of connecting.
pub(crate) struct Trace<'a> {
    pub(crate) clock: &'a Clock,
    pub(crate) series: &'a Series,
}

impl Connection {
    /// Connects to `origin`; with `tls` securely, or not at all.
    pub(crate) async fn open(
        origin: &Origin,
        tls: Option<&Arc<ClientConfig>>,
        trace: &Trace<'_>,
    ) -> Result<Self, Error> {
        let begin = trace.clock.now().mono;
        let mark = |event| {
            let after = trace.clock.now().mono.since(begin);
            trace.series.connecting(event, after);
        };
        let addresses = resolve(origin, &mark).await?;
        let tcp = connect(origin, &addresses).await?;
        let Some(tls) = tls else {
            return Http1::open(origin, Stream::plain(tcp)).await;
        };
        mark(Event::TlsStart);
        let secured = secure(origin, tls, tcp).await?;
        mark(Event::TlsDone);
        if secured.get_ref().1.alpn_protocol() == Some(b"h2") {
            Http2::open(origin, Stream::tls(secured)).await
        } else {
            Http1::open(origin, Stream::tls(secured)).await
        }
    }

    /// Sends `request` and waits for the head of the answer.
    pub(crate) async fn send(
        &mut self,
        request: Request<RopeBody>,
    ) -> Result<Response<Incoming>, Unanswered> {
        match self {
            Self::Http1(http1) => http1.send(request).await,
            Self::Http2(http2) => http2.send(request).await,
        }
    }

    /// The next piece of an answer's body.
    pub(crate) async fn read(
        &mut self,
        body: &mut Incoming,
    ) -> Option<Result<Bytes, hyper::Error>> {
        loop {
            let frame = match self {
                Self::Http1(http1) => http1.driver.run(body.frame()).await,
                Self::Http2(_) => body.frame().await,
            };
            match frame? {
                Ok(frame) => {
                    if let Ok(data) = frame.into_data() {
                        return Some(Ok(data));
                    }
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl Http1 {
    async fn open(origin: &Origin, stream: Stream) -> Result<Connection, Error> {
        let heard = stream.heard();
        let handshake = http1::Builder::new()
            .max_buf_size(MAX_HEAD as usize)
            .handshake(TokioIo::new(stream))
            .await;
        let (sender, connection) = handshake.map_err(|source| begin_failed(origin, source))?;
        Ok(Connection::Http1(Box::new(Self {
            sender,
            driver: Driver {
                connection: Some(connection),
            },
            heard,
        })))
    }

    async fn send(&mut self, request: Request<RopeBody>) -> Result<Response<Incoming>, Unanswered> {
        self.heard.store(false, Ordering::Relaxed);
        let answer = self.sender.try_send_request(request);
        self.driver.run(answer).await.map_err(|error| Unanswered {
            in_silence: was_not_sent(&error) || !self.heard.load(Ordering::Relaxed),
            error: error.into_error(),
        })
    }

    /// Whether the connection is ready for the next request, now that an answer has been read to its end.
    pub(crate) fn is_reusable(&mut self) -> bool {
        // Polled without a waker: an idle connection is looked at again when it is used, and by nobody before.
        self.driver.poll(&mut Context::from_waker(Waker::noop()));
        self.driver.connection.is_some() && self.sender.is_ready()
    }
}

impl Http2 {
    async fn open(origin: &Origin, stream: Stream) -> Result<Connection, Error> {
        let handshake = http2::Builder::new(TokioExecutor::new())
            .max_header_list_size(MAX_HEAD)
            .handshake(TokioIo::new(stream))
            .await;
        let (sender, connection) = handshake.map_err(|source| begin_failed(origin, source))?;
        task::spawn("hook-http2", async move {
            // What went wrong is told to the calls on the connection.
            drop(connection.await);
        });
        Ok(Connection::Http2(Self(sender)))
    }

    /// Whether requests can still be sent.
    pub(crate) fn is_open(&self) -> bool {
        !self.0.is_closed()
    }

    async fn send(
        &mut self,
        mut request: Request<RopeBody>,
    ) -> Result<Response<Incoming>, Unanswered> {
        request.headers_mut().remove(HOST);
        *request.version_mut() = Version::HTTP_2;
        let answer = self.0.try_send_request(request).await;
        answer.map_err(|error| Unanswered {
            in_silence: was_not_sent(&error),
            error: error.into_error(),
        })
    }
}

impl Driver {
    /// Waits for `future`, which is about this connection, while moving the connection on.
    async fn run<F: Future>(&mut self, future: F) -> F::Output {
        let mut future = pin!(future);
        std::future::poll_fn(|cx| {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(output);
            }
            self.poll(cx);
            future.as_mut().poll(cx)
        })
        .await
    }

    fn poll(&mut self, cx: &mut Context<'_>) {
        // How it ended is told to the call by its own future.
        self.connection
            .take_if(|connection| Pin::new(connection).poll(cx).is_ready());
    }
}

/// Connects to `origin`, and hangs up. When the certificate that it shows ends.
pub(crate) async fn greet(
    origin: &Origin,
    tls: Option<&Arc<ClientConfig>>,
) -> Result<Option<SystemTime>, Error> {
    let addresses = resolve(origin, &|_| {}).await?;
    let tcp = connect(origin, &addresses).await?;
    let Some(tls) = tls else {
        return Ok(None);
    };
    let mut secured = secure(origin, tls, tcp).await?;
    // By TLS 1.3 a server says only now that it wants another certificate of ours.
    let mut byte = [0];
    if let Ok(Err(source)) = timeout(OBJECTION_LIMIT, secured.read(&mut byte)).await {
        return Err(Error::Handshake {
            host: origin.bare_host().to_owned(),
            source,
        });
    }
    let shown = secured.get_ref().1.peer_certificates();
    Ok(shown.and_then(|it| it.first()).and_then(end_of))
}

fn was_not_sent(error: &TrySendError<Request<RopeBody>>) -> bool {
    error.message().is_some()
}

fn begin_failed(origin: &Origin, source: hyper::Error) -> Error {
    Error::Begin {
        host: origin.bare_host().to_owned(),
        source,
    }
}

async fn resolve(origin: &Origin, mark: &impl Fn(Event)) -> Result<Vec<SocketAddr>, Error> {
    let host = origin.bare_host();
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, origin.port)]);
    }
    mark(Event::DnsStart);
    let found = tokio::net::lookup_host((host, origin.port)).await;
    mark(Event::DnsDone);
    match found {
        Ok(addresses) => Ok(addresses.collect()),
        Err(source) => Err(Error::Resolve {
            host: host.to_owned(),
            source,
        }),
    }
}

/// Tries the addresses one after the other.
async fn connect(origin: &Origin, addresses: &[SocketAddr]) -> Result<TcpStream, Error> {
    let mut last = None;
    for address in addresses {
        let connected = timeout(CONNECT_LIMIT, TcpStream::connect(address)).await;
        match connected.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())) {
            Ok(tcp) => {
                // Without it small requests would wait for acknowledgements; a failure costs only time.
                drop(tcp.set_nodelay(true));
                return Ok(tcp);
            }
            Err(source) => {
                let address = *address;
                last = Some(Error::Connect { address, source });
            }
        }
    }
    Err(last.unwrap_or_else(|| Error::Resolve {
        host: origin.bare_host().to_owned(),
        source: std::io::ErrorKind::NotFound.into(),
    }))
}

async fn secure(
    origin: &Origin,
    config: &Arc<ClientConfig>,
    tcp: TcpStream,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, Error> {
    let host = origin.bare_host();
    let fail = |source| Error::Handshake {
        host: host.to_owned(),
        source,
    };
    let name = ServerName::try_from(host.to_owned())
        .map_err(|error| fail(std::io::Error::new(std::io::ErrorKind::InvalidInput, error)))?;
    let handshake = TlsConnector::from(Arc::clone(config)).connect(name, tcp);
    match timeout(HANDSHAKE_LIMIT, handshake).await {
        Ok(secured) => secured.map_err(fail),
        Err(_) => Err(fail(std::io::ErrorKind::TimedOut.into())),
    }
}
