//! Tells the leader what the work costs.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use metashard_api::id::{ControllerUid, ShardId, Slice};
use metashard_fleet::{
    message::{ControllerLoad, Load, MAX_CONTROLLER_LOADS, ShardLoad},
    time::MonoTime,
};
use metashard_kube::informer::View;
use metashard_runtime::clock::process_cpu_time;

use super::{Host, Slot};
use crate::{instance::Instance, shards::ShardEvent};

/// What the process used when it was looked at last.
#[derive(Debug)]
pub(super) struct Gauge {
    at: MonoTime,
    cpu: Duration,
    cpus: u32,
    /// Passes that may run at once.
    slots: u32,
}

impl Host {
    /// Tells what was spent since the last time.
    pub(super) async fn tell_load(&mut self) {
        let now = self.context.clock.now().mono;
        let period = now.since(self.gauge.at);
        let mut shards: BTreeMap<ShardId, ShardLoad> = BTreeMap::new();
        let mut controllers = Vec::new();
        let mut calls = Duration::ZERO;
        for (slot, instance) in self.slots.values().flat_map(Slot::with_instances) {
            let counts = self.context.dispatcher.counts(instance.flow);
            let queued = u32::try_from(counts.depth).unwrap_or(u32::MAX);
            // What nobody wants any more is no load of theirs.
            instance.views().for_each(View::tidy);
            let spent = instance.meter.take(now);
            let cost_micros = spent.cost(period, queued);
            calls += spent.calls;
            let load = shards.entry(instance.shard).or_insert(ShardLoad {
                shard: instance.shard,
                cost_micros: 0,
                queued: 0,
                cached_bytes: 0,
            });
            load.cost_micros = load.cost_micros.saturating_add(cost_micros);
            load.queued = load.queued.saturating_add(queued);
            load.cached_bytes = load.cached_bytes.saturating_add(instance.cached_bytes());
            // Slices of one shard are not measured apart.
            let each = cost_micros / (instance.cut.mine().count() as u64).max(1);
            if each > 0 {
                let slices = instance.cut.mine();
                controllers.extend(slices.map(|slice| (each, &slot.uid, slice)));
            }
        }
        let load = Load {
            shards: shards.into_values().collect(),
            controllers: heaviest(controllers),
            busy_permille: self.gauge.look(now, calls),
        };
        self.tell(ShardEvent::Load(load)).await;
    }
}

impl Slot {
    fn with_instances(&self) -> impl Iterator<Item = (&Self, &Arc<Instance>)> {
        self.instances().map(move |instance| (self, instance))
    }
}

impl Instance {
    /// Bytes of its caches. One that others look at too counts in full: it would be needed for this one alone.
    fn cached_bytes(&self) -> u64 {
        let bytes = self.views().map(|view| view.cached_bytes() as u64);
        bytes.fold(0, u64::saturating_add)
    }
}

/// The controllers that cost most, heaviest first.
fn heaviest(mut costs: Vec<(u64, &ControllerUid, Slice)>) -> Vec<ControllerLoad> {
    costs.sort_unstable_by(|one, other| other.cmp(one));
    let heaviest = costs.into_iter().take(MAX_CONTROLLER_LOADS);
    heaviest
        .map(|(cost_micros, uid, slice)| ControllerLoad {
            controller: uid.clone(),
            slice,
            cost_micros,
        })
        .collect()
}

impl Gauge {
    /// Begins to look; `slots` passes may run at once.
    pub(super) fn new(now: MonoTime, slots: u32) -> Self {
        // Counts what a quota of the container leaves, too.
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            at: now,
            cpu: process_cpu_time(),
            cpus: u32::try_from(cpus).unwrap_or(u32::MAX),
            slots: slots.max(1),
        }
    }

    /// How busy the process was since it was looked at last, in thousandths of what it can do. `calls` is the time that
    /// hook calls took.
    fn look(&mut self, now: MonoTime, calls: Duration) -> u32 {
        let period = now.since(std::mem::replace(&mut self.at, now));
        let used = process_cpu_time();
        let cpu = used.saturating_sub(std::mem::replace(&mut self.cpu, used));
        busy_permille(cpu, period * self.cpus).max(busy_permille(calls, period * self.slots))
    }
}

fn busy_permille(used: Duration, available: Duration) -> u32 {
    let permille = (used.as_micros() * 1000).checked_div(available.as_micros());
    u32::try_from(permille.unwrap_or(0)).map_or(1000, |permille| permille.min(1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heaviest_controllers_come_first_and_no_more_than_the_most_are_named() {
        let uids: Vec<_> = (0..MAX_CONTROLLER_LOADS + 9)
            .map(|n| ControllerUid::new(format!("uid-{n}")))
            .collect();
        let costs = (1..).zip(&uids).map(|(cost, uid)| (cost, uid, Slice(0)));
        let costs = costs.collect();

        let named = heaviest(costs);

        assert_eq!(named.len(), MAX_CONTROLLER_LOADS);
        assert_eq!(named.first().map(|it| &it.controller), uids.last());
        assert!(
            named
                .iter()
                .is_sorted_by_key(|it| u64::MAX - it.cost_micros)
        );
    }

    #[test]
    fn a_process_is_busy_by_what_is_nearest_to_its_end() {
        let second = Duration::from_secs(1);

        assert_eq!(busy_permille(second, second * 4), 250);
        assert_eq!(busy_permille(second * 9, second * 4), 1000);
        assert_eq!(busy_permille(Duration::ZERO, Duration::ZERO), 0);
    }
}
