//! What a leader can see of the invariants.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "it picks out what shows an invariant; it has no state that another input could change"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use metashard_api::id::{Incarnation, ShardId};

use super::{Begun, HAND_OVER, maps::Maps};
use crate::{
    handover::COOL_DOWN,
    invariants::Invariant,
    leader::{Action, Input, Report, Snapshot, Why},
    lease,
    map::{self, Write},
    membership::State,
    message::{Claim, FromLeader, FromWorker, Order},
    record::{Record, Seen, Written},
    shard::Layout,
    time::{MonoTime, Now},
};

/// Watches one leader machine, call by call.
///
/// It sees I1 (a shard is taken from a worker that neither released it nor is over), I3 and I4 (the order of maps), I5 (somebody
/// is told of an epoch that no map has), I7 (a shard is without an owner although all is well), I9 (a shard is moved for balance
/// twice within its cool-down) and L1 (another took the lead before its end).
#[derive(Debug, Default)]
pub struct LeaderMonitor {
    maps: Maps,
    /// What workers have said to be over.
    released: BTreeSet<Claim>,
    /// Workers whose Lease is their own, as seen last.
    alive: BTreeSet<Incarnation>,
    /// When each shard was last moved for balance.
    moved: BTreeMap<ShardId, MonoTime>,
    /// Since when this replica leads, its own writes work, and there is a worker.
    well_since: Option<MonoTime>,
    begun: Begun,
    begun_to_lack: Begun,
}

impl LeaderMonitor {
    /// Looks at one call: what the machine was told at `now`, what it does, and as whom it led before, if it did. Returns
    /// what is broken from here on.
    pub fn look(
        &mut self,
        now: Now,
        led: Option<&Incarnation>,
        inputs: &[Input],
        actions: &[Action],
    ) -> BTreeSet<Invariant> {
        let mut broken = BTreeSet::new();
        for input in inputs {
            self.hear(led, input, &mut broken);
        }
        for action in actions {
            match action {
                Action::WriteMap(write) if !self.is_proven(write) => {
                    broken.insert(Invariant::Exclusive);
                }
                Action::Send(to, message) if !self.is_in_map(to, message) => {
                    broken.insert(Invariant::TableFirst);
                }
                Action::Report(Report::ShardsAssigned {
                    why: Why::Balance,
                    claims,
                    ..
                }) => {
                    for claim in claims {
                        let last = self.moved.insert(claim.shard, now.mono);
                        if last.is_some_and(|last| now.mono.since(last) < COOL_DOWN) {
                            broken.insert(Invariant::BoundedMove);
                        }
                    }
                }
                _ => {}
            }
        }
        self.begun.of(broken)
    }

    /// Looks at how everything stands, from time to time. `lease`: the longest duration of a Lease.
    pub fn look_at(&mut self, now: Now, seen: &Snapshot, lease: Duration) -> BTreeSet<Invariant> {
        let is_well = seen.leads && seen.members.iter().any(|it| it.state == State::Joined);
        self.well_since = self.well_since.or(Some(now.mono)).filter(|_| is_well);
        let patience = 2 * lease + HAND_OVER;
        let is_lacking = self
            .well_since
            .is_some_and(|since| now.mono.since(since) > patience && seen.unowned_for > patience);
        let broken = is_lacking.then_some(Invariant::Coverage);
        self.begun_to_lack.of(broken.into_iter().collect())
    }

    fn hear(&mut self, led: Option<&Incarnation>, input: &Input, broken: &mut BTreeSet<Invariant>) {
        match input {
            Input::MapSeen(map::Seen::Present(map))
            | Input::MapRead(Some(map::Seen::Present(map)))
            | Input::MapWritten(Written::Accepted(map)) => {
                broken.extend(self.maps.see(map));
                self.forget();
            }
            Input::FromWorker(_, FromWorker::Released { claim, .. }) => {
                self.released.insert(*claim);
            }
            Input::FromWorker(_, FromWorker::Hello { released, .. }) => {
                self.released.extend(released);
            }
            Input::WorkerLeaseSeen(worker, seen) | Input::WorkerLeaseRead(worker, Some(seen)) => {
                self.lease(worker, seen);
            }
            Input::WorkerLeaseWritten(worker, Written::Accepted(record)) => {
                self.lease_of(worker, record);
            }
            Input::LeaderLeaseAnswered(lease::Input::Read(Some(Seen::Present(record))))
                if led.is_some_and(|own| !record.holder.is_incarnation(own)) =>
            {
                broken.insert(Invariant::OneLeader);
            }
            _ => {}
        }
    }

    fn lease(&mut self, worker: &Incarnation, seen: &Seen) {
        match seen {
            Seen::Present(record) => self.lease_of(worker, record),
            Seen::Absent => {
                self.alive.remove(worker);
            }
        }
    }

    fn lease_of(&mut self, worker: &Incarnation, record: &Record) {
        if record.holder.is_incarnation(worker) {
            self.alive.insert(worker.clone());
        } else {
            self.alive.remove(worker);
        }
    }

    /// Whether everybody from whom the map takes a shard has stopped for it.
    fn is_proven(&self, write: &Write) -> bool {
        let Some(base) = &write.base else {
            return true;
        };
        // Which parents a shard is of may not change under its owner either.
        let layout = Layout::of(&base.spec);
        let recuts = layout.changes(&Layout::of(&write.spec));
        let recut: BTreeSet<ShardId> = recuts
            .iter()
            .flat_map(|(controller, it)| layout.concerned(controller, *it))
            .collect();
        let n_shards = u16::try_from(base.spec.shards.len()).unwrap_or(u16::MAX);
        (0..n_shards).map(ShardId).all(|shard| {
            let Some((owner, epoch)) = base.spec.owner(shard) else {
                return true;
            };
            let next = write.spec.owner(shard).map(|(member, _)| member);
            let stays = next == Some(owner) && !recut.contains(&shard);
            stays
                || self.released.contains(&Claim { shard, epoch })
                || !self
                    .alive
                    .contains(&Incarnation::new(owner.incarnation.as_str()))
        })
    }

    /// Whether the newest map says what is told.
    fn is_in_map(&self, to: &Incarnation, message: &FromLeader) -> bool {
        let Order::Assign { claim, .. } = &message.order else {
            return true;
        };
        let owner = self
            .maps
            .newest()
            .and_then(|map| map.spec.owner(claim.shard));
        owner.is_some_and(|(owner, epoch)| owner.incarnation == to.as_str() && epoch == claim.epoch)
    }

    /// Lets go of what no write can need any more.
    fn forget(&mut self) {
        let Some(map) = self.maps.newest() else {
            return;
        };
        let spec = &map.spec;
        let epoch = |shard: ShardId| spec.shards.get(usize::from(shard.0)).map(|it| it.epoch);
        self.released
            .retain(|claim| epoch(claim.shard).is_none_or(|epoch| epoch <= claim.epoch));
    }
}
