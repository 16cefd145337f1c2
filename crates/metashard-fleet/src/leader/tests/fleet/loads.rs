//! What workers tell of costs.

use std::time::Duration;

use super::Fleet;
use crate::{
    leader::Input,
    message::{FromWorker, Load, ShardLoad},
};

impl Fleet {
    /// Every 5 s each worker tells what its shards cost.
    pub(super) fn tell_loads(&mut self) {
        if self.now.mono.since(self.loads_at) < Duration::from_secs(5) {
            return;
        }
        self.loads_at = self.now.mono;
        let with_session = self
            .workers
            .iter()
            .filter(|(_, it)| it.has_session && it.renews);
        let loads: Vec<_> = with_session
            .map(|(incarnation, worker)| {
                let shards = worker.held.iter().map(|claim| ShardLoad {
                    shard: claim.shard,
                    cost_micros: self.costs.get(&claim.shard).copied().unwrap_or(0),
                    queued: 0,
                    cached_bytes: 0,
                });
                let load = Load {
                    shards: shards.collect(),
                    ..Load::default()
                };
                (incarnation.clone(), load)
            })
            .collect();
        for (from, load) in loads {
            for n in 0..self.replicas.len() {
                if self.replicas[n].leader.leads(self.now) {
                    let load = FromWorker::Load(load.clone());
                    self.tell(n, Input::FromWorker(from.clone(), load));
                }
            }
        }
    }
}
