//! The part of a pass that moves children one at a time: the hook is called for each revision of the parent that children are at,
//! one child moves, and the revisions are written before any child is.

use std::sync::Arc;

use metashard_api::{
    hook::{Mode, SyncAnswer, decode_sync},
    names::{event, rollout},
};
use serde_json::{Map, Value, json};

use super::{Called, HookCall, HookResult, Stage, Step, SyncMachine, Work};
use crate::{
    answer::{Desired, Refusal},
    finalize,
    object::Object,
    outcome::{Refused, Verdict, chain},
    requeue::Requeue,
    revision::{self, Older, Progress, Revisions},
    write::{Op, Write, WriteError, WriteResult},
};

/// The hook's answers, as they come in.
#[derive(Debug)]
pub(super) struct Collecting {
    called: Called,
    mode: Mode,
    /// For the parent as it is.
    answer: SyncAnswer,
    older: Answered,
}

/// The revisions of a parent, and what the hook answered for the older ones so far.
#[derive(Debug)]
pub(super) struct Answered {
    revisions: Revisions,
    answers: Vec<SyncAnswer>,
}

/// How revisions are to be written. The latest comes first: were the others first and we stopped in between, a child would be
/// at no revision.
#[derive(Debug, Default)]
pub(super) struct RevisionWrites {
    latest: Option<Write>,
    older: Vec<Write>,
}

impl SyncMachine {
    /// Whether children are moved one at a time in this pass.
    pub(super) fn rolls(&self) -> bool {
        self.controller.history.is_some()
            && finalize::manages_children(&self.controller, &self.parent)
    }

    /// Takes the answer for the parent as it is, and asks for the older revisions that children are at.
    pub(super) fn collect(&mut self, called: Called, answer: SyncAnswer, mode: Mode) -> Step {
        let revisions = self.revision_scope().map(|it| it.read(&self.revisions));
        let revisions = match revisions {
            Some(Ok(revisions)) => revisions,
            Some(Err(error)) => return self.revisions_failed(&error),
            None => return self.work(called, answer, None, mode),
        };
        self.report.is_rolling = !revisions.older.is_empty();
        let answers = Vec::with_capacity(revisions.older.len());
        self.collect_on(Box::new(Collecting {
            called,
            mode,
            answer,
            older: Answered { revisions, answers },
        }))
    }

    fn collect_on(&mut self, collecting: Box<Collecting>) -> Step {
        let Answered { revisions, answers } = &collecting.older;
        let Some(older) = revisions.older.get(answers.len()) else {
            return self.collected(*collecting);
        };
        let parent = self
            .revision_scope()
            .map(|scope| scope.parent_at(revisions, older));
        let parent = match parent {
            Some(Ok(parent)) => parent,
            Some(Err(error)) => return self.revisions_failed(&error),
            None => return self.finish(),
        };
        let Called { hook, mine, .. } = &collecting.called;
        let call = HookCall {
            hook: *hook,
            body: self.request(*hook, &parent, mine),
            revision: Some(older.name.as_str().into()),
        };
        self.stage = Stage::CallingOlder(collecting);
        Step::CallHook(call)
    }

    pub(super) fn older_called(
        &mut self,
        mut collecting: Box<Collecting>,
        result: HookResult,
    ) -> Step {
        let hook = collecting.called.hook;
        let HookResult::Answer(bytes) = result else {
            return self.not_answered(hook, result);
        };
        match decode_sync(&bytes, collecting.mode) {
            Ok(answer) => {
                collecting.older.answers.push(answer);
                self.collect_on(collecting)
            }
            Err(error) => self.refuse_unread(hook, &error),
        }
    }

    /// All answers are there: they are one answer from now on.
    fn collected(&mut self, collecting: Collecting) -> Step {
        let Collecting {
            mut called,
            mode,
            mut answer,
            older,
        } = collecting;
        let resyncs = older.answers.iter().filter_map(|it| it.resync_after);
        answer.resync_after = resyncs.chain(answer.resync_after).min();
        answer.finalized &= older.answers.iter().all(|it| it.finalized);
        called.older = Some(Box::new(older));
        self.work(called, answer, None, mode)
    }

    /// Moves one child, if children are moved one at a time: `wanted` becomes what should exist now. How the revisions are to be
    /// written.
    pub(super) fn roll(
        &mut self,
        answered: Option<Box<Answered>>,
        mine: &[Vec<Arc<Object>>],
        wanted: &mut Vec<Desired>,
        status: &mut Option<Map<String, Value>>,
    ) -> Result<RevisionWrites, Refusal> {
        let Some(answered) = answered else {
            return Ok(RevisionWrites::default());
        };
        let Answered { revisions, answers } = *answered;
        let mut older = Vec::with_capacity(answers.len());
        for (revision, answer) in revisions.older.iter().zip(answers) {
            older.push(Older {
                members: revision.members.clone(),
                desired: self.check(answer.children.unwrap_or_default())?.children,
            });
        }
        let latest = &revisions.latest;
        let missed = self.memory.missed;
        let latest_wanted = std::mem::take(wanted);
        let rolled = revision::roll(
            &self.scope(mine),
            &latest.members,
            latest_wanted,
            older,
            missed,
        );
        *wanted = rolled.desired;
        self.memory.missed = rolled.missed;
        let status = status.get_or_insert_default();
        if !put_condition(status, &rolled.progress, &latest.name) {
            let text = "the hook's answer: status.conditions is no list, and cannot tell of the roll-out; return a list";
            self.report.warn(event::ODD_ANSWER, text.to_owned());
        }
        let writes = self.revision_scope().map(|scope| {
            Ok(RevisionWrites {
                latest: scope.write_latest(&revisions, &rolled.latest)?,
                older: scope.write_older(&revisions, &rolled.older)?,
            })
        });
        match writes.transpose() {
            Ok(writes) => Ok(writes.unwrap_or_default()),
            Err(error) => Err(Refusal {
                reason: event::SYNC_ERROR,
                text: self.revision_error(&error),
            }),
        }
    }

    /// Writes the latest revision, then the others, then goes on to the children.
    pub(super) fn write_revisions(&mut self, mut work: Box<Work>) -> Step {
        let RevisionWrites { latest, older } = &mut work.revisions;
        let writes = match latest.take() {
            Some(latest) => vec![latest],
            None => std::mem::take(older),
        };
        if writes.is_empty() {
            return self.delete(work);
        }
        self.stage = Stage::WritingRevisions(work, writes.clone());
        Step::Write(writes)
    }

    pub(super) fn revisions_written(
        &mut self,
        work: Box<Work>,
        writes: Vec<Write>,
        results: Vec<WriteResult>,
    ) -> Step {
        // They follow the rules of children in what is remembered.
        let place = self.controller.children.len();
        let mut results = results.into_iter();
        for write in writes {
            let deleted = match &write.op {
                Op::Delete { uid, .. } => Some(uid),
                _ => None,
            };
            match results.next().unwrap_or(Err(WriteError::NoAuthority)) {
                Ok(stored) => {
                    self.count(write.purpose);
                    if let Some(uid) = deleted {
                        self.memory.note_deleted(uid);
                    } else {
                        self.child_written(place, stored);
                    }
                }
                Err(WriteError::NotFound) if deleted.is_some() => {
                    self.memory.note_deleted(deleted.map_or("", |uid| uid));
                }
                Err(WriteError::NoAuthority) => return self.no_authority(),
                Err(WriteError::Observed) => self.report.observed += 1,
                Err(WriteError::NotFound | WriteError::Conflict | WriteError::AlreadyExists) => {
                    self.memory.forget_written(place);
                    self.report.is_stale = true;
                }
                Err(error) => {
                    let text = format!(
                        "can't reconcile revisions for {}: {write}: {error}",
                        self.parent
                    );
                    self.report.refused.push(Refused::new(&write, error));
                    return self.fail(text);
                }
            }
        }
        if self.report.is_stale {
            return self.done(Verdict::Stale, Requeue::Soon);
        }
        self.write_revisions(work)
    }

    pub(super) fn revision_scope(&self) -> Option<revision::Scope<'_>> {
        let history = self.controller.history.as_ref()?;
        Some(revision::Scope {
            controller: &self.controller,
            history,
            resource: &self.resource,
            parent: &self.parent,
        })
    }

    fn revisions_failed(&mut self, error: &revision::patch::Error) -> Step {
        let error = self.revision_error(error);
        self.fail(error)
    }

    fn revision_error(&self, error: &revision::patch::Error) -> String {
        format!("can't sync revisions of {}: {}", self.parent, chain(error))
    }
}

/// Puts the condition that tells how far a roll-out is in the place of the one that the hook may have given. Whether it could.
fn put_condition(status: &mut Map<String, Value>, progress: &Progress, latest: &str) -> bool {
    let (is_updated, reason, message) = match progress {
        Progress::OnLatest => (
            "True",
            rollout::ON_LATEST_REVISION,
            format!("latest ControllerRevision: {latest}"),
        ),
        Progress::Moving(child) => ("False", rollout::PROGRESSING, format!("updating {child}")),
        Progress::Waiting(why) => ("False", rollout::WAITING, why.clone()),
    };
    let condition = json!({
        "type": rollout::UPDATED,
        "status": is_updated,
        "reason": reason,
        "message": message,
    });
    let conditions = status.entry("conditions").or_insert(Value::Null);
    if conditions.is_null() {
        *conditions = Value::Array(Vec::new());
    }
    let Value::Array(conditions) = conditions else {
        return false;
    };
    match conditions
        .iter_mut()
        .find(|it| it["type"] == rollout::UPDATED)
    {
        Some(given) => *given = condition,
        None => conditions.push(condition),
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(value: Value) -> Map<String, Value> {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn the_condition_takes_the_place_of_the_hooks_own() {
        let own = json!({"type": "Updated", "status": "Unknown", "mine": 1});
        let mut given = status(json!({"conditions": [own, {"type": "Ready", "status": "True"}]}));

        assert!(put_condition(
            &mut given,
            &Progress::Waiting("x".to_owned()),
            "r"
        ));

        let expected = json!({"conditions": [
            {"type": "Updated", "status": "False", "reason": "RolloutWaiting", "message": "x"},
            {"type": "Ready", "status": "True"},
        ]});
        assert_eq!(given, status(expected));
    }

    #[test]
    fn conditions_that_are_no_list_stay_as_they_are() {
        let mut given = status(json!({"conditions": "none"}));

        assert!(!put_condition(&mut given, &Progress::OnLatest, "r"));

        assert_eq!(given, status(json!({"conditions": "none"})));
    }
}
