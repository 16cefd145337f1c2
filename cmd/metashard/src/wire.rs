//! Puts the services of one replica together, runs them, and takes them down in order.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use metashard_api::names;
use metashard_fleet::{message::Claim, record::About, worker::Phase};
use metashard_hook::Invoker;
use metashard_kube::{
    client::{self, Clients},
    discovery::Discovery,
    events::{self, Recorder},
    gate::WriteGate,
    informer::Informers,
    lease::Leases,
    shard_map::ShardMaps,
};
use metashard_leader::{Coordinator, ca, grpc::GrpcServer};
use metashard_runtime::{
    build_info,
    clock::Clock,
    metrics,
    shutdown::{Shutdown, Token},
    task::Tasks,
    tls::Subject,
};
use metashard_status::{check, service::Parts as StatusParts};
use metashard_worker::{fleet, service::Reconciler};
use prometheus::Registry;
use tokio::sync::mpsc;
use tracing::{info, warn};

use crate::{config::Config, peer, prepare};

/// Commands and events between the fleet driver and the code that runs shards, waiting at once.
const CHANNEL: usize = 1024;

/// What is left of the grace period for what comes after the hand-over.
const CLOSING: Duration = Duration::from_secs(2);

/// What a service came to.
enum Ended {
    /// The worker has left the fleet; these ownerships were not drained in time.
    Fleet(Vec<Claim>),
    Other(&'static str),
}

/// Runs one replica until it is told to end.
///
/// # Errors
///
/// When it cannot start, or when a part of it ends by itself.
pub(crate) async fn run(config: Config) -> anyhow::Result<()> {
    let shutdown = Shutdown::new();
    shutdown.on_signals().context("install signal handlers")?;
    let clock = Clock::system();
    let registry = Registry::new();
    metrics::register_process(&registry)?;
    let listeners = config.status.bind().await?;
    let grpc_listener = config.fleet.grpc_address.bind().await?;
    for (what, address) in listeners.addresses()? {
        info!(%address, "listening for {what}");
    }
    info!(address = %grpc_listener.local_addr()?, "listening for grpc");

    let ended = shutdown.token();
    let replica = tokio::select! {
        replica = Replica::start(config, &clock, &registry, grpc_listener, &shutdown) => replica?,
        () = ended.requested() => return Ok(()),
    };
    replica.run(registry, listeners, shutdown).await
}

/// The services of one replica, ready to run.
struct Replica {
    clock: Clock,
    shutdown_grace: Duration,
    discovery: Discovery,
    discovery_interval: Duration,
    fleet: fleet::Fleet,
    fleet_handle: fleet::Handle,
    reconciler: Reconciler,
    coordinator: Coordinator,
    guard: peer::Guard,
}

impl Replica {
    async fn start(
        config: Config,
        clock: &Clock,
        registry: &Registry,
        grpc_listener: tokio::net::TcpListener,
        shutdown: &Shutdown,
    ) -> anyhow::Result<Self> {
        let clients = connect(&config, clock, registry).await?;
        let namespace = config.fleet.system_namespace.as_str();
        prepare::cluster(&clients, namespace).await?;
        let leases = Leases::new(&clients, namespace, None);
        let guard = peer::Guard::new(leases.clone(), clock.clone());
        guard.wait_until_gone().await;
        let authority = ca::obtain(&clients, namespace, clock).await?;

        let informers = Informers::new(&clients);
        informers.register(registry)?;
        let discovery = Discovery::new(&clients, &informers);
        discovery.refresh().await.context("discover resources")?;
        let about = about(&config, &clients, &grpc_listener)?;
        let maps = ShardMaps::new(&clients, namespace);
        let (fleet, fleet_handle) = fleet::Fleet::new(
            fleet::Config {
                replica: config.fleet.replica.clone(),
                about: about.clone(),
                lease_duration: config.fleet.lease_duration,
                drain_hook_grace: config.fleet.drain_hook_grace,
                shutdown_grace: config.fleet.shutdown_grace.saturating_sub(CLOSING),
                leader_lease: config.fleet.leader_lease.clone(),
            },
            fleet::Parts {
                clock: clock.clone(),
                informers: informers.clone(),
                leases: leases.clone(),
                leader_leases: leases.clone(),
                maps: maps.clone(),
                authority: Arc::clone(&authority),
            },
        )?;
        let subject = Subject {
            replica: config.fleet.replica.clone(),
            incarnation: prepare::incarnation(),
        };
        let grpc = GrpcServer::new(grpc_listener, &authority, &subject, clock.clone())?;
        let parts = metashard_leader::Parts {
            clock: clock.clone(),
            informers: informers.clone(),
            leases: leases.clone(),
            leader_leases: leases,
            maps,
            grpc,
            renewals: fleet_handle.renewals.clone(),
        };
        let (coordinator, _) = Coordinator::new(leader(&config, about), parts, registry)?;
        let reconciler = reconciler(
            &config,
            clock,
            clients,
            informers,
            discovery.clone(),
            &fleet_handle,
            registry,
        )?;
        let _ = shutdown;
        Ok(Self {
            clock: clock.clone(),
            shutdown_grace: config.fleet.shutdown_grace,
            discovery,
            discovery_interval: config.kube.discovery_interval,
            fleet,
            fleet_handle,
            reconciler,
            coordinator,
            guard,
        })
    }

    /// Runs the services until `shutdown`, then takes them down: first the worker hands over what it holds, while the
    /// leader of this replica still leads; then the lead is given up; then the rest stops.
    async fn run(
        self,
        registry: Registry,
        listeners: metashard_status::service::Listeners,
        shutdown: Shutdown,
    ) -> anyhow::Result<()> {
        let (lead, rest) = (Shutdown::new(), Shutdown::new());
        let (commands, obeyed) = mpsc::channel(CHANNEL);
        let (told, events) = mpsc::channel(CHANNEL);
        let mut tasks = Tasks::new();
        let status = status(&self.fleet_handle, registry, shutdown.token());
        tasks.spawn("status", {
            let stop = rest.token();
            async move {
                if let Err(error) = listeners.serve(status, stop).await {
                    warn!(%error, "status endpoints ended");
                }
                Ended::Other("status")
            }
        });
        tasks.spawn(
            "discovery",
            other(
                "discovery",
                self.discovery.run(self.discovery_interval, rest.token()),
            ),
        );
        tasks.spawn(
            "reconciler",
            other(
                "reconciler",
                self.reconciler.run(obeyed, told, rest.token()),
            ),
        );
        tasks.spawn(
            "leader",
            other("leader", self.coordinator.run(lead.token(), rest.token())),
        );
        let leaving = shutdown.token();
        let fleet = self.fleet;
        tasks.spawn("fleet", async move {
            Ended::Fleet(fleet.run(commands, events, leaving).await)
        });
        let guard = self.guard;
        tasks.spawn("peer", {
            let stop = rest.token();
            async move {
                tokio::select! {
                    () = guard.wait_until_live() => {}
                    () = stop.requested() => {}
                }
                Ended::Other("peer guard")
            }
        });

        // Nothing ends by itself before it is asked to.
        let first = tokio::select! {
            ended = tasks.join_next() => ended,
            () = shutdown.token().into_requested() => None,
        };
        let broken = first.map(|ended| ended.name);
        shutdown.request();
        let deadline = self.clock.now().mono + self.shutdown_grace;
        let mut unfinished = Vec::new();
        loop {
            let ended = tokio::select! {
                ended = tasks.join_next() => ended,
                () = self.clock.sleep_until(deadline) => break,
            };
            match ended.map(|ended| (ended.name, ended.result)) {
                Some(("fleet", Ok(Ended::Fleet(claims)))) => {
                    unfinished = claims;
                    lead.request();
                }
                Some(("leader", _)) => rest.request(),
                Some(_) => {}
                None => break,
            }
        }
        report(&unfinished, &tasks.names());
        match broken {
            Some(name) => anyhow::bail!("{name} ended by itself"),
            None => Ok(()),
        }
    }
}

async fn other(name: &'static str, service: impl Future<Output = ()>) -> Ended {
    service.await;
    Ended::Other(name)
}

fn report(unfinished: &[Claim], still_running: &[&str]) {
    if unfinished.is_empty() && still_running.is_empty() {
        info!("ended: everything was handed over");
        return;
    }
    let shards: Vec<_> = unfinished.iter().map(|claim| claim.shard.0).collect();
    warn!(
        ?shards,
        ?still_running,
        "ended within the grace period with something left"
    );
}

async fn connect(config: &Config, clock: &Clock, registry: &Registry) -> anyhow::Result<Clients> {
    let kube_metrics = metashard_kube::metrics::Metrics::register(registry)?;
    let options = client::Options {
        kubeconfig: config.kube.kubeconfig.clone(),
        qps: config.kube.qps,
        burst: config.kube.burst,
    };
    let clients = Clients::connect(options, clock.clone(), kube_metrics).await?;
    prepare::reach(&clients, clock).await?;
    Ok(clients)
}

/// What this replica says of itself: foremost where others reach it.
fn about(
    config: &Config,
    clients: &Clients,
    grpc: &tokio::net::TcpListener,
) -> anyhow::Result<About> {
    let bound = grpc.local_addr()?;
    let address = match &config.fleet.advertise_address {
        Some(address) => address.clone(),
        None => prepare::advertised(bound, clients.host())?,
    };
    Ok(About {
        address,
        version: build_info::VERSION.to_owned(),
        ..About::default()
    })
}

fn leader(config: &Config, about: About) -> metashard_leader::Config {
    metashard_leader::Config {
        replica: config.fleet.replica.clone(),
        about,
        lease_duration: config.fleet.lease_duration,
        shards: config.fleet.shards,
        drain_hook_grace: config.fleet.drain_hook_grace,
        leader_lease: config.fleet.leader_lease.clone(),
        target_selector: config.worker.target_selector.to_query().unwrap_or_default(),
    }
}

fn reconciler(
    config: &Config,
    clock: &Clock,
    clients: Clients,
    informers: Informers,
    discovery: Discovery,
    handle: &fleet::Handle,
    registry: &Registry,
) -> anyhow::Result<Reconciler> {
    let events = events::Options {
        burst: config.kube.events_burst,
        qps: config.kube.events_qps,
        ..events::Options::new(names::EVENT_COMPONENT, config.fleet.replica.as_str())
    };
    let hook_metrics = metashard_hook::Metrics::register(registry)?;
    let parts = metashard_worker::service::Parts {
        config: metashard_worker::Config {
            replica: config.fleet.replica.clone(),
            workers: config.worker.workers,
            max_syncs: metashard_worker::MAX_SYNCS,
            target_selector: config.worker.target_selector.to_query().unwrap_or_default(),
            flush_interval: config.worker.flush_interval,
            seed: prepare::seed(),
        },
        clock: clock.clone(),
        gate: WriteGate::new(&clients),
        recorder: Recorder::start(&clients, events),
        invoker: Invoker::new(clock.clone(), hook_metrics),
        clients,
        discovery,
        informers,
        standing: Arc::clone(&handle.standing),
    };
    Ok(Reconciler::new(parts, registry)?)
}

/// The endpoints' checks: the process is alive, and it is a member of the fleet.
fn status(handle: &fleet::Handle, registry: Registry, draining: Token) -> StatusParts {
    let (reporter, member) = check::new("fleet", "not a member of the fleet yet");
    let mut handle = handle.clone();
    metashard_runtime::task::spawn("readiness", async move {
        loop {
            match handle.standing.load().phase() {
                Phase::Member => reporter.ok(),
                phase => reporter.failed(format!("not a member of the fleet: {phase:?}")),
            }
            if handle.changed.changed().await.is_err() {
                return;
            }
        }
    });
    StatusParts {
        registry,
        live: Vec::new(),
        ready: vec![member],
        draining,
    }
}
