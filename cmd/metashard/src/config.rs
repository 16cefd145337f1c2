//! The configuration: what the flags say, checked, without texts to parse.

use std::{fmt, path::PathBuf, time::Duration};

use metashard_api::{id::ReplicaId, selector::Selector};
use metashard_runtime::log;
use metashard_status::{address::Address, service};
use metashard_worker::{Apply, recordings::RecordTo};

use crate::options::Role;

/// All of it.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) kube: Kube,
    pub(crate) worker: Worker,
    pub(crate) fleet: Fleet,
    pub(crate) status: service::Config,
    pub(crate) log: log::Options,
    /// What was given and does nothing.
    pub(crate) warnings: Vec<String>,
}

/// How the API server is reached, and what is told to it.
#[derive(Debug)]
pub(crate) struct Kube {
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Requests per second; `None`: unlimited.
    pub(crate) qps: Option<f64>,
    pub(crate) burst: Option<u32>,
    pub(crate) discovery_interval: Duration,
    /// Per object and second.
    pub(crate) events_qps: f64,
    pub(crate) events_burst: u32,
}

/// How controllers are run.
#[derive(Debug)]
pub(crate) struct Worker {
    /// Syncs of one controller at once.
    pub(crate) workers: u32,
    pub(crate) flush_interval: Duration,
    /// Which controllers are served.
    pub(crate) target_selector: Selector,
    /// Nothing is written.
    pub(crate) observe: bool,
    /// How children are written.
    pub(crate) apply: Apply,
    /// Where passes are recorded; `None`: nowhere.
    pub(crate) record: Option<RecordTo>,
}

/// How replicas share the work.
#[derive(Debug)]
pub(crate) struct Fleet {
    pub(crate) replica: ReplicaId,
    pub(crate) system_namespace: String,
    /// Of the leader's Lease.
    pub(crate) leader_namespace: String,
    pub(crate) leader_lease: String,
    pub(crate) grpc_address: Address,
    /// `None`: found out.
    pub(crate) advertise_address: Option<String>,
    pub(crate) role: Role,
    pub(crate) shards: u16,
    pub(crate) lease_duration: Duration,
    pub(crate) drain_hook_grace: Duration,
    pub(crate) shutdown_grace: Duration,
}

/// What `--print-config` prints: a line for each setting, by the name of its flag.
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in self.settings() {
            writeln!(f, "{name}: {value}")?;
        }
        self.warnings
            .iter()
            .try_for_each(|warning| writeln!(f, "# {warning}"))
    }
}

impl Config {
    /// Each setting by the name of its flag.
    fn settings(&self) -> Settings {
        let Self {
            kube,
            worker,
            fleet,
            status,
            log,
            warnings: _,
        } = self;
        let mut all = kube.settings();
        all.extend(worker.settings());
        all.extend(fleet.settings());
        all.extend([
            ("metrics-address", address(status.metrics.as_ref())),
            ("health-probe-bind-address", address(status.health.as_ref())),
            ("pprof-address", address(status.pprof.as_ref())),
            ("log", format!("{log:?}")),
        ]);
        all
    }

    /// All settings in one line, for the log.
    pub(crate) fn line(&self) -> String {
        let settings = self.settings();
        let words = settings
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        words.collect::<Vec<_>>().join(" ")
    }
}

type Settings = Vec<(&'static str, String)>;

impl Kube {
    fn settings(&self) -> Settings {
        let Self {
            kubeconfig,
            qps,
            burst,
            discovery_interval,
            events_qps,
            events_burst,
        } = self;
        let path = kubeconfig.as_ref().map(|path| path.display().to_string());
        let number = |number: Option<String>| number.unwrap_or_else(|| "unlimited".to_owned());
        vec![
            ("kubeconfig", path.unwrap_or_else(|| "found".to_owned())),
            ("client-go-qps", number(qps.map(|qps| qps.to_string()))),
            (
                "client-go-burst",
                number(burst.map(|burst| burst.to_string())),
            ),
            ("discovery-interval", format!("{discovery_interval:?}")),
            ("events-qps", events_qps.to_string()),
            ("events-burst", events_burst.to_string()),
        ]
    }
}

impl Worker {
    fn settings(&self) -> Settings {
        let Self {
            workers,
            flush_interval,
            target_selector,
            observe,
            apply,
            record,
        } = self;
        let mut all = vec![
            ("workers", workers.to_string()),
            ("cache-flush-interval", format!("{flush_interval:?}")),
            ("target-label-selector", target_selector.to_string()),
            ("observe", observe.to_string()),
            ("apply-strategy", apply.strategy.as_str().to_owned()),
            (
                "apply-strategy-ssa-field-manager",
                apply.manager.to_string(),
            ),
        ];
        if let Some(to) = record {
            all.extend([
                ("record-dir", to.folder.display().to_string()),
                ("record-mib", (to.max_bytes >> 20).to_string()),
                ("record-secrets", to.secrets.to_string()),
            ]);
        }
        all
    }
}

impl Fleet {
    fn settings(&self) -> Settings {
        let Self {
            replica,
            system_namespace,
            leader_namespace,
            leader_lease,
            grpc_address,
            advertise_address,
            role,
            shards,
            lease_duration,
            drain_hook_grace,
            shutdown_grace,
        } = self;
        let advertised = advertise_address
            .clone()
            .unwrap_or_else(|| "found".to_owned());
        vec![
            ("replica-name", replica.to_string()),
            ("system-namespace", system_namespace.clone()),
            ("leader-election-namespace", leader_namespace.clone()),
            ("leader-election-id", leader_lease.clone()),
            ("grpc-address", grpc_address.to_string()),
            ("advertise-address", advertised),
            ("role", role.to_string()),
            ("shards", shards.to_string()),
            ("lease-duration", format!("{lease_duration:?}")),
            ("drain-hook-grace", format!("{drain_hook_grace:?}")),
            ("shutdown-grace-period", format!("{shutdown_grace:?}")),
        ]
    }
}

fn address(address: Option<&Address>) -> String {
    address.map_or_else(|| "0".to_owned(), Address::to_string)
}
