//! What a replica remembers and tells: what its syncs did, and what the machines of the fleet were told.

use std::{
    sync::{Arc, OnceLock},
    time::UNIX_EPOCH,
};

use metashard_api::id::{Incarnation, ReplicaId};
use metashard_fleet::recording::{Of, Taken};
use metashard_runtime::{build_info, clock::Clock};
use metashard_status::answers::Answers;
use metashard_worker::{
    fleet,
    journal::{Asked, Journal},
};

/// All of it. The machines are there once they have been started, and stay away where the role has none.
#[derive(Debug)]
pub(crate) struct Memory {
    replica: ReplicaId,
    clock: Clock,
    /// What the last syncs did.
    pub(crate) journal: Arc<Journal>,
    /// The worker, once it has been started.
    pub(crate) worker: OnceLock<fleet::Handle>,
    /// The candidate, once it has been started.
    pub(crate) leader: OnceLock<metashard_leader::Handle>,
}

impl Memory {
    /// Of a replica that remembers nothing yet.
    pub(crate) fn new(replica: ReplicaId, clock: Clock) -> Self {
        Self {
            replica,
            clock,
            journal: Arc::default(),
            worker: OnceLock::new(),
            leader: OnceLock::new(),
        }
    }

    /// What is told to callers on this host, and to who knows an incarnation of the replica: it was read from the cluster.
    pub(crate) fn answers(self: &Arc<Self>) -> Answers {
        let [known, syncs, leader, worker, shards] = [(); 5].map(|()| Arc::clone(self));
        Answers::new(move |word| known.is_incarnation(word))
            .at("/api/v1/syncs", move |query| {
                Some(syncs.journal.answer(&Asked::read(query)).to_string())
            })
            .at("/api/v1/fleet/leader", move |_| {
                let recording = leader.leader.get()?.history.lock().recording();
                leader.taken(Of::Leader(Box::new(recording)))
            })
            .at("/api/v1/fleet/worker", move |_| {
                let recording = worker.worker.get()?.history.lock().recording();
                worker.taken(Of::Worker(Box::new(recording)))
            })
            .at("/api/v1/fleet/shards", move |_| {
                let shards = shards.leader.get()?.shards.ask()?;
                serde_json::to_string(&shards).ok()
            })
    }

    fn taken(&self, of: Of) -> Option<String> {
        let since_1970 = self.clock.wall().duration_since(UNIX_EPOCH);
        let taken = Taken {
            version: build_info::VERSION.to_owned(),
            replica: self.replica.clone(),
            unix_time: since_1970.unwrap_or_default(),
            now: self.clock.now(),
            of,
        };
        serde_json::to_string(&taken).ok()
    }

    /// Of the worker, or of the lead.
    fn is_incarnation(&self, word: &str) -> bool {
        let word = Incarnation::new(word);
        let standing = self.worker.get().map(|it| it.standing.load());
        let works = standing.is_some_and(|it| it.incarnation() == Some(&word));
        works
            || self.leader.get().is_some_and(|it| {
                let seen = it.snapshot.borrow();
                let holder = seen.holder.as_ref().filter(|_| seen.leads);
                holder.is_some_and(|it| it.is_incarnation(&word))
            })
    }
}
