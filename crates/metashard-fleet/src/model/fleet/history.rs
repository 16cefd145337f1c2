//! What a history has shown so far, and what of it was wrong.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use metashard_api::id::{Epoch, Incarnation, ShardId};

use super::{Fleet, Request, State, split};
use crate::{
    invariants::{self, Hold, Invariant, World},
    leader::Leader,
    map::{self, Map},
    message::Claim,
    model::{
        clock::{DURATION, TICK},
        flight::Stage,
        server::Name,
    },
    record::{Holder, Record, Seen},
    worker::Authority,
};

/// Facts that outlast the states in which they could be seen.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct History {
    published: BTreeSet<Hold<Incarnation>>,
    released: BTreeSet<Hold<Incarnation>>,
    given_up: BTreeMap<(Incarnation, ShardId), Epoch>,
    /// For each Lease of a worker: ticks without an outage since it was written, now and at their longest.
    worked: BTreeMap<Incarnation, (u8, u8)>,
    /// A leader has begun an eviction.
    pub(super) has_evicted: bool,
    /// What is broken.
    pub(crate) broken: BTreeSet<Invariant>,
}

impl History {
    /// A worker says that it has released `claim`.
    pub(super) fn released(&mut self, worker: &Incarnation, claim: Claim) {
        self.released.insert(Hold {
            claim,
            worker: worker.clone(),
        });
        self.gave_up(worker, claim);
    }

    /// A worker has released or lost `claim`.
    pub(super) fn gave_up(&mut self, worker: &Incarnation, claim: Claim) {
        let epoch = self
            .given_up
            .entry((worker.clone(), claim.shard))
            .or_default();
        *epoch = claim.epoch.max(*epoch);
    }

    /// An incarnation is over.
    pub(super) fn ended(&mut self, worker: &Incarnation) {
        let held = self.published.iter().filter(|hold| hold.worker == *worker);
        let shards: BTreeSet<ShardId> = held.map(|hold| hold.claim.shard).collect();
        for shard in shards {
            self.given_up
                .insert((worker.clone(), shard), Epoch(u64::MAX));
        }
    }

    pub(super) fn tick(&mut self, outage: bool) {
        for (now, longest) in self.worked.values_mut() {
            *now += u8::from(!outage);
            *longest = (*now).max(*longest);
        }
    }

    pub(super) fn outage_ended(&mut self) {
        for (now, _) in self.worked.values_mut() {
            *now = 0;
        }
    }

    /// The Lease of a worker was written.
    pub(super) fn lease_written(&mut self, worker: &Incarnation, before: &Seen, now: &Record) {
        let was_held =
            matches!(before, Seen::Present(it) if matches!(it.holder, Holder::Member(..)));
        let (_, longest) = self.worked.get(worker).copied().unwrap_or_default();
        if was_held
            && now.holder == Holder::Fenced
            && !invariants::had_its_duration(TICK * u32::from(longest), DURATION)
        {
            self.broken.insert(Invariant::OutageFencesNobody);
        }
        if now.holder == Holder::Released {
            // For every leader that is the release of all it held.
            let held = self.published.iter().filter(|hold| hold.worker == *worker);
            self.released.extend(held.cloned());
            self.ended(worker);
        }
        self.worked.insert(worker.clone(), (0, 0));
    }

    /// The map was written.
    pub(super) fn map_written(&mut self, before: &map::Seen, now: &Map) {
        let next = map::table(&now.spec);
        if let map::Seen::Present(before) = before {
            self.broken
                .extend(map::table(&before.spec).broken_by(&next, true));
        }
        for (shard, (owner, epoch)) in (0..).map(ShardId).zip(next.shards) {
            if let Some(owner) = owner {
                let worker = Incarnation::new(owner.incarnation.as_str());
                self.published.insert(Hold {
                    claim: Claim { shard, epoch },
                    worker,
                });
            }
        }
    }

    /// A write of the child was carried out for `epoch`, when `newest` was the newest that had written it.
    pub(super) fn child_written(&mut self, newest: Epoch, epoch: Epoch) {
        if epoch < newest {
            self.broken.insert(Invariant::WriteInEpoch);
        }
    }
}

impl State {
    /// Whether worker `n` acts for a shard that another one had before.
    pub(super) fn has_taken_over(&self, n: usize) -> bool {
        let Some(authority) = self.authority(n) else {
            return false;
        };
        let shard = authority.shard();
        let mut owners = self
            .history
            .published
            .iter()
            .filter(|hold| hold.claim.shard == shard);
        owners.any(|hold| hold.worker != *authority.incarnation())
    }

    /// What worker `n` may act for, by the check that its write gate makes.
    pub(super) fn authority(&self, n: usize) -> Option<Authority> {
        let process = &self.processes[n];
        let now = process.clock.read(self.now);
        let standing = process.worker()?.standing();
        let (shard, _) = standing.shards().next()?;
        standing.authority(shard, now)
    }
}

impl Fleet {
    /// Judges this instant.
    pub(super) fn judge(&self, state: &mut State) {
        let mut broken = self.world(state).broken();
        broken.extend(&state.history.broken);
        broken.retain(|it| self.looks_at.is_none_or(|looks_at| looks_at == *it));
        if broken != state.history.broken {
            Arc::make_mut(&mut state.history).broken = broken;
        }
    }

    fn world(&self, state: &State) -> World<Incarnation> {
        let mut world = World {
            published: state.history.published.clone(),
            released: state.history.released.clone(),
            given_up: state.history.given_up.clone(),
            ..World::default()
        };
        for process in &state.processes {
            let now = self.clocks(process, state.now);
            if let Some(worker) = process.worker() {
                let standing = worker.standing();
                let held = standing
                    .shards()
                    .filter_map(|(shard, _)| standing.authority(shard, now));
                world.parents.extend(split::parents(standing, now));
                world.acting.extend(held.map(|authority| Hold {
                    claim: authority.claim(),
                    worker: authority.incarnation().clone(),
                }));
            }
            if let Some(election) = process.leader().map(Leader::election)
                && election
                    .coordinator_deadline()
                    .is_some_and(|deadline| now.boot < deadline)
                && let Some(incarnation) = election.incarnation()
            {
                world.leading.insert(incarnation.clone());
            }
        }
        for flight in &state.flights {
            if let Request::WriteChild(write) = &flight.request
                && matches!(flight.stage, Stage::Prompt | Stage::Slow)
                && self.clocks(&state.processes[flight.from], state.now).boot < write.until
            {
                world.in_flight.insert(Hold {
                    claim: write.claim,
                    worker: write.by.clone(),
                });
            }
        }
        world
    }
}

/// Whose Lease it is, if a worker's.
pub(super) fn worker_of(name: &Name) -> Option<&Incarnation> {
    match name {
        Name::Leader => None,
        Name::Worker(incarnation) => Some(incarnation),
    }
}
