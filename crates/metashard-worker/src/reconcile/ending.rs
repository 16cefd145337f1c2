//! How a pass ends: what is told of it, what the next one needs to remember, and when that comes.

use std::time::Duration;

use metashard_api::{names::reason, resource::Resource};
use metashard_fleet::queue::Outcome as Again;
use metashard_reconcile::{
    object::Object,
    requeue::Requeue,
    sync::{Outcome, Verdict},
};
use tracing::{debug, error};

use super::{NOT_NOW, Pass, timer};
use crate::{
    conditions::Part,
    instance::{Awaited, Cache, LastSync, ParentState},
    key::ParentKey,
};

impl Pass<'_> {
    /// Reports what came of the pass, remembers what the next one needs, and says when that is.
    pub(super) fn finish(&self, parent: &Object, outcome: Outcome) -> Again {
        let key = self.key;
        self.report(key, parent, &outcome);
        match outcome.verdict {
            Verdict::Unselected => {
                self.instance.unrelate(key);
                return Again::Await;
            }
            Verdict::Gone => {
                self.instance.unrelate(key);
                // Kept until the cache shows it too.
                let state = ParentState {
                    memory: outcome.memory,
                    ..ParentState::default()
                };
                self.instance.remember(key, state);
                return Again::Await;
            }
            _ => {}
        }
        let now = self.instance.context.clock.now().mono;
        let due = match outcome.requeue {
            Requeue::After(delay) | Requeue::BackoffAndAfter(delay) => Some(now + delay),
            Requeue::Await | Requeue::Soon | Requeue::Backoff => None,
        };
        // What was made and is gone before the next pass would look as if nothing had happened: there is nothing to compare
        // that pass with.
        let made_none = outcome.counts.created == 0;
        let last = self.answer.filter(|_| made_none).map(|answer| LastSync {
            parent: parent.resource_version().into(),
            status_written: status_written(parent, &outcome),
            children: self.children,
            related: self.related(),
            answer,
        });
        let state = ParentState {
            awaited: self.awaited(parent, &outcome),
            memory: outcome.memory,
            last,
            // What was not done is not an echo of anything.
            forced: matches!(
                outcome.requeue,
                Requeue::Soon | Requeue::Backoff | Requeue::BackoffAndAfter(_)
            ),
            due,
            due_for_fight: outcome.for_fight,
            customized_at: self.customized_at,
        };
        self.instance.remember(key, state);
        match (outcome.verdict, outcome.requeue) {
            (Verdict::NoAuthority, _) => Again::RetryAfter(NOT_NOW),
            (Verdict::Throttled | Verdict::HookFailed(_), Requeue::After(delay)) => {
                Again::RetryAfter(delay)
            }
            (_, Requeue::After(delay)) => {
                self.come_back(delay, outcome.for_fight);
                Again::Await
            }
            (_, Requeue::BackoffAndAfter(delay)) => {
                self.come_back(delay, outcome.for_fight);
                Again::Backoff
            }
            (_, Requeue::Await) => Again::Await,
            (_, Requeue::Soon | Requeue::Backoff) => Again::Backoff,
        }
    }

    /// Sets the timer of the hook, or that of a child that is fought over.
    fn come_back(&self, delay: Duration, for_fight: bool) {
        let dispatcher = &self.instance.context.dispatcher;
        let cause = timer(for_fight);
        dispatcher.push_after(self.instance.flow, self.key.clone(), delay, cause);
    }

    /// The newest write of each cache: once a cache shows that one, it shows them all.
    fn awaited(&self, parent: &Object, outcome: &Outcome) -> Vec<Awaited> {
        let mut newest: Vec<(Cache, &Object)> = Vec::new();
        for object in &outcome.written {
            let Some(cache) = self.cache_of(parent, object) else {
                continue;
            };
            match newest.iter_mut().find(|(it, _)| *it == cache) {
                Some((_, newer)) if is_newer(object, newer) => *newer = object,
                Some(_) => {}
                None => newest.push((cache, object)),
            }
        }
        newest
            .into_iter()
            .map(|(cache, object)| Awaited {
                cache,
                resource_version: object.resource_version().into(),
            })
            .collect()
    }

    /// The cache that shows `object`, which is the parent or a child of it.
    fn cache_of(&self, parent: &Object, object: &Object) -> Option<Cache> {
        if object.uid() == parent.uid() {
            return Some(Cache::Parents(self.key.rule()));
        }
        let is_of = |resource: &Resource| {
            resource.kind == object.kind() && resource.api_version() == object.api_version()
        };
        let controller = &self.instance.controller;
        let rules = &controller.children;
        if let Some(rule) = rules.iter().position(|rule| is_of(&rule.resource)) {
            return Some(Cache::Children(rule));
        }
        let history = controller.history.as_ref()?;
        is_of(&history.resource).then_some(Cache::Revisions)
    }

    fn report(&self, key: &ParentKey, parent: &Object, outcome: &Outcome) {
        let instance = self.instance;
        let controller = &instance.controller.name;
        let counts = outcome.counts;
        match &outcome.verdict {
            Verdict::HookFailed(why) => {
                error!(logger = instance.logger(), %controller, %key, error = instance.sync_error(parent, why), "hook failed");
                instance.set_hook_health(Part::bad(reason::CALL_FAILED, why.clone()));
            }
            Verdict::AnswerRefused(why) => {
                error!(logger = instance.logger(), %controller, %key, error = instance.sync_error(parent, why), "answer refused");
                instance.set_hook_health(Part::bad(reason::ANSWER_REFUSED, why.clone()));
            }
            Verdict::Failed(why) | Verdict::Held(why) => {
                error!(logger = instance.logger(), %controller, %key, error = instance.sync_error(parent, why), verdict = outcome.verdict.as_str(), "sync failed");
            }
            verdict => {
                if self.answer.is_some() {
                    instance.set_hook_health(Part::good(
                        reason::ANSWERED,
                        "the last call was answered",
                    ));
                }
                debug!(logger = instance.logger(), %controller, %key, verdict = verdict.as_str(), writes = counts.total(), "synced");
            }
        }
        instance.troubles.lock().note(key, outcome);
        instance.trial_ended(key, &outcome.verdict);
        for event in &outcome.events {
            instance.tell(parent, event);
        }
    }
}

/// The parent's resourceVersion after our own last write to it.
fn status_written(parent: &Object, outcome: &Outcome) -> Option<Box<str>> {
    let mut written = outcome.written.iter().rev();
    written
        .find(|object| object.uid() == parent.uid())
        .map(|object| object.resource_version().into())
}

/// Whether an object is of a later version than another.
fn is_newer(object: &Object, than: &Object) -> bool {
    metashard_reconcile::object::compare_versions(
        object.resource_version(),
        than.resource_version(),
    ) == Some(std::cmp::Ordering::Greater)
}
