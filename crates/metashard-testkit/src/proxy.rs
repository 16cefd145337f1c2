//! A proxy in front of the API server that records requests and fails as told: refuses, delays, cuts, loses answers.

use std::{
    fmt, fs,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::Context;
use bytes::Bytes;
use http::{HeaderMap, Method};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::Cluster;

mod server;

type Rule = dyn Fn(&Request) -> Fault + Send + Sync;

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It goes through.
    Pass,
    /// It goes through this much later.
    Delay(Duration),
    /// It does not reach the API server, which seems to answer with this status and a `Status` object.
    Answer(u16),
    /// It does not reach the API server; its connection is closed.
    Cut,
    /// It reaches the API server and is carried out, but the answer is lost with the connection.
    LoseAnswer,
}

/// One request, when its header was here.
#[derive(Debug, Clone)]
pub struct Request {
    /// Its method.
    pub method: Method,
    /// Its path, without the query.
    pub path: String,
    /// Its query; empty if there is none.
    pub query: String,
    /// Its header fields.
    pub headers: HeaderMap,
    /// When it came.
    pub received: Instant,
}

/// A request that writes, and its answer, byte for byte.
#[derive(Debug, Clone)]
pub struct Exchange {
    /// Its method.
    pub method: Method,
    /// Its path, without the query.
    pub path: String,
    /// Its query; empty if there is none.
    pub query: String,
    /// Its header fields.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
    /// The name of its event in the API server's audit log; empty if the request did not get there.
    pub audit_id: String,
    /// Status of the answer; 0 as long as there is none.
    pub status: u16,
    /// Body of the answer.
    pub answer: Bytes,
}

/// The proxy, with a thread of its own; gone when it is dropped.
pub struct Proxy {
    address: SocketAddr,
    kubeconfig: PathBuf,
    shared: Arc<Shared>,
    /// Taken to stop the server.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What the server's tasks and the test both hold.
pub(crate) struct Shared {
    rule: Mutex<Arc<Rule>>,
    requests: Mutex<Vec<Request>>,
    /// The cluster's.
    exchanges: Arc<Mutex<Vec<Exchange>>>,
}

impl Request {
    /// Whether it is a watch.
    pub fn is_watch(&self) -> bool {
        self.query
            .split('&')
            .any(|it| it == "watch=true" || it == "watch=1")
    }

    /// Whether it changes something.
    pub fn is_write(&self) -> bool {
        !matches!(self.method, Method::GET | Method::HEAD | Method::OPTIONS)
    }
}

impl Proxy {
    /// Starts a proxy in front of `cluster`'s API server through which all requests pass, until
    /// [`Proxy::fail`] says otherwise.
    ///
    /// # Errors
    /// If it cannot listen, or has no certificate.
    pub fn start(cluster: &Cluster) -> anyhow::Result<Self> {
        Self::listen(cluster, None)
    }

    /// As [`Proxy::start`], for somebody else than the administrator: whoever comes by it acts as `user`.
    ///
    /// # Errors
    /// As there.
    pub fn start_as(cluster: &Cluster, user: &str) -> anyhow::Result<Self> {
        Self::listen(cluster, Some(user))
    }

    fn listen(cluster: &Cluster, user: Option<&str>) -> anyhow::Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listen")?;
        let address = listener.local_addr().context("read the proxy's address")?;
        listener
            .set_nonblocking(true)
            .context("prepare the proxy's listener")?;
        let kubeconfig = cluster
            .folder()
            .join(format!("proxy-{}.kubeconfig", address.port()));
        let url = format!("https://{address}");
        let text = match user {
            None => cluster.admin_kubeconfig(&url),
            Some(_) => cluster.anonymous_kubeconfig(&url),
        };
        fs::write(&kubeconfig, text).with_context(|| format!("write {}", kubeconfig.display()))?;
        let shared = Arc::new(Shared {
            rule: Mutex::new(Arc::new(|_: &Request| Fault::Pass)),
            requests: Mutex::default(),
            exchanges: cluster.sent_to(),
        });
        let (stop, stopped) = oneshot::channel();
        let server = server::Server::new(cluster, user, Arc::clone(&shared))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("make a runtime for the proxy")?;
        let thread = thread::Builder::new()
            .name("proxy".to_owned())
            .spawn(move || runtime.block_on(server.serve(listener, stopped)))
            .context("start the proxy's thread")?;
        Ok(Self {
            address,
            kubeconfig,
            shared,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Path of a kubeconfig file of the administrator, whose server is the proxy.
    pub fn kubeconfig(&self) -> PathBuf {
        self.kubeconfig.clone()
    }

    /// Decides by `rule` what happens to later requests. It runs on the proxy's thread and must not block.
    pub fn fail(&self, rule: impl Fn(&Request) -> Fault + Send + Sync + 'static) {
        *self.shared.rule.lock() = Arc::new(rule);
    }

    /// Lets all later requests pass.
    pub fn heal(&self) {
        self.fail(|_| Fault::Pass);
    }

    /// All requests so far, in the order in which they came.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().clone()
    }

    /// Forgets the requests so far.
    pub fn forget(&self) {
        self.shared.requests.lock().clear();
    }
}

impl Shared {
    /// Records a request and says what is to happen to it.
    pub(crate) fn judge(&self, request: Request) -> Fault {
        let rule = Arc::clone(&self.rule.lock());
        let fault = rule(&request);
        self.requests.lock().push(request);
        fault
    }

    /// Records a request that writes, before it is sent on; the number to tell its answer by.
    pub(crate) fn sends(&self, exchange: Exchange) -> usize {
        let mut exchanges = self.exchanges.lock();
        exchanges.push(exchange);
        exchanges.len() - 1
    }

    /// Records the answer, before it is given.
    pub(crate) fn answered(&self, number: usize, status: u16, answer: Bytes) {
        if let Some(exchange) = self.exchanges.lock().get_mut(number) {
            exchange.status = status;
            exchange.answer = answer;
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.stop.take());
        drop(self.thread.take().map(JoinHandle::join));
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
