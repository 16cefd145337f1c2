//! What of the two machines is recorded, and how much of it.

use std::mem::size_of;

use metashard_api::shard_map::ShardEntry;

use crate::{
    leader::{self, Leader},
    map,
    message::{ControllerLoad, FromWorker, ShardLoad},
    record::Written,
    recording::Machine,
    time::Now,
    worker::{self, Worker},
};

/// History of a worker, and of a leader of few workers: some 15 minutes at rest.
const ROOM: usize = 1 << 20;

/// More of it for each worker of the fleet: each tells the leader of its load every 5 s.
const ROOM_FOR_EACH: usize = 256 << 10;

/// An input that holds a few short texts.
const SMALL: usize = 256;

impl Machine for Leader {
    type Input = leader::Input;
    type Action = leader::Action;

    fn step(&mut self, now: Now, inputs: Vec<Self::Input>, out: &mut Vec<Self::Action>) {
        if inputs.is_empty() {
            self.handle_timeout(now, out);
        } else {
            self.handle_all(now, inputs, out);
        }
    }

    fn weight(input: &Self::Input) -> usize {
        use leader::Input as I;
        SMALL
            + match input {
                I::MapSeen(map::Seen::Present(map))
                | I::MapRead(Some(map::Seen::Present(map)))
                | I::MapWritten(Written::Accepted(map)) => of_map(map),
                I::ControllersSeen(all) => all.len() * (SMALL / 4),
                I::FromWorker(_, FromWorker::Load(load)) => {
                    load.shards.len() * size_of::<ShardLoad>()
                        + load.controllers.len() * size_of::<ControllerLoad>()
                }
                I::FromWorker(_, FromWorker::Hello { held, released, .. }) => {
                    (held.len() + released.len()) * size_of::<crate::message::Claim>()
                }
                I::IncarnationDrawn(_)
                | I::LeaderLeaseSeen(_)
                | I::LeaderLeaseAnswered(_)
                | I::OwnRenewal(_)
                | I::WorkerLeasesSynced
                | I::WorkerLeasesListed(_)
                | I::WorkerLeaseSeen(..)
                | I::WorkerLeaseRead(..)
                | I::WorkerLeaseWritten(..)
                | I::MapSeen(map::Seen::Absent | map::Seen::Unreadable)
                | I::MapRead(_)
                | I::MapWritten(_)
                | I::FromWorker(..)
                | I::WishesTold(_)
                | I::SessionClosed(_)
                | I::ShutdownAsked => 0,
                I::WishesSeen(wishes) => (wishes.pins.len() + wishes.cordoned.len()) * SMALL,
            }
    }

    fn room(&self) -> usize {
        ROOM.max(self.membership().workers().count() * ROOM_FOR_EACH)
    }
}

impl Machine for Worker {
    type Input = worker::Input;
    type Action = worker::Action;

    fn step(&mut self, now: Now, inputs: Vec<Self::Input>, out: &mut Vec<Self::Action>) {
        if inputs.is_empty() {
            self.handle_timeout(now, out);
        }
        for input in inputs {
            self.handle(now, input, out);
        }
    }

    fn weight(input: &Self::Input) -> usize {
        use worker::Input as I;
        SMALL
            + match input {
                I::MapSeen(map::Seen::Present(map)) | I::MapRead(Some(map::Seen::Present(map))) => {
                    of_map(map)
                }
                I::MapSeen(map::Seen::Absent | map::Seen::Unreadable)
                | I::MapRead(_)
                | I::IncarnationDrawn(_)
                | I::LeaseAnswered { .. }
                | I::SessionOpened
                | I::SessionClosed
                | I::OrderReceived(_)
                | I::DispatcherAnswered
                | I::Warmed(_)
                | I::Fresh(_)
                | I::Drained { .. }
                | I::ShutdownAsked { .. } => 0,
            }
    }

    fn room(&self) -> usize {
        ROOM
    }
}

fn of_map(map: &map::Map) -> usize {
    map.spec.shards.len() * size_of::<ShardEntry>() + map.spec.members.len() * SMALL
}
