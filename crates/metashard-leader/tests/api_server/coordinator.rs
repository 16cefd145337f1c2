//! One coordinator with its real watches, Leases and map; the workers are Leases that the test renews.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, bail, ensure};
use metashard_api::{
    id::{Incarnation, ReplicaId, ShardId},
    shard_map::ShardMapSpec,
};
use metashard_fleet::{
    election::Phase,
    invariants::Invariant,
    leader::Snapshot,
    map, monitor,
    record::{About, Holder, Record, Seen, Written},
    rules::Rules,
};
use metashard_kube::{
    client::Clients, crd, events::Recorder, informer::Informers, lease::Leases,
    shard_map::ShardMaps,
};
use metashard_leader::{
    Config, Coordinator, Parts, ca,
    grpc::GrpcServer,
    witness::{self, Witness},
};
use metashard_runtime::{
    clock::Clock,
    metrics::Violations,
    shutdown::Shutdown,
    task::{self, Tasks},
    tls::Subject,
};
use metashard_testkit::wait::{eventually, throughout};
use prometheus::Registry;
use tokio::{net::TcpListener, sync::watch};
use uuid::Uuid;

use crate::kit::{SOON, connect, record};

const DURATION: Duration = Duration::from_secs(2);
const N_SHARDS: u16 = 12;
const LEADER: &str = "metashard-leader";

/// A replica that only leads, in a namespace of its own.
struct Fixture {
    leases: Leases,
    maps: ShardMaps,
    snapshot: watch::Receiver<Arc<Snapshot>>,
    shutdown: Shutdown,
    rest: Shutdown,
    workers: Tasks<()>,
    violations: Violations,
}

impl Fixture {
    /// Starts it; `with_map`: the installation came with an empty map.
    async fn start(with_map: bool) -> anyhow::Result<Self> {
        let registry = Registry::new();
        let (clients, namespace) = connect(&registry).await?;
        let clock = Clock::system();
        crd::install(&clients, &metashard_api::crd::shard_maps()).await?;
        let informers = Informers::new(&clients);
        let leases = Leases::new(&clients, &namespace, None);
        let maps = ShardMaps::new(&clients, &namespace);
        if with_map {
            let spec = ShardMapSpec::default();
            let made = maps.write(&map::Write { base: None, spec }).await;
            ensure!(matches!(made, Written::Accepted(_)), "{made:?}");
        }
        let replica = ReplicaId::new("r0");
        let grpc = grpc(&clients, &namespace, &replica).await?;
        let (witness, renewals) = Witness::new(
            witness::Config {
                replica: replica.clone(),
                about: About::default(),
                lease_duration: DURATION,
                rules: Rules::default(),
            },
            clock.clone(),
            leases.clone(),
            None,
        );
        let violations = Violations::register(&registry, [])?;
        let parts = Parts {
            clock,
            informers,
            leases: leases.clone(),
            leader_leases: leases.clone(),
            maps: maps.clone(),
            placements: None,
            grpc,
            renewals,
            recorder: Recorder::silent(&clients),
            violations: violations.clone(),
        };
        let (coordinator, handle) = Coordinator::new(config(replica), parts, &registry)?;
        let (shutdown, rest) = (Shutdown::new(), Shutdown::new());
        task::spawn("witness", witness.run(rest.token()));
        task::spawn("leader", coordinator.run(shutdown.token(), rest.token()));
        Ok(Self {
            leases,
            maps,
            snapshot: handle.snapshot,
            shutdown,
            rest,
            workers: Tasks::new(),
            violations,
        })
    }

    /// A worker that joins, and renews its Lease for as long as it is its own.
    async fn join(&mut self) -> anyhow::Result<Incarnation> {
        let incarnation = incarnation();
        let name = format!("metashard-worker-{incarnation}");
        let holder = Holder::Member(ReplicaId::new("w"), incarnation.clone());
        let made = self.leases.create(&name, &record(holder, DURATION)).await;
        let Written::Accepted(made) = made else {
            bail!("{made:?}");
        };
        let leases = self.leases.clone();
        self.workers.spawn("worker", renew(leases, name, made));
        Ok(incarnation)
    }

    async fn kill_workers(&mut self) {
        self.workers.abort_all().await;
    }

    async fn spec(&self) -> anyhow::Result<ShardMapSpec> {
        match self.maps.read().await? {
            map::Seen::Present(map) => Ok(map.spec.clone()),
            map::Seen::Absent | map::Seen::Unreadable => bail!("there is no map"),
        }
    }

    /// Waits until the map gives every shard to `owner`.
    async fn owned_by(&self, owner: &Incarnation) -> anyhow::Result<ShardMapSpec> {
        eventually(SOON, "all shards at one worker", async || {
            let spec = self.spec().await?;
            for shard in (0..N_SHARDS).map(ShardId) {
                let (member, _) = spec.owner(shard).context("a shard without an owner")?;
                ensure!(member.incarnation == owner.as_str(), "owned by {member:?}");
            }
            Ok(spec)
        })
        .await
    }

    async fn leads(&self, leads: bool) -> anyhow::Result<()> {
        let mut snapshot = self.snapshot.clone();
        let reached = snapshot.wait_for(|snapshot| snapshot.leads == leads);
        tokio::time::timeout(SOON, reached).await??;
        Ok(())
    }

    async fn holder(&self, name: &str) -> anyhow::Result<Holder> {
        match self.leases.read(name).await? {
            Seen::Present(record) => Ok(record.holder),
            Seen::Absent => bail!("{name} is absent"),
        }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.shutdown.request();
        self.rest.request();
    }
}

fn config(replica: ReplicaId) -> Config {
    Config {
        replica,
        about: About::default(),
        lease_duration: DURATION,
        shards: N_SHARDS,
        drain_hook_grace: Duration::from_secs(2),
        leader_lease: LEADER.to_owned(),
        target_selector: String::new(),
        rules: Rules::default(),
    }
}

async fn grpc(
    clients: &Clients,
    namespace: &str,
    replica: &ReplicaId,
) -> anyhow::Result<GrpcServer> {
    let clock = Clock::system();
    let authority = ca::obtain(clients, namespace, &clock).await?;
    let subject = Subject {
        replica: replica.clone(),
        incarnation: incarnation(),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    Ok(GrpcServer::new(listener, &authority, &subject, clock)?)
}

async fn renew(leases: Leases, name: String, mut record: Record) {
    let clock = Clock::system();
    loop {
        clock.sleep(DURATION / 4).await;
        record.attempt += 1;
        match leases.put(&name, &record).await {
            Written::Accepted(written) => record = written,
            // A machine that is busy answers late: only what is there counts.
            Written::Unknown => {
                if let Ok(Seen::Present(there)) = leases.read(&name).await
                    && there.holder == record.holder
                {
                    record = there;
                }
            }
            Written::Conflict | Written::Refused(_) => return,
        }
    }
}

fn incarnation() -> Incarnation {
    Incarnation::new(Uuid::new_v4().to_string())
}

#[tokio::test]
async fn leader_gives_every_shard_a_live_owner_and_another_one_when_that_dies() -> anyhow::Result<()>
{
    let mut fixture = Fixture::start(true).await?;
    fixture.leads(true).await?;
    let first = fixture.join().await?;
    let before = fixture.owned_by(&first).await?;
    assert_eq!(before.shard_count, N_SHARDS);

    fixture.kill_workers().await;
    let second = fixture.join().await?;
    let after = fixture.owned_by(&second).await?;

    let dead = format!("metashard-worker-{first}");
    assert_eq!(fixture.holder(&dead).await?, Holder::Fenced);
    for (old, new) in before.shards.iter().zip(&after.shards) {
        assert_eq!(new.epoch, old.epoch.next());
    }
    for it in monitor::SEEN {
        assert_eq!(fixture.violations.count(it.id()), 0, "{it}");
    }
    Ok(())
}

#[tokio::test]
async fn leader_lease_taken_by_hand_is_left_alone_until_its_claim_has_ended() -> anyhow::Result<()>
{
    let mut fixture = Fixture::start(true).await?;
    fixture.leads(true).await?;
    let worker = fixture.join().await?;
    let before = fixture.owned_by(&worker).await?;

    let foreign = Holder::Foreign("kubectl".to_owned());
    eventually(SOON, "the foreign PUT", async || {
        let Seen::Present(mut record) = fixture.leases.read(LEADER).await? else {
            bail!("no Lease");
        };
        record.holder = foreign.clone();
        // Long enough that a busy machine sees the leader step down well within it.
        record.duration = Duration::from_secs(10);
        let written = fixture.leases.put(LEADER, &record).await;
        ensure!(matches!(written, Written::Accepted(_)), "{written:?}");
        Ok(())
    })
    .await?;

    fixture.leads(false).await?;
    let broken = Invariant::OneLeader.id();
    eventually(SOON, "it to be told of", async || {
        let count = fixture.violations.count(broken);
        ensure!(count == 1, "{count} times");
        Ok(())
    })
    .await?;
    throughout(Duration::from_secs(2), "the foreign claim", async || {
        ensure!(fixture.holder(LEADER).await? == foreign);
        Ok(())
    })
    .await?;
    fixture.leads(true).await?;
    let after = fixture.owned_by(&worker).await?;
    assert_eq!(after.shards, before.shards, "nothing has moved");
    assert_eq!(after.term, before.term.next());
    Ok(())
}

#[tokio::test]
async fn map_that_is_missing_is_made_by_the_first_leader() -> anyhow::Result<()> {
    let mut fixture = Fixture::start(false).await?;

    fixture.leads(true).await?;

    let worker = fixture.join().await?;
    let spec = fixture.owned_by(&worker).await?;
    assert_eq!(spec.shard_count, N_SHARDS);
    Ok(())
}

#[tokio::test]
async fn shutdown_releases_the_lead() -> anyhow::Result<()> {
    let fixture = Fixture::start(true).await?;
    fixture.leads(true).await?;

    fixture.shutdown.request();

    let mut snapshot = fixture.snapshot.clone();
    let stopped = snapshot.wait_for(|snapshot| snapshot.phase == Phase::Stopped);
    tokio::time::timeout(SOON, stopped).await??;
    eventually(SOON, "the Lease to be released", async || {
        let holder = fixture.holder(LEADER).await?;
        ensure!(holder == Holder::Released, "{holder:?}");
        Ok(())
    })
    .await
}
