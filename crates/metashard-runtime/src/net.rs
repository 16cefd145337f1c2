//! Connections between replicas. They are TCP; a simulated fleet hands in those of its simulated network.

use std::{fmt, io, pin::Pin, sync::Arc};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
};

/// Bytes in both directions.
pub trait Stream: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin> Stream for S {}

/// One connection, open.
pub type Connection = Box<dyn Stream>;

type Opening = Pin<Box<dyn Future<Output = io::Result<Connection>> + Send>>;

/// Opens connections. Cheap to clone.
#[derive(Clone)]
pub struct Dialer(Arc<dyn Fn(String) -> Opening + Send + Sync>);

/// Where connections come in.
pub struct Listener(Box<dyn Fn() -> Opening + Send + Sync>);

impl Dialer {
    /// Opens connections by TCP.
    pub fn tcp() -> Self {
        Self::new(|address| async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(stream)
        })
    }

    /// Opens connections, each to an address `host:port`, by `open`.
    pub fn new<F, S>(open: impl Fn(String) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = io::Result<S>> + Send + 'static,
        S: Stream + 'static,
    {
        Self(Arc::new(move |address| {
            let opening = open(address);
            Box::pin(async move { Ok(Box::new(opening.await?) as Connection) })
        }))
    }

    /// Opens a connection to `host:port`.
    ///
    /// # Errors
    ///
    /// When nobody takes it.
    pub async fn connect(&self, address: &str) -> io::Result<Connection> {
        (self.0)(address.to_owned()).await
    }
}

impl Listener {
    /// Takes connections, each by a call of `accept`.
    pub fn new<F, S>(accept: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = io::Result<S>> + Send + 'static,
        S: Stream + 'static,
    {
        Self(Box::new(move || {
            let opening = accept();
            Box::pin(async move { Ok(Box::new(opening.await?) as Connection) })
        }))
    }

    /// Takes the next connection.
    ///
    /// # Errors
    ///
    /// When the process has no room for it, most likely; the next one may do.
    pub async fn accept(&self) -> io::Result<Connection> {
        (self.0)().await
    }
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        let listener = Arc::new(listener);
        Self::new(move || {
            let listener = Arc::clone(&listener);
            async move {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(stream)
            }
        })
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer").finish_non_exhaustive()
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").finish_non_exhaustive()
    }
}
