//! What has happened, as the store and the hosts saw it, and what of it breaks an invariant.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    hash::{DefaultHasher, Hasher},
    time::Duration,
};

use metashard_api::{
    id::{Epoch, Incarnation, ShardId},
    names::WORKER_LEASE_PREFIX,
    shard_map::ShardMapSpec,
};
use metashard_fleet::{
    invariants::{self, Applied, Hold, Invariant, Verb, World},
    map::table,
    message::Claim,
    record::Holder,
};
use serde_json::Value;

use crate::{network::Host, plan::LEASE_DURATION, store::Key};

/// An outage that is shorter may fall between two renewals, and nobody could notice it.
const NOTICEABLE: Duration = Duration::from_secs(1);

/// How long a write of a coordinator that is dead may be under way.
const UNDER_WAY: Duration = Duration::from_secs(5);

/// Who writes, as the User-Agent says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Writer {
    pub(crate) replica: String,
    pub(crate) claim: Option<Claim>,
}

/// All that has happened so far.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) now: Duration,
    /// Whether each line is printed at once.
    pub(crate) talks: bool,
    pub(crate) log: Vec<String>,
    pub(crate) broken: BTreeMap<Invariant, String>,
    pub(crate) lost_updates: Vec<String>,
    pub(crate) published: BTreeSet<Hold<Incarnation>>,
    pub(crate) released: BTreeSet<Hold<Incarnation>>,
    pub(crate) given_up: BTreeMap<(Incarnation, ShardId), Epoch>,
    map: Option<ShardMapSpec>,
    /// When each worker's Lease was written last.
    leases: BTreeMap<Incarnation, Duration>,
    outages: Vec<(Duration, Option<Duration>)>,
    coordinators: BTreeSet<Host>,
    last_coordinator: Duration,
    applied: Vec<Applied<String>>,
    /// For each object: version and content of its last write.
    newest: BTreeMap<String, u64>,
    /// For each ownership: the last write before the map gave it.
    inherited: BTreeMap<Claim, u64>,
    pub(crate) calls: usize,
    pub(crate) writes: usize,
    pub(crate) moves: usize,
    pub(crate) terms: usize,
}

impl Writer {
    /// Reads `... (replica r1; shard 3; epoch 7)`.
    pub(crate) fn of(user_agent: &str) -> Self {
        let part = |name: &str| {
            let (_, after) = user_agent.split_once(name)?;
            let (value, _) = after.split_once([';', ')'])?;
            Some(value.trim())
        };
        let claim = || {
            Some(Claim {
                shard: ShardId(part("shard ")?.parse().ok()?),
                epoch: Epoch(part("epoch ")?.parse().ok()?),
            })
        };
        Self {
            replica: part("replica ").unwrap_or_default().to_owned(),
            claim: claim(),
        }
    }
}

/// The object that the owner of a shard writes.
pub(crate) fn object_of(shard: ShardId) -> String {
    format!("thing-{shard}")
}

impl Facts {
    pub(crate) fn new(talks: bool) -> Self {
        Self {
            talks,
            ..Self::default()
        }
    }

    /// A line of the history.
    pub(crate) fn note(&mut self, what: &str) {
        let now = turmoil::sim_elapsed().unwrap_or(self.now).max(self.now);
        let line = format!("{:>6} {what}", now.as_millis());
        if self.talks {
            println!("{line}");
        }
        self.log.push(line);
    }

    /// Two histories with the same hash are the same.
    pub(crate) fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for line in &self.log {
            hasher.write(line.as_bytes());
        }
        hasher.finish()
    }

    pub(crate) fn breaks(&mut self, invariant: Invariant, how: &str) {
        if !self.broken.contains_key(&invariant) {
            self.note(&format!("BROKEN {invariant}: {how}"));
            self.broken.insert(invariant, how.to_owned());
        }
    }

    /// Looks at one instant.
    pub(crate) fn judge(
        &mut self,
        acting: BTreeSet<Hold<Incarnation>>,
        in_flight: BTreeSet<Hold<Incarnation>>,
        leading: BTreeSet<Incarnation>,
    ) {
        let world = World {
            acting,
            // Its controllers are not split: their shards are enough.
            parents: BTreeSet::new(),
            in_flight,
            published: std::mem::take(&mut self.published),
            released: std::mem::take(&mut self.released),
            given_up: std::mem::take(&mut self.given_up),
            leading,
        };
        for invariant in world.broken() {
            let mut how = String::new();
            _ = write!(how, "acting {:?}, ", world.acting);
            _ = write!(how, "leading {:?}", world.leading);
            self.breaks(invariant, &how);
        }
        self.published = world.published;
        self.released = world.released;
        self.given_up = world.given_up;
    }

    /// Begins or ends a time in which no request is carried out.
    pub(crate) fn outage(&mut self, begins: bool) {
        let now = self.now;
        match self.outages.last_mut() {
            Some((_, end @ None)) if !begins => *end = Some(now),
            Some((_, None)) => {}
            _ if begins => self.outages.push((now, None)),
            _ => {}
        }
    }

    /// A process with a coordinator begins or has died.
    pub(crate) fn coordinator(&mut self, host: Host, lives: bool) {
        if lives {
            self.coordinators.insert(host);
        } else {
            self.coordinators.remove(host);
        }
        self.last_coordinator = self.now;
    }

    /// A worker has nothing left of an ownership, and says so.
    pub(crate) fn drained(&mut self, worker: &Incarnation, claim: Claim) {
        self.note(&format!("{worker} has drained {claim:?}"));
        self.released.insert(Hold {
            claim,
            worker: worker.clone(),
        });
    }

    /// A worker holds an ownership no more.
    pub(crate) fn gave_up(&mut self, worker: &Incarnation, claim: Claim) {
        let epoch = self
            .given_up
            .entry((worker.clone(), claim.shard))
            .or_default();
        *epoch = claim.epoch.max(*epoch);
    }

    /// An incarnation is over, and its process has joined as another one: that says that nothing of it is left.
    pub(crate) fn replaced(&mut self, worker: &Incarnation) {
        let held = self.published.iter().filter(|hold| hold.worker == *worker);
        self.released.extend(held.cloned());
    }

    /// An incarnation is over.
    pub(crate) fn ended(&mut self, worker: &Incarnation) {
        let held = self.published.iter().filter(|hold| hold.worker == *worker);
        let shards: BTreeSet<ShardId> = held.map(|hold| hold.claim.shard).collect();
        for shard in shards {
            self.given_up
                .insert((worker.clone(), shard), Epoch(u64::MAX));
        }
    }

    /// The caches of a worker are fresh, as of `version`.
    pub(crate) fn fresh(&mut self, worker: &Incarnation, claim: Claim, version: u64) {
        self.note(&format!("{worker} begins {claim:?} at {version}"));
        let inherited = self.inherited.get(&claim).copied().unwrap_or(0);
        if !invariants::is_fresh(version, inherited) {
            let how = format!("{worker} begins {claim:?} as of {version}, before {inherited}");
            self.breaks(Invariant::FreshCache, &how);
        }
    }

    pub(crate) fn called(&mut self, host: Host, claim: Claim) {
        self.calls += 1;
        self.note(&format!("{host} calls for {claim:?}"));
    }

    /// An object was written.
    pub(crate) fn written(&mut self, key: &Key, old: Option<&Value>, new: &Value, writer: &Writer) {
        match key.resource.as_str() {
            "shardmaps" => self.map_written(new),
            "leases" => self.lease_written(&key.name, old, new),
            _ => self.object_written(&key.name, old, new, writer),
        }
    }

    /// An object was deleted.
    pub(crate) fn deleted(&mut self, key: &Key, _old: &Value) {
        self.note(&format!("deleted {} {}", key.resource, key.name));
    }

    fn map_written(&mut self, map: &Value) {
        let spec = map.get("spec").cloned().unwrap_or_default();
        let spec: ShardMapSpec = serde_json::from_value(spec).unwrap_or_default();
        let next = table(&spec);
        self.note(&format!("map {:?} {:?}", spec.version(), next.shards));
        if let Some(before) = self.map.take() {
            let before = table(&before);
            let any = !self.coordinators.is_empty()
                || self.now.saturating_sub(self.last_coordinator) < UNDER_WAY;
            for invariant in before.broken_by(&next, any) {
                self.breaks(invariant, &format!("{before:?} and then {next:?}"));
            }
            self.terms += usize::from(before.term != next.term);
            let pairs = before.shards.iter().zip(&next.shards);
            self.moves += pairs
                .filter(|(old, new)| old.0.is_some() && old != new)
                .count();
        }
        for (shard, (owner, epoch)) in (0..).map(ShardId).zip(&next.shards) {
            let Some(owner) = owner else { continue };
            let claim = Claim {
                shard,
                epoch: *epoch,
            };
            let worker = Incarnation::new(owner.incarnation.as_str());
            if self.published.insert(Hold { claim, worker }) {
                let last = self.newest.get(&object_of(shard)).copied();
                self.inherited.insert(claim, last.unwrap_or(0));
            }
        }
        self.map = Some(spec);
    }

    fn lease_written(&mut self, name: &str, old: Option<&Value>, new: &Value) {
        let holder = |it: &Value| Holder::parse(it["spec"]["holderIdentity"].as_str());
        let (before, now) = (old.map(holder), holder(new));
        if before.as_ref() != Some(&now) {
            self.note(&format!("{name} is held by {now:?}"));
        }
        let Some(worker) = name.strip_prefix(WORKER_LEASE_PREFIX) else {
            return;
        };
        let worker = Incarnation::new(worker);
        let since = self.leases.insert(worker.clone(), self.now);
        let was_held = matches!(before, Some(Holder::Member(..)));
        if was_held && now == Holder::Fenced {
            let had = self.longest_work(since.unwrap_or_default());
            if !invariants::had_its_duration(had, LEASE_DURATION) {
                let how = format!("{worker} was fenced after {had:?} of work");
                self.breaks(Invariant::OutageFencesNobody, &how);
            }
        }
        if now == Holder::Released {
            self.replaced(&worker);
            self.ended(&worker);
        }
    }

    /// The longest time since then without an outage.
    fn longest_work(&self, since: Duration) -> Duration {
        let mut begin = since;
        let mut longest = Duration::ZERO;
        for (from, to) in &self.outages {
            let to = to.unwrap_or(self.now);
            if to <= begin || to.saturating_sub(*from) < NOTICEABLE {
                continue;
            }
            longest = longest.max(from.saturating_sub(begin));
            begin = to;
        }
        longest.max(self.now.saturating_sub(begin))
    }

    fn object_written(&mut self, name: &str, old: Option<&Value>, new: &Value, writer: &Writer) {
        let count = |it: &Value| it["data"]["count"].as_str().and_then(|it| it.parse().ok());
        let before: u64 = old.and_then(count).unwrap_or(0);
        let now: u64 = count(new).unwrap_or(0);
        let version = new["metadata"]["resourceVersion"].as_str();
        let version = version.and_then(|it| it.parse().ok()).unwrap_or(0);
        self.note(&format!(
            "{} wrote {name}: {now} at {version}",
            writer.replica
        ));
        if now != before + 1 {
            let how = format!("{writer:?} wrote {now} over {before} to {name}");
            self.note(&format!("LOST UPDATE {how}"));
            self.lost_updates.push(how);
        }
        self.writes += 1;
        self.newest.insert(name.to_owned(), version);
        let Some(claim) = writer.claim else { return };
        self.applied.push(Applied {
            object: name.to_owned(),
            epoch: claim.epoch,
            verb: Verb::Change,
        });
        let earlier = self.applied.iter().rev().skip(1);
        let mut earlier = earlier.filter(|it| it.object == name);
        if earlier.next().is_some_and(|it| it.epoch > claim.epoch) {
            let how = format!("{writer:?} wrote {name} after a newer epoch");
            self.breaks(Invariant::WriteInEpoch, &how);
        }
    }

    /// Every write in one piece.
    pub(crate) fn are_in_epoch(&self) -> bool {
        invariants::are_in_epoch(self.applied.iter().cloned())
    }
}
