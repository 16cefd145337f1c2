//! One replica on its host: the real tasks of worker and leader, over the simulated network.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwap;
use hyper::Uri;
use metashard_api::id::{Epoch, Incarnation, ReplicaId, ShardId};
use metashard_fleet::{
    message::Claim,
    record::About,
    rules::Rules,
    time::{BootTime, MonoTime, Now},
    worker::Standing,
};
use metashard_kube::{
    client::Clients, events::Recorder, gate::WriteGate, informer::Informers, lease::Leases,
    metrics::Metrics, shard_map::ShardMaps,
};
use metashard_leader::{
    Coordinator,
    grpc::GrpcServer,
    witness::{self, Witness, WorkerLease},
};
use metashard_runtime::{
    clock::{Clock, SimulatedClock},
    metrics::Violations,
    shutdown::Shutdown,
    task,
    tls::{Authority, Subject},
};
use metashard_worker::fleet::{self, Fleet};
use parking_lot::Mutex;
use prometheus::Registry;
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};

use crate::{
    dice::Dice,
    facts::Facts,
    network::{GRPC_PORT, Host, Network, STORE},
    plan::{LEASE_DURATION, Mutant, Plan, Role},
    shards::Shards,
    store::NAMESPACE,
};

const LEADER_LEASE: &str = "metashard-leader";

/// How long running calls may take in a drain, and a hand-over at shutdown.
const DRAIN_GRACE: Duration = Duration::from_millis(500);
const SHUTDOWN_GRACE: Duration = Duration::from_secs(4);

/// What comes after the hand-over.
const CLOSING: Duration = Duration::from_millis(500);

/// Commands and events that wait.
const CHANNEL: usize = 1024;

type Failure = Box<dyn std::error::Error>;

/// What all hosts share, and who looks on.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) plan: Arc<Plan>,
    pub(crate) network: Network,
    pub(crate) facts: Arc<Mutex<Facts>>,
    pub(crate) authority: Arc<Authority>,
    pub(crate) processes: Arc<Mutex<BTreeMap<Host, Process>>>,
    /// What the monitors of all processes have seen.
    pub(crate) violations: Violations,
}

/// One process, as far as onlookers see into it.
#[derive(Clone)]
pub(crate) struct Process {
    pub(crate) clocks: SimulatedClock,
    /// When it began.
    pub(crate) begun: Duration,
    pub(crate) shutdown: Shutdown,
    pub(crate) standing: Option<Arc<ArcSwap<Standing>>>,
    pub(crate) gate: Option<WriteGate>,
    pub(crate) leads_until: Option<watch::Receiver<Option<BootTime>>>,
    pub(crate) seen: Seen,
}

/// What onlookers have seen of a process before.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    pub(crate) incarnation: Option<Incarnation>,
    /// Those before it.
    pub(crate) past: BTreeSet<Incarnation>,
    pub(crate) held: BTreeMap<ShardId, Epoch>,
}

impl Process {
    /// The true time on its clocks, whether it runs or not.
    pub(crate) fn now(&self, now: Duration) -> Now {
        let length = now.saturating_sub(self.begun);
        Now {
            boot: BootTime(length),
            mono: MonoTime(length),
        }
    }
}

/// What the tasks of one process work with.
struct Parts {
    host: Host,
    clock: Clock,
    clients: Clients,
    informers: Informers,
    leases: Leases,
    maps: ShardMaps,
    registry: Registry,
    rules: Rules,
    dice: Dice,
}

/// Runs a process until it is told to end and has handed over. `start`: how often the host has started one before.
pub(crate) async fn run(shared: Shared, host: Host, role: Role, start: u64) -> Result<(), Failure> {
    let mutant = shared.plan.mutant;
    // Certificates count from five minutes before they are made, and the clocks of who checks them begin with 1970.
    let begun = turmoil::sim_elapsed().unwrap_or_default();
    let wall = SystemTime::UNIX_EPOCH + Duration::from_mins(5) + begun;
    let clocks = if mutant == Some(Mutant::ClockThatStops) {
        SimulatedClock::that_stop(wall)
    } else {
        SimulatedClock::new(wall)
    };
    let parts = Parts::new(&shared, host, clocks.clock(), start)?;
    let shutdown = Shutdown::new();
    let process = Process {
        clocks,
        begun,
        shutdown: shutdown.clone(),
        standing: None,
        gate: None,
        leads_until: None,
        seen: Seen::default(),
    };
    shared.processes.lock().insert(host, process);
    let rest = Shutdown::new();
    let worker = match role {
        Role::All | Role::Worker => Some(parts.start_worker(&shared, &shutdown)?),
        Role::Leader => None,
    };
    let lead = Shutdown::new();
    let handle = worker.as_ref().map(|(_, handle)| handle.clone());
    let leader = match role {
        Role::All | Role::Leader => Some(
            parts
                .start_leader(&shared, handle.as_ref(), &lead, &rest)
                .await?,
        ),
        Role::Worker => None,
    };
    shutdown.token().requested().await;
    if let Some((worker, _)) = worker {
        worker.await?;
    }
    lead.request();
    if let Some(leader) = leader {
        leader.await?;
    }
    rest.request();
    // Connections are closed, and a candidate's Lease is given up.
    parts.clock.sleep(CLOSING).await;
    Ok(())
}

impl Parts {
    fn new(shared: &Shared, host: Host, clock: Clock, start: u64) -> Result<Self, Failure> {
        let registry = Registry::new();
        let network = shared.network.clone();
        // Its future has to be one that moves.
        let connector = tower::service_fn(move |_: Uri| Box::pin(network.clone().open_store(host)));
        let url = format!("http://{STORE}").parse()?;
        let metrics = Metrics::register(&registry)?;
        let clients = Clients::over(&connector, &url, clock.clone(), metrics)?;
        Ok(Self {
            host,
            clock,
            informers: Informers::new(&clients),
            leases: Leases::new(&clients, NAMESPACE, None),
            maps: ShardMaps::new(&clients, NAMESPACE),
            clients,
            registry,
            rules: match shared.plan.mutant {
                Some(Mutant::Breaks(rule)) => Rules::breaking(rule),
                _ => Rules::default(),
            },
            dice: Dice::new(shared.plan.seed, &format!("{host} {start}")),
        })
    }

    fn about(&self) -> About {
        About {
            address: format!("{}:{GRPC_PORT}", self.host),
            ..About::default()
        }
    }

    fn start_worker(
        &self,
        shared: &Shared,
        shutdown: &Shutdown,
    ) -> Result<(JoinHandle<Vec<Claim>>, fleet::Handle), Failure> {
        let config = fleet::Config {
            replica: ReplicaId::new(self.host),
            about: self.about(),
            lease_duration: LEASE_DURATION,
            drain_hook_grace: DRAIN_GRACE,
            shutdown_grace: SHUTDOWN_GRACE,
            leader_lease: LEADER_LEASE.to_owned(),
            rules: self.rules,
        };
        let parts = fleet::Parts {
            clock: self.clock.clone(),
            informers: self.informers.clone(),
            leases: self.leases.clone(),
            leader_leases: self.leases.clone(),
            maps: self.maps.clone(),
            authority: Arc::clone(&shared.authority),
            dialer: shared.network.dialer(self.host),
            violations: shared.violations.clone(),
        };
        let (driver, handle) = Fleet::new(config, parts)?;
        let gate = WriteGate::new(&self.clients);
        if let Some(process) = shared.processes.lock().get_mut(self.host) {
            process.standing = Some(Arc::clone(&handle.standing));
            process.gate = Some(gate.clone());
        }
        let (commands, obeyed) = mpsc::channel(CHANNEL);
        let (told, events) = mpsc::channel(CHANNEL);
        let shards = Shards::new(
            shared,
            self.host,
            (self.clock.clone(), self.dice.clone()),
            (gate, self.informers.clone()),
            (Arc::clone(&handle.standing), told),
        );
        task::spawn("shards", shards.run(obeyed));
        let driver = driver.run(commands, events, shutdown.token());
        Ok((task::spawn("worker", driver), handle))
    }

    async fn start_leader(
        &self,
        shared: &Shared,
        worker: Option<&fleet::Handle>,
        lead: &Shutdown,
        rest: &Shutdown,
    ) -> Result<JoinHandle<()>, Failure> {
        let (witness, renewals) = Witness::new(
            witness::Config {
                replica: ReplicaId::new(self.host),
                about: self.about(),
                lease_duration: LEASE_DURATION,
                rules: self.rules,
            },
            self.clock.clone(),
            self.leases.clone(),
            worker.map(|worker| WorkerLease {
                standing: Arc::clone(&worker.standing),
                renewals: worker.renewals.clone(),
            }),
        );
        let config = metashard_leader::Config {
            replica: ReplicaId::new(self.host),
            about: self.about(),
            lease_duration: LEASE_DURATION,
            shards: shared.plan.n_shards,
            drain_hook_grace: DRAIN_GRACE,
            leader_lease: LEADER_LEASE.to_owned(),
            target_selector: String::new(),
            rules: self.rules,
        };
        let subject = Subject {
            replica: ReplicaId::new(self.host),
            incarnation: Incarnation::new(format!("leader-{}", self.host)),
        };
        let listener = shared.network.listener(self.host).await?;
        let clock = self.clock.clone();
        let parts = metashard_leader::Parts {
            clock: clock.clone(),
            informers: self.informers.clone(),
            leases: self.leases.clone(),
            leader_leases: self.leases.clone(),
            maps: self.maps.clone(),
            placements: None,
            grpc: GrpcServer::new(listener, &shared.authority, &subject, clock)?,
            renewals,
            recorder: Recorder::silent(&self.clients),
            violations: shared.violations.clone(),
        };
        let (coordinator, handle) = Coordinator::new(config, parts, &self.registry)?;
        if let Some(process) = shared.processes.lock().get_mut(self.host) {
            process.leads_until = Some(handle.leads_until);
        }
        task::spawn("witness", witness.run(rest.token()));
        let coordinator = coordinator.run(lead.token(), rest.token());
        Ok(task::spawn("coordinator", coordinator))
    }
}
