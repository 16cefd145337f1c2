//! What is said on a session with the leader, and what its orders do.

use crate::{
    message::{Claim, FromLeader, FromWorker, Order},
    rules::Rule,
    time::Now,
    worker::{
        Action,
        machine::{Stage, Worker},
        shards::{Assign, Release},
    },
};

impl Worker {
    pub(super) fn session_opened(&mut self, now: Now, out: &mut Vec<Action>) {
        let Stage::Joined(membership) = &self.stage else {
            return;
        };
        if !membership.confirmed {
            return;
        }
        let incarnation = membership.member.incarnation.clone();
        self.session_is_open = true;
        let releases: Vec<Release> = self.shards.releases().collect();
        let held = self.shards.held().map(|(shard, held)| Claim {
            shard,
            epoch: held.epoch,
        });
        let hello = FromWorker::Hello {
            replica: self.config.replica.clone(),
            incarnation,
            held: held.collect(),
            released: releases.iter().map(|release| release.claim).collect(),
        };
        self.send(hello, out);
        for release in releases {
            self.tell(Some(release), out);
        }
        self.tell_leaving(now, out);
    }

    pub(super) fn session_closed(&mut self, now: Now) {
        self.session_is_open = false;
        self.warming.clear();
        self.leave_alone(now);
    }

    pub(super) fn order(&mut self, now: Now, message: FromLeader, out: &mut Vec<Action>) {
        let FromLeader { term, seq, order } = message;
        let is_outdated = term < self.maps.term() && self.config.rules.keep(Rule::NewestTerm);
        if !self.session_is_open || is_outdated {
            return;
        }
        self.maps.told(now, (term, seq));
        match order {
            Order::Warm { shard } => {
                self.warming.insert(shard);
                out.push(Action::Warm(shard));
            }
            Order::Assign {
                claim,
                last_written,
                splits_as_of,
            } => {
                let assign = Assign {
                    claim,
                    last_written,
                    as_of: (term, seq),
                    splits_as_of,
                };
                self.shards.assign(assign, self.maps.version(), out);
                self.settle(out);
            }
            Order::Drain { claim, grace } => {
                let release = self.shards.drain(claim, grace, out);
                self.tell(release, out);
            }
        }
    }

    pub(super) fn tell(&self, release: Option<Release>, out: &mut Vec<Action>) {
        if let Some(Release {
            claim,
            last_written,
        }) = release
        {
            let released = FromWorker::Released {
                claim,
                last_written,
            };
            self.send(released, out);
        }
    }

    pub(super) fn send(&self, message: FromWorker, out: &mut Vec<Action>) {
        if self.session_is_open {
            out.push(Action::Send(message));
        }
    }
}
