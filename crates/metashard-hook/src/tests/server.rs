//! A hook on a loopback port that reads requests by hand and writes the bytes that it is told to, good or bad.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use metashard_runtime::task;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::watch,
    time::{sleep, timeout},
};

use super::AMPLE;

pub(super) struct Server {
    address: SocketAddr,
    seen: Mutex<Vec<Request>>,
    counts: watch::Sender<Counts>,
}

/// What came and went so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) connections: usize,
    pub(super) requests: usize,
    /// Connections that the client has closed.
    pub(super) closed: usize,
}

/// One request as it was on the wire.
#[derive(Debug, Clone)]
pub(super) struct Request {
    /// From 0, over all connections.
    pub(super) number: usize,
    /// First line.
    pub(super) line: String,
    /// Header lines, names in lower case.
    pub(super) headers: Vec<String>,
    pub(super) body: Vec<u8>,
}

/// What to do about a request.
pub(super) enum Reply {
    /// Write, and wait for the next request on the connection.
    Keep(Vec<u8>),
    /// Write, and close.
    Close(Vec<u8>),
    /// Write, and close after a time in which no further request came.
    CloseLater(Vec<u8>, Duration),
    /// Write, and reset the connection.
    Reset(Vec<u8>),
    /// Write the first part, and after a time the second.
    Later(Vec<u8>, Duration, Vec<u8>),
    /// Write the first part, then the second for as long as the client takes it.
    Endless(Vec<u8>, Vec<u8>),
    /// Say nothing.
    Never,
}

impl Server {
    pub(super) async fn start(
        reply: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Arc::new(Self {
            address: listener.local_addr().unwrap(),
            seen: Mutex::default(),
            counts: watch::Sender::default(),
        });
        let reply: Arc<dyn Fn(&Request) -> Reply + Send + Sync> = Arc::new(reply);
        let accepting = Arc::clone(&server);
        drop(task::spawn("server", async move {
            while let Ok((tcp, _)) = listener.accept().await {
                accepting.count(|counts| counts.connections += 1);
                let (server, reply) = (Arc::clone(&accepting), Arc::clone(&reply));
                drop(task::spawn("connection", async move {
                    server.serve(tcp, &*reply).await;
                }));
            }
        }));
        server
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(super) fn counts(&self) -> Counts {
        *self.counts.borrow()
    }

    pub(super) fn requests(&self) -> Vec<Request> {
        self.seen.lock().clone()
    }

    /// Waits until the counts satisfy `is_so`.
    pub(super) async fn until(&self, is_so: impl FnMut(&Counts) -> bool) {
        let mut counts = self.counts.subscribe();
        timeout(AMPLE, counts.wait_for(is_so))
            .await
            .unwrap_or_else(|_| panic!("it never came to that: {:?}", self.counts()))
            .unwrap();
    }

    fn count(&self, change: impl FnOnce(&mut Counts)) {
        self.counts.send_modify(change);
    }

    async fn serve(&self, tcp: TcpStream, reply: &(dyn Fn(&Request) -> Reply + Send + Sync)) {
        let mut stream = BufReader::new(tcp);
        while let Some(request) = self.read(&mut stream).await {
            let reply = reply(&request);
            self.count(|counts| counts.requests += 1);
            match reply {
                Reply::Keep(bytes) => drop(stream.write_all(&bytes).await),
                Reply::Close(bytes) => {
                    drop(stream.write_all(&bytes).await);
                    return;
                }
                Reply::CloseLater(bytes, wait) => {
                    drop(stream.write_all(&bytes).await);
                    sleep(wait).await;
                    drop(stream);
                    self.count(|counts| counts.closed += 1);
                    return;
                }
                Reply::Reset(bytes) => {
                    drop(stream.write_all(&bytes).await);
                    // Let the bytes arrive before the reset overtakes them.
                    sleep(Duration::from_millis(50)).await;
                    stream.get_ref().set_zero_linger().unwrap();
                    return;
                }
                Reply::Later(first, wait, second) => {
                    drop(stream.write_all(&first).await);
                    sleep(wait).await;
                    drop(stream.write_all(&second).await);
                }
                Reply::Endless(first, again) => {
                    drop(stream.write_all(&first).await);
                    while stream.write_all(&again).await.is_ok() {}
                    break;
                }
                Reply::Never => {
                    // Ends when the client closes.
                    drop(stream.read(&mut [0]).await);
                    break;
                }
            }
        }
        self.count(|counts| counts.closed += 1);
    }

    async fn read(&self, stream: &mut BufReader<TcpStream>) -> Option<Request> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await.ok()? == 0 {
                return None;
            }
            match line.trim_end() {
                "" => break,
                line => lines.push(line.to_owned()),
            }
        }
        let mut request = Request {
            number: 0,
            line: lines.remove(0),
            headers: lines.iter().map(|line| lower_name(line)).collect(),
            body: Vec::new(),
        };
        let length = request.header("content-length");
        request.body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        stream.read_exact(&mut request.body).await.ok()?;
        let mut seen = self.seen.lock();
        request.number = seen.len();
        seen.push(request.clone());
        Some(request)
    }
}

impl Request {
    /// Value of a header; `name` is in lower case.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

fn lower_name(line: &str) -> String {
    let (name, value) = line.split_once(':').unwrap();
    format!("{}:{value}", name.to_lowercase())
}
