//! How a worker leaves: the leader drains it; without one it drains itself; then an empty holder in its Lease is
//! the release of all that it held.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    lease,
    message::FromWorker,
    time::{MonoTime, Now},
    worker::{
        Action,
        machine::{Stage, Worker},
    },
};

/// A shutdown under way.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Leaving {
    /// The end of the grace period: then the worker ends, drained or not.
    until: MonoTime,
    step: Step,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Step {
    /// The leader drains shard after shard; if it does not get there by this time, the worker does it alone.
    ByLeader(MonoTime),
    /// The worker drains all that it serves itself.
    Alone,
    /// All gates are closed; an empty holder is written.
    Releasing,
}

impl Leaving {
    pub(super) fn next_timeout(&self) -> MonoTime {
        match self.step {
            Step::ByLeader(alone_at) => alone_at.min(self.until),
            Step::Alone | Step::Releasing => self.until,
        }
    }

    pub(super) fn is_releasing(&self) -> bool {
        self.step == Step::Releasing
    }
}

impl Worker {
    pub(super) fn leave(&mut self, now: Now, grace: Duration, out: &mut Vec<Action>) {
        let until = now.mono + grace;
        if let Some(leaving) = &mut self.leaving {
            leaving.until = leaving.until.min(until);
            return;
        }
        // The leader gets half of the time: what remains is for doing without it.
        let alone_at = if self.session_is_open {
            now.mono + grace / 2
        } else {
            now.mono
        };
        self.leaving = Some(Leaving {
            until,
            step: Step::ByLeader(alone_at),
        });
        self.tell_leaving(now, out);
    }

    /// Tells the leader of the shutdown, if there is one.
    pub(super) fn tell_leaving(&self, now: Now, out: &mut Vec<Action>) {
        if let Some(leaving) = &self.leaving {
            let grace = now.mono.until(leaving.until);
            self.send(FromWorker::Leaving { grace }, out);
        }
    }

    /// There is no leader to wait for.
    pub(super) fn leave_alone(&mut self, now: Now) {
        if let Some(leaving) = &mut self.leaving
            && let Step::ByLeader(alone_at) = &mut leaving.step
        {
            *alone_at = now.mono.min(*alone_at);
        }
    }

    /// Takes the next steps of a shutdown.
    pub(super) fn go_on_leaving(&mut self, now: Now, out: &mut Vec<Action>) {
        let Some(leaving) = &mut self.leaving else {
            return;
        };
        match &mut self.stage {
            Stage::Left => {}
            // Nothing is held, and no Lease says so.
            Stage::Reading | Stage::Drawing => self.finish(out),
            Stage::Ending => {
                leaving.step = Step::Alone;
                if self.shards.is_idle() || now.mono >= leaving.until {
                    self.finish(out);
                }
            }
            Stage::Joined(membership) => {
                if let Step::ByLeader(alone_at) = leaving.step
                    && now.mono >= alone_at
                {
                    leaving.step = Step::Alone;
                    let left = now.mono.until(leaving.until);
                    let grace = self.config.drain_hook_grace.min(left);
                    self.shards.drain_all(grace, out);
                }
                if leaving.step != Step::Releasing && self.shards.is_idle() {
                    leaving.step = Step::Releasing;
                    membership.hold.handle(now, lease::Input::ReleaseAsked);
                }
                if now.mono >= leaving.until {
                    self.finish(out);
                }
            }
        }
    }
}
