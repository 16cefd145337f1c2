//! Puts the services of one replica together and runs them.

use std::sync::Arc;

use anyhow::Context;
use metashard_api::names;
use metashard_fleet::{invariants::Invariant, monitor, record::About};
use metashard_hook::Invoker;
use metashard_kube::{
    client::{self, Clients},
    discovery::Discovery,
    events::{self, Recorder},
    gate::WriteGate,
    informer::Informers,
    lease::Leases,
    placement::Placements,
    shard_map::ShardMaps,
};
use metashard_leader::{
    Coordinator, ca,
    grpc::GrpcServer,
    witness::{self, Witness, WorkerLease},
};
use metashard_runtime::{
    build_info,
    clock::Clock,
    fault,
    metrics::{self, Violations},
    net::Dialer,
    shutdown::Shutdown,
    tls::{Authority, Subject},
};
use metashard_worker::{fleet, recordings::Recordings, service::Reconciler};
use prometheus::Registry;
use tokio::{
    net::TcpListener,
    sync::{mpsc, watch},
};
use tracing::info;

use crate::{
    calendar,
    config::Config,
    health,
    lifecycle::{self, Services},
    memory::Memory,
    options::Role,
    peer::Guard,
    prepare, rules,
};

/// Commands and events between the fleet driver and the code that runs shards, waiting at once.
const CHANNEL: usize = 1024;

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
    let grpc = config.fleet.grpc_address.bind().await?;
    for (what, address) in listeners.addresses()? {
        info!(%address, "listening for {what}");
    }
    info!(address = %grpc.local_addr()?, "listening for grpc");

    let grace = config.fleet.shutdown_grace;
    let mut services = Services::new(shutdown.clone());
    let (readiness, checks) = health::new();
    let memory = Arc::new(Memory::new(config.fleet.replica.clone(), clock.clone()));
    let parts = checks.parts(registry.clone(), shutdown.token(), memory.answers());
    services.status(listeners, parts);
    let replica = tokio::select! {
        replica = Replica::prepare(config, clock.clone(), registry, &grpc, memory) => replica?,
        () = services.interrupted() => return services.run(&clock, grace).await,
    };
    replica.start(&mut services, grpc, readiness)?;
    services.run(&clock, grace).await
}

/// What the services of one replica share.
struct Replica {
    config: Config,
    clock: Clock,
    registry: Registry,
    clients: Clients,
    informers: Informers,
    /// Of the system namespace.
    leases: Leases,
    /// Of the namespace of the leader's Lease.
    leader_leases: Leases,
    maps: ShardMaps,
    /// `None`: nothing can be asked of placement here.
    placements: Option<Placements>,
    authority: Arc<Authority>,
    about: About,
    /// Keeps out of a live Metacontroller's way; who writes nothing is in nobody's.
    guard: Option<Guard>,
    /// Whether a move from Metacontroller holds back what would be written.
    hold: watch::Sender<bool>,
    /// What it remembers.
    memory: Arc<Memory>,
    violations: Violations,
    /// One for all: it writes the same event once, and warns once where it may not.
    recorder: Recorder,
}

impl Replica {
    /// Waits for the API server and for a live Metacontroller to end, and makes or checks what the cluster must have.
    async fn prepare(
        config: Config,
        clock: Clock,
        registry: Registry,
        grpc: &TcpListener,
        memory: Arc<Memory>,
    ) -> anyhow::Result<Self> {
        let clients = connect(&config, &clock, &registry).await?;
        let namespace = config.fleet.system_namespace.as_str();
        prepare::cluster(&clients, namespace, &config.fleet.leader_namespace).await?;
        let placements = match config.fleet.role {
            Role::All | Role::Leader => prepare::placements(&clients, namespace).await,
            Role::Worker => None,
        };
        let leader_leases = Leases::new(&clients, &config.fleet.leader_namespace, None);
        let (guard, is_held) = if config.worker.observe {
            info!("observing: hooks are called, and nothing is written");
            (None, false)
        } else {
            let guard = Guard::new(leader_leases.clone(), &clients, clock.clone(), namespace);
            let is_held = guard.wait_until_gone().await;
            (Some(guard), is_held)
        };
        let informers = Informers::new(&clients);
        informers.register(&registry)?;
        let violations = Violations::register(&registry, monitor::SEEN.map(Invariant::id))?;
        let recorder = recorder(&config, &clients);
        let given = config.fleet.advertise_address.as_deref();
        let address = prepare::advertised(given, grpc.local_addr()?, clients.host())?;
        info!(address, "reached by others");
        let about = About {
            address,
            version: fault::word("version").unwrap_or_else(|| build_info::VERSION.to_owned()),
            ..About::default()
        };
        Ok(Self {
            leases: Leases::new(&clients, namespace, None),
            maps: ShardMaps::new(&clients, namespace),
            placements,
            authority: ca::obtain(&clients, namespace, &clock).await?,
            config,
            clock,
            registry,
            clients,
            informers,
            leader_leases,
            about,
            guard,
            hold: watch::Sender::new(is_held),
            memory,
            violations,
            recorder,
        })
    }

    /// Starts the services that the role has.
    fn start(
        self,
        services: &mut Services,
        grpc: TcpListener,
        readiness: health::Readiness,
    ) -> anyhow::Result<()> {
        let role = self.config.fleet.role;
        let worker = match role {
            Role::All | Role::Worker => Some(self.start_worker(services)?),
            Role::Leader => None,
        };
        if let Some(worker) = &worker {
            // There is one worker in a process: nobody else sets it.
            let _set = self.memory.worker.set(worker.clone());
        }
        if role != Role::Worker {
            self.start_leader(services, grpc, worker.as_ref())?;
        }
        services.background(
            "readiness",
            readiness.follow(worker, self.informers.clone(), self.clock.clone()),
        );
        let (clock, maps) = (self.clock, self.maps);
        services.background("calendar", calendar::follow(clock, maps, self.recorder));
        if let Some(guard) = self.guard {
            let (stop, hold) = (services.rest(), self.hold);
            services.service("peer guard", async move {
                tokio::select! {
                    () = guard.follow(hold) => {}
                    () = stop.requested() => {}
                }
            });
        }
        Ok(())
    }

    /// The worker: what it may do, and what it does.
    fn start_worker(&self, services: &mut Services) -> anyhow::Result<fleet::Handle> {
        let fleet = &self.config.fleet;
        let config = fleet::Config {
            replica: fleet.replica.clone(),
            about: self.about.clone(),
            lease_duration: fleet.lease_duration,
            drain_hook_grace: fleet.drain_hook_grace,
            shutdown_grace: lifecycle::hand_over(fleet.shutdown_grace),
            leader_lease: fleet.leader_lease.clone(),
            rules: rules::kept(),
        };
        let parts = fleet::Parts {
            clock: self.clock.clone(),
            informers: self.informers.clone(),
            leases: self.leases.clone(),
            leader_leases: self.leader_leases.clone(),
            maps: self.maps.clone(),
            authority: Arc::clone(&self.authority),
            dialer: Dialer::tcp(),
            violations: self.violations.clone(),
        };
        let (driver, handle) = fleet::Fleet::new(config, parts)?;
        let discovery = Discovery::new(&self.clients, &self.informers);
        let reconciler = self.reconciler(discovery.clone(), &handle)?;
        let (commands, obeyed) = mpsc::channel(CHANNEL);
        let (told, events) = mpsc::channel(CHANNEL);
        let interval = self.config.kube.discovery_interval;
        services.service("discovery", discovery.run(interval, services.rest()));
        services.service("reconciler", reconciler.run(obeyed, told, services.rest()));
        services.worker(driver.run(commands, events, services.leaving()));
        Ok(handle)
    }

    fn reconciler(
        &self,
        discovery: Discovery,
        handle: &fleet::Handle,
    ) -> anyhow::Result<Reconciler> {
        let worker = &self.config.worker;
        let replica = &self.config.fleet.replica;
        let gate = WriteGate::new(&self.clients);
        let gate = if worker.observe {
            gate.observing()
        } else {
            gate
        };
        let recordings = worker.record.as_ref().map(|to| {
            info!(folder = %to.folder.display(), "passes are recorded");
            Recordings::open(to, replica, self.clock.wall())
                .with_context(|| format!("open --record-dir {}", to.folder.display()))
        });
        let parts = metashard_worker::service::Parts {
            recordings: recordings.transpose()?,
            config: metashard_worker::Config {
                replica: replica.clone(),
                workers: worker.workers,
                max_syncs: metashard_worker::MAX_SYNCS,
                target_selector: worker.target_selector.to_query().unwrap_or_default(),
                flush_interval: worker.flush_interval,
                system_namespace: self.config.fleet.system_namespace.clone(),
                apply: worker.apply.clone(),
                seed: prepare::seed(),
            },
            clock: self.clock.clone(),
            gate,
            recorder: self.recorder.clone(),
            invoker: Invoker::new(
                self.clock.clone(),
                metashard_hook::Metrics::register(&self.registry)?,
            ),
            clients: self.clients.clone(),
            discovery,
            informers: self.informers.clone(),
            standing: Arc::clone(&handle.standing),
            journal: Arc::clone(&self.memory.journal),
            hold: self.hold.subscribe(),
        };
        Ok(Reconciler::new(parts, &self.registry)?)
    }

    /// The candidate, which coordinates when it leads, and the proof that it can write.
    fn start_leader(
        &self,
        services: &mut Services,
        grpc: TcpListener,
        worker: Option<&fleet::Handle>,
    ) -> anyhow::Result<()> {
        let fleet = &self.config.fleet;
        let (witness, renewals) = Witness::new(
            witness::Config {
                replica: fleet.replica.clone(),
                about: self.about.clone(),
                lease_duration: fleet.lease_duration,
                rules: rules::kept(),
            },
            self.clock.clone(),
            self.leases.clone(),
            worker.map(|worker| WorkerLease {
                standing: Arc::clone(&worker.standing),
                renewals: worker.renewals.clone(),
            }),
        );
        let subject = Subject {
            replica: fleet.replica.clone(),
            incarnation: prepare::incarnation(),
        };
        let config = metashard_leader::Config {
            replica: fleet.replica.clone(),
            about: self.about.clone(),
            lease_duration: fleet.lease_duration,
            shards: fleet.shards,
            drain_hook_grace: fleet.drain_hook_grace,
            leader_lease: fleet.leader_lease.clone(),
            target_selector: self
                .config
                .worker
                .target_selector
                .to_query()
                .unwrap_or_default(),
            rules: rules::kept(),
        };
        let parts = metashard_leader::Parts {
            clock: self.clock.clone(),
            informers: self.informers.clone(),
            leases: self.leases.clone(),
            leader_leases: self.leader_leases.clone(),
            maps: self.maps.clone(),
            placements: self.placements.clone(),
            grpc: GrpcServer::new(grpc, &self.authority, &subject, self.clock.clone())?,
            renewals,
            recorder: self.recorder.clone(),
            violations: self.violations.clone(),
        };
        let (coordinator, handle) = Coordinator::new(config, parts, &self.registry)?;
        // As is one candidate.
        let _set = self.memory.leader.set(handle);
        services.service("witness", witness.run(services.rest()));
        services.leader(coordinator.run(services.lead(), services.rest()));
        Ok(())
    }
}

/// Where events go: nowhere, if this process only observes.
fn recorder(config: &Config, clients: &Clients) -> Recorder {
    if config.worker.observe {
        return Recorder::silent(clients);
    }
    let replica = config.fleet.replica.as_str();
    let options = events::Options {
        burst: config.kube.events_burst,
        qps: config.kube.events_qps,
        ..events::Options::new(names::EVENT_COMPONENT, replica)
    };
    Recorder::start(clients, options)
}

async fn connect(config: &Config, clock: &Clock, registry: &Registry) -> anyhow::Result<Clients> {
    let kube_metrics = metashard_kube::metrics::Metrics::register(registry)?;
    let options = client::Options {
        kubeconfig: config.kube.kubeconfig.clone(),
        context: None,
        qps: config.kube.qps,
        burst: config.kube.burst,
    };
    let clients = Clients::connect(options, clock.clone(), kube_metrics).await?;
    prepare::reach(&clients, clock).await?;
    Ok(clients)
}
