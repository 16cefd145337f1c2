//! The byte stream under a connection, plain or TLS, which remembers whether anything came in.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::client::TlsStream;

/// A connected socket.
pub(super) struct Stream {
    transport: Transport,
    heard: Arc<AtomicBool>,
}

enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    pub(super) fn plain(tcp: TcpStream) -> Self {
        Self::new(Transport::Plain(tcp))
    }

    pub(super) fn tls(tls: TlsStream<TcpStream>) -> Self {
        Self::new(Transport::Tls(Box::new(tls)))
    }

    /// Set when a byte comes in; whoever wants to know clears it.
    pub(super) fn heard(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.heard)
    }

    fn new(transport: Transport) -> Self {
        Self {
            transport,
            heard: Arc::new(AtomicBool::new(false)),
        }
    }

    fn writer(self: Pin<&mut Self>) -> Pin<&mut (dyn AsyncWrite + Unpin)> {
        match &mut self.get_mut().transport {
            Transport::Plain(tcp) => Pin::new(tcp),
            Transport::Tls(tls) => Pin::new(&mut **tls),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = match &mut this.transport {
            Transport::Plain(tcp) => Pin::new(tcp).poll_read(cx, buffer),
            Transport::Tls(tls) => Pin::new(&mut **tls).poll_read(cx, buffer),
        };
        if buffer.filled().len() > before {
            this.heard.store(true, Ordering::Relaxed);
        }
        read
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.writer().poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.writer().poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.transport {
            Transport::Plain(tcp) => tcp.is_write_vectored(),
            Transport::Tls(tls) => tls.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writer().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writer().poll_shutdown(cx)
    }
}
