//! What is measured: a replica of metashard, or another program in its place, as a real process.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command},
    time::Duration,
};

use anyhow::{Context, ensure};
use metashard_api::names::SYSTEM_NAMESPACE;
use metashard_testkit::{cluster::free_port, group::Group};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// Flags of a peer: by default it has 5 syncs and 5 requests a second, which is what would be measured.
const PEER: [&str; 3] = [
    "--workers=20",
    "--client-go-qps=10000",
    "--client-go-burst=10000",
];

/// How long a question to a process may take.
const ANSWERS_WITHIN: Duration = Duration::from_millis(400);

/// Where a process runs.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// The network namespace; `None`: that of this process.
    pub(crate) namespace: Option<String>,
    /// Its address for questions.
    pub(crate) host: String,
    /// Its address for other replicas.
    pub(crate) peers_host: String,
}

/// How to start one.
#[derive(Debug, Clone)]
pub(crate) struct Recipe {
    pub(crate) program: PathBuf,
    pub(crate) is_peer: bool,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) plant: String,
}

/// A running process, killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) name: String,
    child: Child,
    pub(crate) contact: Contact,
}

/// How to ask a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Contact {
    pub(crate) name: String,
    pub(crate) pid: u32,
    metrics: String,
    health: String,
}

impl Subject {
    /// Starts a process as part of `group`.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) fn start(
        group: &Group,
        name: &str,
        place: &Place,
        recipe: &Recipe,
    ) -> anyhow::Result<Self> {
        let metrics = format!("{}:{}", place.host, free_port()?);
        let health = format!("{}:{}", place.host, free_port()?);
        let mut command = match &place.namespace {
            Some(namespace) => {
                let mut command = Command::new("ip");
                // It becomes the program: signals reach that.
                command
                    .args(["netns", "exec", namespace])
                    .arg(&recipe.program);
                command
            }
            None => Command::new(&recipe.program),
        };
        command
            .args(["--metrics-address", &metrics])
            .args(["--health-probe-bind-address", &health]);
        if recipe.is_peer {
            // What it calls the flag has changed over time; the variable has not.
            command.env("KUBECONFIG", &recipe.kubeconfig).args(PEER);
        } else {
            command
                .arg("--kubeconfig")
                .arg(&recipe.kubeconfig)
                .args(["--replica-name", name])
                .args(["--system-namespace", SYSTEM_NAMESPACE])
                .args(["--grpc-address", &format!("{}:0", place.peers_host)])
                .env("METASHARD_FAULTS", &recipe.plant);
        }
        let child = group.spawn(&mut command, name)?;
        let contact = Contact {
            name: name.to_owned(),
            pid: child.id(),
            metrics,
            health,
        };
        Ok(Self {
            name: name.to_owned(),
            child,
            contact,
        })
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        kill_process(Pid::from_child(&self.child), signal)
            .with_context(|| format!("signal {}", self.name))
    }

    /// Ends it as a crash does, and waits for its end.
    pub(crate) fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill().context("kill a process")?;
        self.child.wait().context("wait for a process")?;
        Ok(())
    }

    /// Whether the process has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Contact {
    /// The text of `/metrics`.
    pub(crate) async fn metrics(&self) -> anyhow::Result<String> {
        get(&self.metrics, "/metrics").await
    }

    /// Whether it says that it is ready.
    pub(crate) async fn is_ready(&self) -> anyhow::Result<()> {
        get(&self.health, "/readyz").await.map(drop)
    }

    /// CPU time so far.
    pub(crate) fn cpu(&self) -> Option<Duration> {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok()?;
        // The name of the program may have spaces, and ends with the last parenthesis.
        let (_, fields) = text.rsplit_once(") ")?;
        let mut ticks = fields.split(' ').skip(11).take(2).map(str::parse::<u64>);
        let ticks = ticks.next()?.ok()? + ticks.next()?.ok()?;
        // The kernel's USER_HZ is 100 on every machine that Rust runs on.
        Some(Duration::from_millis(10 * ticks))
    }

    /// Memory in use, and the most that was, in MiB.
    pub(crate) fn memory(&self) -> Option<(u64, u64)> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            let kib = line.trim().strip_suffix(" kB")?;
            kib.parse::<u64>().ok().map(|it| it / 1024)
        };
        Some((field("VmRSS:")?, field("VmHWM:")?))
    }
}

/// The body of an answer with status 200.
async fn get(address: &str, path: &str) -> anyhow::Result<String> {
    let ask = async {
        let mut stream = TcpStream::connect(address).await?;
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        anyhow::Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    let answer = timeout(ANSWERS_WITHIN, ask).await.context("no answer")??;
    let (head, body) = answer.split_once("\r\n\r\n").context("half an answer")?;
    ensure!(head.starts_with("HTTP/1.1 200"), "{path}: {head}");
    Ok(body.to_owned())
}

/// The sum of the samples of a metric.
pub(crate) fn total(metrics: &str, name: &str) -> f64 {
    let values = metrics.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let is_it = rest.starts_with(' ') || rest.starts_with('{');
        let (_, value) = rest.rsplit_once(' ')?;
        is_it.then(|| value.parse::<f64>().ok())?
    });
    values.sum()
}

/// Text of a kubeconfig file that reaches the API server by another address.
pub(crate) fn by_way_of(kubeconfig: &Path, url: &str, host: &str) -> anyhow::Result<String> {
    let text = fs::read_to_string(kubeconfig).context("read a kubeconfig file")?;
    let port = url.rsplit(':').next().context("read a port")?;
    Ok(text.replace(url, &format!("https://{host}:{port}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_total_counts_all_samples_of_that_very_metric() {
        let text = "# HELP a b\na 1\na{id=\"x\"} 2\nab 4\na_total 8\n";

        assert!((total(text, "a") - 3.0).abs() < 1e-9);
    }
}
