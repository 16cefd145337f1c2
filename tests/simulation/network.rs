//! The network between the hosts: connections of turmoil that can be held up, one way or both, and cut, and those of a
//! process that is stopped.
//!
//! What is held up arrives later, as TCP has it: what was written is read once the way is free, even if the writer has
//! given up long since.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use metashard_runtime::net::{Dialer, Listener};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use turmoil::net::{TcpListener, TcpStream};

/// Name of a host.
pub(crate) type Host = &'static str;

/// The API server's host, and where it listens.
pub(crate) const STORE: Host = "store";
pub(crate) const STORE_PORT: u16 = 80;

/// Where replicas listen.
pub(crate) const GRPC_PORT: u16 = 9443;

/// How the ways between hosts are. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Network(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Ways that are held up, each by how many faults.
    held_up: BTreeMap<(Host, Host), usize>,
    /// How often the connections between two hosts were cut.
    cuts: BTreeMap<(Host, Host), u64>,
    stopped: BTreeSet<Host>,
    /// Who waits, by connection and direction.
    wakers: BTreeMap<(u64, Way), Waker>,
    n_connections: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    In,
    Out,
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct Link {
    network: Network,
    me: Host,
    peer: Host,
    number: u64,
    cuts: u64,
    stream: TcpStream,
}

impl Network {
    /// Holds up what goes from one host to another.
    pub(crate) fn hold_up(&self, from: Host, to: Host) {
        *self.0.lock().held_up.entry((from, to)).or_default() += 1;
    }

    /// Ends one [`Self::hold_up`].
    pub(crate) fn let_through(&self, from: Host, to: Host) {
        let mut state = self.0.lock();
        if let Some(faults) = state.held_up.get_mut(&(from, to)) {
            *faults = faults.saturating_sub(1);
        }
        state.wake();
    }

    /// Breaks all connections between two hosts.
    pub(crate) fn cut(&self, one: Host, other: Host) {
        let mut state = self.0.lock();
        *state.cuts.entry(pair(one, other)).or_default() += 1;
        state.wake();
    }

    /// A stopped process neither reads nor writes.
    pub(crate) fn set_stopped(&self, host: Host, stopped: bool) {
        let mut state = self.0.lock();
        if stopped {
            state.stopped.insert(host);
        } else {
            state.stopped.remove(host);
            state.wake();
        }
    }

    /// Opens connections of `me` to replicas.
    pub(crate) fn dialer(&self, me: Host) -> Dialer {
        let network = self.clone();
        Dialer::new(move |address| {
            let network = network.clone();
            async move { network.open(me, address).await }
        })
    }

    /// Opens a connection of `me` to the API server.
    pub(crate) async fn open_store(self, me: Host) -> io::Result<TokioIo<Link>> {
        let link = self.open(me, format!("{STORE}:{STORE_PORT}")).await?;
        Ok(TokioIo::new(link))
    }

    /// Takes connections of replicas on `me`.
    pub(crate) async fn listener(&self, me: Host) -> io::Result<Listener> {
        let listener = Arc::new(self.listen(me, GRPC_PORT).await?);
        Ok(Listener::new(move || {
            let listener = Arc::clone(&listener);
            async move { listener.accept().await }
        }))
    }

    /// Listens on `me`.
    pub(crate) async fn listen(&self, me: Host, port: u16) -> io::Result<Ear> {
        let listener = TcpListener::bind(("0.0.0.0", port)).await?;
        Ok(Ear {
            network: self.clone(),
            me,
            listener,
        })
    }

    async fn open(self, me: Host, address: String) -> io::Result<Link> {
        let (name, _) = address.split_once(':').unwrap_or((&address, ""));
        let peer = crate::plan::host(name);
        let stream = TcpStream::connect(address).await?;
        Ok(self.link(me, peer, stream))
    }

    fn link(&self, me: Host, peer: Host, stream: TcpStream) -> Link {
        let mut state = self.0.lock();
        state.n_connections += 1;
        Link {
            network: self.clone(),
            me,
            peer,
            number: state.n_connections,
            cuts: state.cuts(me, peer),
            stream,
        }
    }
}

/// Takes connections.
pub(crate) struct Ear {
    network: Network,
    me: Host,
    listener: TcpListener,
}

impl Ear {
    pub(crate) async fn accept(&self) -> io::Result<Link> {
        let (stream, peer) = self.listener.accept().await?;
        let peer = turmoil::reverse_lookup(peer.ip()).unwrap_or_default();
        Ok(self.network.link(self.me, crate::plan::host(&peer), stream))
    }
}

impl State {
    fn cuts(&self, one: Host, other: Host) -> u64 {
        self.cuts.get(&pair(one, other)).copied().unwrap_or(0)
    }

    fn wake(&mut self) {
        for waker in std::mem::take(&mut self.wakers).into_values() {
            waker.wake();
        }
    }
}

impl Link {
    /// Whether bytes may pass now; whoever has to wait is woken when that changes.
    fn passes(&self, way: Way, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.network.0.lock();
        if state.cuts(self.me, self.peer) != self.cuts {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        // Also when it passes: the connection may be cut while it waits for bytes.
        state.wakers.insert((self.number, way), cx.waker().clone());
        let is_held_up = way == Way::In
            && state
                .held_up
                .get(&(self.peer, self.me))
                .is_some_and(|faults| *faults > 0);
        if is_held_up || state.stopped.contains(self.me) {
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Link {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.passes(Way::In, cx))?;
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Link {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.passes(Way::Out, cx))?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Connection for Link {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let mut state = self.network.0.lock();
        state.wakers.remove(&(self.number, Way::In));
        state.wakers.remove(&(self.number, Way::Out));
    }
}

fn pair(one: Host, other: Host) -> (Host, Host) {
    (one.min(other), one.max(other))
}
