//! How a pass ends: what is told, when to come back, what is remembered.

use std::{sync::Arc, time::Duration};

use super::{Stage, Step, SyncMachine};
use crate::{
    memory::{Known, Pass},
    object::Object,
    outcome::{Counts, Event, Outcome, Refused, Verdict},
    requeue::Requeue,
};

/// What is collected on the way.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) events: Vec<Event>,
    pub(super) counts: Counts,
    pub(super) written: Vec<Arc<Object>>,
    /// Writes that were not sent because it is only observed what would be written.
    pub(super) observed: u32,
    /// Something was no longer as observed.
    pub(super) is_stale: bool,
    /// What went wrong; the pass goes on nevertheless.
    pub(super) failures: Vec<String>,
    /// Something stands in the way that may go: come back with a backoff.
    pub(super) is_waiting: bool,
    /// The hook was called for more than one revision.
    pub(super) is_rolling: bool,
    /// The hook's `resyncAfterSeconds`.
    pub(super) resync: Option<Duration>,
    /// Hashes of the inputs and of the answer.
    pub(super) exchange: Option<(u128, u128)>,
    /// Desired children that could not be created because something of their name exists, and a hash of their names.
    pub(super) taken: Vec<String>,
    /// The same of those for which there is no namespace.
    pub(super) homeless: Vec<String>,
    pub(super) collided: u64,
    /// What is known of children by now.
    pub(super) known: Vec<Known>,
    /// Writes that the API server refused.
    pub(super) refused: Vec<Refused>,
    /// When a child that is fought over is to be looked at, if that is before the hook's own timer.
    pub(super) fight: Option<Duration>,
}

impl Report {
    /// An error, to be told in an event.
    pub(super) fn sync_error(&mut self, error: &str) {
        self.events.push(Event::sync_error(error));
    }

    /// A failure that does not end the pass.
    pub(super) fn fail(&mut self, error: String) {
        self.sync_error(&error);
        self.failures.push(error);
    }

    /// A warning.
    pub(super) fn warn(&mut self, reason: &'static str, message: String) {
        self.events.push(Event::warning(reason, message));
    }
}

impl SyncMachine {
    /// Ends the pass after all stages.
    pub(super) fn finish(&mut self) -> Step {
        let report = &mut self.report;
        let verdict = if !report.failures.is_empty() {
            Verdict::Failed(report.failures.join("; "))
        } else if report.is_stale {
            Verdict::Stale
        } else if report.observed > 0 {
            Verdict::Observed
        } else if report.counts.total() > 0 {
            Verdict::Changed
        } else {
            Verdict::Unchanged
        };
        let fight = self.memory.now.and_then(|now| {
            if !report.is_stale {
                self.memory.fights.settle(now);
            }
            self.memory.fights.next(now)
        });
        let is_first = |fight: &Duration| report.resync.is_none_or(|resync| *fight < resync);
        report.fight = fight.filter(is_first);
        let resync = report.fight.or(report.resync);
        let is_in_trouble = matches!(verdict, Verdict::Failed(_)) || report.is_waiting;
        let requeue = match (&verdict, resync) {
            (_, Some(after)) if is_in_trouble => Requeue::BackoffAndAfter(after),
            (_, None) if is_in_trouble => Requeue::Backoff,
            (Verdict::Stale, _) => Requeue::Soon,
            (_, Some(after)) => Requeue::After(after),
            (_, None) => Requeue::Await,
        };
        if let Some((inputs, answer)) = report.exchange {
            let is_settled = verdict == Verdict::Unchanged
                && !report.is_waiting
                && !report.is_rolling
                && fight.is_none();
            let pass = is_settled.then_some(Pass {
                inputs,
                answer,
                resync: report.resync,
            });
            self.memory.learn(std::mem::take(&mut report.known), pass);
        }
        self.done(verdict, requeue)
    }

    /// Ends the pass with a failure.
    pub(super) fn fail(&mut self, error: String) -> Step {
        self.report.sync_error(&error);
        self.done(Verdict::Failed(error), Requeue::Backoff)
    }

    /// Ends the pass because nothing may be written any more.
    pub(super) fn no_authority(&mut self) -> Step {
        self.done(Verdict::NoAuthority, Requeue::Soon)
    }

    /// Ends the pass.
    pub(super) fn done(&mut self, verdict: Verdict, requeue: Requeue) -> Step {
        self.stage = Stage::Over;
        let Report {
            events,
            counts,
            written,
            refused,
            fight,
            ..
        } = std::mem::take(&mut self.report);
        let mut memory = std::mem::take(&mut self.memory);
        let fights = memory.fights.texts();
        if verdict == Verdict::Gone {
            memory = memory.of_gone();
        }
        Step::Done(Box::new(Outcome {
            verdict,
            requeue,
            events,
            memory,
            counts,
            refused,
            fights,
            for_fight: fight.is_some(),
            written,
        }))
    }
}
