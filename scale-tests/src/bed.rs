//! Where a scenario runs: an API server, hooks, namespaces, processes, controllers with parents.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams, PostParams},
    core::GroupVersionKind,
};
use metashard_api::{
    id::ReplicaId,
    names::{self, SYSTEM_NAMESPACE},
    shard_map::{self, ShardMap, ShardMapSpec},
};
use metashard_fleet::record::Holder;
use metashard_testkit::{
    Cluster, FakeHook,
    apply::apply,
    cluster::{self, SecondServer},
    crds,
    history::HookCall,
    hook::Answer,
    shipped,
    wait::eventually,
};
use parking_lot::Mutex;
use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use crate::{
    edits::Edits,
    flags::{Name, Settings},
    network::{Link, Network},
    objects::{self, NAMESPACE},
    record::Record,
    scrape::{Contacts, Scraper},
    subject::{self, Place, Recipe, Subject},
};

/// Time for anything that is not measured.
pub(crate) const WITHIN: Duration = Duration::from_mins(2);

/// Time for a process to end that was told to: more than the grace period of a Pod.
const ENDS_WITHIN: Duration = Duration::from_secs(45);

/// How long no shard may change hands before a fleet is at rest.
const REST: Duration = Duration::from_secs(2);

/// Objects that are made at once.
const AT_ONCE: usize = 16;

/// All that runs. Fields are dropped in their order: processes before the network.
pub(crate) struct Bed {
    pub(crate) settings: Settings,
    subjects: Vec<Option<Subject>>,
    /// How often the process of each slot was replaced by one of another name.
    renewed: Vec<usize>,
    /// Names of all processes that there were.
    names: BTreeSet<String>,
    contacts: Contacts,
    pub(crate) scraper: Scraper,
    pub(crate) hook: FakeHook,
    pub(crate) record: Record,
    pub(crate) client: Client,
    /// One for each API server: the processes are spread over them.
    recipes: Vec<Recipe>,
    pub(crate) second: Option<SecondServer>,
    pub(crate) cluster: Cluster,
    pub(crate) network: Option<Network>,
    /// What was spent before the measured part.
    pub(crate) before: Spent,
    /// How often the leader's Lease was taken by hand.
    pub(crate) leads_taken: usize,
}

/// CPU time, and the calls of hooks that it was spent on.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Spent {
    pub(crate) cpu: Duration,
    pub(crate) calls: usize,
}

impl Bed {
    /// Starts everything and waits until it is ready. `weights`: how many parents each controller has.
    pub(crate) async fn start(settings: Settings, weights: &[usize]) -> anyhow::Result<Self> {
        // A roll-out starts the next one before the last has ended.
        let slots = settings.replicas + usize::from(settings.scenario == Name::RollingUpdate);
        let network = settings
            .has_namespaces
            .then(|| Network::new(slots))
            .transpose()?;
        let cluster = Cluster::start(cluster::Options {
            audit_bodies: true,
            // One file, whatever its size.
            api_server_args: vec!["--audit-log-maxsize=100000".to_owned()],
            address: network.as_ref().map(|it| it.here(Link::Api)),
            ..cluster::Options::default()
        })
        .await?;
        let client = cluster.admin().await?;
        install(&client).await?;
        let second = match settings.api_servers {
            2 => Some(SecondServer::start(&cluster).await?),
            _ => None,
        };
        let recipe = |kubeconfig| Recipe {
            program: settings.program.clone(),
            is_peer: settings.is_peer,
            kubeconfig,
            plant: settings.plant.clone(),
        };
        let kubeconfigs = kubeconfigs(&cluster, second.as_ref(), network.as_ref())?;
        let recipes = kubeconfigs.into_iter().map(recipe).collect();
        let hook = start_hook(network.as_ref(), settings.clone())?;
        let contacts = Contacts::default();
        let mut bed = Self {
            subjects: (0..slots).map(|_| None).collect(),
            renewed: vec![0; slots],
            names: BTreeSet::new(),
            scraper: Scraper::start(Arc::clone(&contacts), settings.scenario.scraped_every()),
            contacts,
            settings,
            hook,
            record: Record::new(),
            client,
            recipes,
            second,
            cluster,
            network,
            before: Spent::default(),
            leads_taken: 0,
        };
        for slot in 0..bed.settings.replicas {
            bed.spawn(slot)?;
        }
        bed.is_ready().await?;
        bed.add(weights).await?;
        bed.before = bed.spent().await?;
        Ok(bed)
    }

    /// What all processes have spent so far.
    pub(crate) async fn spent(&mut self) -> anyhow::Result<Spent> {
        self.take_calls()?;
        self.scraper.once().await;
        Ok(Spent {
            cpu: self.scraper.seen().cpu(),
            calls: self.record.history.calls.len(),
        })
    }

    /// Number of processes.
    pub(crate) fn slots(&self) -> usize {
        self.subjects.len()
    }

    /// Name of the process in a slot.
    pub(crate) fn name(&self, slot: usize) -> String {
        let renewed = self.renewed.get(slot).copied();
        name_of(slot, renewed.unwrap_or_default())
    }

    /// Names of all processes that there were.
    pub(crate) fn names(&self) -> &BTreeSet<String> {
        &self.names
    }

    /// The slots in which a process runs, or did.
    pub(crate) fn used(&self) -> Vec<usize> {
        let slots = self.subjects.iter().enumerate();
        slots.filter(|it| it.1.is_some()).map(|it| it.0).collect()
    }

    /// Starts a process of a new name in the slot that is free.
    pub(crate) fn add_one(&mut self) -> anyhow::Result<()> {
        let free = self.subjects.iter().position(Option::is_none);
        let free = free.context("there is no free slot")?;
        if self.names.contains(&self.name(free)) {
            *self.renewed.get_mut(free).context("no such slot")? += 1;
        }
        self.spawn(free)
    }

    /// The process of a slot has ended, and the slot is free.
    pub(crate) fn retire(&mut self, slot: usize) {
        self.contacts.lock().remove(&slot);
        if let Some(subject) = self.subjects.get_mut(slot) {
            drop(subject.take());
        }
    }

    /// Starts the process of a slot; one that is there ends before.
    pub(crate) fn spawn(&mut self, slot: usize) -> anyhow::Result<()> {
        let name = self.name(slot);
        let place = match &self.network {
            Some(network) => Place {
                namespace: Some(network.namespace(slot)),
                host: network.at(slot, Link::Hook),
                peers_host: network.at(slot, Link::Peers),
            },
            None => Place {
                namespace: None,
                host: "127.0.0.1".to_owned(),
                peers_host: "127.0.0.1".to_owned(),
            },
        };
        let free = self.subjects.get_mut(slot).context("no such slot")?;
        drop(free.take());
        let recipe = self.recipes.get(slot % self.recipes.len());
        let recipe = recipe.context("there is no API server")?;
        let subject = Subject::start(self.cluster.group(), &name, &place, recipe)?;
        self.names.insert(name);
        self.contacts.lock().insert(slot, subject.contact.clone());
        *free = Some(subject);
        Ok(())
    }

    /// The process of a slot.
    pub(crate) fn subject(&mut self, slot: usize) -> anyhow::Result<&mut Subject> {
        let subject = self.subjects.get_mut(slot).and_then(Option::as_mut);
        subject.with_context(|| format!("nothing runs in slot {slot}"))
    }

    /// Sends a signal to the process of a slot.
    pub(crate) fn signal(&mut self, slot: usize, signal: Signal) -> anyhow::Result<()> {
        self.subject(slot)?.signal(signal)
    }

    /// Whether the process of a slot says that it is ready.
    pub(crate) async fn is_slot_ready(&self, slot: usize) -> anyhow::Result<()> {
        let contact = self.contacts.lock().get(&slot).cloned();
        contact.context("nothing runs there")?.is_ready().await
    }

    /// Waits until all are ready.
    pub(crate) async fn is_ready(&mut self) -> anyhow::Result<()> {
        for slot in self.used() {
            let name = self.name(slot);
            let ready = eventually(WITHIN, &name, async || {
                if self.subject(slot)?.has_ended() {
                    return Ok(Err(anyhow::anyhow!("{name} has ended")));
                }
                self.is_slot_ready(slot).await.map(Ok)
            })
            .await;
            ready.and_then(|it| it).with_context(|| {
                let log = fs::read_to_string(self.cluster.group().log(&name));
                let log = log.unwrap_or_default();
                let lines: Vec<&str> = log.lines().rev().take(20).collect();
                format!("the end of its log, newest first:\n{}", lines.join("\n"))
            })?;
        }
        Ok(())
    }

    /// Waits until every replica is ready, every shard has an owner, somebody leads, and no shard moves.
    pub(crate) async fn is_at_rest(&mut self) -> anyhow::Result<ShardMapSpec> {
        self.is_ready().await?;
        let mut last = (Instant::now(), None);
        eventually(WITHIN, "a fleet at rest", async || {
            sleep(Duration::from_millis(200)).await;
            self.leader().await?;
            let map = self.map().await?;
            let before: Option<&ShardMapSpec> = last.1.as_ref();
            if before.is_none_or(|it| it.shards != map.shards) {
                last = (Instant::now(), Some(map.clone()));
            }
            ensure!(last.0.elapsed() >= REST, "a shard has just moved");
            let is_owned = map.shards.iter().all(|shard| shard.owner.is_some());
            ensure!(is_owned, "a shard has no owner");
            Ok(map)
        })
        .await
    }

    async fn add(&self, weights: &[usize]) -> anyhow::Result<()> {
        let controllers = (0..weights.len()).map(|number| {
            let url = self.hook.url(&objects::path(number));
            objects::controller(number, &url)
        });
        let parents = weights.iter().enumerate().flat_map(|(number, weight)| {
            (0..*weight).map(move |parent| objects::parent(number, parent))
        });
        self.create_all(&controllers.collect::<Vec<_>>()).await?;
        self.create_all(&parents.collect::<Vec<_>>()).await
    }

    /// Creates objects, several at once.
    pub(crate) async fn create_all(&self, objects: &[serde_json::Value]) -> anyhow::Result<()> {
        stream::iter(objects.iter().map(|object| self.create(object)))
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await
    }

    async fn create(&self, object: &serde_json::Value) -> anyhow::Result<()> {
        let (resource, namespace) = objects::resource(object);
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), &namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        let object = serde_json::from_value(object.clone())?;
        api.create(&PostParams::default(), &object).await?;
        Ok(())
    }

    /// All parents.
    pub(crate) fn things(&self) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk(crds::GROUP, "v1", "Thing");
        let resource = ApiResource::from_gvk_with_plural(&gvk, "things");
        Api::namespaced_with(self.client.clone(), NAMESPACE, &resource)
    }

    /// The calls that are under way, besides those that may have ended since they were taken over last.
    pub(crate) fn calls_now(&self) -> anyhow::Result<Vec<HookCall>> {
        let calls = self.hook.calls();
        calls.iter().map(|call| self.record.seen(call)).collect()
    }

    /// Takes over what the hook has seen the end of so far.
    pub(crate) fn take_calls(&mut self) -> anyhow::Result<()> {
        self.record
            .take(self.hook.take_calls(), self.settings.is_peer)
    }

    /// Waits until each parent shows the value of its last edit, and so does its child.
    pub(crate) async fn is_settled(&self, edits: &Edits) -> anyhow::Result<()> {
        self.are_settled(edits, "").await
    }

    /// The same of the parents that a selector of labels names.
    pub(crate) async fn are_settled(&self, edits: &Edits, selector: &str) -> anyhow::Result<()> {
        let wanted = edits.last();
        let params = ListParams::default().labels(selector);
        eventually(WITHIN, "every edit to be carried out", async || {
            sleep(Duration::from_millis(200)).await;
            let things = self.things().list(&params).await?;
            let behind = things.iter().filter(|thing| !is_done(thing, &wanted));
            let names: Vec<_> = behind
                .filter_map(|it| it.metadata.name.as_deref())
                .collect();
            ensure!(
                names.is_empty(),
                "{} parents are behind: {names:?}",
                names.len()
            );
            Ok(())
        })
        .await
    }

    /// The map.
    pub(crate) async fn map(&self) -> anyhow::Result<ShardMapSpec> {
        let maps: Api<ShardMap> = Api::namespaced(self.client.clone(), SYSTEM_NAMESPACE);
        Ok(maps.get(shard_map::NAME).await?.spec)
    }

    /// The slot of the replica that leads.
    pub(crate) async fn leader(&self) -> anyhow::Result<usize> {
        let lease = self.leases().get(names::LEADER_LEASE).await?;
        let replica = holder(&lease).context("nobody leads")?;
        let found = self.slot_of(&replica);
        found.with_context(|| format!("{replica} leads"))
    }

    /// The slot of the replica of this name, if it is one of those that run now.
    pub(crate) fn slot_of(&self, replica: &ReplicaId) -> Option<usize> {
        (0..self.slots()).find(|slot| self.name(*slot) == replica.as_str())
    }

    /// Leases of the fleet.
    pub(crate) fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), SYSTEM_NAMESPACE)
    }

    /// Ends an API server as a crash would, the first or the second, and notes that its log may have a hole there.
    pub(crate) async fn kill_api_server(&mut self, number: usize) -> anyhow::Result<()> {
        match &mut self.second {
            Some(second) if number == 1 => second.kill()?,
            _ => self.cluster.kill_api_server().await?,
        }
        let now = Instant::now().into_std();
        self.record.history.holes.push(self.record.time(now));
        Ok(())
    }

    /// Starts the API server that was killed.
    pub(crate) async fn start_api_server(&mut self, number: usize) -> anyhow::Result<()> {
        match &mut self.second {
            Some(second) if number == 1 => second.resume(&self.cluster).await,
            _ => self.cluster.start_api_server().await,
        }
    }

    /// Ends all processes in good order and takes over the rest of what was seen. Returns the names of those that did not end
    /// and were killed.
    pub(crate) async fn stop(&mut self) -> anyhow::Result<Vec<String>> {
        self.scraper.once().await;
        for subject in self.subjects.iter_mut().flatten() {
            subject.signal(Signal::TERM)?;
        }
        let mut killed = Vec::new();
        for subject in self.subjects.iter_mut().flatten() {
            let ended = eventually(ENDS_WITHIN, "the end of a replica", async || {
                ensure!(subject.has_ended(), "{} still runs", subject.name);
                Ok(())
            });
            if ended.await.is_err() {
                killed.push(subject.name.clone());
                subject.kill()?;
            }
        }
        self.take_calls()?;
        Ok(killed)
    }
}

/// The replica of ours that holds a Lease.
pub(crate) fn holder(lease: &Lease) -> Option<ReplicaId> {
    let text = lease.spec.as_ref()?.holder_identity.as_deref();
    match Holder::parse(text) {
        Holder::Member(replica, _) => Some(replica),
        Holder::Released | Holder::Fenced | Holder::Evicted | Holder::Foreign(_) => None,
    }
}

fn name_of(slot: usize, renewed: usize) -> String {
    match renewed {
        0 => format!("replica-{slot}"),
        renewed => format!("replica-{slot}-{renewed}"),
    }
}

fn is_done(thing: &DynamicObject, wanted: &BTreeMap<String, u64>) -> bool {
    let name = thing.metadata.name.as_deref().unwrap_or_default();
    let shown = thing.data["status"]["value"].as_str();
    let shown = shown.and_then(|it| it.parse::<u64>().ok());
    // The last edit may have been carried out though its answer was lost.
    wanted.get(name).is_none_or(|wanted| shown >= Some(*wanted))
}

fn start_hook(network: Option<&Network>, settings: Settings) -> anyhow::Result<FakeHook> {
    let host = match network {
        Some(network) => network.here(Link::Hook).parse()?,
        None => IpAddr::V4(Ipv4Addr::LOCALHOST),
    };
    FakeHook::start_at((host, 0).into(), move |call| {
        let controller = objects::controller_of(&call.path).unwrap_or_default();
        let answer = objects::answer(&call.json(), settings.children);
        Answer::json(&answer).after(settings.hook_takes(controller))
    })
}

async fn install(client: &Client) -> anyhow::Result<()> {
    shipped::put_crds(client).await?;
    shipped::put_system(client, SYSTEM_NAMESPACE).await?;
    crds::install_one(client, &crds::thing()).await?;
    apply(client, &objects::namespace()).await?;
    apply(client, &objects::rights()).await?;
    Ok(())
}

/// Kubeconfig files of the subjects, who may do everything and are told apart in the audit log by their name: one for each
/// API server.
fn kubeconfigs(
    cluster: &Cluster,
    second: Option<&SecondServer>,
    network: Option<&Network>,
) -> anyhow::Result<Vec<PathBuf>> {
    let mut servers = vec![(cluster.url(), cluster.kubeconfig(objects::USER)?)];
    if let Some(second) = second {
        servers.push((second.url(), second.kubeconfig(cluster, objects::USER)?));
    }
    let Some(network) = network else {
        return Ok(servers.into_iter().map(|it| it.1).collect());
    };
    let mut paths = Vec::new();
    for (url, path) in servers {
        let text = subject::by_way_of(&path, url, &network.here(Link::Api))?;
        let path = path.with_extension("in-namespace");
        fs::write(&path, text).context("write a kubeconfig file")?;
        paths.push(path);
    }
    Ok(paths)
}

/// What several tasks append to.
pub(crate) type Shared<T> = Arc<Mutex<T>>;
