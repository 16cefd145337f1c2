//! What workers say on their sessions, and what is said to them.

use std::collections::BTreeSet;

use metashard_api::id::{Incarnation, ShardId};

use super::{Coordinator, planning::SETTLE};
use crate::{
    leader::Action,
    membership::earliest,
    message::{Claim, FromLeader, FromWorker, LastWritten, Load, Order},
    time::Now,
};

impl Coordinator {
    /// Takes what a worker said.
    pub(crate) fn hear(
        &mut self,
        now: Now,
        from: &Incarnation,
        message: FromWorker,
        out: &mut Vec<Action>,
    ) {
        match message {
            FromWorker::Hello { held, released, .. } => {
                self.open(now, from);
                for claim in released {
                    self.release(now, from, claim, Vec::new());
                }
                self.remind(from, &held, out);
            }
            FromWorker::Load(load) => self.take_load(now, from, &load),
            FromWorker::WarmReady { shard } => self.hand_overs.warm_ready(shard, from),
            FromWorker::Released {
                claim,
                last_written,
            } => self.release(now, from, claim, last_written),
            FromWorker::Leaving { grace } => {
                if self.peers.leaving.insert(from.clone(), grace).is_none() {
                    self.plan_at = now.mono;
                    self.is_dirty = true;
                }
            }
        }
    }

    /// The session of `incarnation` has ended.
    pub(crate) fn closed(&mut self, now: Now, incarnation: &Incarnation) {
        if self.peers.sessions.remove(incarnation) {
            self.plan_at = now.mono;
            self.is_dirty = true;
        }
    }

    /// Tells `to` that `claim` is its own.
    pub(super) fn assign(&self, to: Incarnation, claim: Claim, out: &mut Vec<Action>) {
        let last_written = self.last_written.get(&claim.shard).cloned();
        let order = Order::Assign {
            claim,
            last_written: last_written.unwrap_or_default(),
            splits_as_of: self.splits_as_of,
        };
        out.push(self.send(to, order));
    }

    pub(super) fn send(&self, to: Incarnation, order: Order) -> Action {
        let message = FromLeader {
            term: self.term,
            seq: self.map.spec.seq,
            order,
        };
        Action::Send(to, message)
    }

    fn open(&mut self, now: Now, from: &Incarnation) {
        self.peers.sessions.insert(from.clone());
        self.hand_overs.session_opened(from);
        self.share_at = earliest(self.share_at, Some(now.mono + SETTLE));
        self.plan_at = now.mono;
        self.is_dirty = true;
    }

    fn take_load(&mut self, now: Now, from: &Incarnation, load: &Load) {
        let index = self.members.iter().position(|it| it == from);
        let index = index.and_then(|it| u16::try_from(it).ok());
        let map = &self.map;
        self.peers.costs.take(now, from, load, |shard| {
            let entry = map.spec.shards.get(usize::from(shard.0));
            index.is_some() && entry.is_some_and(|entry| entry.owner == index)
        });
    }

    /// Tells `owner` again what it owns and does not hold: that may have been lost with an older session.
    fn remind(&self, owner: &Incarnation, held: &[Claim], out: &mut Vec<Action>) {
        let held: BTreeSet<&Claim> = held.iter().collect();
        let index = self.members.iter().position(|it| it == owner);
        let Some(index) = index.and_then(|it| u16::try_from(it).ok()) else {
            return;
        };
        for (shard, entry) in (0..=u16::MAX).map(ShardId).zip(&self.map.spec.shards) {
            let claim = Claim {
                shard,
                epoch: entry.epoch,
            };
            let is_missing = entry.owner == Some(index)
                && !held.contains(&claim)
                && self.hand_overs.release(claim, owner).is_none();
            if is_missing {
                self.assign(owner.clone(), claim, out);
            }
        }
    }

    /// Only an owner can release. Who has seen a map before us says it again in its next Hello.
    fn release(
        &mut self,
        now: Now,
        from: &Incarnation,
        claim: Claim,
        last_written: Vec<LastWritten>,
    ) {
        let entry = self.map.spec.shards.get(usize::from(claim.shard.0));
        let owner = entry.and_then(|entry| self.members.get(usize::from(entry.owner?)));
        if owner != Some(from) || entry.is_none_or(|entry| entry.epoch != claim.epoch) {
            return;
        }
        self.hand_overs.released(claim, from, last_written);
        self.is_dirty = true;
        let hand_over = self.hand_overs.get(claim.shard);
        if hand_over.is_none_or(|it| it.to.is_none()) {
            self.plan_at = now.mono;
        }
    }
}
