//! The fleet driver against a real API server. The test plays the leader, through map and Leases only, and the code
//! that runs shards.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, bail, ensure};
use kube::{Api, api::DeleteParams};
use metashard_api::{
    crd,
    id::{Epoch, Incarnation, ReplicaId, Seq, ShardId, Term},
    names::WORKER_LEASE_PREFIX,
    shard_map::{self, Member, ShardEntry, ShardMap, ShardMapSpec},
};
use metashard_fleet::{
    map,
    message::Claim,
    record::{About, Holder, Record, Seen, Written},
    rules::Rules,
    worker::Phase,
};
use metashard_kube::{
    client::{Clients, Options},
    crd::install,
    informer::Informers,
    lease::Leases,
    metrics::Metrics,
    shard_map::ShardMaps,
};
use metashard_runtime::{
    clock::Clock,
    metrics::Violations,
    net::Dialer,
    shutdown::{Shutdown, Token},
    task::{self, Tasks},
    tls::Authority,
};
use metashard_testkit::{Cluster, wait::eventually};
use metashard_worker::{
    fleet::{Config, Fleet, Handle, Parts},
    shards::{ShardCommand, ShardEvent},
};
use parking_lot::Mutex;
use prometheus::Registry;
use tokio::{sync::mpsc, task::JoinHandle};

/// Long against everything that a test waits for.
const SOON: Duration = Duration::from_secs(20);

/// Short, so that suspension and loss come soon.
const LEASE_DURATION: Duration = Duration::from_secs(2);

/// One worker in a namespace of its own.
struct Scene {
    namespace: String,
    leases: Leases,
    maps: ShardMaps,
    handle: Handle,
    commands: Arc<Mutex<Vec<ShardCommand>>>,
    shutdown: Shutdown,
    fleet: JoinHandle<Vec<Claim>>,
    _shards: Tasks<()>,
}

impl Scene {
    async fn start(cluster: &Cluster) -> anyhow::Result<Self> {
        let kubeconfig = cluster.kubeconfig(metashard_testkit::cluster::ADMIN)?;
        let namespace = cluster.namespace("fleet").await?;
        let clock = Clock::system();
        let options = Options {
            kubeconfig: Some(kubeconfig),
            ..Options::default()
        };
        let metrics = Metrics::register(&Registry::new())?;
        let clients = Clients::connect(options, clock.clone(), metrics).await?;
        install(&clients, &crd::shard_maps()).await?;
        let leases = Leases::new(&clients, &namespace, None);
        let maps = ShardMaps::new(&clients, &namespace);
        let authority = Authority::generate("metashard.local", clock.wall())?;
        let config = Config {
            replica: ReplicaId::new("r1"),
            about: About::default(),
            lease_duration: LEASE_DURATION,
            drain_hook_grace: Duration::from_secs(1),
            shutdown_grace: Duration::from_secs(10),
            leader_lease: "metashard-leader".to_owned(),
            rules: Rules::default(),
        };
        let parts = Parts {
            clock,
            informers: Informers::new(&clients),
            leases: leases.clone(),
            leader_leases: leases.clone(),
            maps: maps.clone(),
            authority: Arc::new(authority),
            dialer: Dialer::tcp(),
            violations: Violations::register(&Registry::new(), [])?,
        };
        let (fleet, handle) = Fleet::new(config, parts)?;
        let (command_sender, command_receiver) = mpsc::channel(8);
        let (event_sender, event_receiver) = mpsc::channel(8);
        let commands = Arc::new(Mutex::new(Vec::new()));
        let mut shards = Tasks::new();
        let log = Arc::clone(&commands);
        shards.spawn("shards", run_shards(command_receiver, event_sender, log));
        let shutdown = Shutdown::new();
        let token: Token = shutdown.token();
        let fleet = task::spawn("fleet", fleet.run(command_sender, event_receiver, token));
        Ok(Self {
            namespace,
            leases,
            maps,
            handle,
            commands,
            shutdown,
            fleet,
            _shards: shards,
        })
    }

    /// A worker that has joined, and owns shard 0 at epoch 3.
    async fn owner(cluster: &Cluster) -> anyhow::Result<Self> {
        let scene = Self::start(cluster).await?;
        scene.write_map(ShardMapSpec::default()).await?;
        let incarnation = scene.joined().await?;
        scene.write_map(map_of(1, 1, &incarnation, 3)).await?;
        scene.acts(3).await?;
        Ok(scene)
    }

    /// Creates the map, or replaces it.
    async fn write_map(&self, spec: ShardMapSpec) -> anyhow::Result<()> {
        let base = match self.maps.read().await? {
            map::Seen::Present(map) => Some(map),
            map::Seen::Absent | map::Seen::Unreadable => None,
        };
        match self.maps.write(&map::Write { base, spec }).await {
            Written::Accepted(_) => Ok(()),
            other => bail!("map not written: {other:?}"),
        }
    }

    async fn joined(&self) -> anyhow::Result<Incarnation> {
        eventually(SOON, "the worker to join", async || {
            let standing = self.handle.standing.load();
            ensure!(
                standing.phase() == Phase::Member,
                "it is {:?}",
                standing.phase()
            );
            standing.incarnation().cloned().context("no incarnation")
        })
        .await
    }

    async fn phase(&self, wanted: Phase) -> anyhow::Result<()> {
        eventually(SOON, "a phase of the worker", async || {
            let phase = self.handle.standing.load().phase();
            ensure!(phase == wanted, "it is {phase:?}, not {wanted:?}");
            Ok(())
        })
        .await
    }

    /// Waits until the worker may act for shard 0 at `epoch`.
    async fn acts(&self, epoch: u64) -> anyhow::Result<()> {
        eventually(SOON, "authority for the shard", async || {
            let authority = self.authority().context("no authority")?;
            ensure!(authority == Epoch(epoch), "it is for epoch {authority}");
            Ok(())
        })
        .await
    }

    fn authority(&self) -> Option<Epoch> {
        let standing = self.handle.standing.load();
        let authority = standing.authority(ShardId(0), Clock::system().now())?;
        Some(authority.epoch())
    }

    /// The worker's Lease.
    async fn lease(&self, incarnation: &Incarnation) -> anyhow::Result<Record> {
        let name = format!("{WORKER_LEASE_PREFIX}{incarnation}");
        match self.leases.read(&name).await? {
            Seen::Present(record) => Ok(record),
            Seen::Absent => bail!("there is no Lease {name}"),
        }
    }

    /// Fences the worker as a leader does; several attempts, since it renews all the while.
    async fn fence(&self, incarnation: &Incarnation) -> anyhow::Result<()> {
        let name = format!("{WORKER_LEASE_PREFIX}{incarnation}");
        eventually(SOON, "the fence to be written", async || {
            let record = self.lease(incarnation).await?;
            let fenced = Record {
                holder: Holder::Fenced,
                ..record
            };
            let written = self.leases.put(&name, &fenced).await;
            ensure!(matches!(written, Written::Accepted(_)), "{written:?}");
            Ok(())
        })
        .await
    }

    /// Deletes the map as an administrator would.
    async fn delete_map(&self, cluster: &Cluster) -> anyhow::Result<()> {
        let client = cluster.admin().await?;
        let maps: Api<ShardMap> = Api::namespaced(client, &self.namespace);
        maps.delete(shard_map::NAME, &DeleteParams::default())
            .await?;
        eventually(SOON, "the map to be gone", async || {
            ensure!(self.maps.read().await? == map::Seen::Absent, "still there");
            Ok(())
        })
        .await
    }

    fn commands(&self) -> Vec<ShardCommand> {
        self.commands.lock().clone()
    }

    /// Waits until the code that runs shards has been told this.
    async fn is_told(&self, wanted: &ShardCommand) -> anyhow::Result<()> {
        eventually(SOON, "a command", async || {
            let commands = self.commands();
            ensure!(commands.contains(wanted), "there are {commands:?}");
            Ok(())
        })
        .await
    }
}

/// Plays the code that runs shards: does all that it is told at once.
async fn run_shards(
    mut commands: mpsc::Receiver<ShardCommand>,
    events: mpsc::Sender<ShardEvent>,
    log: Arc<Mutex<Vec<ShardCommand>>>,
) {
    while let Some(command) = commands.recv().await {
        let answer = match &command {
            ShardCommand::Ping => Some(ShardEvent::DispatcherAlive),
            ShardCommand::Warm(shard) => Some(ShardEvent::Warmed(*shard)),
            ShardCommand::Start { claim, .. } => Some(ShardEvent::Fresh { claim: *claim }),
            ShardCommand::Drain { claim, .. } | ShardCommand::Drop { claim } => {
                Some(ShardEvent::Drained {
                    claim: *claim,
                    last_written: Vec::new(),
                })
            }
            ShardCommand::Suspend | ShardCommand::Resume => None,
        };
        if command != ShardCommand::Ping {
            log.lock().push(command);
        }
        if let Some(answer) = answer
            && events.send(answer).await.is_err()
        {
            return;
        }
    }
}

/// A map of one shard, owned by `incarnation`.
fn map_of(term: u64, seq: u64, incarnation: &Incarnation, epoch: u64) -> ShardMapSpec {
    ShardMapSpec {
        format: 0,
        term: Term(term),
        seq: Seq(seq),
        leader: None,
        shard_count: 1,
        splits: Vec::new(),
        members: vec![Member {
            replica: "r1".to_owned(),
            incarnation: incarnation.to_string(),
        }],
        shards: vec![ShardEntry {
            owner: Some(0),
            epoch: Epoch(epoch),
        }],
    }
}

fn claim(epoch: u64) -> Claim {
    Claim {
        shard: ShardId(0),
        epoch: Epoch(epoch),
    }
}

#[tokio::test]
async fn worker_joins_once_there_is_a_map_and_serves_what_it_gives() -> anyhow::Result<()> {
    let scene = Scene::start(Cluster::shared().await?).await?;
    scene.phase(Phase::Starting).await?;

    scene.write_map(ShardMapSpec::default()).await?;
    let incarnation = scene.joined().await?;
    let lease = scene.lease(&incarnation).await?;
    assert!(lease.holder.is_incarnation(&incarnation));
    assert_eq!(lease.duration, LEASE_DURATION);
    scene.write_map(map_of(1, 1, &incarnation, 3)).await?;
    scene.acts(3).await?;

    scene.write_map(map_of(1, 2, &incarnation, 4)).await?;
    scene.acts(4).await?;
    let dropped = ShardCommand::Drop { claim: claim(3) };
    scene.is_told(&dropped).await
}

#[tokio::test]
async fn lease_is_renewed_and_its_renewals_are_told() -> anyhow::Result<()> {
    let scene = Scene::owner(Cluster::shared().await?).await?;
    let incarnation = scene.joined().await?;
    let first = scene.lease(&incarnation).await?;

    eventually(SOON, "further renewals", async || {
        let lease = scene.lease(&incarnation).await?;
        ensure!(lease.attempt >= first.attempt + 3, "{}", lease.attempt);
        Ok(())
    })
    .await?;

    assert!(scene.handle.renewals.borrow().is_some());
    assert_eq!(scene.joined().await?, incarnation);
    Ok(())
}

#[tokio::test]
async fn fenced_worker_drops_everything_and_joins_as_another_incarnation() -> anyhow::Result<()> {
    let scene = Scene::owner(Cluster::shared().await?).await?;
    let incarnation = scene.joined().await?;

    scene.fence(&incarnation).await?;
    let next = eventually(SOON, "another incarnation", async || {
        let next = scene.joined().await?;
        ensure!(next != incarnation, "still the fenced one");
        Ok(next)
    })
    .await?;

    assert_eq!(scene.authority(), None);
    let dropped = ShardCommand::Drop { claim: claim(3) };
    scene.is_told(&dropped).await?;
    assert_eq!(scene.lease(&incarnation).await?.holder, Holder::Fenced);
    scene.write_map(map_of(1, 2, &next, 4)).await?;
    scene.acts(4).await
}

#[tokio::test]
async fn leaving_worker_drains_itself_and_writes_an_empty_holder() -> anyhow::Result<()> {
    let scene = Scene::owner(Cluster::shared().await?).await?;
    let incarnation = scene.joined().await?;

    scene.shutdown.request();
    let leases = scene.leases.clone();
    let commands = Arc::clone(&scene.commands);
    let unfinished = tokio::time::timeout(SOON, scene.fleet).await??;

    assert_eq!(unfinished, []);
    let drained = commands
        .lock()
        .iter()
        .any(|command| matches!(command, ShardCommand::Drain { claim: it, .. } if *it == claim(3)));
    assert!(drained);
    let name = format!("{WORKER_LEASE_PREFIX}{incarnation}");
    let Seen::Present(lease) = leases.read(&name).await? else {
        bail!("the Lease is gone");
    };
    assert_eq!(lease.holder, Holder::Released);
    Ok(())
}

#[tokio::test]
async fn worker_outlives_an_outage_of_the_api_server_suspended_and_with_all_it_holds()
-> anyhow::Result<()> {
    let cluster = Cluster::start(metashard_testkit::cluster::Options::default()).await?;
    let scene = Scene::owner(&cluster).await?;
    let incarnation = scene.joined().await?;

    cluster.kill_api_server().await?;
    scene.phase(Phase::Suspended).await?;
    assert_eq!(scene.authority(), None);
    cluster.start_api_server().await?;
    scene.phase(Phase::Member).await?;

    assert_eq!(scene.joined().await?, incarnation);
    scene.acts(3).await?;
    scene.is_told(&ShardCommand::Suspend).await?;
    scene.is_told(&ShardCommand::Resume).await?;
    let commands = scene.commands();
    assert!(!commands.contains(&ShardCommand::Drop { claim: claim(3) }));
    Ok(())
}

#[tokio::test]
async fn map_that_is_made_anew_ends_the_incarnation() -> anyhow::Result<()> {
    let cluster = Cluster::shared().await?;
    let scene = Scene::owner(cluster).await?;
    let incarnation = scene.joined().await?;

    scene.delete_map(cluster).await?;
    scene.write_map(map_of(1, 2, &incarnation, 9)).await?;

    eventually(SOON, "another incarnation", async || {
        ensure!(scene.joined().await? != incarnation, "still the old one");
        Ok(())
    })
    .await?;
    assert_eq!(scene.authority(), None);
    Ok(())
}
