//! Command lines of the servers of a control plane.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context;
use serde_json::{Value, json};

use super::{Options, certificates::Certificates, free_port};
use crate::assets::Assets;

/// Who did what, without bodies; once a request, when it is answered.
const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
";

/// The same with the bodies of writes, but for those that are many or secret and that nobody asks for.
const AUDIT_POLICY_WITH_BODIES: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
  resources:
  - group: coordination.k8s.io
  - group: events.k8s.io
  - group: \"\"
    resources: [events, secrets]
- level: RequestResponse
  verbs: [create, update, patch, delete]
- level: Metadata
";

/// Binaries, ports and folders of one control plane.
#[derive(Debug)]
pub(crate) struct Servers {
    /// URL of the API server.
    pub(crate) url: String,
    /// Bearer token of the administrator.
    pub(crate) admin_token: String,
    assets: Assets,
    folder: PathBuf,
    etcd_url: String,
    api_port: u16,
    /// Whether ServiceAccounts are made by the controller manager; else the API server must not insist on them.
    controller_manager: bool,
    audit: bool,
    /// A further address of the API server.
    address: Option<String>,
    api_server_args: Vec<String>,
}

impl Servers {
    pub(crate) fn new(assets: Assets, folder: &Path, options: &Options) -> anyhow::Result<Self> {
        let api_port = free_port()?;
        let admin_token = uuid::Uuid::new_v4().to_string();
        let write = |name: &str, text: &str| {
            fs::write(folder.join(name), text).with_context(|| format!("write {name}"))
        };
        write(
            "tokens.csv",
            &format!("{admin_token},admin,admin,system:masters\n"),
        )?;
        let policy = if options.audit_bodies {
            AUDIT_POLICY_WITH_BODIES
        } else {
            AUDIT_POLICY
        };
        write("audit.yaml", policy)?;
        Ok(Self {
            url: format!("https://127.0.0.1:{api_port}"),
            admin_token,
            assets,
            folder: folder.to_owned(),
            etcd_url: format!("http://127.0.0.1:{}", free_port()?),
            api_port,
            controller_manager: options.controller_manager,
            audit: options.audit || options.audit_bodies,
            address: options.address.clone(),
            api_server_args: options.api_server_args.clone(),
        })
    }

    /// Durability is not needed: nothing reads this store after the test.
    pub(crate) fn etcd(&self) -> Command {
        let mut command = Command::new(&self.assets.etcd);
        command
            .arg("--data-dir")
            .arg(self.folder.join("etcd"))
            .args(["--listen-client-urls", &self.etcd_url])
            .args(["--advertise-client-urls", &self.etcd_url])
            // A single member has no peers; port 0 keeps the listener out of everybody's way.
            .args(["--listen-peer-urls", "http://127.0.0.1:0"])
            .args(["--quota-backend-bytes", "8589934592"])
            .args(["--log-level", "warn"])
            .arg("--unsafe-no-fsync");
        command
    }

    pub(crate) fn api_server(&self, certificates: &Certificates) -> Command {
        self.api_server_at(self.api_port, &audit_log(&self.folder), certificates)
    }

    /// The same on another port, with a log of its own.
    pub(crate) fn api_server_at(
        &self,
        port: u16,
        audit_log: &Path,
        certificates: &Certificates,
    ) -> Command {
        let tls = certificates.api_server();
        let mut command = Command::new(&self.assets.api_server);
        command
            .args(["--etcd-servers", &self.etcd_url])
            .args(["--secure-port", &port.to_string()])
            .arg("--tls-cert-file")
            .arg(tls.certificate)
            .arg("--tls-private-key-file")
            .arg(tls.key)
            .arg("--client-ca-file")
            .arg(certificates.authority())
            .arg("--token-auth-file")
            .arg(self.folder.join("tokens.csv"))
            .arg("--service-account-key-file")
            .arg(certificates.service_accounts_public())
            .arg("--service-account-signing-key-file")
            .arg(certificates.service_accounts_private())
            .args(["--service-account-issuer", "https://kubernetes.default.svc"])
            .args(["--service-cluster-ip-range", "10.0.0.0/24"])
            .args(["--authorization-mode", "RBAC"])
            .arg("--allow-privileged=true")
            // Tests of many controllers on one machine are not to be queued behind one another.
            .arg("--enable-priority-and-fairness=false")
            .args(["--max-requests-inflight", "4000"])
            .args(["--max-mutating-requests-inflight", "2000"]);
        match &self.address {
            Some(address) => command
                .args(["--bind-address", "0.0.0.0"])
                .args(["--advertise-address", address]),
            None => command.args(["--bind-address", "127.0.0.1"]),
        };
        if !self.controller_manager {
            command.args(["--disable-admission-plugins", "ServiceAccount"]);
        }
        if self.audit {
            command
                .arg("--audit-policy-file")
                .arg(self.folder.join("audit.yaml"))
                .arg("--audit-log-path")
                .arg(audit_log)
                .args(["--audit-log-mode", "blocking"]);
        }
        command.args(&self.api_server_args);
        command
    }

    pub(crate) fn controller_manager(&self, kubeconfig: &Path) -> anyhow::Result<Command> {
        let binary = self
            .assets
            .controller_manager
            .as_ref()
            .context("find kube-controller-manager")?;
        let mut command = Command::new(binary);
        command
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args([
                "--controllers",
                "garbage-collector-controller,namespace-controller,serviceaccount-controller,\
                 deployment-controller,replicaset-controller,statefulset-controller",
            ])
            .args(["--secure-port", "0"])
            .arg("--leader-elect=false");
        Ok(command)
    }
}

/// Text of a kubeconfig file; JSON is YAML too.
pub(crate) fn kubeconfig(url: &str, authority: &Path, user: &Value) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": "testkit",
            "cluster": { "server": url, "certificate-authority": authority },
        }],
        "users": [{ "name": "testkit", "user": user }],
        "contexts": [{
            "name": "testkit",
            "context": { "cluster": "testkit", "user": "testkit" },
        }],
        "current-context": "testkit",
    })
    .to_string()
}

/// Where the API server writes its audit log.
pub(crate) fn audit_log(folder: &Path) -> PathBuf {
    folder.join("audit.log")
}
