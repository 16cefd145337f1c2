//! Checks what a fleet did, after it has done it: from the calls that hooks saw and the writes that the API server
//! carried out.
//!
//! Nothing here asks a replica. [`audit`] reads the API server's audit log, [`HookCall::of`] a hook's calls, and
//! [`History::findings`] is a function of what they say. What is judged are the invariants of `metashard_fleet`.

pub mod audit;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use anyhow::Context;
use metashard_api::{
    id::{Epoch, ShardId},
    names::{HEADER_EPOCH, HEADER_SHARD},
    shard_map::ShardMapSpec,
};
use metashard_fleet::{
    invariants::{Applied, Hold, Invariant, Verb, World, are_in_epoch},
    map::table,
    message::Claim,
};

use crate::hook::Call;

/// One call of a hook. Times are since 1970, by the one clock of the machine that all run on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookCall {
    /// The controller.
    pub controller: String,
    /// The parent that it is about.
    pub parent: String,
    /// The ownership that the caller named.
    pub claim: Claim,
    /// When it had come.
    pub begin: Duration,
    /// When it was answered, or its caller had gone away; `None`: it is under way.
    pub end: Option<Duration>,
}

/// Who writes for a shard, as a User-Agent says.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Writer {
    /// The replica.
    pub replica: String,
    /// The ownership.
    pub claim: Claim,
}

/// One write that the API server has carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiWrite {
    /// When the API server had the request.
    pub at: Duration,
    /// `None`: it was not written for a shard.
    pub writer: Option<Writer>,
    /// `resource namespace/name`.
    pub object: String,
    /// What it did.
    pub verb: Verb,
    /// The resourceVersion that the request named: the state that it replaces.
    pub replaced: Option<String>,
    /// The resourceVersion that it led to; `None`: the log does not say.
    pub version: Option<u64>,
}

/// One write of the ShardMap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapWrite {
    /// When the API server had the request.
    pub at: Duration,
    /// Its content.
    pub spec: ShardMapSpec,
}

/// What was recorded.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// Calls of hooks.
    pub calls: Vec<HookCall>,
    /// Writes, in the order in which they were carried out, as far as the log says.
    pub writes: Vec<ApiWrite>,
    /// Writes of the map, in their order.
    pub maps: Vec<MapWrite>,
    /// When something may have been carried out that the log does not show: the API server was killed, or did not know itself.
    pub holes: Vec<Duration>,
    /// Writes of the map of which the API server did not know whether they were carried out.
    pub doubtful: Vec<MapWrite>,
}

/// Something that must not happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What it breaks.
    pub broken: Broken,
    /// How.
    pub how: String,
}

/// What a finding breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Broken {
    /// An invariant of the fleet.
    Invariant(Invariant),
    /// No write takes back another one unseen.
    LostUpdate,
    /// A controller is called again within its bound.
    Gap,
}

impl Writer {
    /// Reads the User-Agent of a write: `... (replica r1; shard 3; epoch 7)`.
    pub fn parse(user_agent: &str) -> Option<Self> {
        let part = |name: &str| {
            let (_, after) = user_agent.split_once(name)?;
            let (part, _) = after.split_once([';', ')'])?;
            Some(part.trim())
        };
        Some(Self {
            replica: part("(replica ")?.to_owned(),
            claim: Claim {
                shard: ShardId(part("; shard ")?.parse().ok()?),
                epoch: Epoch(part("; epoch ")?.parse().ok()?),
            },
        })
    }
}

impl HookCall {
    /// What a hook of this kit saw. `time` gives the time since 1970 of one of its instants.
    ///
    /// # Errors
    ///
    /// If the call names no ownership.
    pub fn of(
        call: &Call,
        controller: &str,
        time: impl Fn(std::time::Instant) -> Duration,
    ) -> anyhow::Result<Self> {
        let number = |header: &str| {
            let value = call.headers.get(header);
            let text = value.and_then(|value| value.to_str().ok());
            text.with_context(|| format!("a call without header {header}"))
        };
        let parent = call.json()["parent"]["metadata"].take();
        let name = |field: &str| parent[field].as_str().unwrap_or_default().to_owned();
        Ok(Self {
            controller: controller.to_owned(),
            parent: format!("{}/{}", name("namespace"), name("name")),
            claim: Claim {
                shard: ShardId(number(HEADER_SHARD)?.parse().context("read a shard")?),
                epoch: Epoch(number(HEADER_EPOCH)?.parse().context("read an epoch")?),
            },
            begin: time(call.received),
            end: call.ended().map(time),
        })
    }
}

impl History {
    /// All that must not have happened. `bound` is the longest time that a controller may go without a call, from its
    /// first call to `until`; `None`: any.
    pub fn findings(&self, bound: Option<(Duration, Duration)>) -> Vec<Finding> {
        let mut found = Vec::new();
        self.overlaps(&mut found);
        self.writes_out_of_epoch(&mut found);
        self.maps_out_of_order(&mut found);
        self.not_in_the_table(&mut found);
        self.lost_updates(&mut found);
        if let Some((bound, until)) = bound {
            for (controller, gap) in self.gaps(until) {
                if gap > bound {
                    let how = format!("{controller} was not called for {gap:?}");
                    found.push(Finding::new(Broken::Gap, how));
                }
            }
        }
        found
    }

    /// The longest time without a call of each controller, from its first call to `until`.
    pub fn gaps(&self, until: Duration) -> BTreeMap<&str, Duration> {
        let mut begins: BTreeMap<&str, Vec<Duration>> = BTreeMap::new();
        for call in &self.calls {
            begins.entry(&call.controller).or_default().push(call.begin);
        }
        let longest = |mut begins: Vec<Duration>| {
            begins.push(until);
            begins.sort();
            let pairs = begins.windows(2);
            pairs
                .map(|pair| pair[1].saturating_sub(pair[0]))
                .max()
                .unwrap_or_default()
        };
        begins
            .into_iter()
            .map(|(controller, begins)| (controller, longest(begins)))
            .collect()
    }

    /// I1 and I2 as hooks see them: no two calls about one parent at once, and none of an older epoch after a newer.
    fn overlaps(&self, found: &mut Vec<Finding>) {
        let mut parents: BTreeMap<(&str, &str), Vec<&HookCall>> = BTreeMap::new();
        for call in &self.calls {
            let parent = (call.controller.as_str(), call.parent.as_str());
            parents.entry(parent).or_default().push(call);
        }
        for calls in parents.values_mut() {
            calls.sort_by_key(|call| call.begin);
            let mut last_end: Option<(Duration, &HookCall)> = None;
            let mut newest: Option<&HookCall> = None;
            for &mut call in calls {
                if let Some((end, earlier)) = last_end
                    && call.begin < end
                {
                    let how = format!("{earlier:?} and {call:?} at once");
                    found.push(Finding::of(Invariant::Exclusive, how));
                }
                if let Some(newest) = newest.filter(|newest| newest.claim.epoch > call.claim.epoch)
                {
                    let how = format!("{call:?} came after {newest:?}");
                    found.push(Finding::of(Invariant::WriteInEpoch, how));
                } else {
                    newest = Some(call);
                }
                let end = call.end.unwrap_or(Duration::MAX);
                if last_end.is_none_or(|(last, _)| last < end) {
                    last_end = Some((end, call));
                }
            }
        }
    }

    /// I2, of what the API server carried out.
    fn writes_out_of_epoch(&self, found: &mut Vec<Finding>) {
        let mut objects: BTreeMap<&str, Vec<&ApiWrite>> = BTreeMap::new();
        for write in self.writes.iter().filter(|write| write.writer.is_some()) {
            objects.entry(&write.object).or_default().push(write);
        }
        for (object, writes) in objects {
            let applied = writes.iter().filter_map(|write| {
                Some(Applied {
                    object,
                    epoch: write.writer.as_ref()?.claim.epoch,
                    verb: write.verb,
                })
            });
            if !are_in_epoch(applied) {
                let how = format!("writes of {object}: {writes:?}");
                found.push(Finding::of(Invariant::WriteInEpoch, how));
            }
        }
    }

    /// I3 and I4, of the maps one after the other.
    fn maps_out_of_order(&self, found: &mut Vec<Finding>) {
        for pair in self.maps.windows(2) {
            let (before, after) = (table(&pair[0].spec), table(&pair[1].spec));
            for invariant in before.broken_by(&after, true) {
                let how = format!("map {before:?}, then {after:?}");
                found.push(Finding::of(invariant, how));
            }
        }
    }

    /// I5: whoever acts for an ownership does so after a map has given it to it. Says nothing if no map was recorded.
    fn not_in_the_table(&self, found: &mut Vec<Finding>) {
        if self.maps.is_empty() {
            return;
        }
        let mut given: BTreeMap<Claim, Vec<(Duration, &str)>> = BTreeMap::new();
        let mut last = None;
        for map in self.maps.iter().chain(&self.doubtful) {
            // What a map gave that the log lacks is known by the next one.
            let hole = last.and_then(|last| self.hole(last, map.at));
            let since = hole.unwrap_or(map.at);
            last = Some(map.at);
            for shard in (0..map.spec.shard_count).map(ShardId) {
                if let Some((owner, epoch)) = map.spec.owner(shard) {
                    let given = given.entry(Claim { shard, epoch });
                    given.or_default().push((since, owner.replica.as_str()));
                }
            }
        }
        let mut told = BTreeSet::new();
        let calls = self.calls.iter().map(|call| (call.claim, call.begin, None));
        let writes = self.writes.iter().filter_map(|write| {
            let writer = write.writer.as_ref()?;
            Some((writer.claim, write.at, Some(writer.replica.as_str())))
        });
        for (claim, at, who) in calls.chain(writes) {
            let owners = given.get(&claim).into_iter().flatten();
            let mut owners = owners.filter(|(since, _)| *since <= at).map(|it| it.1);
            let owner = owners.clone().next();
            let is_right = owners.any(|owner| who.is_none_or(|who| who == owner));
            if is_right || !told.insert((claim, who)) {
                continue;
            }
            // In the terms of the invariant: who acts, and what was published.
            let hold = |worker: &str| Hold {
                claim,
                worker: worker.to_owned(),
            };
            let world = World {
                acting: [hold(who.unwrap_or("somebody"))].into(),
                published: owner.map(hold).into_iter().collect(),
                ..World::default()
            };
            for invariant in world.broken() {
                let how = format!("{who:?} acts for {claim:?} at {at:?}; the map named {owner:?}");
                found.push(Finding::of(invariant, how));
            }
        }
    }

    /// Each of our writes replaces exactly the state that it names.
    fn lost_updates(&self, found: &mut Vec<Finding>) {
        let mut last: BTreeMap<&str, (u64, Duration)> = BTreeMap::new();
        for write in &self.writes {
            let before = last.get(write.object.as_str()).copied();
            match write.version {
                Some(version) => last.insert(&write.object, (version, write.at)),
                None => last.remove(write.object.as_str()),
            };
            if write.writer.is_none() || write.verb != Verb::Change || write.version.is_none() {
                continue;
            }
            let replaced = write.replaced.as_deref();
            let is_blind = replaced.is_none_or(str::is_empty);
            let named = replaced.and_then(|it| it.parse::<u64>().ok());
            let is_other = before.is_some_and(|(version, at)| {
                // The log lacks a write between the two, at most.
                let is_hole = named > Some(version) && self.hole(at, write.at).is_some();
                named != Some(version) && !is_hole
            });
            if is_blind || is_other {
                let how = format!("{write:?} replaced {before:?}");
                found.push(Finding::new(Broken::LostUpdate, how));
            }
        }
    }

    /// From when on something may have been carried out between two moments that the log does not show, if so.
    fn hole(&self, from: Duration, to: Duration) -> Option<Duration> {
        // What was under way had come before the kill.
        let slack = Duration::from_secs(1);
        let holes = self.holes.iter();
        let between = holes.filter(|hole| from <= **hole + slack && **hole <= to);
        between
            .map(|hole| hole.saturating_sub(slack).max(from))
            .min()
    }
}

impl Finding {
    fn new(broken: Broken, how: String) -> Self {
        Self { broken, how }
    }

    fn of(invariant: Invariant, how: String) -> Self {
        Self::new(Broken::Invariant(invariant), how)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.broken {
            Broken::Invariant(invariant) => write!(f, "{invariant}: {}", self.how),
            Broken::LostUpdate => write!(f, "lost update: {}", self.how),
            Broken::Gap => write!(f, "gap: {}", self.how),
        }
    }
}
