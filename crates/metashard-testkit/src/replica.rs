//! metashard itself as a real process.

use std::{
    env,
    path::PathBuf,
    process::{Child, Command, ExitStatus},
    time::Duration,
};

use anyhow::{Context, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    cluster::{Cluster, free_port},
    group::{Group, tail},
    loopback::get,
    wait::eventually,
};

/// Names the program of a replica; without it, the one that cargo built beside the test is used.
const BINARY: &str = "METASHARD_BIN";

/// How to start a replica.
#[derive(Debug, Clone)]
pub struct Options {
    /// Its name, unique in the cluster.
    pub name: String,
    /// Kubeconfig file of the user that it runs as.
    pub kubeconfig: PathBuf,
    /// Namespace of the Leases and the ShardMap; one for each installation.
    pub system_namespace: String,
    /// Further flags.
    pub flags: Vec<String>,
    /// Whether its health server can also be reached from elsewhere, as through the API server.
    pub is_reachable: bool,
    /// Faults that it is planted with, as `metashard_runtime::fault::plant` reads them; a release build has none.
    pub faults: String,
    /// Further variables of its environment.
    pub environment: Vec<(String, String)>,
}

/// One running process of metashard, killed when it is dropped.
///
/// In a test, its log is printed at its end, which the test runner shows if the test fails.
#[derive(Debug)]
pub struct Replica {
    name: String,
    child: Child,
    log: PathBuf,
    metrics_port: u16,
    health_port: u16,
}

impl Options {
    /// A replica that may do everything in `cluster`. What it does is recorded if the cluster is
    /// [recorded](crate::cluster::Options::recorded).
    ///
    /// # Errors
    /// If the kubeconfig file cannot be written.
    pub fn new(cluster: &Cluster, name: &str, system_namespace: &str) -> anyhow::Result<Self> {
        Ok(Self {
            name: name.to_owned(),
            kubeconfig: cluster.front_kubeconfig()?,
            system_namespace: system_namespace.to_owned(),
            flags: cluster.record_flags(),
            is_reachable: false,
            faults: String::new(),
            environment: Vec::new(),
        })
    }

    /// The same with further flags.
    #[must_use]
    pub fn flags<'a>(mut self, flags: impl IntoIterator<Item = &'a str>) -> Self {
        self.flags.extend(flags.into_iter().map(str::to_owned));
        self
    }

    /// The same without a recording, for a replica whose own use of something is measured.
    #[must_use]
    pub fn unrecorded(mut self) -> Self {
        self.flags.retain(|flag| !flag.starts_with("--record-"));
        self
    }

    /// The same with faults.
    #[must_use]
    pub fn faults(mut self, faults: &str) -> Self {
        faults.clone_into(&mut self.faults);
        self
    }

    /// The same with further variables of its environment.
    #[must_use]
    pub fn environment(mut self, variables: &[(String, String)]) -> Self {
        self.environment.extend_from_slice(variables);
        self
    }
}

impl Replica {
    /// Starts a replica as part of `group`, with metrics, health and gRPC on free ports of loopback.
    /// It does not wait until it is ready.
    ///
    /// # Errors
    /// If the program is missing or cannot be started.
    pub fn start(group: &Group, options: &Options) -> anyhow::Result<Self> {
        let metrics_port = free_port()?;
        let health_port = free_port()?;
        let health_host = if options.is_reachable {
            ""
        } else {
            "127.0.0.1"
        };
        let mut command = Command::new(binary()?);
        command
            .arg("--kubeconfig")
            .arg(&options.kubeconfig)
            .args(["--replica-name", &options.name])
            .args(["--system-namespace", &options.system_namespace])
            .args(["--metrics-address", &format!("127.0.0.1:{metrics_port}")])
            .args([
                "--health-probe-bind-address",
                &format!("{health_host}:{health_port}"),
            ])
            .args(["--grpc-address", "127.0.0.1:0"])
            .args(&options.flags)
            .env("METASHARD_FAULTS", &options.faults)
            .envs(options.environment.iter().cloned());
        let child = group.spawn(&mut command, &options.name)?;
        Ok(Self {
            name: options.name.clone(),
            child,
            log: group.log(&options.name),
            metrics_port,
            health_port,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal: `TERM` to drain, `KILL` to crash, `STOP` and `CONT` to freeze and to thaw.
    ///
    /// # Errors
    /// If the process has ended and was waited for.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        kill_process(Pid::from_child(&self.child), signal)
            .with_context(|| format!("signal replica {}", self.name))
    }

    /// Crashes it and waits for its end.
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill().context("kill a replica")?;
        self.child.wait().context("wait for a replica")?;
        Ok(())
    }

    /// Whether the process has not ended.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until the process has ended by itself.
    ///
    /// # Errors
    /// If it has not within `within`.
    pub async fn ended(&mut self, within: Duration) -> anyhow::Result<ExitStatus> {
        let what = format!("the end of replica {}", self.name);
        eventually(within, &what, async || {
            self.child.try_wait()?.context("it still runs")
        })
        .await
    }

    /// Waits until `/readyz` says so.
    ///
    /// # Errors
    /// If it does not within `within`, or the process ends; the text has the end of its log.
    pub async fn ready(&mut self, within: Duration) -> anyhow::Result<()> {
        let what = format!("replica {} to be ready", self.name);
        let port = self.health_port;
        eventually(within, &what, async || {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Ok(Err(anyhow::anyhow!("it ended with {status}")));
            }
            let (status, body) = get(port, "/readyz?verbose").await?;
            ensure!(status == 200, "it answers {status}: {body}");
            Ok(Ok(()))
        })
        .await
        .and_then(|it| it)
        .with_context(|| {
            format!(
                "start replica {}; the end of its log:\n{}\n",
                self.name,
                self.log()
            )
        })
    }

    /// Port of the health server.
    pub fn health_port(&self) -> u16 {
        self.health_port
    }

    /// URL of the health server, which tells syncs too.
    pub fn health_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.health_port)
    }

    /// Status and body of `path` on the health server.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn health(&self, path: &str) -> anyhow::Result<(u16, String)> {
        get(self.health_port, path).await
    }

    /// The text of `/metrics`.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn metrics(&self) -> anyhow::Result<String> {
        Ok(get(self.metrics_port, "/metrics").await?.1)
    }

    /// The value of one sample of `/metrics`, named as there, with all its labels.
    ///
    /// # Errors
    /// If there is no answer, or no such sample in it.
    pub async fn metric(&self, sample: &str) -> anyhow::Result<f64> {
        let text = self.metrics().await?;
        let value = text.lines().find_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            (name == sample).then_some(value)
        });
        let value = value.with_context(|| format!("find sample {sample}"))?;
        value
            .parse()
            .with_context(|| format!("read sample {sample}"))
    }

    /// The last lines of what it has printed.
    pub fn log(&self) -> String {
        tail(&self.log)
    }

    /// Everything that it has printed.
    pub fn whole_log(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Replica {
    #[expect(
        clippy::print_stdout,
        reason = "the test runner keeps it, and shows it if the test fails"
    )]
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        if cfg!(debug_assertions) && in_test() {
            println!(
                "--- end of the log of replica {}\n{}",
                self.name,
                self.log()
            );
        }
    }
}

/// Whether this process is a test binary: only those lie in cargo's `deps` folder.
fn in_test() -> bool {
    env::current_exe().is_ok_and(|it| it.parent().is_some_and(|folder| folder.ends_with("deps")))
}

/// Path of the program of a replica.
///
/// # Errors
/// If it is not there; the text says how to build it.
pub fn binary() -> anyhow::Result<PathBuf> {
    if let Some(path) = env::var_os(BINARY) {
        return Ok(path.into());
    }
    built("metashard")
}

/// Path of the program `name` of this workspace, as cargo built it with the profile of this process.
///
/// # Errors
/// If it is not there; the text says how to build it.
pub fn built(name: &str) -> anyhow::Result<PathBuf> {
    let this = env::current_exe().context("find the folder of this program")?;
    let folder = this.parent().context("find the folder of this program")?;
    let folder = if folder.ends_with("deps") || folder.ends_with("examples") {
        folder.parent().unwrap_or(folder)
    } else {
        folder
    };
    let path = folder.join(name);
    ensure!(
        path.is_file(),
        "find {}: build it with `cargo build --bin {name}`",
        path.display()
    );
    Ok(path)
}
