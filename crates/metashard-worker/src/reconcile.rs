//! Drives one `SyncMachine`: carries out each step and feeds the result back. Decides nothing about objects.

mod customized;
mod ending;
mod observed;

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use futures::future::join_all;
use metashard_api::{hook::RelatedRule, resource::Resource};
use metashard_fleet::{
    queue::{Cause, Causes, Outcome as Again, Popped},
    time::MonoTime,
    worker::Authority,
};
use metashard_reconcile::{
    object::Object,
    related::Related,
    sync::{Fed, HookCall, HookKind, HookResult, Outcome, Step, SyncInput, SyncMachine, Unrelated},
    write::{Write, WriteError, WriteResult},
};
use tracing::{debug, info};

use self::{
    customized::forget_old,
    observed::{candidates, candidates_in, catch_up, seen, signature},
};
use crate::{
    instance::{Instance, ParentState, Turn},
    journal::{self, Notes, Record},
    key::ParentKey,
    related::Found,
};

/// Writes of one step that are under way at once: enough to hide the round trip, few enough for the API server.
const CONCURRENT_WRITES: usize = 16;

/// How soon a key is looked at again that was taken while this worker may not begin work.
const NOT_NOW: Duration = Duration::from_millis(20);

/// One pass over the parent of a key that the queue handed out.
pub(crate) async fn sync(instance: &Instance, turn: &Turn, popped: &Popped<ParentKey>) -> Again {
    let context = &instance.context;
    let began = context.clock.now();
    if !context.standing.load().may_begin(turn.claim, began) {
        return Again::NotBegun(NOT_NOW);
    }
    let key = &popped.key;
    let mut state = instance.recall(key);
    catch_up(instance, key, std::mem::take(&mut state.awaited)).await;
    let (namespace, name) = key.parts();
    let Some(parents) = instance.parents.get(key.rule()) else {
        return Again::Await;
    };
    let Some(parent) = parents.get(namespace, name) else {
        instance.lost(key);
        return Again::Await;
    };
    let resource = parents.key().resource();
    forget_old(&mut state, began.mono);

    let candidates = candidates(instance, &parent);
    let revisions = instance.revisions.as_ref();
    let revisions = revisions.map(|view| candidates_in(instance, view, &parent));
    let mut pass = Pass {
        instance,
        turn,
        key,
        resource,
        children: signature(&candidates),
        found: instance.related.as_ref().and_then(|it| it.known(key)),
        customized_at: state.customized_at,
        answer: None,
        notes: Notes::default(),
    };
    let due = state.due.is_some_and(|due| due <= began.mono);
    let news = pass.news(&state, &parent);
    let spared = match news {
        _ if state.forced || due => false,
        News::Nothing => true,
        News::OwnStatus => instance.feedback.lock().spare(began.mono),
        News::Some => false,
    };
    if spared {
        let seen = seen(&parent, candidates.iter().chain(&revisions));
        return spare(instance, key, state, seen, began.mono);
    }

    let input = SyncInput {
        controller: Arc::clone(&instance.controller),
        resource: Arc::clone(resource),
        parent: Arc::clone(&parent),
        candidates,
        revisions: revisions.unwrap_or_default(),
        memory: state.memory,
    };
    let outcome = pass.run(input, &parent).await;
    if let (News::OwnStatus, Some(answer), Some(last)) = (news, pass.answer, &state.last) {
        instance.feedback.lock().probed(answer == last.answer);
    }
    pass.count(&parent, &outcome, popped.causes, began.mono);
    pass.finish(&parent, outcome)
}

/// Ends a pass that calls no hook, because nothing has changed that it has not been asked about.
fn spare<'a>(
    instance: &Instance,
    key: &ParentKey,
    mut state: ParentState,
    seen: impl Iterator<Item = &'a Arc<Object>>,
    now: MonoTime,
) -> Again {
    // The cache shows our writes now: copies of them need not be kept.
    for object in seen {
        state.memory.saw(object);
    }
    // The timer that brought us here may be one from before, and the one that was asked for last not set.
    if let Some(due) = state.due {
        let dispatcher = &instance.context.dispatcher;
        let cause = timer(state.due_for_fight);
        dispatcher.push_after(instance.flow, key.clone(), due.since(now), cause);
    }
    instance.remember(key, state);
    instance.series.spared();
    Again::Await
}

/// Why a timer was set.
fn timer(for_fight: bool) -> Cause {
    if for_fight {
        Cause::HotLoop
    } else {
        Cause::Timer
    }
}

/// What is new since the last call of the hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum News {
    /// Something of the parent, its children or what is related to it.
    Some,
    /// The status that the hook made us write, and nothing else: the write was a compare-and-swap.
    OwnStatus,
    /// Nothing: the request would be the same.
    Nothing,
}

/// One pass under way.
struct Pass<'a> {
    instance: &'a Instance,
    turn: &'a Turn,
    key: &'a ParentKey,
    /// The parent's.
    resource: &'a Arc<Resource>,
    children: u64,
    /// The related objects: what is known of them, then what the hook is shown.
    found: Option<Found>,
    /// When the customize hook last answered.
    customized_at: Option<MonoTime>,
    /// Hash of the hook's answer.
    answer: Option<u64>,
    /// For the journal.
    notes: Notes,
}

impl Pass<'_> {
    /// What is new since the last call of the hook.
    fn news(&self, state: &ParentState, parent: &Object) -> News {
        let Some(last) = &state.last else {
            return News::Some;
        };
        let version = parent.resource_version();
        if last.children != self.children || last.related != self.related() {
            News::Some
        } else if *last.parent == *version {
            News::Nothing
        } else if last.status_written.as_deref() == Some(version) {
            News::OwnStatus
        } else {
            News::Some
        }
    }

    async fn run(&mut self, input: SyncInput, parent: &Object) -> Outcome {
        self.instance.trial_begins(self.key);
        let context = &self.instance.context;
        let now = context.clock.now().mono.0;
        let mut tape = context.recordings.as_ref().map(|recordings| {
            let observed = self.instance.gate.observes();
            recordings.start(&input, observed, (now, context.clock.wall()))
        });
        let mut machine = SyncMachine::new(input).at(now);
        loop {
            let fed = match machine.next() {
                Step::Write(writes) => {
                    let results = self.write_all(&writes).await;
                    self.notes.writes(&writes, &results);
                    self.instance.trial_had(self.key, &writes, &results);
                    Fed::Written(results)
                }
                Step::ReadParent => Fed::Parent(self.read_parent(parent).await),
                Step::CallHook(call) => Fed::Hook(self.call_hook(call, parent).await),
                Step::Relate(rules) => Fed::Related(self.relate(parent, &rules)),
                Step::Done(outcome) => {
                    if let Some(tape) = tape {
                        tape.end(&outcome);
                    }
                    return *outcome;
                }
            };
            if let Some(tape) = &mut tape {
                tape.fed(&fed);
            }
            machine.feed(fed);
        }
    }

    fn authority(&self) -> Option<Authority> {
        self.instance.context.authority(self.turn.claim)
    }

    async fn write_all(&self, writes: &[Write]) -> Vec<WriteResult> {
        let mut results = Vec::with_capacity(writes.len());
        for batch in writes.chunks(CONCURRENT_WRITES) {
            let sent: Vec<_> = batch.iter().map(|write| self.write(write)).collect();
            results.extend(join_all(sent).await);
        }
        results
    }

    async fn write(&self, write: &Write) -> WriteResult {
        let instance = self.instance;
        let Some(authority) = self.authority() else {
            instance.context.clients.metrics().fenced();
            return Err(WriteError::NoAuthority);
        };
        let result = instance
            .gate
            .write(&instance.identity, &authority, write)
            .await;
        match &result {
            Ok(_) => debug!(%write, why = %write.why, "written"),
            Err(WriteError::Observed) => {
                info!(controller = %instance.controller.name, %write, why = %write.why, "would be written");
                instance.series.write_observed(write);
            }
            Err(error) => debug!(%write, %error, "not written"),
        }
        result
    }

    async fn read_parent(&self, parent: &Object) -> Result<Option<Arc<Object>>, WriteError> {
        let instance = self.instance;
        let (namespace, name) = (parent.namespace(), parent.name());
        let clients = &instance.context.clients;
        clients
            .read(&instance.identity, self.resource, namespace, name)
            .await
            .map_err(|error| match error.refusal() {
                Some(refusal) if error.is_forbidden() => {
                    WriteError::Forbidden(refusal.message.clone())
                }
                _ => WriteError::Unavailable(metashard_runtime::log::chain(&error)),
            })
    }

    /// Calls the hook; an answer that comes without authority is dropped.
    async fn call_hook(&mut self, call: HookCall, parent: &Object) -> HookResult {
        let Some(authority) = self.authority() else {
            return HookResult::NoAuthority;
        };
        let is_customize = call.hook == HookKind::Customize;
        let (hook, clock) = (call.hook, &self.instance.context.clock);
        let began = clock.now().mono;
        let counted = self.instance.meter.call(clock);
        let result = self
            .instance
            .hooks
            .call(call, parent.uid(), &authority)
            .await;
        drop(counted);
        self.notes
            .call(hook, clock.now().mono.since(began), &result);
        if self.authority().is_none() {
            return HookResult::NoAuthority;
        }
        if is_customize {
            self.customized_at = Some(self.instance.context.clock.now().mono);
        } else if let HookResult::Answer(body) = &result {
            // Of all answers, where the hook is called for several revisions.
            let mut hasher = DefaultHasher::new();
            self.answer.hash(&mut hasher);
            body.hash(&mut hasher);
            self.answer = Some(hasher.finish());
        }
        result
    }

    /// Finds what the customize hook asks for in the name of the parent.
    fn relate(
        &mut self,
        parent: &Object,
        rules: &Arc<[RelatedRule]>,
    ) -> Result<Related, Unrelated> {
        let Some(related) = &self.instance.related else {
            return Ok(Related::default());
        };
        // As it was when news were looked for: what changed since pushes the key again.
        let found = match self.found.take().filter(|it| it.is_of(rules)) {
            Some(found) => found,
            None => related.find(self.key, parent, rules)?,
        };
        let found = self.found.insert(found);
        Ok(found.related.clone())
    }

    /// Of the related objects, if all of them are known.
    fn related(&self) -> Option<u64> {
        self.found.as_ref().map(|it| it.related.fingerprint())
    }

    /// Tells metrics and journal.
    fn count(&mut self, parent: &Object, outcome: &Outcome, causes: Causes, began: MonoTime) {
        let context = &self.instance.context;
        let took = context.clock.now().mono.since(began);
        self.instance.series.pass_ended(outcome);
        let claim = self.turn.claim;
        let which = journal::Which {
            at: context.clock.wall(),
            controller: &self.instance.controller.name,
            parent,
            causes,
            place: (claim.shard, claim.epoch),
            took,
        };
        let notes = std::mem::take(&mut self.notes);
        context.journal.add(Record::new(&which, notes, outcome));
    }
}
