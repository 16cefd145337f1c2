//! A real control plane on loopback: etcd, kube-apiserver and, if asked for, kube-controller-manager.
//!
//! No nodes: objects are stored, validated, watched and (with the controller manager) garbage-collected,
//! but no Pod ever runs.

use std::{
    fs,
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    process::{Child, Command},
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::{Context, ensure};
use k8s_openapi::{api::core::v1::Namespace, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, Client,
    api::{DynamicObject, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::sync::OnceCell;

use crate::{
    apply::apply_yaml,
    assets::{Assets, Wanted},
    group::{Group, tail},
    proxy::{Exchange, Proxy},
    wait::eventually,
};

mod certificates;
mod ports;
mod second;
mod servers;

use certificates::{Certificates, Files};
use servers::Servers;

pub use ports::{free_port, own_address};
pub use second::SecondServer;

/// Time for a server to become ready; in practice three seconds.
const READY_WITHIN: Duration = Duration::from_mins(1);

/// Time for a server to end after SIGTERM, before it gets SIGKILL.
const STOP_WITHIN: Duration = Duration::from_secs(10);

/// Name of the user of [`Cluster::admin`], who may do everything.
pub const ADMIN: &str = "admin";

/// What kind of cluster to start. The default is the fastest: no controller manager, no audit log.
#[derive(Debug, Clone, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own of a test"
)]
pub struct Options {
    /// Version of Kubernetes, such as `1.34.4`; `None`: `$METASHARD_KUBERNETES_VERSION`, else whatever is found first.
    pub version: Option<String>,
    /// Also run kube-controller-manager with the controllers that tests rely on: garbage collection,
    /// deletion of namespaces, ServiceAccounts (without it each namespace lacks its `default` one), and the Pods of
    /// Deployments and StatefulSets.
    pub controller_manager: bool,
    /// Write one line of JSON for each finished request: [`Cluster::audit_events`].
    pub audit: bool,
    /// Replicas reach the API server by a proxy, and record their passes: [`Cluster::sent`], [`Cluster::recordings`].
    pub recorded: bool,
    /// With the objects that were sent and answered: what [`crate::history`] is made from. Takes much room.
    pub audit_bodies: bool,
    /// A further address of this machine that the API server listens on, for clients that are not on loopback.
    pub address: Option<String>,
    /// Further flags of kube-apiserver.
    pub api_server_args: Vec<String>,
}

/// A running control plane. Dropping it, or ending this process in whatever way, ends all its processes
/// and removes its files.
#[derive(Debug)]
pub struct Cluster {
    servers: Servers,
    certificates: Certificates,
    /// The API server's process; `None` while it is stopped.
    api_server: Mutex<Option<Child>>,
    /// The other servers, in the order of their start.
    others: Mutex<Vec<Child>>,
    /// What was written by any of its proxies.
    sent: Arc<Mutex<Vec<Exchange>>>,
    /// What replicas reach the API server by, if that is recorded.
    front: OnceLock<Proxy>,
    group: Group,
}

impl Cluster {
    /// Starts a control plane and waits until it is ready.
    ///
    /// # Errors
    /// If the binaries are missing, or a server does not become ready; the text has the end of its log.
    pub async fn start(options: Options) -> anyhow::Result<Self> {
        // Two clusters that start at once may pick the same free port.
        let mut attempt = Self::try_start(&options).await;
        for _ in 0..2 {
            if attempt.is_ok() {
                break;
            }
            attempt = Self::try_start(&options).await;
        }
        attempt
    }

    /// The cluster that all tests of this process share, started with the default options by the first to ask.
    /// Use a [fresh namespace](Self::namespace) each.
    ///
    /// # Errors
    /// As [`Cluster::start`].
    pub async fn shared() -> anyhow::Result<&'static Self> {
        static SHARED: OnceCell<Cluster> = OnceCell::const_new();
        SHARED
            .get_or_try_init(|| Self::start(Options::default()))
            .await
    }

    async fn try_start(options: &Options) -> anyhow::Result<Self> {
        // Err: another crate of this process has installed a provider already, which is as good.
        drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
        let wanted = Wanted {
            version: options.version.clone().or_else(|| {
                std::env::var_os("METASHARD_KUBERNETES_VERSION")?
                    .into_string()
                    .ok()
            }),
            controller_manager: options.controller_manager,
        };
        let assets = Assets::find(&wanted)?;
        let group = Group::new()?;
        let folder = group.folder();
        let certificates =
            Certificates::new(folder, options.address.as_deref()).context("make certificates")?;
        let servers = Servers::new(assets, folder, options)?;
        let this = Self {
            servers,
            certificates,
            api_server: Mutex::new(None),
            others: Mutex::default(),
            sent: Arc::default(),
            front: OnceLock::new(),
            group,
        };
        this.write_admin_kubeconfig()?;
        this.spawn_other(&mut this.servers.etcd(), "etcd")?;
        this.start_api_server().await?;
        if options.recorded {
            let front = Proxy::start(&this)?;
            this.front.get_or_init(|| front);
        }
        if options.controller_manager {
            let mut command = this.servers.controller_manager(&this.kubeconfig(ADMIN)?)?;
            this.spawn_other(&mut command, "kube-controller-manager")?;
        }
        Ok(this)
    }

    /// URL of the API server.
    pub fn url(&self) -> &str {
        &self.servers.url
    }

    /// The processes of the cluster. A program that is started here, such as a replica or a hook, ends with it.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Folder of the cluster's files and of the logs (`<process>.log`) of all its processes.
    pub fn folder(&self) -> &Path {
        self.group.folder()
    }

    /// A new client with all rights, to be used on the runtime that calls this.
    ///
    /// # Errors
    /// If the client cannot be made.
    pub async fn admin(&self) -> anyhow::Result<Client> {
        self.client(ADMIN).await
    }

    /// A new client of [`Cluster::kubeconfig`]'s `user`.
    ///
    /// # Errors
    /// If the client cannot be made.
    pub async fn client(&self, user: &str) -> anyhow::Result<Client> {
        client_of(&self.kubeconfig(user)?).await
    }

    /// Path of a kubeconfig file for `user`: [`ADMIN`], or anybody else, who has no rights but those of every
    /// authenticated user until a test binds a role to that name.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn kubeconfig(&self, user: &str) -> anyhow::Result<PathBuf> {
        let path = self.folder().join(format!("{user}.kubeconfig"));
        if !path.exists() {
            let files = self.user_files(user)?;
            let text = servers::kubeconfig(
                self.url(),
                &self.certificates.authority(),
                &serde_json::json!({
                    "client-certificate": files.certificate,
                    "client-key": files.key,
                }),
            );
            fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        }
        Ok(path)
    }

    /// A new certificate of a user, and its key.
    pub(crate) fn user_files(&self, user: &str) -> anyhow::Result<Files> {
        self.certificates.user(user)
    }

    /// Path of the kubeconfig file by which replicas reach the API server with all rights.
    pub(crate) fn front_kubeconfig(&self) -> anyhow::Result<PathBuf> {
        match self.front.get() {
            Some(front) => Ok(front.kubeconfig()),
            None => self.kubeconfig(ADMIN),
        }
    }

    /// The flags by which replicas record their passes; none if they do not.
    pub(crate) fn record_flags(&self) -> Vec<String> {
        if self.front.get().is_none() {
            return Vec::new();
        }
        let folder = self.recordings();
        vec![
            format!("--record-dir={}", folder.display()),
            "--record-mib=4096".to_owned(),
            "--record-secrets".to_owned(),
        ]
    }

    /// Folder with a folder for each replica that has recorded passes.
    pub fn recordings(&self) -> PathBuf {
        self.folder().join("recordings")
    }

    /// What was written by way of proxies so far, in the order in which it was sent, without the first `skipped`.
    pub fn sent(&self, skipped: usize) -> Vec<Exchange> {
        let sent = self.sent.lock();
        sent.get(skipped..).unwrap_or_default().to_vec()
    }

    /// Where proxies put what they see.
    pub(crate) fn sent_to(&self) -> Arc<Mutex<Vec<Exchange>>> {
        Arc::clone(&self.sent)
    }

    fn write_admin_kubeconfig(&self) -> anyhow::Result<()> {
        let path = self.folder().join(format!("{ADMIN}.kubeconfig"));
        fs::write(&path, self.admin_kubeconfig(self.url()))
            .with_context(|| format!("write {}", path.display()))
    }

    /// Text of a kubeconfig file of the administrator that reaches the API server by `url`.
    pub(crate) fn admin_kubeconfig(&self, url: &str) -> String {
        let user = serde_json::json!({ "token": self.servers.admin_token });
        servers::kubeconfig(url, &self.certificates.authority(), &user)
    }

    /// Text of a kubeconfig file of nobody.
    pub(crate) fn anonymous_kubeconfig(&self, url: &str) -> String {
        servers::kubeconfig(url, &self.certificates.authority(), &serde_json::json!({}))
    }

    /// The certificate that the API server shows, and its key.
    pub(crate) fn server_files(&self) -> Files {
        self.certificates.api_server()
    }

    /// The certificate of the cluster's authority.
    pub(crate) fn authority(&self) -> PathBuf {
        self.certificates.authority()
    }

    /// Creates a namespace of its own for a test, named `prefix` and a random suffix.
    ///
    /// # Errors
    /// If the API server refuses.
    pub async fn namespace(&self, prefix: &str) -> anyhow::Result<String> {
        let mut suffix = uuid::Uuid::new_v4().simple().to_string();
        suffix.truncate(8);
        let name = format!("{prefix}-{suffix}");
        let namespace = Namespace {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        Api::all(self.admin().await?)
            .create(&PostParams::default(), &namespace)
            .await
            .with_context(|| format!("create namespace {name}"))?;
        Ok(name)
    }

    /// [Applies](crate::apply::apply_yaml) the documents of a YAML text with all rights.
    ///
    /// # Errors
    /// As there.
    pub async fn apply_yaml(&self, text: &str) -> anyhow::Result<Vec<DynamicObject>> {
        apply_yaml(&self.admin().await?, text).await
    }

    /// The requests that the API server has finished, oldest first, as events of `audit.k8s.io/v1`
    /// (level Metadata, with [`Options::audit_bodies`] level RequestResponse for writes). A request is here before its answer is sent.
    ///
    /// # Errors
    /// If the cluster was started without [`Options::audit`] and [`Options::audit_bodies`].
    pub fn audit_events(&self) -> anyhow::Result<Vec<Value>> {
        let (lines, _) = self.audit_lines(0)?;
        lines
            .lines()
            .map(|line| serde_json::from_str(line).context("read an audit event"))
            .collect()
    }

    /// The audit log as it is, from a position on, and the position of its end: for whoever reads on later.
    ///
    /// # Errors
    /// As [`Cluster::audit_events`].
    pub fn audit_lines(&self, from: u64) -> anyhow::Result<(String, u64)> {
        let path = servers::audit_log(self.folder());
        let what = || format!("read {}", path.display());
        let mut file = fs::File::open(&path).with_context(what)?;
        let mut lines = Vec::new();
        file.seek(SeekFrom::Start(from)).with_context(what)?;
        file.read_to_end(&mut lines).with_context(what)?;
        // The last one may be being written.
        let whole = lines.iter().rposition(|byte| *byte == b'\n');
        lines.truncate(whole.map_or(0, |end| end + 1));
        let end = from + lines.len() as u64;
        Ok((String::from_utf8(lines).with_context(what)?, end))
    }

    /// Starts the API server after [`Cluster::stop_api_server`], on the same port, and waits until it is ready.
    ///
    /// # Errors
    /// If it ends or is not ready in time; the text has the end of its log.
    pub async fn start_api_server(&self) -> anyhow::Result<()> {
        {
            let mut api_server = self.api_server.lock();
            if api_server.is_none() {
                let mut command = self.servers.api_server(&self.certificates);
                *api_server = Some(self.group.spawn(&mut command, "kube-apiserver")?);
            }
        }
        let client = self.admin().await?;
        let ready = eventually(READY_WITHIN, "a ready API server", async || {
            if self.ended() {
                // Not worth waiting for any longer.
                return Ok(false);
            }
            let request = http::Request::get("/readyz").body(Vec::new())?;
            let answer = client.request_text(request).await?;
            ensure!(answer == "ok", "it says {answer}");
            Ok(true)
        })
        .await;
        match ready {
            Ok(true) => Ok(()),
            Ok(false) => Err(anyhow::anyhow!("etcd or the API server has ended")),
            Err(error) => Err(error),
        }
        .with_context(|| {
            format!(
                "start kube-apiserver and etcd; the ends of their logs:\n{}\n{}\n",
                tail(&self.group.log("kube-apiserver")),
                tail(&self.group.log("etcd")),
            )
        })
    }

    /// Stops the API server as an upgrade would, by SIGTERM; its store stays.
    ///
    /// # Errors
    /// If it cannot be signalled.
    pub async fn stop_api_server(&self) -> anyhow::Result<()> {
        self.end_api_server(Signal::TERM).await
    }

    /// Ends the API server as a crash would, by SIGKILL; its store stays.
    ///
    /// # Errors
    /// If it cannot be signalled.
    pub async fn kill_api_server(&self) -> anyhow::Result<()> {
        self.end_api_server(Signal::KILL).await
    }

    /// Stops and starts the API server.
    ///
    /// # Errors
    /// As [`Cluster::start_api_server`].
    pub async fn restart_api_server(&self) -> anyhow::Result<()> {
        self.stop_api_server().await?;
        self.start_api_server().await
    }

    /// Has kube-controller-manager stand still, or go on.
    ///
    /// # Errors
    /// If the cluster was started without [`Options::controller_manager`], or it cannot be signalled.
    pub fn hold_controller_manager(&self, held: bool) -> anyhow::Result<()> {
        let signal = if held { Signal::STOP } else { Signal::CONT };
        let others = self.others.lock();
        let [_etcd, controller_manager] = &others[..] else {
            anyhow::bail!("there is no kube-controller-manager");
        };
        kill_process(Pid::from_child(controller_manager), signal)
            .context("signal kube-controller-manager")
    }

    async fn end_api_server(&self, signal: Signal) -> anyhow::Result<()> {
        let Some(mut child) = self.api_server.lock().take() else {
            return Ok(());
        };
        kill_process(Pid::from_child(&child), signal).context("signal kube-apiserver")?;
        let ended = eventually(STOP_WITHIN, "the end of kube-apiserver", async || {
            ensure!(child.try_wait()?.is_some(), "it still runs");
            Ok(())
        })
        .await;
        if ended.is_err() {
            child.kill().context("kill kube-apiserver")?;
            child.wait().context("wait for kube-apiserver")?;
        }
        Ok(())
    }

    fn spawn_other(&self, command: &mut Command, name: &str) -> anyhow::Result<()> {
        let child = self.group.spawn(command, name)?;
        self.others.lock().push(child);
        Ok(())
    }

    /// Whether a server that should run has ended.
    fn ended(&self) -> bool {
        let ended = |child: &mut Child| matches!(child.try_wait(), Ok(Some(_)));
        self.api_server.lock().as_mut().is_some_and(ended)
            || self.others.lock().iter_mut().any(ended)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.group.end();
        for child in self
            .others
            .get_mut()
            .iter_mut()
            .chain(self.api_server.get_mut())
        {
            drop(child.wait());
        }
    }
}

/// A new client from a kubeconfig file. It repeats no request by itself, so that a test sees each failure.
///
/// # Errors
/// If the file cannot be read or the client cannot be made.
pub async fn client_of(kubeconfig: &Path) -> anyhow::Result<Client> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).context("read kubeconfig")?;
    let options = KubeConfigOptions::default();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .context("read kubeconfig")?;
    config.default_retry = false;
    Client::try_from(config).context("make a client")
}
