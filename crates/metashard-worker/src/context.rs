//! What every controller of this worker shares.

use std::sync::Arc;

use arc_swap::ArcSwap;
use metashard_api::id::{ReplicaId, TenantId};
use metashard_fleet::{
    message::Claim,
    worker::{Authority, Standing},
};
use metashard_hook::Invoker;
use metashard_kube::{
    client::Clients, discovery::Discovery, events::Recorder, gate::WriteGate, informer::Informers,
};
use metashard_reconcile::controller::Apply;
use metashard_runtime::clock::Clock;
use tokio::sync::watch;

use crate::{dispatch::Dispatcher, journal::Journal, metrics::Metrics, recordings::Recordings};

/// Default of [`Config::max_syncs`]: more than hooks that answer in milliseconds need, few enough for memory.
pub const MAX_SYNCS: u32 = 256;

/// How this worker runs controllers.
#[derive(Debug, Clone)]
pub struct Config {
    /// Name of the replica.
    pub replica: ReplicaId,
    /// Syncs of one controller at once: `--workers`, default 5.
    pub workers: u32,
    /// Syncs of all controllers at once; default [`MAX_SYNCS`].
    pub max_syncs: u32,
    /// Text of `--target-label-selector`: which controllers are served; empty: all.
    pub target_selector: String,
    /// How often every parent is synced though nothing changed: `--cache-flush-interval`, default 30 min.
    pub flush_interval: std::time::Duration,
    /// Namespace of what the process keeps for itself.
    pub system_namespace: String,
    /// How children are written: `--apply-strategy`.
    pub apply: Apply,
    /// Seed of the queue's jitter; differs between replicas.
    pub seed: u64,
}

/// What every controller of this worker shares.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) config: Config,
    pub(crate) clock: Clock,
    pub(crate) clients: Clients,
    pub(crate) discovery: Discovery,
    pub(crate) informers: Informers,
    pub(crate) gate: WriteGate,
    pub(crate) recorder: Recorder,
    pub(crate) invoker: Invoker,
    pub(crate) dispatcher: Arc<Dispatcher>,
    /// What this worker may do at this moment; replaced by the fleet driver.
    pub(crate) standing: Arc<ArcSwap<Standing>>,
    /// The tenant of cluster-scoped controllers.
    pub(crate) tenant: TenantId,
    pub(crate) metrics: Metrics,
    /// What the last syncs did.
    pub(crate) journal: Arc<Journal>,
    /// Where passes are recorded, if they are.
    pub(crate) recordings: Option<Recordings>,
    /// Whether a Metacontroller may act: then nothing is acted on here.
    pub(crate) hold: watch::Receiver<bool>,
}

impl Context {
    /// The right to act under `claim` at this moment, if there is one.
    pub(crate) fn authority(&self, claim: Claim) -> Option<Authority> {
        self.standing
            .load()
            .authority(claim.shard, self.clock.now())
            .filter(|authority| authority.claim() == claim)
    }
}
