//! What shards and controllers cost, as the workers tell it: moving averages, from the beginning of a term.
//!
//! A new leader knows nothing of it, and keeps everything where it is until each worker has told enough
//! ([`Costs::knows`]): what is not known moves nothing.

use std::{collections::BTreeMap, time::Duration};

use metashard_api::id::{ControllerUid, Incarnation, ShardId, Slice};
use serde::{Deserialize, Serialize};

use crate::{
    message::{ControllerLoad, Load, ShardLoad},
    shard::Recut,
    time::{MonoTime, Now},
};

/// Loads of a worker before its part is known: 15 s.
const ENOUGH: u8 = 3;

/// Loads that do not count after a shard has changed hands. The new owner looks at every parent once: that is the price of
/// the move and not of the shard.
const UNSETTLED: u8 = 2;

/// A controller that nobody has named for so long costs too little to be named, or is gone.
const FORGOTTEN: Duration = Duration::from_mins(1);

/// Moving averages of costs, in microseconds for each second.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub(crate) struct Costs {
    shards: BTreeMap<ShardId, OfShard>,
    #[serde(with = "crate::recording::pairs")]
    controllers: BTreeMap<(ControllerUid, Slice), OfController>,
    workers: BTreeMap<Incarnation, OfWorker>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
struct OfShard {
    /// `None`: not known.
    cost: Option<u64>,
    bytes: u64,
    /// Loads still to be passed over.
    unsettled: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct OfController {
    cost: u64,
    heard: MonoTime,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
struct OfWorker {
    /// Loads heard, up to [`ENOUGH`].
    n_loads: u8,
    busy_permille: u32,
}

impl Costs {
    /// Takes what `from` has told. `is_owner` says whether a shard is its own: of others it knows nothing.
    pub(crate) fn take(
        &mut self,
        now: Now,
        from: &Incarnation,
        load: &Load,
        is_owner: impl Fn(ShardId) -> bool,
    ) {
        for shard in load.shards.iter().filter(|it| is_owner(it.shard)) {
            self.shards.entry(shard.shard).or_default().take(shard);
        }
        for controller in &load.controllers {
            self.take_controller(now, controller);
        }
        self.controllers
            .retain(|_, it| now.mono.since(it.heard) < FORGOTTEN);
        let worker = self.workers.entry(from.clone()).or_insert(OfWorker {
            n_loads: 0,
            busy_permille: load.busy_permille,
        });
        worker.n_loads = ENOUGH.min(worker.n_loads + 1);
        worker.busy_permille = (3 * worker.busy_permille + load.busy_permille) / 4;
    }

    fn take_controller(&mut self, now: Now, load: &ControllerLoad) {
        let id = (load.controller.clone(), load.slice);
        let entry = self.controllers.entry(id).or_insert(OfController {
            cost: load.cost_micros,
            heard: now.mono,
        });
        entry.cost = average(entry.cost, load.cost_micros);
        entry.heard = now.mono;
    }

    /// `shard` has a new owner.
    pub(crate) fn moved(&mut self, shard: ShardId) {
        self.shards.entry(shard).or_default().unsettled = UNSETTLED;
    }

    /// Forgets workers that `is_known` does not know any more.
    pub(crate) fn retain(&mut self, is_known: impl Fn(&Incarnation) -> bool) {
        self.workers.retain(|it, _| is_known(it));
    }

    /// Whether `worker` has told enough for its part to be judged.
    pub(crate) fn knows(&self, worker: &Incarnation) -> bool {
        self.workers
            .get(worker)
            .is_some_and(|it| it.n_loads >= ENOUGH)
    }

    /// What `shard` costs, if that is known.
    pub(crate) fn of_shard(&self, shard: ShardId) -> Option<u64> {
        self.shards.get(&shard)?.cost
    }

    /// What the slices of `controller` cost, of which there are `slices`.
    pub(crate) fn of_controller(&self, controller: &ControllerUid, slices: u16) -> Vec<u64> {
        let id = |slice| (controller.clone(), Slice(slice));
        let cost = |slice| self.controllers.get(&id(slice)).map_or(0, |it| it.cost);
        (0..slices).map(cost).collect()
    }

    /// `shard` will cost this.
    pub(crate) fn expect(&mut self, shard: ShardId, cost: u64) {
        self.shards.entry(shard).or_default().cost = Some(cost);
    }

    /// `controller` is split otherwise: until its slices are measured they cost the same.
    pub(crate) fn recut(&mut self, now: Now, controller: &ControllerUid, recut: Recut) {
        let total: u64 = self.of_controller(controller, recut.before).iter().sum();
        self.controllers.retain(|(it, _), _| it != controller);
        let each = OfController {
            cost: total / u64::from(recut.after.max(1)),
            heard: now.mono,
        };
        for slice in (0..recut.after).map(Slice) {
            self.controllers
                .insert((controller.clone(), slice), each.clone());
        }
    }

    /// Bytes in the caches that `shard` needs, as far as is known.
    pub(crate) fn bytes_of(&self, shard: ShardId) -> u64 {
        self.shards.get(&shard).map_or(0, |it| it.bytes)
    }

    /// What the controllers cost that are known to cost most, and slices of split ones.
    pub(crate) fn controllers(&self) -> impl Iterator<Item = (&ControllerUid, Slice, u64)> {
        let all = self.controllers.iter();
        all.map(|((controller, slice), it)| (controller, *slice, it.cost))
    }

    /// How busy `worker` is, in thousandths of what it can do, if that is known.
    pub(crate) fn busy_permille(&self, worker: &Incarnation) -> Option<u32> {
        self.workers.get(worker).map(|it| it.busy_permille)
    }
}

impl OfShard {
    fn take(&mut self, load: &ShardLoad) {
        self.bytes = load.cached_bytes;
        if let Some(left) = self.unsettled.checked_sub(1) {
            self.unsettled = left;
            return;
        }
        let cost = self.cost.get_or_insert(load.cost_micros);
        *cost = average(*cost, load.cost_micros);
    }
}

/// A quarter of the new average is the newest: half of a change shows after 12 s, nine tenths after 40 s.
fn average(old: u64, new: u64) -> u64 {
    (old / 4).saturating_mul(3).saturating_add(new / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARD: ShardId = ShardId(3);

    fn load(cost_micros: u64) -> Load {
        let shard = ShardLoad {
            shard: SHARD,
            cost_micros,
            queued: 0,
            cached_bytes: 7,
        };
        let controller = ControllerLoad {
            controller: ControllerUid::new("uid"),
            slice: Slice(0),
            cost_micros,
        };
        Load {
            shards: vec![shard],
            controllers: vec![controller],
            busy_permille: 400,
        }
    }

    fn told(costs: &mut Costs, cost_micros: u64) {
        let worker = Incarnation::new("w");
        costs.take(Now::default(), &worker, &load(cost_micros), |_| true);
    }

    #[test]
    fn average_begins_with_the_first_load_and_moves_a_quarter_of_the_way() {
        let mut costs = Costs::default();
        assert_eq!(costs.of_shard(SHARD), None);

        told(&mut costs, 8_000);
        assert_eq!(costs.of_shard(SHARD), Some(8_000));

        told(&mut costs, 16_000);
        assert_eq!(costs.of_shard(SHARD), Some(10_000));
    }

    #[test]
    fn what_a_take_over_costs_does_not_count_for_the_shard() {
        let mut costs = Costs::default();
        told(&mut costs, 8_000);

        costs.moved(SHARD);
        for _ in 0..UNSETTLED {
            told(&mut costs, 1_000_000);
        }
        assert_eq!(costs.of_shard(SHARD), Some(8_000));

        told(&mut costs, 8_000);
        assert_eq!(costs.of_shard(SHARD), Some(8_000));
    }

    #[test]
    fn worker_is_known_after_three_loads_and_forgotten_when_it_is_over() {
        let mut costs = Costs::default();
        let worker = Incarnation::new("w");
        for _ in 0..3 {
            assert!(!costs.knows(&worker));
            told(&mut costs, 1);
        }
        assert!(costs.knows(&worker));

        costs.retain(|_| false);
        assert!(!costs.knows(&worker));
    }

    #[test]
    fn shard_of_another_owner_is_not_heard_of() {
        let mut costs = Costs::default();

        let worker = Incarnation::new("w");
        costs.take(Now::default(), &worker, &load(5), |_| false);

        assert_eq!(costs.of_shard(SHARD), None);
    }

    #[test]
    fn controller_that_is_named_no_more_is_forgotten() {
        let mut costs = Costs::default();
        told(&mut costs, 5);
        let mut named = costs.controllers();
        assert!(named.next().is_some_and(|it| it.1 == Slice(0)));
        drop(named);

        let later = Now::default().after(FORGOTTEN);
        let worker = Incarnation::new("w");
        costs.take(later, &worker, &Load::default(), |_| true);

        assert_eq!(costs.controllers().count(), 0);
    }
}
