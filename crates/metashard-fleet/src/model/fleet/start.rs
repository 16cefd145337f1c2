//! How the fleet stands when the disturbances begin: reached without any, by the machines themselves.

use std::sync::Arc;

use metashard_api::id::{ReplicaId, ShardId};

use super::{
    Fleet, State, Step,
    history::History,
    process::{Input, Machine, Process},
    session::Sessions,
};
use crate::{
    leader::{self, Leader},
    model::{
        budget::NONE,
        clock::DURATION,
        process::{First, Run},
        server::Server,
    },
    record::About,
    testing::controllers,
    time::Now,
    worker::{self, Worker},
};

/// Ticks in which a fleet that nobody disturbs has long come to rest.
const SETTLED: u8 = 12;

/// Where histories begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scene {
    /// Everybody has joined, and a worker serves the shard.
    Settled,
    /// All but one worker have joined and have all shards; the last one begins to join.
    Joining,
    /// The owner has been asked to stop and does not; the leader is about to evict it.
    Evicting,
}

impl Fleet {
    /// The state in which the disturbances begin.
    pub(super) fn start(&self) -> State {
        let mut state = self.boot();
        let last = state.processes.len() - 1;
        if self.scene == Scene::Joining {
            state.process(last).run = Run::Paused;
        }
        self.settle(&mut state);
        while state.now < SETTLED {
            self.go_on(&mut state);
        }
        if self.scene == Scene::Joining {
            self.take(&mut state, Step::Resume(last, First::Timers));
            state.process(last).lags = false;
            self.settle(&mut state);
        }
        if self.scene == Scene::Evicting {
            state = self.before_eviction(state);
        }
        state.budget = self.budget;
        state.end = state.now + self.ticks;
        state
    }

    /// The owner is asked to stop and does not; stops before the tick in which the leader decides to evict it.
    fn before_eviction(&self, mut state: State) -> State {
        if let Some(owner) = (0..state.processes.len()).find(|n| state.authority(*n).is_some()) {
            state.process(owner).wedged = true;
            self.leave(&mut state, owner);
            self.settle(&mut state);
        }
        let mut before = state.clone();
        while !state.history.has_evicted && state.now < u8::MAX - self.ticks {
            if state.first_prompt().is_none() {
                before = state.clone();
            }
            self.go_on(&mut state);
        }
        before
    }

    /// Does what is next if nothing is disturbed.
    fn go_on(&self, state: &mut State) {
        let step = state.first_prompt().map_or(Step::Tick, Step::Serve);
        self.take(state, step);
        self.settle(state);
        self.judge(state);
    }

    /// All processes, just started, with the map of a new installation.
    fn boot(&self) -> State {
        let mut server = Server::default();
        server.ship_map();
        let leaders = (0..self.n_leaders).map(|n| self.leader(n));
        let workers = (0..self.n_workers).map(|n| self.worker(n));
        let mut state = State {
            now: 0,
            end: 0,
            server: Arc::new(server),
            processes: leaders
                .chain(workers)
                .map(|it| Arc::new(Process::new(it)))
                .collect(),
            flights: Vec::new(),
            sessions: Arc::new(Sessions::default()),
            outage: None,
            budget: NONE,
            history: Arc::new(History::default()),
            restless: false,
        };
        for n in 0..self.n_leaders {
            let one_each = (0..self.n_shards).map(|shard| (ShardId(shard), 1));
            let all = controllers(&one_each.collect(), self.n_shards);
            for input in [
                leader::Input::WorkerLeasesSynced,
                leader::Input::ControllersSeen(all),
                leader::Input::OwnRenewal(Some(Now::default().mono)),
                leader::Input::LeaderLeaseSeen(crate::record::Seen::Absent),
            ] {
                self.feed(&mut state, n, Input::Leader(input));
            }
        }
        state
    }

    fn leader(&self, n: usize) -> Machine {
        let config = leader::Config {
            replica: ReplicaId::new(format!("l{n}")),
            about: About::default(),
            lease_duration: DURATION,
            shards: self.n_shards,
            drain_hook_grace: DURATION,
            unix_time: std::time::Duration::ZERO,
            rules: self.rules,
        };
        Machine::Leader(Box::new(Leader::new(Now::default(), config)))
    }

    fn worker(&self, n: usize) -> Machine {
        let config = worker::Config {
            replica: ReplicaId::new(format!("w{n}")),
            about: About::default(),
            lease_duration: DURATION,
            drain_hook_grace: DURATION,
            rules: self.rules,
        };
        Machine::Worker(Box::new(Worker::new(Now::default(), config)))
    }
}
