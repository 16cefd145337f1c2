//! A TCP proxy before the API server, whose connections can be cut and held up.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use anyhow::Context;
use metashard_runtime::task::{self, Tasks};
use metashard_testkit::Cluster;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
};

/// What happens to the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// They pass.
    Open,
    /// They wait, as if the network lost them.
    Held,
    /// Every connection ends at once.
    Cut,
}

/// Passes connections on to the API server of a cluster.
pub(crate) struct Proxy {
    pub(crate) kubeconfig: PathBuf,
    mode: Arc<watch::Sender<Mode>>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Proxy {
    pub(crate) async fn before(cluster: &Cluster) -> anyhow::Result<Self> {
        let target: SocketAddr = cluster
            .url()
            .strip_prefix("https://")
            .context("the URL of a cluster")?
            .parse()?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let text = std::fs::read_to_string(cluster.kubeconfig(metashard_testkit::cluster::ADMIN)?)?;
        let kubeconfig = cluster
            .folder()
            .join(format!("proxy-{}.kubeconfig", address.port()));
        std::fs::write(
            &kubeconfig,
            text.replace(cluster.url(), &format!("https://{address}")),
        )?;
        let mode = Arc::new(watch::Sender::new(Mode::Open));
        let accepting = task::spawn("proxy", accept(listener, target, Arc::clone(&mode)));
        Ok(Self {
            kubeconfig,
            mode,
            accepting,
        })
    }

    /// Lets everything through.
    pub(crate) fn open(&self) {
        self.mode.send_replace(Mode::Open);
    }

    /// Holds everything up, silently.
    pub(crate) fn hold(&self) {
        self.mode.send_replace(Mode::Held);
    }

    /// Ends every connection, and every new one.
    pub(crate) fn cut(&self) {
        self.mode.send_replace(Mode::Cut);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, target: SocketAddr, mode: Arc<watch::Sender<Mode>>) {
    let mut connections = Tasks::new();
    while let Ok((client, _)) = listener.accept().await {
        let mode = mode.subscribe();
        connections.spawn("connection", async move {
            let mut cut = mode.clone();
            let both = async {
                let server = TcpStream::connect(target).await?;
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                tokio::try_join!(
                    pass(from_client, to_server, mode.clone()),
                    pass(from_server, to_client, mode)
                )?;
                anyhow::Ok(())
            };
            tokio::select! {
                _ = both => {}
                _ = cut.wait_for(|mode| *mode == Mode::Cut) => {}
            }
        });
    }
}

async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut mode: watch::Receiver<Mode>,
) -> anyhow::Result<()> {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let length = from.read(&mut buffer).await?;
        mode.wait_for(|mode| *mode != Mode::Held).await?;
        match buffer.get(..length) {
            Some(chunk) if !chunk.is_empty() => to.write_all(chunk).await?,
            _ => return Ok(to.shutdown().await?),
        }
    }
}
