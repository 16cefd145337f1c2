//! Carrying out what was planned: finalizer, deletions, the rest of the children, and last the status.

use metashard_api::{id::ControllerKind, names::event};
use serde_json::Value;

use super::{Stage, Step, SyncMachine, Work};
use crate::{
    children::{self, Planned, Repair, change::learn},
    finalize,
    memory::hash_name,
    outcome::{Refused, Verdict},
    requeue::Requeue,
    status,
    write::{Op, Purpose, Write, WriteError, WriteResult},
};

/// Most errors that one text holds.
const SHOWN: usize = 5;

impl SyncMachine {
    pub(super) fn finalizer_removed(&mut self, work: Box<Work>, results: Vec<WriteResult>) -> Step {
        match self.parent_written(Purpose::RemoveFinalizer, results) {
            Ok(()) => self.write_revisions(work),
            Err(error) => self.finalizer_failed(&error),
        }
    }

    /// Deletes first, so that what is created finds its place.
    pub(super) fn delete(&mut self, work: Box<Work>) -> Step {
        if work.plan.deletes.is_empty() {
            return self.try_children(work);
        }
        let writes = writes(&work.plan.deletes);
        self.stage = Stage::Deleting(work);
        Step::Write(writes)
    }

    pub(super) fn deleted(&mut self, mut work: Box<Work>, results: Vec<WriteResult>) -> Step {
        let deletes = std::mem::take(&mut work.plan.deletes);
        if self.children_written(deletes, results, &mut work.plan.broken) {
            self.try_children(work)
        } else {
            self.no_authority()
        }
    }

    pub(super) fn apply(&mut self, work: Box<Work>) -> Step {
        if work.plan.applies.is_empty() {
            return self.children_done(work);
        }
        if self.must_read_first(&work) {
            self.stage = Stage::ReadingForTakeOver(work);
            return Step::ReadParent;
        }
        let writes = writes(&work.plan.applies);
        self.stage = Stage::Applying(work);
        Step::Write(writes)
    }

    pub(super) fn applied(&mut self, mut work: Box<Work>, results: Vec<WriteResult>) -> Step {
        let applies = std::mem::take(&mut work.plan.applies);
        if self.children_written(applies, results, &mut work.plan.broken) {
            self.children_done(work)
        } else {
            self.no_authority()
        }
    }

    /// Takes the results of writes to children. False: there is no authority to go on.
    fn children_written(
        &mut self,
        planned: Vec<Planned>,
        results: Vec<WriteResult>,
        broken: &mut Vec<String>,
    ) -> bool {
        let mut results = results.into_iter();
        for Planned {
            write,
            rule,
            uid,
            desired,
            repair,
        } in planned
        {
            let uid = uid.as_deref().unwrap_or_default();
            let is_delete = matches!(write.op, Op::Delete { .. });
            match results.next().unwrap_or(Err(WriteError::NoAuthority)) {
                Ok(stored) => {
                    self.count(write.purpose);
                    self.repaired(repair);
                    if write.purpose == Purpose::AdoptChild {
                        self.took_over(&write.to_string());
                    }
                    if is_delete {
                        self.memory.note_deleted(uid);
                    } else if let (Some(stored), Some(desired)) =
                        (self.child_written(rule, stored), desired)
                    {
                        let known = learn(&self.as_applied(&desired.object), &desired, &stored);
                        if write.purpose == Purpose::HandOverChild && known.disagreement != 0 {
                            // It has changed hands; what is desired of it is applied next.
                            self.report.is_stale = true;
                        } else {
                            self.report.known.push(known);
                        }
                    }
                }
                Err(WriteError::NoAuthority) => return false,
                Err(WriteError::Observed) => self.report.observed += 1,
                // Somebody deleted it before us.
                Err(WriteError::NotFound) if is_delete => self.memory.note_deleted(uid),
                Err(WriteError::NotFound) if write.purpose == Purpose::CreateChild => {
                    let name = hash_name(rule, write.namespace.as_deref(), &write.name);
                    self.report.collided ^= name;
                    self.report.homeless.push(homeless(&write));
                }
                Err(WriteError::NotFound | WriteError::Conflict) => {
                    self.memory.forget_child(uid);
                    self.report.is_stale = true;
                }
                Err(WriteError::AlreadyExists) => {
                    let name = hash_name(rule, write.namespace.as_deref(), &write.name);
                    self.report.collided ^= name;
                    self.report
                        .taken
                        .push(children::taken(&self.controller, &write, None));
                }
                Err(error) => {
                    broken.push(format!("{write}: {error}"));
                    self.report.refused.push(Refused::new(&write, error));
                }
            }
        }
        true
    }

    fn repaired(&mut self, repair: Option<Repair>) {
        let (Some(repair), Some(now)) = (repair, self.memory.now) else {
            return;
        };
        let Repair { name, wish, text } = repair;
        let fights = &mut self.memory.fights;
        if fights.repaired(name, wish, now, text.as_deref()) {
            self.report.warn(event::HOT_LOOP, text.unwrap_or_default());
        }
    }

    pub(super) fn count(&mut self, purpose: Purpose) {
        let counts = &mut self.report.counts;
        match purpose {
            Purpose::CreateChild => counts.created += 1,
            Purpose::UpdateChild | Purpose::HandOverChild => counts.updated += 1,
            Purpose::DeleteChild | Purpose::RecreateChild => counts.deleted += 1,
            Purpose::AdoptChild
            | Purpose::ReleaseChild
            | Purpose::OrphanChild
            | Purpose::RelabelChild => counts.claimed += 1,
            Purpose::AddFinalizer
            | Purpose::RemoveFinalizer
            | Purpose::UpdateStatus
            | Purpose::Decorate => {
                counts.parent += 1;
            }
            Purpose::CreateRevision | Purpose::UpdateRevision | Purpose::DeleteRevision => {
                counts.revisions += 1;
            }
            // A question is no write, and the others are not part of a pass.
            Purpose::TryChild | Purpose::WriteRecord | Purpose::DeleteRecord => {}
        }
    }

    /// Tells what went wrong with children, and goes on to the status, which is written all the same.
    fn children_done(&mut self, mut work: Box<Work>) -> Step {
        let plan = &mut work.plan;
        self.report.known.append(&mut plan.known);
        let report = &self.report;
        let is_all_there = report.taken.is_empty() && report.homeless.is_empty();
        if plan.broken.is_empty() && plan.taken.is_empty() && is_all_there {
            // What was missing has been created.
            self.memory.missed = 0;
        }
        if !plan.broken.is_empty() {
            let errors = aggregate(&plan.broken);
            self.report.fail(format!(
                "can't reconcile children for {}: {errors}",
                self.parent
            ));
        }
        self.collide();
        for taken in std::mem::take(&mut plan.taken).into_iter().take(SHOWN) {
            self.report.is_waiting = true;
            self.report.warn(event::CHILD_CONFLICT, taken);
        }
        self.write_status(work)
    }

    /// An object of a desired child's name exists, and we did not know of it. Once, that is a cache that lags behind;
    /// met again by the next pass, it is somebody else's object, which is never taken over. So it is with a namespace that
    /// does not exist: it may be created by the same answer.
    fn collide(&mut self) {
        let collided = std::mem::take(&mut self.report.collided);
        let taken = std::mem::take(&mut self.report.taken);
        let homeless = std::mem::take(&mut self.report.homeless);
        if collided != 0 && self.memory.collided != collided {
            self.report.is_stale = true;
        } else {
            for taken in taken.into_iter().take(SHOWN) {
                self.report.is_waiting = true;
                self.report.warn(event::CHILD_CONFLICT, taken);
            }
            if !homeless.is_empty() {
                let errors = aggregate(&homeless);
                let parent = &self.parent;
                self.report
                    .fail(format!("can't reconcile children for {parent}: {errors}"));
            }
        }
        self.memory.collided = collided;
    }

    fn write_status(&mut self, work: Box<Work>) -> Step {
        if finalize::is_gone(&self.parent) {
            return self.finish();
        }
        let last = self.memory.status;
        let has_place = self.resource.has_status || work.decoration.is_none();
        let status = work.status.as_ref().filter(|_| has_place);
        match status.and_then(|it| status::plan(&self.resource, &self.parent, it, last)) {
            Some(write) => {
                self.stage = Stage::WritingStatus(work);
                Step::Write(vec![write])
            }
            None => self.decorate(work),
        }
    }

    pub(super) fn status_written(&mut self, work: Box<Work>, results: Vec<WriteResult>) -> Step {
        match self.parent_written(Purpose::UpdateStatus, results) {
            Ok(()) => {
                if let Some(wanted) = &work.status {
                    self.learn_status(wanted);
                }
                self.decorate(work)
            }
            Err(error) => {
                let what = match self.controller.kind {
                    ControllerKind::Composite => {
                        format!("can't update status for {}", self.parent)
                    }
                    ControllerKind::Decorator => "can't update status".to_owned(),
                };
                self.parent_not_written(&error, &what)
            }
        }
    }

    /// Remembers what came of a status that was written, and tells of what got lost. What is only observed leaves no trace.
    pub(super) fn learn_status(&mut self, wanted: &Value) {
        if self.report.observed > 0 {
            return;
        }
        let (written, lost) = status::written(&self.parent, wanted);
        self.memory.status = Some(written);
        if let Some(lost) = lost {
            let text = format!(
                "the API server does not keep all of the status: {lost} of {}; the schema of its kind must allow these fields",
                self.parent
            );
            self.report.warn(event::ODD_ANSWER, text);
        }
    }

    /// The last write of the pass went wrong; `what` it was.
    pub(super) fn parent_not_written(&mut self, error: &WriteError, what: &str) -> Step {
        match error {
            WriteError::NotFound => return self.done(Verdict::Gone, Requeue::Await),
            WriteError::Conflict => self.report.is_stale = true,
            WriteError::NoAuthority => return self.no_authority(),
            error => self.report.fail(format!("{what}: {error}")),
        }
        self.finish()
    }
}

/// Why a child was not created: there is no place for it.
fn homeless(write: &Write) -> String {
    let place = write.namespace.as_deref().unwrap_or_default();
    format!("{write}: not found: namespace {place:?} does not exist, or its kind is not served")
}

fn writes(planned: &[Planned]) -> Vec<Write> {
    planned
        .iter()
        .map(|planned| planned.write.clone())
        .collect()
}

/// Several errors in one text, as Metacontroller's libraries do it.
fn aggregate(errors: &[String]) -> String {
    match errors {
        [error] => error.clone(),
        errors => {
            let more = errors.len().saturating_sub(SHOWN);
            let mut shown = errors.iter().take(SHOWN).cloned().collect::<Vec<_>>();
            if more > 0 {
                shown.push(format!("{more} more errors"));
            }
            format!("[{}]", shown.join(", "))
        }
    }
}
