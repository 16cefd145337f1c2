//! One layer of shards that are balanced together: those that hold a controller, by weight, or those that hold none, by number.

use std::{cmp::Reverse, collections::BTreeSet};

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::{Level, Member, Problem, Shard};
use crate::record::weight_of;

/// A shard without a member goes to one that stays under this part of the mean, in hundredths.
const CAP: u128 = 105;

/// Members that others retire for take what those had, up to this part of the mean, in hundredths.
const SUCCESSOR_CAP: u128 = 250;

/// A member has at most this part of the mean of cached bytes, in hundredths, unless there is no other.
pub(super) const BYTES_CAP: u128 = 200;

/// Improvement goes on while a member is hotter than this part of the mean, in hundredths.
const TARGET: u128 = 105;

/// Improvement goes on while a member is colder than this part of the mean, in hundredths.
const COLD_TARGET: u128 = 95;

/// A cold member gets from one that is hotter by at least this part of the mean, in hundredths. One shard that
/// outweighs a whole member raises the mean so far that all others look cold; they need not be levelled to the last bit.
const WORTH_A_MOVE: u128 = 10;

/// An assignment in the making.
pub(super) struct Plan {
    /// The member of each shard when it began.
    before: Vec<Option<usize>>,
    /// The member of each shard now.
    pub(super) owners: Vec<Option<usize>>,
    /// Shards that may still be taken from a member that could keep them.
    budget: usize,
}

/// The shards of one layer and the members that they may go to.
pub(super) struct Layer<'a> {
    problem: &'a Problem,
    /// By shard; `None`: the shard is of the other layer.
    weights: Vec<Option<u64>>,
    members: Vec<Place>,
    total_weight: u128,
    total_capacity: u128,
    total_bytes: u128,
    /// Some members retire and others do not.
    has_successors: bool,
}

/// What a member's part in the layer rests on.
struct Place {
    /// Hash of its name.
    identity: u64,
    capacity: u128,
    retiring: bool,
}

/// Where a member stands: its load over its capacity, on a scale where [`Layer::mean`] is the mean of all. Members compare
/// by it, then by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Heat {
    heat: u128,
    member: usize,
}

/// How much a member is preferred for a shard without one; the greatest is taken. The order of the fields is the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Preference {
    /// It does not retire, where others do.
    succeeds: bool,
    /// It stays under the cap.
    fits: bool,
    /// If it does not: how hot it would be.
    harm: Reverse<u128>,
    /// Rendezvous hash of member and shard.
    score: u64,
    /// The first of several that are equal.
    member: Reverse<usize>,
}

/// What the members carry while a plan is made.
struct Ledger {
    /// By member.
    loads: Vec<u128>,
    /// By member.
    bytes: Vec<u128>,
    /// By member: the shards that may be moved away, lightest first.
    movable: Vec<BTreeSet<(u64, usize)>>,
}

impl Plan {
    pub(super) fn new(owners: Vec<Option<usize>>, budget: usize) -> Self {
        Self {
            before: owners.clone(),
            owners,
            budget,
        }
    }

    /// Gives a placed shard another member, unless that takes more budget than is left. Only what ends elsewhere than it
    /// began takes any: a shard that had no member is free to move until the plan is done.
    fn reassign(&mut self, shard: usize, to: usize) -> bool {
        let (before, from) = (self.before[shard], self.owners[shard]);
        if before.is_some() {
            let left = if from == before {
                self.budget.checked_sub(1)
            } else {
                Some(self.budget)
            };
            let Some(left) = left else { return false };
            self.budget = left + usize::from(before == Some(to));
        }
        self.owners[shard] = Some(to);
        true
    }
}

impl<'a> Layer<'a> {
    /// The shards that hold a controller.
    pub(super) fn loaded(problem: &'a Problem) -> Self {
        Self::new(problem, |_, shard| {
            (shard.weight > 0).then_some(shard.weight)
        })
    }

    /// The shards that hold a controller, and those that hold none, of which each counts 1; both without some.
    pub(super) fn both_without(problem: &'a Problem, left_out: &BTreeSet<usize>) -> [Self; 2] {
        let is_in = |number| left_out.is_empty() || !left_out.contains(&number);
        let loaded =
            |number, shard: &Shard| (shard.weight > 0 && is_in(number)).then_some(shard.weight);
        let idle = |number, shard: &Shard| (shard.weight == 0 && is_in(number)).then_some(1);
        [Self::new(problem, loaded), Self::new(problem, idle)]
    }

    fn new(problem: &'a Problem, weigh: impl Fn(usize, &Shard) -> Option<u64>) -> Self {
        let weights: Vec<Option<u64>> = problem
            .shards
            .iter()
            .enumerate()
            .map(|(number, shard)| weigh(number, shard))
            .collect();
        let members: Vec<Place> = problem
            .members
            .iter()
            .map(|member| Place {
                identity: identity(member),
                capacity: u128::from(weight_of(member.capacity)),
                retiring: member.retiring,
            })
            .collect();
        let shards = || weights.iter().zip(&problem.shards);
        let total = |of: &dyn Fn((u64, &Shard)) -> u64| -> u128 {
            let ours = shards().filter_map(|(weight, shard)| Some(((*weight)?, shard)));
            ours.map(|it| u128::from(of(it))).sum()
        };
        Self {
            problem,
            total_weight: total(&|(weight, _)| weight),
            total_bytes: total(&|(_, shard)| shard.bytes),
            total_capacity: members.iter().map(|member| member.capacity).sum(),
            has_successors: members.iter().any(|it| it.retiring)
                && members.iter().any(|it| !it.retiring),
            weights,
            members,
        }
    }

    /// Gives every shard of the layer a member.
    pub(super) fn place(&self, plan: &mut Plan) {
        let mut ledger = self.ledger(&plan.owners);
        self.place_orphans(&mut plan.owners, &mut ledger);
        if self.is_uneven(&ledger) {
            self.improve(plan, &mut ledger);
        }
    }

    /// How hot the hottest is, in hundredths of the mean.
    pub(super) fn hottest_percent(&self, owners: &[Option<usize>]) -> u32 {
        let ledger = self.ledger(owners);
        let hottest = self
            .heats(&ledger)
            .into_iter()
            .max()
            .map_or(0, |it| it.heat);
        let percent = (hottest * 100).checked_div(self.mean()).unwrap_or(100);
        u32::try_from(percent).unwrap_or(u32::MAX)
    }

    fn ledger(&self, owners: &[Option<usize>]) -> Ledger {
        let mut ledger = Ledger {
            loads: vec![0; self.members.len()],
            bytes: vec![0; self.members.len()],
            movable: vec![BTreeSet::new(); self.members.len()],
        };
        for (shard, weight) in self.weights.iter().enumerate() {
            if let (Some(weight), Some(Some(owner))) = (*weight, owners.get(shard)) {
                ledger.add(*owner, (shard, &self.problem.shards[shard]), weight);
            }
        }
        ledger
    }

    /// Step 2: heaviest first, each to the member that it prefers.
    fn place_orphans(&self, owners: &mut [Option<usize>], ledger: &mut Ledger) {
        let mut orphans: Vec<(Reverse<u64>, usize)> = Vec::new();
        for (shard, weight) in self.weights.iter().enumerate() {
            if let (Some(weight), None) = (*weight, owners[shard]) {
                orphans.push((Reverse(weight), shard));
            }
        }
        orphans.sort_unstable();

        for (Reverse(weight), shard) in orphans {
            let preferred = (0..self.members.len())
                .map(|member| self.preference(ledger, member, shard, weight))
                .max();
            if let Some(Preference {
                member: Reverse(member),
                ..
            }) = preferred
            {
                owners[shard] = Some(member);
                ledger.add(member, (shard, &self.problem.shards[shard]), weight);
            }
        }
    }

    fn preference(&self, ledger: &Ledger, member: usize, shard: usize, weight: u64) -> Preference {
        let heat = self.heat(member, ledger.loads[member] + u128::from(weight));
        let fits = heat * 100 <= self.mean() * CAP && self.has_room(ledger, member, shard);
        Preference {
            succeeds: self.has_successors
                && !self.members[member].retiring
                && heat * 100 <= self.mean() * SUCCESSOR_CAP,
            fits,
            harm: Reverse(if fits { 0 } else { heat }),
            score: score(shard, self.members[member].identity),
            member: Reverse(member),
        }
    }

    /// Whether the caches of `shard` would fit into `member`.
    fn has_room(&self, ledger: &Ledger, member: usize, shard: usize) -> bool {
        let bytes = ledger.bytes[member] + u128::from(self.problem.shards[shard].bytes);
        bytes * 100 * self.members.len() as u128 <= self.total_bytes * BYTES_CAP
    }

    /// Whether step 3 is due.
    fn is_uneven(&self, ledger: &Ledger) -> bool {
        let mean = self.mean();
        let (cold, hot) = self.problem.level.percents();
        self.heats(ledger)
            .iter()
            .any(|it| it.heat * 100 > mean * hot || it.heat * 100 < mean * cold)
    }

    /// Step 3. It ends: each move brings two members nearer to each other.
    fn improve(&self, plan: &mut Plan, ledger: &mut Ledger) {
        while let Some((weight, shard, from, to)) = self.next_move(ledger)
            && plan.reassign(shard, to)
        {
            let which = (shard, &self.problem.shards[shard]);
            ledger.remove(from, which, weight);
            ledger.add(to, which, weight);
        }
    }

    /// The heaviest shard of at most half the gap, from the hottest member that has one to the coldest.
    fn next_move(&self, ledger: &Ledger) -> Option<(u64, usize, usize, usize)> {
        let mut heats = self.heats(ledger);
        heats.sort_unstable();
        let may_get = |it: &&Heat| !(self.has_successors && self.members[it.member].retiring);
        let coldest = *heats.iter().find(may_get)?;
        let mean = self.mean();
        let is_cold = coldest.heat * 100 < mean * COLD_TARGET;
        if is_cold && self.has_successors {
            let retiring = heats
                .iter()
                .rev()
                .filter(|it| self.members[it.member].retiring);
            let most = self.room(coldest);
            let found =
                retiring.map(|donor| self.heaviest(ledger, most, donor.member, coldest.member));
            if let Some(found) = found.flatten().next() {
                return Some(found);
            }
        }

        for donor in heats.iter().rev() {
            let gap = donor.heat.saturating_sub(coldest.heat);
            let is_hot = donor.heat * 100 > mean * TARGET;
            let may_fill = is_cold && gap * 100 > mean * WORTH_A_MOVE;
            if !is_hot && !may_fill {
                return None;
            }
            let most = self.half_gap(ledger, donor.member, coldest.member);
            let found = self.heaviest(ledger, most, donor.member, coldest.member);
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// The heaviest shard of at most `most` that `from` may give and `to` has room for.
    fn heaviest(
        &self,
        ledger: &Ledger,
        most: u64,
        from: usize,
        to: usize,
    ) -> Option<(u64, usize, usize, usize)> {
        let light_enough = ledger.movable[from].range(..=(most, usize::MAX)).rev();
        let mut fitting = light_enough.filter(|(_, shard)| self.has_room(ledger, to, *shard));
        let (weight, shard) = fitting.next()?;
        Some((*weight, *shard, from, to))
    }

    /// The weight that a cold member can take before it is at the target.
    fn room(&self, cold: Heat) -> u64 {
        let left = (self.mean() * TARGET / 100).saturating_sub(cold.heat);
        let weight = left * self.members[cold.member].capacity / self.total_capacity.max(1);
        u64::try_from(weight).unwrap_or(u64::MAX)
    }

    /// The weight that, moved from `hot` to `cold`, would leave both equally hot.
    fn half_gap(&self, ledger: &Ledger, hot: usize, cold: usize) -> u64 {
        let (hot_capacity, cold_capacity) =
            (self.members[hot].capacity, self.members[cold].capacity);
        let gap =
            (ledger.loads[hot] * cold_capacity).saturating_sub(ledger.loads[cold] * hot_capacity);
        u64::try_from(gap / (hot_capacity + cold_capacity)).unwrap_or(u64::MAX)
    }

    /// The mean of all members' heats, each counted by its capacity.
    fn mean(&self) -> u128 {
        self.total_weight
    }

    fn heat(&self, member: usize, load: u128) -> u128 {
        load * self.total_capacity / self.members[member].capacity
    }

    fn heats(&self, ledger: &Ledger) -> Vec<Heat> {
        let loads = ledger.loads.iter().enumerate();
        loads
            .map(|(member, load)| Heat {
                heat: self.heat(member, *load),
                member,
            })
            .collect()
    }
}

/// What a member is hashed by.
pub(super) fn identity(member: &Member) -> u64 {
    xxh3_64(member.replica.as_str().as_bytes())
}

/// How much a shard prefers a member.
pub(super) fn score(shard: usize, identity: u64) -> u64 {
    xxh3_64_with_seed(&shard.to_le_bytes(), identity)
}

impl Ledger {
    fn add(&mut self, member: usize, (number, shard): (usize, &Shard), weight: u64) {
        self.loads[member] += u128::from(weight);
        self.bytes[member] += u128::from(shard.bytes);
        if !shard.pinned {
            self.movable[member].insert((weight, number));
        }
    }

    fn remove(&mut self, member: usize, (number, shard): (usize, &Shard), weight: u64) {
        self.loads[member] -= u128::from(weight);
        self.bytes[member] -= u128::from(shard.bytes);
        self.movable[member].remove(&(weight, number));
    }
}

impl Level {
    /// Improvement begins if a member is colder, or hotter, than this part of the mean, in hundredths.
    fn percents(self) -> (u128, u128) {
        match self {
            Self::Rest => (90, 110),
            Self::Fine => (95, 105),
        }
    }
}
