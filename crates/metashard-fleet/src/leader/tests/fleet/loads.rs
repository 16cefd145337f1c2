//! What workers tell of costs.

use std::time::Duration;

use metashard_api::id::Slice;

use super::{FakeWorker, Fleet, N_SHARDS};
use crate::{
    leader::Input,
    message::{ControllerLoad, FromWorker, Load, ShardLoad},
    shard::shard_of,
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
                    controllers: self.slices_of(worker),
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

    /// What the slices of the hot controller cost that `worker` holds.
    fn slices_of(&self, worker: &FakeWorker) -> Vec<ControllerLoad> {
        let Some((controller, slices, cost)) = &self.hot else {
            return Vec::new();
        };
        let held = |slice| {
            let shard = shard_of(controller, slice, N_SHARDS);
            worker.held.iter().any(|claim| claim.shard == shard)
        };
        let held = (0..*slices).map(Slice).filter(|slice| held(*slice));
        held.map(|slice| ControllerLoad {
            controller: controller.clone(),
            slice,
            cost_micros: cost / u64::from(*slices),
        })
        .collect()
    }
}
