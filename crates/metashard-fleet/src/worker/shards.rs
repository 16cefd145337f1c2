//! What one incarnation holds, has given up, and has been given, shard by shard.

use std::{collections::BTreeMap, time::Duration};

use metashard_api::id::{Epoch, Incarnation, Seq, ShardId, Term};
use serde::{Deserialize, Serialize};

use crate::{
    map::Map,
    message::{Claim, LastWritten},
    rules::{Rule, Rules},
    shard::Layout,
    worker::{Action, Freshness, Held, HeldState},
};

/// All shards that concern one incarnation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Shards {
    all: BTreeMap<ShardId, Shard>,
    /// Of the map that was applied last.
    layout: Layout,
    rules: Rules,
}

/// What an Assign says.
#[derive(Debug)]
pub(super) struct Assign {
    pub(super) claim: Claim,
    pub(super) last_written: Vec<LastWritten>,
    /// The map that it stands on.
    pub(super) as_of: (Term, Seq),
    /// The map that may have changed splits last.
    pub(super) splits_as_of: (Term, Seq),
}

/// A release to tell the leader.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Release {
    pub(super) claim: Claim,
    pub(super) last_written: Vec<LastWritten>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
struct Shard {
    /// The highest epoch that was released or lost: it and all below are over for good.
    tombstone: Epoch,
    /// The map that the next two are from, or that an Assign stood on.
    as_of: (Term, Seq),
    /// The epoch in the newest entry, whoever owns it.
    entry: Epoch,
    /// The epoch, if the newest entry names this incarnation.
    given: Option<Epoch>,
    /// What an Assign said about the last owner's writes.
    assigned: Option<(Epoch, Vec<LastWritten>)>,
    running: Option<Running>,
    /// Once nothing runs, the release of this epoch is told: a Drain asked for it.
    owed: Option<Epoch>,
    /// Told in each Hello, until an entry shows a higher epoch.
    released: Option<(Epoch, Vec<LastWritten>)>,
    /// The last ownership that ended here, and what its successor's caches must have seen if that is this incarnation.
    carried: Option<(Epoch, Freshness)>,
    /// The map has changed which parents belong to what runs.
    is_cut_otherwise: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Running {
    epoch: Epoch,
    state: State,
    /// Its caches have seen what `freshness` asks.
    fresh: bool,
    freshness: Freshness,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum State {
    Serving,
    Draining,
    Dropping,
}

impl Shards {
    pub(super) fn new(rules: Rules) -> Self {
        Self {
            all: BTreeMap::new(),
            layout: Layout::default(),
            rules,
        }
    }

    /// Takes the entries of a map that counts. Call [`Self::settle`] afterwards.
    pub(super) fn apply_map(&mut self, map: &Map, me: &Incarnation) {
        let version = map.version();
        let spec = &map.spec;
        let mine = spec
            .members
            .iter()
            .position(|member| member.incarnation == me.as_str())
            .and_then(|index| u16::try_from(index).ok());
        for (id, entry) in (0..).map(ShardId).zip(&spec.shards) {
            let is_mine = mine.is_some() && entry.owner == mine;
            if is_mine {
                self.all.entry(id).or_default();
            }
            if let Some(shard) = self.all.get_mut(&id) {
                let given = is_mine.then_some(entry.epoch);
                shard.apply_entry(version, entry.epoch, given, self.rules);
            }
        }
        for (id, shard) in &mut self.all {
            if usize::from(id.0) >= spec.shards.len() {
                shard.apply_entry(version, shard.entry, None, self.rules);
            }
        }
        self.apply_splits(map);
    }

    /// What an ownership is of never changes. Should a map do so nevertheless, as one that somebody edited, all of it is
    /// released, for the leader to give it anew.
    fn apply_splits(&mut self, map: &Map) {
        let layout = Layout::of(&map.spec);
        let changes = self.layout.changes(&layout);
        for (controller, recut) in &changes {
            for id in layout.concerned(controller, *recut) {
                let shard = self.all.get_mut(&id);
                if let Some(shard) = shard.filter(|_| self.rules.keep(Rule::SplitWhenReleased)) {
                    // Others have written for parents that are of it now.
                    shard.carried = None;
                    shard.assigned = None;
                    let running = shard.running.as_ref().map(|running| running.epoch);
                    shard.is_cut_otherwise |= running.is_some() && running == shard.given;
                }
            }
        }
        if !changes.is_empty() {
            self.layout = layout;
        }
    }

    /// Takes an Assign, which counts as an entry of the map that it stands on; `newest` is the newest map's. One of which
    /// it is not known what it is of waits for the map. Call [`Self::settle`] afterwards.
    pub(super) fn assign(&mut self, assign: Assign, newest: (Term, Seq), out: &mut Vec<Action>) {
        let Assign {
            claim,
            last_written,
            as_of,
            splits_as_of,
        } = assign;
        let shard = self.all.entry(claim.shard).or_default();
        let is_cut_known = splits_as_of <= newest || !self.rules.keep(Rule::CutOfItsMap);
        let is_newer = as_of > newest && as_of >= shard.as_of && claim.epoch >= shard.entry;
        if is_newer && is_cut_known {
            shard.apply_entry(as_of, claim.epoch, Some(claim.epoch), self.rules);
        }
        let is_awaited = is_newer && !is_cut_known;
        if !(is_awaited || shard.given == Some(claim.epoch)) || last_written.is_empty() {
            return;
        }
        shard.assigned = Some((claim.epoch, last_written.clone()));
        if let Some(running) = &mut shard.running {
            // Whoever runs it may be waiting for a list, which this makes needless.
            let may_wait = running.state == State::Serving && running.freshness == Freshness::Crash;
            if running.epoch == claim.epoch && may_wait {
                running.freshness = Freshness::Released(last_written);
                let freshness = running.freshness.clone();
                out.push(Action::Start { claim, freshness });
            }
        }
    }

    /// Starts what is given and not over, drops what is not given any more.
    pub(super) fn settle(&mut self, may_start: bool, out: &mut Vec<Action>) {
        for (id, shard) in &mut self.all {
            shard.settle(*id, may_start, self.rules, out);
        }
    }

    /// Takes a Drain. Returns the release that can be told at once.
    pub(super) fn drain(
        &mut self,
        claim: Claim,
        grace: Duration,
        out: &mut Vec<Action>,
    ) -> Option<Release> {
        let rules = self.rules;
        self.all
            .entry(claim.shard)
            .or_default()
            .drain(claim, grace, rules, out)
    }

    /// Drains all that is served, of this worker's own accord.
    pub(super) fn drain_all(&mut self, grace: Duration, out: &mut Vec<Action>) {
        let served: Vec<Claim> = self
            .running()
            .filter(|(_, running)| running.state == State::Serving)
            .map(|(shard, running)| Claim {
                shard,
                epoch: running.epoch,
            })
            .collect();
        for claim in served {
            // It is served, so its release comes later.
            drop(self.drain(claim, grace, out));
        }
    }

    /// Nothing runs or is in flight of `claim`. Returns the release to tell.
    pub(super) fn drained(
        &mut self,
        claim: Claim,
        last_written: Vec<LastWritten>,
    ) -> Option<Release> {
        let rules = self.rules;
        self.all
            .get_mut(&claim.shard)?
            .drained(claim, last_written, rules)
    }

    /// The caches of `claim` are fresh.
    pub(super) fn fresh(&mut self, claim: Claim) {
        if let Some(Shard {
            running: Some(running),
            ..
        }) = self.all.get_mut(&claim.shard)
            && running.epoch == claim.epoch
            && running.state == State::Serving
        {
            running.fresh = true;
        }
    }

    /// The incarnation is over: drops all that runs.
    pub(super) fn drop_all(&mut self, out: &mut Vec<Action>) {
        for (id, shard) in &mut self.all {
            shard.owed = None;
            shard.drop_running(*id, self.rules, out);
        }
    }

    /// Whether nothing runs and nothing is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.running().next().is_none()
    }

    /// What is not at an end, in order.
    pub(super) fn unfinished(&self) -> Vec<Claim> {
        self.running()
            .map(|(shard, running)| Claim {
                shard,
                epoch: running.epoch,
            })
            .collect()
    }

    /// What may be acted for.
    pub(super) fn held(&self) -> impl Iterator<Item = (ShardId, Held)> + '_ {
        self.running().filter_map(|(shard, running)| {
            let state = match running.state {
                State::Serving if running.fresh => HeldState::Acting,
                State::Serving => HeldState::Starting,
                State::Draining => HeldState::Draining,
                State::Dropping => return None,
            };
            let epoch = running.epoch;
            Some((shard, Held { epoch, state }))
        })
    }

    /// The releases that no map has answered yet.
    pub(super) fn releases(&self) -> impl Iterator<Item = Release> + '_ {
        self.all.iter().filter_map(|(shard, state)| {
            let (epoch, last_written) = state.released.as_ref()?;
            Some(Release {
                claim: Claim {
                    shard: *shard,
                    epoch: *epoch,
                },
                last_written: last_written.clone(),
            })
        })
    }

    fn running(&self) -> impl Iterator<Item = (ShardId, &Running)> {
        self.all
            .iter()
            .filter_map(|(id, shard)| Some((*id, shard.running.as_ref()?)))
    }
}

impl Shard {
    fn apply_entry(
        &mut self,
        version: (Term, Seq),
        epoch: Epoch,
        given: Option<Epoch>,
        rules: Rules,
    ) {
        if version < self.as_of && rules.keep(Rule::NewestMap) {
            return;
        }
        self.as_of = version;
        self.entry = epoch;
        self.given = given;
        if self.released.as_ref().is_some_and(|(it, _)| *it < epoch) {
            self.released = None;
        }
    }

    fn settle(&mut self, id: ShardId, may_start: bool, rules: Rules, out: &mut Vec<Action>) {
        if let Some(running) = &self.running
            && self.given != Some(running.epoch)
        {
            self.drop_running(id, rules, out);
        }
        if std::mem::take(&mut self.is_cut_otherwise) && self.running.is_some() {
            self.owed = self.owed.max(self.given);
            self.drop_running(id, rules, out);
        }
        let Some(epoch) = self.given.filter(|epoch| *epoch > self.tombstone) else {
            return;
        };
        let is_free = match &self.running {
            None => true,
            Some(running) => running.epoch < epoch && !rules.keep(Rule::StartWhenDrained),
        };
        if !may_start || !is_free {
            return;
        }
        let freshness = self.freshness(epoch);
        self.running = Some(Running {
            epoch,
            state: State::Serving,
            fresh: false,
            freshness: freshness.clone(),
        });
        out.push(Action::Start {
            claim: Claim { shard: id, epoch },
            freshness,
        });
    }

    /// What the caches for `epoch` must have seen.
    fn freshness(&self, epoch: Epoch) -> Freshness {
        match (&self.assigned, &self.carried) {
            (Some((it, last_written)), _) if *it == epoch => {
                Freshness::Released(last_written.clone())
            }
            (_, Some((it, freshness))) if it.next() == epoch => freshness.clone(),
            (_, _) => Freshness::Crash,
        }
    }

    fn drop_running(&mut self, id: ShardId, rules: Rules, out: &mut Vec<Action>) {
        if let Some(running) = &mut self.running
            && running.state != State::Dropping
        {
            running.state = State::Dropping;
            let epoch = running.epoch;
            self.bury(epoch, rules);
            out.push(Action::Drop(Claim { shard: id, epoch }));
        }
    }

    fn bury(&mut self, epoch: Epoch, rules: Rules) {
        if rules.keep(Rule::Tombstones) {
            self.tombstone = self.tombstone.max(epoch);
        }
    }

    fn drain(
        &mut self,
        claim: Claim,
        grace: Duration,
        rules: Rules,
        out: &mut Vec<Action>,
    ) -> Option<Release> {
        self.bury(claim.epoch, rules);
        match &mut self.running {
            None => return Some(self.release(claim)),
            // Of an ownership older than the one that runs, nothing is left.
            Some(running) if running.epoch > claim.epoch => return Some(self.release(claim)),
            Some(running) if running.epoch < claim.epoch => {
                self.drop_running(claim.shard, rules, out);
            }
            Some(running) => match running.state {
                State::Serving => {
                    running.state = State::Draining;
                    out.push(Action::Drain { claim, grace });
                }
                State::Draining | State::Dropping => {}
            },
        }
        self.owed = self.owed.max(Some(claim.epoch));
        if rules.keep(Rule::ReleaseWhenDrained) {
            None
        } else {
            Some(self.release(claim))
        }
    }

    /// The release of an ownership of which nothing runs.
    fn release(&mut self, claim: Claim) -> Release {
        let last_written = match (&self.released, self.freshness(claim.epoch)) {
            (Some((epoch, last_written)), _) if *epoch == claim.epoch => last_written.clone(),
            // Never served here: where its predecessor's writes ended, if known, is still where they ended.
            (_, Freshness::Released(last_written)) => last_written,
            (_, Freshness::Crash) => Vec::new(),
        };
        self.keep_release(claim.epoch, &last_written);
        Release {
            claim,
            last_written,
        }
    }

    fn keep_release(&mut self, epoch: Epoch, last_written: &[LastWritten]) {
        let is_newest = self.released.as_ref().is_none_or(|(it, _)| *it <= epoch);
        if is_newest && self.entry <= epoch {
            self.released = Some((epoch, last_written.to_vec()));
        }
    }

    fn drained(
        &mut self,
        claim: Claim,
        last_written: Vec<LastWritten>,
        rules: Rules,
    ) -> Option<Release> {
        let running = self
            .running
            .take_if(|running| running.epoch == claim.epoch && running.state != State::Serving)?;
        let ended = end(running, last_written);
        self.carried = Some((claim.epoch, ended.clone()));
        let epoch = self.owed.take()?.max(claim.epoch);
        let known = if epoch == claim.epoch {
            ended
        } else {
            self.freshness(epoch)
        };
        let last_written = match known {
            Freshness::Released(last_written) => last_written,
            Freshness::Crash => Vec::new(),
        };
        self.bury(epoch, rules);
        self.keep_release(epoch, &last_written);
        Some(Release {
            claim: Claim {
                shard: claim.shard,
                epoch,
            },
            last_written,
        })
    }
}

/// What a successor's caches must have seen after `ended`, which wrote `last_written` itself.
fn end(ended: Running, last_written: Vec<LastWritten>) -> Freshness {
    if !ended.fresh {
        return ended.freshness;
    }
    let mut all = last_written;
    if let Freshness::Released(before) = ended.freshness {
        // Its own writes of a kind came after its caches had seen the predecessor's.
        for older in before {
            if all.iter().all(|own| own.resource != older.resource) {
                all.push(older);
            }
        }
    }
    if all.is_empty() {
        Freshness::Crash
    } else {
        Freshness::Released(all)
    }
}
