//! What a hook's answer asks for: checked as a whole and planned, before anything of it is written.

use std::sync::Arc;

use metashard_api::{
    hook::{DecodeError, Mode, SyncAnswer},
    names::event,
};
use serde_json::{Map, Value};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::{Called, GUARD_CHILDREN, GUARD_DELAY, HookKind, Stage, Step, SyncMachine, Work};
use crate::{
    answer::{self, Refusal},
    children::{self, Plan, Planned},
    decorate::Decoration,
    finalize,
    memory::hash_name,
    object::Object,
    outcome::{Event, Verdict, chain},
    requeue::Requeue,
    status,
};

/// Most names that one text holds.
const SHOWN: usize = 5;

impl SyncMachine {
    pub(super) fn answered(&mut self, called: Called, bytes: &[u8]) -> Step {
        let answer = xxh3_128(bytes);
        if let Some(pass) = self.memory.same_pass(called.inputs, answer) {
            let requeue = pass.resync.map_or(Requeue::Await, Requeue::After);
            return self.done(Verdict::Unchanged, requeue);
        }
        let mode = self
            .controller
            .hook(called.hook)
            .map_or(Mode::Strict, |hook| hook.mode);
        let exchange = (called.inputs, answer);
        match self.decode(bytes, mode) {
            Ok((answer, decoration)) => {
                self.report.exchange = Some(exchange);
                if self.rolls() {
                    self.collect(called, answer, mode)
                } else {
                    self.work(called, answer, decoration, mode)
                }
            }
            Err(error) => self.refuse_unread(called.hook, &error),
        }
    }

    pub(super) fn refuse_unread(&mut self, hook: HookKind, error: &DecodeError) -> Step {
        let error = self.hook_error(hook, &self.unread(hook, error));
        self.report.sync_error(&error);
        self.done(Verdict::AnswerRefused(error), Requeue::Backoff)
    }

    /// Why an answer is not read; for odd fields in strict mode in Metacontroller's words, which people look for.
    pub(super) fn unread(&self, hook: HookKind, error: &DecodeError) -> String {
        let name = hook.as_str();
        match error {
            DecodeError::Strict { .. } => format!(
                "strict validation failed for {} webhookResponse (type: {name}, mode: strict): {error}",
                self.version_of(hook)
            ),
            error => chain(error),
        }
    }

    /// Plans all that an answer asks for, before anything of it is written.
    pub(super) fn work(
        &mut self,
        called: Called,
        answer: SyncAnswer,
        mut decoration: Option<Decoration>,
        mode: Mode,
    ) -> Step {
        let Called {
            hook, mine, older, ..
        } = called;
        let SyncAnswer {
            mut status,
            children,
            resync_after,
            finalized,
            events,
            mut warnings,
        } = answer;
        let is_absent = children.is_none();
        let mut wanted = match self.check(children.unwrap_or_default()) {
            Ok(wanted) => wanted,
            Err(refusal) => return self.refuse(refusal),
        };
        // Only the answer of a finalize hook can finalize.
        let finalized = finalized && hook == HookKind::Finalize;
        if finalized && let Some(step) = self.orphan(&mine) {
            return step;
        }
        let manages = if finalized && decoration.is_none() {
            // The finalizer goes first, and with it a deleted parent's claim on its children.
            !self.parent.is_deleting()
        } else {
            finalize::manages_children(&self.controller, &self.parent)
        };
        let older = older.filter(|_| manages);
        let revisions = match self.roll(older, &mine, &mut wanted.children, &mut status) {
            Ok(revisions) => revisions,
            Err(refusal) => return self.refuse(refusal),
        };
        let plan = if manages {
            self.plan(&mine, wanted.children)
        } else {
            Plan::default()
        };
        if is_absent && mode == Mode::Strict && !finalized && !plan.deletes.is_empty() {
            return self.refuse_childless(hook);
        }
        if let Some(step) = self.hold(hook, is_absent, &plan) {
            return step;
        }
        warnings.append(&mut wanted.repeated);
        self.tell(events, warnings, &wanted.unserved);
        self.report.resync = resync_after;
        let status = self.status_of(status, &mut decoration, finalized);
        let at_once = finalized && decoration.is_none();
        let work = Box::new(Work {
            plan,
            status,
            decoration,
            revisions,
        });
        if at_once && self.parent.has_finalizer(&self.controller.finalizer) {
            let (ours, why) = (&self.controller.finalizer, "the hook has finalized");
            let write = finalize::remove(&self.resource, ours, &self.parent, why);
            self.stage = Stage::RemovingFinalizer(work);
            return Step::Write(vec![write]);
        }
        self.write_revisions(work)
    }

    /// The status to be; `None`: it stays.
    fn status_of(
        &self,
        given: Option<Map<String, Value>>,
        decoration: &mut Option<Decoration>,
        finalized: bool,
    ) -> Option<Value> {
        match decoration {
            None => Some(status::wanted(given, self.parent.generation())),
            Some(decoration) => {
                decoration.finalized = finalized;
                given.map(Value::Object)
            }
        }
    }

    pub(super) fn check(&self, children: Vec<Value>) -> Result<answer::Wanted, Refusal> {
        let Some(selector) = &self.selector else {
            return Ok(answer::Wanted::default());
        };
        answer::Scope {
            controller: &self.controller,
            parent: &self.parent,
            selector,
        }
        .check(children)
    }

    fn plan(&self, mine: &[Vec<Arc<Object>>], desired: Vec<answer::Desired>) -> Plan {
        self.scope(mine).plan(desired)
    }

    pub(super) fn scope<'a>(&'a self, mine: &'a [Vec<Arc<Object>>]) -> children::Scope<'a> {
        children::Scope {
            controller: &self.controller,
            resource: &self.resource,
            parent: &self.parent,
            mine,
            candidates: &self.candidates,
            memory: &self.memory,
        }
    }

    fn refuse(&mut self, refusal: Refusal) -> Step {
        let Refusal { reason, text } = refusal;
        let verdict = format!("{}: {text}", self.parent);
        let message = if reason == event::SYNC_ERROR {
            format!("Sync error: {text}")
        } else {
            text
        };
        self.report.warn(reason, message);
        self.done(Verdict::AnswerRefused(verdict), Requeue::Backoff)
    }

    fn refuse_childless(&mut self, hook: HookKind) -> Step {
        let list = self.controller.answer_list();
        let error = format!(
            "the answer has no field {list}, and would delete all of them; return `{list}: []` if none should exist"
        );
        let error = self.hook_error(hook, &error);
        self.report.sync_error(&error);
        self.done(Verdict::AnswerRefused(error), Requeue::Backoff)
    }

    /// The delete guard: an answer that makes many children vanish, or that has no field `children` and makes any vanish,
    /// counts only when the hook gives it twice.
    fn hold(&mut self, hook: HookKind, is_absent: bool, plan: &Plan) -> Option<Step> {
        let count = plan.deletes.len();
        let is_many = count > GUARD_CHILDREN && count * 2 > plan.living && hook == HookKind::Sync;
        let is_doubtful = is_absent && count > 0;
        if !is_many && !is_doubtful {
            self.memory.held = 0;
            return None;
        }
        let mut hash = Xxh3::new();
        for Planned { write, rule, .. } in &plan.deletes {
            let name = hash_name(*rule, write.namespace.as_deref(), &write.name);
            hash.update(&name.to_le_bytes());
        }
        let held = hash.digest().max(1);
        let list = self.controller.answer_list();
        let what = if is_doubtful {
            format!("has no field {list}")
        } else {
            format!("leaves out most {list}")
        };
        let of = plan.living;
        if self.memory.held == held {
            self.memory.held = 0;
            let text = format!("the hook's answer {what}: {count} of {of} {list} are deleted");
            self.report.warn(event::ODD_ANSWER, text);
            return None;
        }
        self.memory.held = held;
        let text = format!(
            "the hook's answer {what} and would delete {count} of {of}: it is held back and the hook is asked again; return `{list}: []` if none should exist"
        );
        self.report.warn(event::ODD_ANSWER, text.clone());
        Some(self.done(Verdict::Held(text), Requeue::After(GUARD_DELAY)))
    }

    /// Events of the hook, and of what is odd in its answer.
    pub(super) fn tell(
        &mut self,
        events: Vec<metashard_api::hook::Event>,
        warnings: Vec<String>,
        unserved: &[String],
    ) {
        for event in events {
            self.report.events.push(Event {
                is_warning: event.is_warning,
                reason: event.reason.into(),
                message: event.message,
            });
        }
        for warning in warnings {
            self.report
                .warn(event::ODD_ANSWER, format!("the hook's answer: {warning}"));
        }
        if !unserved.is_empty() {
            self.report.is_waiting = true;
            let text = format!(
                "desired child {}: the API server does not serve its kind now; install it, or remove it from spec.{}",
                shown(unserved),
                self.controller.child_list()
            );
            self.report.warn(event::CHILD_REFUSED, text);
        }
    }
}

/// The first few of some names.
fn shown(names: &[String]) -> String {
    let first = names
        .iter()
        .take(SHOWN)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    if names.len() > SHOWN {
        format!("{first} and {} more", names.len() - SHOWN)
    } else {
        first
    }
}
