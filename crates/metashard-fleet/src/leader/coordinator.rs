//! What a leader does in its term: prove who is over, plan, hand over, and write the map.

mod planning;
mod recutting;
mod showing;
mod talk;
mod wishing;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use metashard_api::id::{Epoch, Incarnation, ReplicaId, Seq, ShardId, Term};
use serde::{Deserialize, Serialize};

use crate::{
    handover::HandOvers,
    leader::{
        Action, Config, Report, Took, Why,
        demand::Demand,
        flaps::Flaps,
        recutting::Recutting,
        spec,
        splitting::{Asked, Splitting},
        table::Table,
        turnover::Turnover,
        world::{Peers, World},
    },
    map::Map,
    membership::{Membership, earliest},
    message::{Claim, LastWritten},
    rules::Rule,
    shard::Layout,
    time::{MonoTime, Now},
    wishes::Wishes,
};
use wishing::Wished;

/// How long shards that are free wait for those that are about to be, so that one write gives them all away.
const GATHER: Duration = Duration::from_millis(100);

/// The leader's running loop, from the term that is its own until that is lost. A new one starts from the map and the
/// Leases alone, and from what the workers say in their Hellos.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Coordinator {
    term: Term,
    /// The map that all that was said stands on.
    map: Arc<Map>,
    /// Its table.
    members: Vec<Incarnation>,
    peers: Peers,
    hand_overs: HandOvers,
    /// Where the last plan puts shards that need an owner.
    targets: BTreeMap<ShardId, Incarnation>,
    /// Since when each shard has needed an owner.
    orphans: BTreeMap<ShardId, MonoTime>,
    /// Where the writes before the current ownership ended, to be told again on a new session.
    last_written: BTreeMap<ShardId, Vec<LastWritten>>,
    /// Workers that joined, until a plan has given them their share.
    newcomers: BTreeSet<Incarnation>,
    /// All that are joined, as far as they were greeted.
    known: BTreeSet<Incarnation>,
    /// Who was lost how often.
    flaps: Flaps,
    /// Newcomers that were lost too often, and until when they wait for their share.
    held_back: BTreeMap<Incarnation, MonoTime>,
    /// When shards were moved for balance, other than on a join.
    moved: VecDeque<MonoTime>,
    /// How hot the hottest member was at the last plan, in hundredths of the mean.
    hottest_percent: u32,
    demand: Demand,
    /// What has been noticed of controllers that may have to be split.
    splitting: Splitting,
    /// The change of splits under way.
    recutting: Option<Recutting>,
    /// The map that may have changed splits last.
    splits_as_of: (Term, Seq),
    wished: Wished,
    plan_at: MonoTime,
    share_at: Option<MonoTime>,
    /// Something has changed since it was last looked for shards that are free.
    is_dirty: bool,
    /// Since when something is free that waits for more to be written with it.
    free_since: Option<MonoTime>,
    is_postponed: bool,
    has_greeted: bool,
}

/// What a coordinator works with.
#[derive(Debug)]
pub(crate) struct Tools<'a> {
    pub(crate) config: &'a Config,
    pub(crate) membership: &'a mut Membership,
    pub(crate) table: &'a mut Table,
    pub(crate) controllers: &'a BTreeMap<ShardId, u32>,
    /// All controllers, if they are known.
    pub(crate) asked: Option<&'a Asked>,
    /// How long a split controller has to be cold before it is merged.
    pub(crate) merge_after: Duration,
    pub(crate) turnover: &'a Turnover,
    pub(crate) wishes: &'a Wishes,
}

/// One shard whose epoch differs between two maps.
struct Change {
    shard: ShardId,
    old_owner: Option<Incarnation>,
    old_epoch: Epoch,
    owner: Option<Incarnation>,
    epoch: Epoch,
}

impl Coordinator {
    /// Begins a term: `map` names it.
    pub(crate) fn begin(now: Now, map: Arc<Map>) -> Self {
        Self {
            term: map.spec.term,
            members: members(&map),
            // Perhaps an earlier one: who has seen this one knows of it, too.
            splits_as_of: map.version(),
            map,
            peers: Peers::default(),
            hand_overs: HandOvers::default(),
            targets: BTreeMap::new(),
            orphans: BTreeMap::new(),
            last_written: BTreeMap::new(),
            newcomers: BTreeSet::new(),
            known: BTreeSet::new(),
            flaps: Flaps::default(),
            held_back: BTreeMap::new(),
            moved: VecDeque::new(),
            hottest_percent: 100,
            demand: Demand::default(),
            splitting: Splitting::default(),
            recutting: None,
            wished: Wished::default(),
            plan_at: now.mono,
            share_at: None,
            is_dirty: true,
            free_since: None,
            is_postponed: false,
            has_greeted: false,
        }
    }

    /// Its term.
    pub(crate) fn term(&self) -> Term {
        self.term
    }

    /// What workers have told it.
    pub(crate) fn peers(&self) -> &Peers {
        &self.peers
    }

    /// How hot the hottest member was at the last plan, in hundredths of the mean.
    pub(crate) fn hottest_percent(&self) -> u32 {
        self.hottest_percent
    }

    /// How many workers the work needs; 0 if that is not known.
    pub(crate) fn wanted_workers(&self) -> usize {
        self.demand.wanted()
    }

    /// Number of hand-overs under way.
    pub(crate) fn n_hand_overs(&self) -> usize {
        self.hand_overs.len()
    }

    /// Plans at the next run.
    pub(crate) fn want_plan(&mut self, now: Now) {
        self.plan_at = now.mono;
    }

    /// When it wants to run again.
    pub(crate) fn poll_timeout(&self, now: Now, config: &Config) -> Option<MonoTime> {
        let hand_overs = self.hand_overs.poll_timeout(now, config.drain_hook_grace);
        let gathered = self.free_since.map(|since| since + GATHER);
        let gathered = gathered.filter(|gathered| *gathered > now.mono);
        let plan = earliest(Some(self.plan_at), self.share_at);
        let plan = earliest(plan, self.recut_timeout(config.drain_hook_grace));
        earliest(plan, earliest(hand_overs, gathered))
    }

    /// Does all that is due. `has_news`: the state of a worker has changed.
    pub(crate) fn run(
        &mut self,
        now: Now,
        has_news: bool,
        tools: &mut Tools<'_>,
        out: &mut Vec<Action>,
    ) {
        self.adopt(now, tools, out);
        let has_news = tools.membership.refresh(now) || has_news;
        if has_news || !self.has_greeted {
            self.has_greeted = true;
            self.greet(now, tools, out);
        }
        self.pursue(now, tools.membership, out);
        self.settle(now, tools);
        self.give_up_recutting(now, tools);
        self.plan_if_due(now, tools, out);
        self.hand_over(now, tools, out);
        self.write(now, tools, out);
        self.tell_wishes(tools, out);
    }

    /// Whether it may stop without leaving work undone that the next leader would have to learn of first: nobody is about
    /// to give up a shard, and all that are free have been given away, as far as there is anybody to give them to.
    pub(crate) fn is_at_rest(&self, tools: &Tools<'_>) -> bool {
        let has_nobody = self.world(tools).eligible().next().is_none();
        has_nobody
            || (tools.table.is_settled()
                && !self.hand_overs.awaits_release(true)
                && self.unowned(tools.membership).is_empty())
    }

    /// The shards that nobody serves: without an owner, with one that is not alive, or released.
    pub(crate) fn unowned(&self, membership: &Membership) -> BTreeSet<ShardId> {
        let mut unowned = BTreeSet::new();
        for (shard, entry) in (0..=u16::MAX).map(ShardId).zip(&self.map.spec.shards) {
            let owner = entry.owner.and_then(|it| self.members.get(usize::from(it)));
            let epoch = entry.epoch;
            let is_served = owner.is_some_and(|owner| {
                membership.is_joined(owner)
                    && self
                        .hand_overs
                        .release(Claim { shard, epoch }, owner)
                        .is_none()
            });
            if !is_served {
                unowned.insert(shard);
            }
        }
        unowned
    }

    fn world<'a>(&'a self, tools: &'a Tools<'_>) -> World<'a> {
        World {
            membership: tools.membership,
            map: &self.map,
            members: &self.members,
            peers: &self.peers,
            controllers: tools.controllers,
            turnover: tools.turnover,
            wishes: tools.wishes,
            held_back: &self.held_back,
            recutting: self.recutting.as_ref(),
            rules: tools.config.rules,
        }
    }

    /// Goes over to the newest map of its term, and tells those to whom it gives something new.
    fn adopt(&mut self, now: Now, tools: &mut Tools<'_>, out: &mut Vec<Action>) {
        if let Some(map) = tools.table.map()
            && map.spec.term == self.term
        {
            if map.version() > self.map.version() {
                self.take(now, Arc::clone(map), out);
            } else if map.resource_version != self.map.resource_version {
                let edited = Arc::clone(map);
                self.take_edit(tools.table, &edited, out);
            }
        }
        for member in &self.map.spec.members {
            let incarnation = Incarnation::new(member.incarnation.as_str());
            let replica = ReplicaId::new(member.replica.as_str());
            tools.membership.expect(now, &incarnation, &replica);
        }
    }

    /// Somebody has changed the map by hand, under the numbers of the one that we wrote. Workers take no notice of that;
    /// what they go by is written over it, under the next number.
    fn take_edit(&mut self, table: &mut Table, edited: &Map, out: &mut Vec<Action>) {
        Arc::make_mut(&mut self.map)
            .resource_version
            .clone_from(&edited.resource_version);
        if edited.version() == self.map.version() && edited.spec != self.map.spec {
            table.mend();
            self.is_dirty = true;
            out.push(Action::Report(Report::MapEdited));
        }
    }

    fn take(&mut self, now: Now, map: Arc<Map>, out: &mut Vec<Action>) {
        let mut groups: BTreeMap<(Incarnation, Why), (Vec<Claim>, Took)> = BTreeMap::new();
        let layout = Layout::of(&map.spec);
        let recuts = Layout::of(&self.map.spec).changes(&layout);
        let mut recut = BTreeSet::new();
        for (controller, it) in &recuts {
            self.splits_as_of = map.version();
            recut.extend(layout.concerned(controller, *it));
        }
        for change in self.replace(map) {
            let shard = change.shard;
            self.peers.costs.moved(shard);
            let released = change.old_owner.as_ref().and_then(|owner| {
                let epoch = change.old_epoch;
                self.hand_overs.release(Claim { shard, epoch }, owner)
            });
            // What others wrote for parents that are of it now is not known by shard.
            let released = released.filter(|_| !recut.contains(&shard));
            let last_written = released.map(|it| it.last_written.clone());
            self.last_written
                .insert(shard, last_written.unwrap_or_default());
            if let Some(owner) = change.owner {
                let epoch = change.epoch;
                self.assign(owner.clone(), Claim { shard, epoch }, out);
                let hand_over = self.hand_overs.get(shard);
                let without = match change.old_owner {
                    Some(_) => Why::Orphaned,
                    None => Why::First,
                };
                let why = hand_over.map_or(without, |it| it.why);
                let took = match hand_over {
                    Some(hand_over) => hand_over.took(now),
                    None => self.took_over(now, shard),
                };
                let group = groups.entry((owner, why)).or_default();
                group.0.push(Claim { shard, epoch });
                group.1 = group.1.longest(took);
            }
            self.hand_overs.finish(now, shard);
            self.targets.remove(&shard);
            self.orphans.remove(&shard);
        }
        self.is_dirty = true;
        self.take_splits(now, &recuts, out);
        self.shards_moved();
        for ((to, why), (claims, took)) in groups {
            out.push(Action::Report(Report::ShardsAssigned {
                to,
                why,
                claims,
                took,
            }));
        }
    }

    /// How long `shard` needed an owner that nobody handed it over to.
    fn took_over(&self, now: Now, shard: ShardId) -> Took {
        let since = self.orphans.get(&shard);
        let total = since.map_or(Duration::ZERO, |since| now.mono.since(*since));
        Took {
            assign: total,
            total,
            ..Took::default()
        }
    }

    /// Goes over to `map`, and returns what it changes.
    fn replace(&mut self, map: Arc<Map>) -> Vec<Change> {
        let old = std::mem::replace(&mut self.map, map);
        let old_members = std::mem::replace(&mut self.members, members(&self.map));
        let mut changes = Vec::new();
        for (shard, entry) in (0..=u16::MAX).map(ShardId).zip(&self.map.spec.shards) {
            let before = old.spec.shards.get(usize::from(shard.0));
            let old_epoch = before.map_or_else(Epoch::default, |before| before.epoch);
            if entry.epoch != old_epoch {
                let old_owner = before.and_then(|it| old_members.get(usize::from(it.owner?)));
                let owner = entry.owner.and_then(|it| self.members.get(usize::from(it)));
                changes.push(Change {
                    shard,
                    old_owner: old_owner.cloned(),
                    old_epoch,
                    owner: owner.cloned(),
                    epoch: entry.epoch,
                });
            }
        }
        changes
    }

    /// Takes notice of who joined and who is over.
    fn greet(&mut self, now: Now, tools: &Tools<'_>, out: &mut Vec<Action>) {
        let membership = &*tools.membership;
        self.plan_at = now.mono;
        self.is_dirty = true;
        for (incarnation, worker) in membership.workers() {
            let state = worker.state();
            if membership.is_joined(incarnation) {
                if self.known.insert(incarnation.clone()) {
                    if !self.members.contains(incarnation) {
                        self.newcomers.insert(incarnation.clone());
                        self.hold_back(now, tools, incarnation);
                    }
                    out.push(Action::Report(Report::WorkerJoined {
                        replica: replica_of(membership, incarnation),
                        incarnation: incarnation.clone(),
                    }));
                }
            } else if state.is_over() && self.known.remove(incarnation) {
                self.newcomers.remove(incarnation);
                let replica = replica_of(membership, incarnation);
                let lived = now.mono.since(worker.first_seen());
                self.flaps.lost(now, &replica, lived, state);
                out.push(Action::Report(Report::WorkerLost {
                    replica,
                    incarnation: incarnation.clone(),
                    how: state,
                }));
            }
        }
        self.peers
            .retain(|it| membership.worker(it).is_some_and(|it| !it.is_over()));
    }

    /// Lets a replica wait for its share that was lost again and again.
    fn hold_back(&mut self, now: Now, tools: &Tools<'_>, incarnation: &Incarnation) {
        let replica = replica_of(tools.membership, incarnation);
        let wait = self.flaps.wait(now, &replica);
        if !wait.is_zero() && tools.config.rules.keep(Rule::FlapsWait) {
            self.held_back.insert(incarnation.clone(), now.mono + wait);
        }
    }

    fn pursue(&mut self, now: Now, membership: &mut Membership, out: &mut Vec<Action>) {
        let mut requests = Vec::new();
        let postponed = membership.pursue(now, &mut requests);
        if let Some(postponed) = postponed
            && !self.is_postponed
        {
            out.push(Action::Report(Report::FencingPostponed {
                silent: postponed.silent,
                workers: postponed.workers,
            }));
        }
        self.is_postponed = postponed.is_some();
        let requests = requests.into_iter();
        out.extend(requests.map(|(it, request)| Action::WorkerLease(it, request)));
    }

    /// Gives every shard that is free its owner, all in one write.
    fn write(&mut self, now: Now, tools: &mut Tools<'_>, out: &mut Vec<Action>) {
        if !self.is_dirty || !tools.table.is_settled() {
            return;
        }
        let owners = self.new_owners(tools);
        let recuts = self.recuts(&owners, tools).cloned();
        // As long as there is something to write, it may have to be written again.
        self.is_dirty = !owners.is_empty() || recuts.is_some() || tools.table.is_edited();
        if !self.is_dirty {
            self.free_since = None;
            return;
        }
        let since = *self.free_since.get_or_insert(now.mono);
        // What holds controllers does not wait for what holds none.
        let is_light = owners.keys().all(|shard| {
            let n_controllers = tools.controllers.get(shard).copied();
            n_controllers.unwrap_or_default() == 0
        });
        if self.hand_overs.awaits_release(is_light) && now.mono < since + GATHER {
            return;
        }
        self.free_since = None;
        let mut spec = spec::with_new_owners(&self.map.spec, &owners);
        if let Some(recuts) = recuts {
            spec::recut(&mut spec, &recuts, &owners);
        }
        let mut base = Arc::clone(&self.map);
        if !tools.config.rules.keep(Rule::MapByVersion) {
            Arc::make_mut(&mut base).resource_version = String::new();
        }
        out.push(tools.table.write(Some(base), spec.clone()));
        if !tools.config.rules.keep(Rule::TableFirst) {
            let mut map = Map::clone(&self.map);
            map.spec = spec;
            self.take(now, Arc::new(map), out);
        }
    }
}

/// Name of the replica of `incarnation`; that of the incarnation if it is not known.
fn replica_of(membership: &Membership, incarnation: &Incarnation) -> ReplicaId {
    let worker = membership.worker(incarnation);
    let replica = worker.and_then(|worker| worker.replica()).cloned();
    replica.unwrap_or_else(|| ReplicaId::new(incarnation.as_str()))
}

fn members(map: &Map) -> Vec<Incarnation> {
    let members = map.spec.members.iter();
    members
        .map(|member| Incarnation::new(member.incarnation.as_str()))
        .collect()
}
