//! Carries out what the leader machine asks of the API server. Each request is a task that ends with an input.

use metashard_api::{id::Incarnation, names::WORKER_LEASE_PREFIX};
use metashard_fleet::{
    leader::Input,
    lease::{self, Request},
    map,
    record::{Record, Written},
};
use metashard_kube::{lease::Leases, shard_map::ShardMaps};
use metashard_runtime::{clock::Clock, log::chain, task::Tasks};
use tracing::{debug, warn};

/// The requests under way.
#[derive(Debug)]
pub(crate) struct Requests {
    running: Tasks<Option<Input>>,
    /// Leases of the system namespace: the workers'.
    pub(crate) leases: Leases,
    /// Leases of the namespace of the leader's Lease.
    pub(crate) leader_leases: Leases,
    pub(crate) leader_lease: String,
    pub(crate) maps: ShardMaps,
    clock: Clock,
}

impl Requests {
    /// None under way.
    pub(crate) fn new(
        leases: Leases,
        leader_leases: Leases,
        leader_lease: String,
        maps: ShardMaps,
        clock: Clock,
    ) -> Self {
        Self {
            running: Tasks::new(),
            leases,
            leader_leases,
            leader_lease,
            maps,
            clock,
        }
    }

    /// What the next request to end came to; never, if none is under way. Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> Input {
        loop {
            match self.running.join_next().await {
                Some(ended) => {
                    if let Ok(Some(input)) = ended.result {
                        return input;
                    }
                }
                None => std::future::pending().await,
            }
        }
    }

    /// Sends a request for the leader's Lease.
    pub(crate) fn leader_lease(&mut self, request: Request) {
        let (leases, name) = (self.leader_leases.clone(), self.leader_lease.clone());
        self.running.spawn("leader-lease", async move {
            Some(Input::LeaderLeaseAnswered(
                leases.carry_out(&name, &request).await,
            ))
        });
    }

    /// Looks at the leader's Lease, past the watch.
    pub(crate) fn poll_leader_lease(&mut self) {
        let (leases, name) = (self.leader_leases.clone(), self.leader_lease.clone());
        self.running.spawn("leader-poll", async move {
            leases.read(&name).await.ok().map(Input::LeaderLeaseSeen)
        });
    }

    /// Sends a request for the Lease of a worker.
    pub(crate) fn worker_lease(&mut self, incarnation: Incarnation, request: Request) {
        let leases = self.leases.clone();
        self.running.spawn("worker-lease", async move {
            let answer = leases.carry_out(&name_of(&incarnation), &request).await;
            match answer {
                lease::Input::Read(seen) => Some(Input::WorkerLeaseRead(incarnation, seen)),
                lease::Input::Written(written) => {
                    Some(Input::WorkerLeaseWritten(incarnation, written))
                }
                // Never an answer.
                lease::Input::ReleaseAsked => None,
            }
        });
    }

    /// Deletes the Lease of a worker.
    pub(crate) fn delete_worker_lease(&mut self, incarnation: Incarnation, record: Record) {
        let leases = self.leases.clone();
        self.running.spawn("lease-deletion", async move {
            let name = name_of(&incarnation);
            match leases.delete(&name, &record).await {
                Written::Accepted(()) => debug!(lease = name, "Lease deleted"),
                written => debug!(lease = name, ?written, "Lease not deleted"),
            }
            None
        });
    }

    /// Reads the map.
    pub(crate) fn read_map(&mut self) {
        let maps = self.maps.clone();
        self.running.spawn("map-read", async move {
            let seen = maps.read().await.inspect_err(|error| {
                warn!(error = chain(error), "ShardMap not read");
            });
            Some(Input::MapRead(seen.ok()))
        });
    }

    /// Writes the map.
    pub(crate) fn write_map(&mut self, write: map::Write) {
        let (maps, clock) = (self.maps.clone(), self.clock.clone());
        self.running.spawn("map-write", async move {
            let sent = clock.now().mono;
            let written = maps.write(&write).await;
            let took = clock.now().mono.since(sent);
            let (term, seq) = (write.spec.term, write.spec.seq);
            debug!(%term, %seq, millis = took.as_millis(), "ShardMap sent");
            Some(Input::MapWritten(written))
        });
    }

    /// Ends with whether it is `told`, as input.
    pub(crate) fn tell_wishes(&mut self, told: impl Future<Output = bool> + Send + 'static) {
        self.running.spawn("placement-status", async move {
            Some(Input::WishesTold(told.await))
        });
    }

    /// Ends with `listed`, as input.
    pub(crate) fn list_worker_leases(
        &mut self,
        listed: impl Future<Output = bool> + Send + 'static,
    ) {
        self.running.spawn("lease-list", async move {
            Some(Input::WorkerLeasesListed(listed.await))
        });
    }
}

fn name_of(incarnation: &Incarnation) -> String {
    format!("{WORKER_LEASE_PREFIX}{incarnation}")
}
