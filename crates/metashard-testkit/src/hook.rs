//! A tenant's hook as tests need it: it records every call and answers, or fails to, as told.

use std::{
    collections::BTreeMap,
    fmt,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::Context;
use bytes::Bytes;
use http::{HeaderMap, Method};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::oneshot;

mod answer;
mod secure;
mod server;

pub use answer::Answer;
pub use secure::{Authority, Pair, Tls};

type Handler = dyn Fn(&Call) -> Answer + Send + Sync;

/// One request that the hook received whole.
#[derive(Debug, Clone)]
pub struct Call {
    /// Method; metashard uses POST only.
    pub method: Method,
    /// Path, with the query if there is one.
    pub path: String,
    /// Header fields.
    pub headers: HeaderMap,
    /// Body, as sent.
    pub body: Bytes,
    /// When the last byte of the request was here.
    pub received: Instant,
    /// When the answer was ready to be sent; `None` while the caller waits, and for ever if it went away.
    pub answered: Option<Instant>,
    /// When it ended without an answer: the caller went away, or the hook cut it off.
    pub cut: Option<Instant>,
    /// Whether the caller has shown a certificate that the hook accepts.
    pub has_certificate: bool,
    /// Number of the connection that it came by, from 0 in the order of their opening.
    pub connection: u64,
}

/// An HTTP server on loopback with a thread of its own; gone when it is dropped.
pub struct FakeHook {
    address: SocketAddr,
    is_secure: bool,
    shared: Arc<Shared>,
    /// Taken to stop the server.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What the server's tasks and the test both hold.
pub(crate) struct Shared {
    handler: Mutex<Arc<Handler>>,
    calls: Mutex<Calls>,
}

/// Calls, numbered in the order of their receipt.
#[derive(Default)]
pub(crate) struct Calls {
    kept: BTreeMap<usize, Call>,
    /// The number of the next one.
    next: usize,
}

impl Calls {
    /// Takes a call in; returns its number.
    pub(crate) fn push(&mut self, call: Call) -> usize {
        let number = self.next;
        self.kept.insert(number, call);
        self.next += 1;
        number
    }

    /// The call of this number, unless it is forgotten.
    pub(crate) fn get_mut(&mut self, number: usize) -> Option<&mut Call> {
        self.kept.get_mut(&number)
    }

    fn take(&mut self) -> Vec<Call> {
        let over = self.kept.extract_if(.., |_, call| call.ended().is_some());
        over.map(|(_, call)| call).collect()
    }
}

impl Call {
    /// The body as JSON; `null` if it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// When it ended, in whatever way.
    pub fn ended(&self) -> Option<Instant> {
        self.answered.or(self.cut)
    }
}

impl FakeHook {
    /// Starts a hook on a free port whose answers `handler` gives. It runs on the server's thread and must not block.
    ///
    /// # Errors
    /// If no port can be had.
    pub fn start(
        handler: impl Fn(&Call) -> Answer + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        Self::start_on(0, handler)
    }

    /// As [`FakeHook::start`], on a given port: for a hook that comes back.
    ///
    /// # Errors
    /// If the port is taken.
    pub fn start_on(
        port: u16,
        handler: impl Fn(&Call) -> Answer + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        Self::start_at((Ipv4Addr::LOCALHOST, port).into(), handler)
    }

    /// As [`FakeHook::start`], at a given address: for callers that are not on loopback. Port 0: a free one.
    ///
    /// # Errors
    /// If the address is taken, or not ours.
    pub fn start_at(
        address: SocketAddr,
        handler: impl Fn(&Call) -> Answer + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        Self::serve(address, None, handler)
    }

    /// As [`FakeHook::start`], at an https URL.
    ///
    /// # Errors
    /// As [`FakeHook::start`].
    pub fn start_secure(
        tls: &Tls,
        handler: impl Fn(&Call) -> Answer + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        let address = (Ipv4Addr::LOCALHOST, 0).into();
        Self::serve(address, Some(tls.clone()), handler)
    }

    fn serve(
        address: SocketAddr,
        tls: Option<Tls>,
        handler: impl Fn(&Call) -> Answer + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        let is_secure = tls.is_some();
        let listener =
            std::net::TcpListener::bind(address).with_context(|| format!("listen on {address}"))?;
        let address = listener.local_addr().context("read the hook's address")?;
        listener
            .set_nonblocking(true)
            .context("prepare the hook's listener")?;
        let shared = Arc::new(Shared {
            handler: Mutex::new(Arc::new(handler)),
            calls: Mutex::default(),
        });
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("make a runtime for the hook")?;
        let server = server::serve(listener, tls, Arc::clone(&shared), stopped);
        let thread = thread::Builder::new()
            .name("fake-hook".to_owned())
            .spawn(move || runtime.block_on(server))
            .context("start the hook's thread")?;
        Ok(Self {
            address,
            is_secure,
            shared,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// A hook whose answer is JSON made from the request's JSON, with status 200.
    ///
    /// # Errors
    /// As [`FakeHook::start`].
    pub fn json(answer: impl Fn(&Value) -> Value + Send + Sync + 'static) -> anyhow::Result<Self> {
        Self::start(move |call| Answer::json(&answer(&call.json())))
    }

    /// A hook that gives these answers one after the other, and the last of them for ever.
    ///
    /// # Errors
    /// As [`FakeHook::start`].
    pub fn scripted(answers: Vec<Answer>) -> anyhow::Result<Self> {
        let hook = Self::start(|_| Answer::never())?;
        hook.script(answers);
        Ok(hook)
    }

    /// URL of `path` (which begins with `/`) on this hook: at `localhost` if it is secure.
    pub fn url(&self, path: &str) -> String {
        if self.is_secure {
            format!("https://localhost:{}{path}", self.address.port())
        } else {
            format!("http://{}{path}", self.address)
        }
    }

    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Gives later calls other answers.
    pub fn answer_with(&self, handler: impl Fn(&Call) -> Answer + Send + Sync + 'static) {
        *self.shared.handler.lock() = Arc::new(handler);
    }

    /// Gives the next calls these answers, one after the other, and all after them the last.
    pub fn script(&self, answers: Vec<Answer>) {
        let rest = Mutex::new(answers.into_iter().peekable());
        self.answer_with(move |_| {
            let mut rest = rest.lock();
            let next = rest.next();
            match (next, rest.peek()) {
                (Some(last), None) => {
                    let repeated = last.clone();
                    *rest = vec![repeated].into_iter().peekable();
                    last
                }
                (Some(answer), Some(_)) => answer,
                (None, _) => Answer::never(),
            }
        });
    }

    /// All calls so far, in the order of their receipt.
    pub fn calls(&self) -> Vec<Call> {
        self.shared.calls.lock().kept.values().cloned().collect()
    }

    /// The calls so far to `path`.
    pub fn calls_to(&self, path: &str) -> Vec<Call> {
        let mut calls = self.calls();
        calls.retain(|call| call.path == path);
        calls
    }

    /// The calls that have ended so far, in the order of their receipt; they are then forgotten.
    pub fn take_calls(&self) -> Vec<Call> {
        self.shared.calls.lock().take()
    }

    /// Number of calls so far.
    pub fn count(&self) -> usize {
        self.shared.calls.lock().kept.len()
    }

    /// Forgets the calls so far.
    pub fn forget(&self) {
        self.shared.calls.lock().kept.clear();
    }
}

impl Drop for FakeHook {
    /// Waits for the thread, so that nobody listens any more.
    fn drop(&mut self) {
        drop(self.stop.take());
        drop(self.thread.take().map(JoinHandle::join));
    }
}

impl fmt::Debug for FakeHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeHook")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// Time between the receipt of two calls; zero if `later` came first.
pub fn gap(earlier: &Call, later: &Call) -> Duration {
    later.received.saturating_duration_since(earlier.received)
}
