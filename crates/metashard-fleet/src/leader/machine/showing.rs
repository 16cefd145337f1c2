//! What the machine shows of itself.

use std::{collections::BTreeSet, time::Duration};

use metashard_api::id::{ControllerUid, Incarnation, ShardId, Slice};

use super::{Lead, Leader};
use crate::{
    leader::{MemberSnapshot, Snapshot, coordinator::Coordinator, cost::Costs, spec, world::Peers},
    membership::{State, Worker},
    record::{Record, Seen},
    shards::Shards,
    time::Now,
};

impl Leader {
    /// Audits all shards at `now`, and shows how everything stands.
    pub fn snapshot(&mut self, now: Now) -> Snapshot {
        self.audit(now);
        let map = self.table.map();
        let (term, seq) = map.map(|map| map.version()).unwrap_or_default();
        let record = match self.election.seen() {
            Some(Seen::Present(record)) => Some(record),
            Some(Seen::Absent) | None => None,
        };
        let oldest = self.unowned.values().min();
        let coordinator = self.coordinator();
        Snapshot {
            phase: self.election.phase(),
            leads: self.leads(now),
            holder: record.map(|record| record.holder.clone()),
            leader_address: record
                .map(|record| record.about.address.clone())
                .unwrap_or_default(),
            map_uid: map.map_or_else(String::new, |map| map.uid.clone()),
            term,
            seq,
            members: self.members(),
            versions: self.versions(record),
            n_shards: map.map_or(0, |map| map.spec.shards.len()),
            n_unowned: self.unowned.len(),
            unowned_for: oldest.map_or(Duration::ZERO, |since| now.mono.since(*since)),
            n_hand_overs: coordinator.map_or(0, Coordinator::n_hand_overs),
            hottest_percent: coordinator.map_or(100, Coordinator::hottest_percent),
            wanted_workers: coordinator.map_or(0, Coordinator::wanted_workers),
        }
    }

    /// All shards at `now`, if this replica leads.
    pub fn shards(&mut self, now: Now) -> Option<Shards> {
        if !self.leads(now) {
            return None;
        }
        let (coordinator, tools) = self.coordinating()?;
        Some(coordinator.shards(now, &tools))
    }

    /// What `shard` costs, in microseconds for each second, if this replica leads and knows it.
    pub fn shard_cost(&self, shard: ShardId) -> Option<u64> {
        self.coordinator()?.peers().costs.of_shard(shard)
    }

    /// The same of the controllers, and slices of split ones, that cost most.
    pub fn controller_costs(&self) -> Vec<(ControllerUid, Slice, u64)> {
        let costs = self.coordinator().map(|it| &it.peers().costs);
        let all = costs.into_iter().flat_map(Costs::controllers);
        all.map(|(controller, slice, cost)| (controller.clone(), slice, cost))
            .collect()
    }

    pub(super) fn coordinator(&self) -> Option<&Coordinator> {
        match &self.lead {
            Lead::Coordinating(coordinator) => Some(coordinator),
            Lead::Idle | Lead::Acquiring { .. } | Lead::Recovering(_) => None,
        }
    }

    fn members(&self) -> Vec<MemberSnapshot> {
        let peers = self.coordinator().map(Coordinator::peers);
        let owned = self.table.map().map(|map| spec::count_owned(&map.spec));
        let owned = owned.unwrap_or_default();
        let says = |of: fn(&Peers, &Incarnation) -> bool, it| peers.is_some_and(|at| of(at, it));
        let members = self.membership.workers();
        members
            .map(|(incarnation, worker)| MemberSnapshot {
                replica: worker.replica().cloned(),
                incarnation: incarnation.clone(),
                state: worker.state(),
                leaving: says(|peers, it| peers.leaving.contains_key(it), incarnation),
                has_session: says(|peers, it| peers.sessions.contains(it), incarnation),
                n_shards: owned.get(incarnation.as_str()).copied().unwrap_or(0),
            })
            .collect()
    }

    fn versions(&self, leader: Option<&Record>) -> BTreeSet<String> {
        let workers = self.membership.workers().map(|(_, worker)| worker);
        let workers = workers.filter(|worker| worker.state() == State::Joined);
        let about = workers.filter_map(Worker::about);
        let about = about.chain(leader.map(|leader| &leader.about));
        let versions = about.map(|about| about.version.clone());
        versions.filter(|version| !version.is_empty()).collect()
    }

    fn audit(&mut self, now: Now) {
        let coordinator = self.coordinator();
        let unowned = coordinator.map(|it| it.unowned(&self.membership));
        let unowned: BTreeSet<ShardId> = unowned.unwrap_or_default();
        self.unowned.retain(|shard, _| unowned.contains(shard));
        for shard in unowned {
            self.unowned.entry(shard).or_insert(now.mono);
        }
    }
}
