//! The end of a parent whose children stay: with `deletionPolicy: Orphan` they are let go before the garbage collector comes.

use std::sync::Arc;

use metashard_api::names::event;

use super::{Stage, Step, SyncMachine, Work};
use crate::{
    children::Planned,
    claim::is_made_for,
    finalize,
    object::Object,
    outcome::{Event, Refused},
    policies,
    write::{Purpose, WriteError, WriteResult},
};

impl SyncMachine {
    /// Lets the children go of a deleted parent that no finalize hook is asked about, and then the parent.
    pub(super) fn let_go(&mut self) -> Step {
        let candidates = std::mem::take(&mut self.candidates);
        self.orphan(&candidates).unwrap_or_else(|| {
            let why = "its children are let go";
            let ours = &self.controller.finalizer;
            let write = finalize::remove(&self.resource, ours, &self.parent, why);
            self.stage = Stage::DroppingFinalizer;
            Step::Write(vec![write])
        })
    }

    /// Lets all children go that are to stay, and with that ends the pass; `None` if there is none.
    pub(super) fn orphan(&mut self, among: &[Vec<Arc<Object>>]) -> Option<Step> {
        let leaving = self.orphans(among);
        if leaving.is_empty() {
            return None;
        }
        let writes = leaving.iter().map(|it| it.write.clone()).collect();
        self.stage = Stage::LettingGo(leaving);
        Some(Step::Write(writes))
    }

    pub(super) fn gone_their_way(
        &mut self,
        leaving: Vec<Planned>,
        results: Vec<WriteResult>,
    ) -> Step {
        let mut results = results.into_iter();
        let mut failed = Vec::new();
        for Planned { write, rule, .. } in leaving {
            match results.next().unwrap_or(Err(WriteError::NoAuthority)) {
                Err(WriteError::Observed) => self.report.observed += 1,
                Ok(stored) => {
                    self.report.counts.claimed += 1;
                    self.child_written(rule, stored);
                }
                Err(WriteError::NoAuthority) => return self.no_authority(),
                Err(WriteError::NotFound) => {}
                Err(WriteError::Conflict) => self.report.is_stale = true,
                Err(error) => {
                    failed.push(format!("{write}: {error}"));
                    self.report.refused.push(Refused::new(&write, error));
                }
            }
        }
        if !failed.is_empty() {
            let failed = failed.join(", ");
            return self.fail(format!(
                "can't let children of {} go: {failed}",
                self.parent
            ));
        }
        // The next pass finds none, and lets the parent go.
        self.report.is_stale |= self.report.observed == 0;
        self.finish()
    }

    /// The writes that let all children go that are to stay.
    fn orphans(&self, among: &[Vec<Arc<Object>>]) -> Vec<Planned> {
        let rules = self.controller.children.iter().zip(among).enumerate();
        rules
            .filter(|(_, (rule, _))| rule.orphans)
            .flat_map(|(index, (rule, objects))| {
                let children = objects.iter().filter(|it| {
                    !it.is_deleting() && is_made_for(&self.controller, &self.parent, it)
                });
                children.map(move |child| Planned {
                    write: policies::orphan(rule, &self.parent, child),
                    rule: index,
                    uid: Some(child.uid().into()),
                    desired: None,
                    repair: None,
                })
            })
            .collect()
    }

    /// Before an object is taken over, the parent must still be there.
    pub(super) fn must_read_first(&self, work: &Work) -> bool {
        let mut applies = work.plan.applies.iter();
        !self.is_fresh && applies.any(|it| it.write.purpose == Purpose::AdoptChild)
    }

    pub(super) fn read_for_take_over(
        &mut self,
        work: Box<Work>,
        found: Result<Option<Arc<Object>>, WriteError>,
    ) -> Step {
        match self.take_parent(found) {
            Some(step) => step,
            None if self.parent.is_deleting() => {
                self.report.is_stale = true;
                self.finish()
            }
            None => self.apply(work),
        }
    }

    /// Tells of an object that was taken over. What is desired of it is written by the next pass.
    pub(super) fn took_over(&mut self, what: &str) {
        self.report.is_stale = true;
        self.report.events.push(Event {
            is_warning: false,
            reason: event::CHILD_ADOPTED.into(),
            message: format!("{what}: it was nobody's and has the name of a desired child"),
        });
    }
}
