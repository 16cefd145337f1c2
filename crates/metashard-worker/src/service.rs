//! The reconciling half of the worker: the queue's dispatcher and the host of controllers.

use std::sync::Arc;

use arc_swap::ArcSwap;
use metashard_api::id::TenantId;
use metashard_fleet::{queue, worker::Standing};
use metashard_hook::Invoker;
use metashard_kube::{
    client::Clients, discovery::Discovery, events::Recorder, gate::WriteGate, informer::Informers,
};
use metashard_runtime::{clock::Clock, shutdown::Token, task::Tasks};
use prometheus::Registry;
use tokio::sync::{mpsc, watch};

use crate::{
    context::{Config, Context},
    dispatch::Dispatcher,
    host::Host,
    journal::Journal,
    metrics::{AuthorityMetric, Metrics, QueueMetrics},
    recordings::Recordings,
    shards::{ShardCommand, ShardEvent},
};

/// Tenant of cluster-scoped controllers that name no ServiceAccount.
const CLUSTER_TENANT: &str = "cluster";

/// What the reconciling half is made of.
#[derive(Debug)]
pub struct Parts {
    /// How controllers are run.
    pub config: Config,
    /// Time.
    pub clock: Clock,
    /// Connections to the API server.
    pub clients: Clients,
    /// Served resources.
    pub discovery: Discovery,
    /// Caches.
    pub informers: Informers,
    /// Where writes go through.
    pub gate: WriteGate,
    /// Where events go.
    pub recorder: Recorder,
    /// Calls hooks.
    pub invoker: Invoker,
    /// What this worker may do at this moment; kept by the fleet driver.
    pub standing: Arc<ArcSwap<Standing>>,
    /// Takes in what syncs do.
    pub journal: Arc<Journal>,
    /// Where passes are recorded, if they are.
    pub recordings: Option<Recordings>,
    /// Whether a Metacontroller may act, in a move from it or back: then nothing is acted on here.
    pub hold: watch::Receiver<bool>,
}

/// The reconciling half of the worker.
#[derive(Debug)]
pub struct Reconciler {
    context: Arc<Context>,
}

impl Reconciler {
    /// Puts the parts together; nothing runs yet.
    ///
    /// # Errors
    ///
    /// When a name of its metrics is taken in `registry`.
    pub fn new(parts: Parts, registry: &Registry) -> Result<Self, prometheus::Error> {
        let Parts {
            config,
            clock,
            clients,
            discovery,
            informers,
            gate,
            recorder,
            invoker,
            standing,
            journal,
            recordings,
            hold,
        } = parts;
        let queue = queue::Config {
            concurrency: config.max_syncs,
            seed: config.seed,
        };
        let dispatcher = Arc::new(Dispatcher::new(queue, clock.clone()));
        let metrics = Metrics::register(registry)?;
        registry.register(Box::new(QueueMetrics::new(&dispatcher, clock.clone())))?;
        let authority = AuthorityMetric::new(Arc::clone(&standing), clock.clone())?;
        registry.register(Box::new(authority))?;
        let context = Arc::new(Context {
            config,
            clock,
            clients,
            discovery,
            informers,
            gate,
            recorder,
            invoker,
            dispatcher,
            standing,
            tenant: TenantId::new(CLUSTER_TENANT),
            metrics,
            journal,
            recordings,
            hold,
        });
        Ok(Self { context })
    }

    /// Serves the shards that `commands` tell of, until `stop`.
    pub async fn run(
        self,
        commands: mpsc::Receiver<ShardCommand>,
        events: mpsc::Sender<ShardEvent>,
        stop: Token,
    ) {
        let mut tasks = Tasks::new();
        tasks.spawn(
            "dispatcher",
            Arc::clone(&self.context.dispatcher).run(stop.clone()),
        );
        let host = Host::new(self.context, events);
        tasks.spawn("host", host.run(commands, stop));
        // The end of either is the end of both.
        tasks.join_next().await;
    }
}
