//! Before a child is deleted to be recreated, the API server is asked: would it change, and could it be created again?
//!
//! Only for server-side apply, whose managed fields say for most children that nothing differs; of the rest, such as a
//! quantity that the API server writes in another way, it alone knows.

use serde_json::Value;

use super::{Stage, Step, SyncMachine, Work};
use crate::{
    children::{Planned, Trial, change::learn, delete},
    outcome::{Refused, chain},
    serverside::{self, Applied},
    write::{Op, Purpose, WriteError, WriteResult},
};

impl SyncMachine {
    /// Asks about the children that may have to be recreated.
    pub(super) fn try_children(&mut self, work: Box<Work>) -> Step {
        if work.plan.trials.is_empty() {
            return self.apply(work);
        }
        let trials = work.plan.trials.iter();
        let writes = trials.map(|trial| trial.planned.write.clone()).collect();
        self.stage = Stage::Trying(work);
        Step::Write(writes)
    }

    pub(super) fn tried(&mut self, mut work: Box<Work>, results: Vec<WriteResult>) -> Step {
        let trials = std::mem::take(&mut work.plan.trials);
        let mut results = results.into_iter();
        for trial in trials {
            let is_apply = matches!(trial.planned.write.op, Op::Apply { .. });
            match results.next().unwrap_or(Err(WriteError::NoAuthority)) {
                Ok(Some(tried)) if is_apply && serverside::is_same(&trial.child, &tried) => {
                    if let Some(desired) = &trial.planned.desired {
                        let applied = self.as_applied(&desired.object);
                        let known = learn(&applied, desired, &trial.child);
                        work.plan.known.push(known);
                    }
                }
                Ok(Some(_)) if is_apply => self.recreate(trial, &mut work),
                // Who only observes does not ask: then it is taken to differ.
                Err(WriteError::AlreadyExists | WriteError::Observed) => {
                    self.recreate(trial, &mut work);
                }
                // It cannot be changed so, or it is wrong in itself: then it stays.
                Err(WriteError::Invalid(_)) if is_apply => self.try_again(trial, &mut work),
                Err(WriteError::NoAuthority) => return self.no_authority(),
                Ok(_) | Err(WriteError::NotFound | WriteError::Conflict) => {
                    self.memory.forget_child(trial.child.uid());
                    self.report.is_stale = true;
                }
                Err(error) => {
                    let write = &trial.planned.write;
                    work.plan.broken.push(format!("{write}: {error}"));
                    self.report.refused.push(Refused::new(write, error));
                }
            }
        }
        self.try_children(work)
    }

    /// A desired child as it is applied.
    pub(super) fn as_applied<'a>(&'a self, desired: &'a Value) -> Applied<'a> {
        Applied {
            apply: &self.controller.apply,
            resource: &self.resource,
            parent: &self.parent,
            desired,
        }
    }

    fn recreate(&self, trial: Trial, work: &mut Work) {
        let Some(rule) = self.controller.children.get(trial.planned.rule) else {
            return;
        };
        let write = delete(rule, &trial.child, Purpose::RecreateChild, &trial.why);
        work.plan.applies.push(Planned {
            write,
            ..trial.planned
        });
    }

    fn try_again(&self, mut trial: Trial, work: &mut Work) {
        let Some(desired) = &trial.planned.desired else {
            return;
        };
        match self.as_applied(&desired.object).try_create() {
            Ok(op) => {
                trial.planned.write.op = op;
                work.plan.trials.push(trial);
            }
            Err(error) => work.plan.broken.push(chain(&error)),
        }
    }
}
