//! From the start of a pass to the call of the hook: whose the parent is, its finalizer, its children.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use metashard_api::{hook::Version, id::ControllerKind};
use xxhash_rust::xxh3::Xxh3;

use super::{
    Called, Fed, HookCall, HookKind, HookResult, Stage, Step, SyncInput, SyncMachine,
    report::Report, rest,
};
use crate::{
    claim::{self, Claims},
    finalize,
    object::Object,
    outcome::{Refused, Verdict},
    related::Related,
    requeue::Requeue,
    write::{Purpose, Write, WriteError, WriteResult},
};

impl SyncMachine {
    /// Starts a pass.
    pub fn new(input: SyncInput) -> Self {
        let SyncInput {
            controller,
            resource,
            parent,
            candidates,
            revisions,
            mut memory,
        } = input;
        memory.open(&controller, &parent);
        let parent = memory.newest_parent(parent);
        let mut candidates: Vec<_> = candidates
            .into_iter()
            .chain([revisions])
            .enumerate()
            .map(|(rule, candidates)| memory.newest_children(rule, candidates))
            .collect();
        memory.retain_deleted(&candidates);
        let revisions = candidates.pop().unwrap_or_default();
        let mut machine = Self {
            controller,
            resource,
            parent,
            candidates,
            revisions,
            related: Related::default(),
            selector: None,
            is_fresh: false,
            memory,
            report: Report::default(),
            stage: Stage::Over,
            pending: None,
        };
        machine.pending = Some(machine.begin());
        machine
    }

    /// The same pass at a time, from a clock that never goes back: only with it are hot loops noticed.
    #[must_use]
    pub fn at(mut self, now: Duration) -> Self {
        self.memory.now = Some(now);
        self
    }

    /// What to do next. Each step is told once: feed its result before asking again.
    #[expect(clippy::should_implement_trait, reason = "it is fed between two calls")]
    pub fn next(&mut self) -> Step {
        match self.pending.take() {
            Some(step) => step,
            None => self.fail("the last step was not answered".to_owned()),
        }
    }

    /// Takes the result of the last step.
    pub fn feed(&mut self, fed: Fed) {
        let stage = std::mem::replace(&mut self.stage, Stage::Over);
        self.pending = Some(match (stage, fed) {
            (Stage::Confirming, Fed::Parent(found)) => self.confirmed(found),
            (Stage::AddingFinalizer, Fed::Written(results)) => self.finalizer_added(results),
            (Stage::Rereading, Fed::Parent(found)) => self.reread(found),
            (Stage::DroppingFinalizer, Fed::Written(results)) => self.finalizer_dropped(results),
            (Stage::ReadingForAdoption, Fed::Parent(found)) => self.read_for_adoption(found),
            (Stage::ReadingForTakeOver(work), Fed::Parent(found)) => {
                self.read_for_take_over(work, found)
            }
            (Stage::LettingGo(leaving), Fed::Written(results)) => {
                self.gone_their_way(leaving, results)
            }
            (Stage::Claiming(claims), Fed::Written(results)) => self.claimed(claims, results),
            (Stage::Customizing(waiting), Fed::Hook(result)) => self.customized(waiting, result),
            (Stage::Relating(waiting), Fed::Related(found)) => self.related(waiting, found),
            (Stage::Calling(called), Fed::Hook(result)) => self.called(called, result),
            (Stage::CallingOlder(collecting), Fed::Hook(result)) => {
                self.older_called(collecting, result)
            }
            (Stage::WritingRevisions(work, writes), Fed::Written(results)) => {
                self.revisions_written(work, writes, results)
            }
            (Stage::RemovingFinalizer(work), Fed::Written(results)) => {
                self.finalizer_removed(work, results)
            }
            (Stage::Deleting(work), Fed::Written(results)) => self.deleted(work, results),
            (Stage::Trying(work), Fed::Written(results)) => self.tried(work, results),
            (Stage::Applying(work), Fed::Written(results)) => self.applied(work, results),
            (Stage::WritingStatus(work), Fed::Written(results)) => {
                self.status_written(work, results)
            }
            (Stage::WritingTarget(work), Fed::Written(results)) => {
                self.target_written(&work, results)
            }
            _ => self.fail("a step was answered that was not asked".to_owned()),
        });
    }

    fn begin(&mut self) -> Step {
        if !self.controller.concerns(&self.parent) {
            return self.done(Verdict::Unselected, Requeue::Await);
        }
        if rest::is_paused(&self.controller, &self.parent) {
            return self.rest();
        }
        self.wake();
        if std::mem::take(&mut self.memory.gone) {
            self.stage = Stage::Confirming;
            return Step::ReadParent;
        }
        match finalize::align(&self.controller, &self.resource, &self.parent) {
            Some(write) if write.purpose == Purpose::AddFinalizer => {
                self.write(Stage::AddingFinalizer, write)
            }
            Some(write) => self.write(Stage::DroppingFinalizer, write),
            None => self.claim(),
        }
    }

    fn confirmed(&mut self, found: Result<Option<Arc<Object>>, WriteError>) -> Step {
        match self.take_parent(found) {
            Some(step) => step,
            None => self.begin(),
        }
    }

    fn finalizer_added(&mut self, results: Vec<WriteResult>) -> Step {
        match self.parent_written(Purpose::AddFinalizer, results) {
            Ok(()) if self.report.observed > 0 => self.claim(),
            Ok(()) => {
                self.stage = Stage::Rereading;
                Step::ReadParent
            }
            Err(error) => self.finalizer_failed(&error),
        }
    }

    fn finalizer_dropped(&mut self, results: Vec<WriteResult>) -> Step {
        match self.parent_written(Purpose::RemoveFinalizer, results) {
            Ok(()) if finalize::is_gone(&self.parent) => self.done(Verdict::Gone, Requeue::Await),
            Ok(()) if !self.controller.concerns(&self.parent) => self.finish(),
            Ok(()) => self.claim(),
            Err(error) => self.finalizer_failed(&error),
        }
    }

    pub(super) fn finalizer_failed(&mut self, error: &WriteError) -> Step {
        match error {
            WriteError::NotFound => self.done(Verdict::Gone, Requeue::Await),
            WriteError::Conflict => self.done(Verdict::Stale, Requeue::Soon),
            WriteError::NoAuthority => self.no_authority(),
            error => self.fail(format!("can't sync finalizer for {}: {error}", self.parent)),
        }
    }

    /// A finalizer that is written while a DELETE runs can be lost although the write went well: only what is read afterwards counts.
    fn reread(&mut self, found: Result<Option<Arc<Object>>, WriteError>) -> Step {
        if let Some(step) = self.take_parent(found) {
            return step;
        }
        if self.parent.is_deleting() || self.parent.has_finalizer(&self.controller.finalizer) {
            self.claim()
        } else {
            self.done(Verdict::Stale, Requeue::Soon)
        }
    }

    fn read_for_adoption(&mut self, found: Result<Option<Arc<Object>>, WriteError>) -> Step {
        match self.take_parent(found) {
            Some(step) => step,
            None if self.parent.is_deleting() => self.done(Verdict::Stale, Requeue::Soon),
            None => self.claim(),
        }
    }

    /// Takes over the parent as the API server has it; a step if the pass ends with that.
    pub(super) fn take_parent(
        &mut self,
        found: Result<Option<Arc<Object>>, WriteError>,
    ) -> Option<Step> {
        match found {
            Ok(Some(parent)) if parent.uid() == self.parent.uid() => {
                self.parent = parent;
                self.is_fresh = true;
                self.memory.note_parent(&self.parent);
                None
            }
            Ok(_) | Err(WriteError::NotFound) => Some(self.done(Verdict::Gone, Requeue::Await)),
            Err(WriteError::NoAuthority) => Some(self.no_authority()),
            Err(error) => {
                let text = format!("can't read {}: {error}", self.parent);
                self.report.refused.push(Refused::read(&self.parent, error));
                Some(self.fail(text))
            }
        }
    }

    /// Finds the parent's children, and adopts and releases where it must.
    fn claim(&mut self) -> Step {
        if finalize::lets_go(&self.controller, &self.parent) {
            return self.let_go();
        }
        let Some(hook) = finalize::hook_for(&self.controller, &self.parent) else {
            return self.finish();
        };
        let selector = match claim::selector(&self.controller, &self.parent) {
            Ok(selector) => selector,
            Err(error) => return self.fail(error),
        };
        let mut claims: Vec<Claims> = Vec::with_capacity(self.controller.children.len());
        for (rule, candidates) in self.controller.children.iter().zip(&self.candidates) {
            let found = claim::claim(
                &self.controller,
                &self.resource,
                rule,
                &self.parent,
                &selector,
                candidates,
            );
            claims.push(found);
        }
        if let Some(revisions) = self.revision_scope() {
            claims.push(revisions.claim(&selector, &self.revisions));
        }
        self.selector = Some(selector);
        let changes = || claims.iter().flat_map(|claims| &claims.changes);
        if changes().next().is_none() {
            let mine = claims.into_iter().map(|claims| claims.mine).collect();
            return self.relate(hook, mine);
        }
        if !self.is_fresh && changes().any(|it| it.write.purpose == Purpose::AdoptChild) {
            self.stage = Stage::ReadingForAdoption;
            return Step::ReadParent;
        }
        let writes = changes().map(|change| change.write.clone()).collect();
        self.stage = Stage::Claiming(claims);
        Step::Write(writes)
    }

    fn claimed(&mut self, mut claims: Vec<Claims>, results: Vec<WriteResult>) -> Step {
        let mut results = results.into_iter();
        let mut failed = Vec::new();
        for (rule, claims) in claims.iter_mut().enumerate() {
            for change in std::mem::take(&mut claims.changes) {
                match results.next().unwrap_or(Err(WriteError::NoAuthority)) {
                    Ok(stored) => {
                        self.report.counts.claimed += 1;
                        let stored = self.child_written(rule, stored);
                        if change.keeps() {
                            claims
                                .mine
                                .push(stored.unwrap_or_else(|| Arc::clone(&change.object)));
                        }
                    }
                    Err(WriteError::Observed) => {
                        self.report.observed += 1;
                        if change.keeps() {
                            claims.mine.push(Arc::clone(&change.object));
                        }
                    }
                    Err(WriteError::NotFound) => self.memory.note_deleted(change.object.uid()),
                    Err(WriteError::NoAuthority) => return self.no_authority(),
                    Err(WriteError::Conflict) => self.report.is_stale = true,
                    Err(error) => {
                        failed.push(format!("{}: {error}", change.write));
                        self.report.refused.push(Refused::new(&change.write, error));
                    }
                }
            }
        }
        if !failed.is_empty() {
            return self.fail(format!(
                "can't claim children of {}: {}",
                self.parent,
                failed.join(", ")
            ));
        }
        if self.report.is_stale {
            return self.finish();
        }
        match finalize::hook_for(&self.controller, &self.parent) {
            Some(hook) => self.relate(hook, claims.into_iter().map(|claims| claims.mine).collect()),
            None => self.finish(),
        }
    }

    /// `mine`: the claimed children of each rule, and last the revisions if any are kept.
    pub(super) fn call(&mut self, hook: HookKind, mut mine: Vec<Vec<Arc<Object>>>) -> Step {
        if self.controller.history.is_some() {
            self.revisions = mine.pop().unwrap_or_default();
        }
        for children in &mut mine {
            children
                .sort_unstable_by(|a, b| (a.namespace(), a.name()).cmp(&(b.namespace(), b.name())));
        }
        if self.controller.hook(hook).is_none() {
            return self.finish();
        }
        let body = self.request(hook, &self.parent, &mine);
        let inputs = self.hash_inputs(hook, &mine);
        self.stage = Stage::Calling(Called {
            hook,
            inputs,
            mine,
            older: None,
        });
        Step::CallHook(HookCall {
            hook,
            body,
            revision: None,
        })
    }

    /// The body of a call: of the parent as it is, or as it was at another revision.
    pub(super) fn request(
        &self,
        hook: HookKind,
        parent: &Object,
        mine: &[Vec<Arc<Object>>],
    ) -> Vec<Bytes> {
        let version = self
            .controller
            .hook(hook)
            .map_or(Version::V1, |hook| hook.version);
        let finalizing = hook == HookKind::Finalize;
        let frame = &self.controller.frame;
        frame.body(version, parent, mine, &self.related, finalizing)
    }

    /// Hash of all that a request is made of.
    fn hash_inputs(&self, hook: HookKind, mine: &[Vec<Arc<Object>>]) -> u128 {
        let mut hash = Xxh3::new();
        hash.update(hook.as_str().as_bytes());
        self.parent.hash_version(&mut hash);
        for children in mine.iter().chain([&self.revisions]) {
            hash.update(&(children.len() as u64).to_le_bytes());
            for child in children {
                child.hash_version(&mut hash);
            }
        }
        self.related.hash(&mut hash);
        hash.digest128()
    }

    fn called(&mut self, called: Called, result: HookResult) -> Step {
        match result {
            HookResult::Answer(bytes) => self.answered(called, &bytes),
            result => self.not_answered(called.hook, result),
        }
    }

    /// Ends the pass because a call of the hook came to nothing.
    pub(super) fn not_answered(&mut self, hook: HookKind, result: HookResult) -> Step {
        match result {
            HookResult::TooManyRequests { retry_after } => {
                let requeue = retry_after.map_or(Requeue::Backoff, Requeue::After);
                self.done(Verdict::Throttled, requeue)
            }
            HookResult::Unavailable { error, retry_after } => {
                self.failed(hook, &error, Requeue::After(retry_after))
            }
            HookResult::Failed(error) => self.failed(hook, &error, Requeue::Backoff),
            HookResult::NoAuthority | HookResult::Answer(_) => self.no_authority(),
        }
    }

    fn failed(&mut self, hook: HookKind, error: &str, requeue: Requeue) -> Step {
        let error = self.hook_error(hook, error);
        self.report.sync_error(&error);
        self.done(Verdict::HookFailed(error), requeue)
    }

    /// The version of a hook's bodies.
    pub(super) fn version_of(&self, hook: HookKind) -> &'static str {
        let hook = self.controller.hook(hook);
        hook.map_or(Version::V1, |hook| hook.version).as_str()
    }

    /// The text of a failed call or a refused answer, as Metacontroller has it.
    pub(super) fn hook_error(&self, hook: HookKind, error: &str) -> String {
        let version = self.version_of(hook);
        let name = hook.as_str();
        let text = format!("{name} hook failed (version={version}): {error}");
        match self.controller.kind {
            ControllerKind::Composite => format!("sync hook failed for {}: {text}", self.parent),
            ControllerKind::Decorator => text,
        }
    }

    /// Takes the result of a write to the parent. One that is only observed leaves the parent as it is.
    pub(super) fn parent_written(
        &mut self,
        purpose: Purpose,
        results: Vec<WriteResult>,
    ) -> Result<(), WriteError> {
        match results
            .into_iter()
            .next()
            .unwrap_or(Err(WriteError::NoAuthority))
        {
            Ok(stored) => {
                self.report.counts.parent += 1;
                if let Some(stored) = stored {
                    self.memory.note_parent(&stored);
                    self.report.written.push(Arc::clone(&stored));
                    self.parent = stored;
                }
                Ok(())
            }
            Err(WriteError::Observed) => {
                self.report.observed += 1;
                Ok(())
            }
            Err(error) => {
                self.memory.forget_parent();
                if error.is_refusal() {
                    let refused = Refused::parent(purpose, &self.parent, error.clone());
                    self.report.refused.push(refused);
                }
                Err(error)
            }
        }
    }

    /// Takes the object that a write to a child left.
    pub(super) fn child_written(
        &mut self,
        rule: usize,
        stored: Option<Arc<Object>>,
    ) -> Option<Arc<Object>> {
        let stored = stored?;
        self.memory.note_child(rule, &stored);
        self.report.written.push(Arc::clone(&stored));
        Some(stored)
    }

    fn write(&mut self, stage: Stage, write: Write) -> Step {
        self.stage = stage;
        Step::Write(vec![write])
    }
}
