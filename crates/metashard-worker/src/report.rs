//! Writes what is known of a controller into its status, and tells people of it by events.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, SystemTime},
};

use metashard_api::{
    names::{event, reason},
    resource::Resource,
    v1alpha1::status::{ControllerStatus, MigrationStatus},
    validate::Finding,
};
use metashard_fleet::{message::Claim, time::MonoTime};
use metashard_kube::{
    events,
    identity::Identity,
    informer::{TroubleKind, ViewState},
    status,
};
use metashard_reconcile::{object::Object, write::WriteError};
use metashard_runtime::task;
use parking_lot::Mutex;
use tracing::{debug, warn};

use crate::{
    catalog::ControllerName,
    conditions::{Health, Part, Place},
    context::Context,
    hooks::Hooks,
    instance::Instance,
    security::{Security, soonest_end},
    trial, troubles,
};

/// How soon a status is written again that was refused.
const TRIED_AGAIN: Duration = Duration::from_secs(5);

/// What was written last of each controller, and what is to be looked at again.
#[derive(Debug)]
pub(crate) struct Reporter {
    context: Arc<Context>,
    told: Arc<Mutex<Told>>,
}

#[derive(Debug, Default)]
struct Told {
    /// What each controller's status says, as far as we wrote it.
    written: BTreeMap<ControllerName, Report>,
    /// Controllers whose write is under way.
    writing: BTreeSet<ControllerName>,
    /// Controllers whose CRD drops the status: nothing is written for them again.
    pruned: BTreeSet<ControllerName>,
    /// Controllers whose status the API server refused, and when: it is tried again after a while.
    refused: BTreeMap<ControllerName, MonoTime>,
}

/// What a status is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Report {
    health: Health,
    place: Place,
    generation: i64,
    parents: Option<u32>,
    migration: Option<MigrationStatus>,
}

impl Reporter {
    /// Has told nothing yet.
    pub(crate) fn new(context: Arc<Context>) -> Self {
        Self {
            context,
            told: Arc::default(),
        }
    }

    /// The controller is gone.
    pub(crate) fn forget(&mut self, name: &ControllerName) {
        let mut told = self.told.lock();
        told.written.remove(name);
        told.pruned.remove(name);
        told.refused.remove(name);
    }

    /// Another may have written this controller's status meanwhile: look at it again.
    pub(crate) fn mark(&mut self, name: &ControllerName) {
        self.told.lock().written.remove(name);
    }

    /// Records an event on a controller.
    pub(crate) fn tell(
        &self,
        controller: &Object,
        is_warning: bool,
        reason: &'static str,
        message: String,
    ) {
        let event = events::Event {
            is_warning,
            reason: reason.into(),
            message,
        };
        let about = Arc::new(events::About::object(controller));
        self.context.recorder.record(&about, &event);
    }

    /// Reports a controller that cannot run.
    pub(crate) fn refused(
        &self,
        name: &ControllerName,
        object: &Arc<Object>,
        place: Place,
        why: &Part,
    ) {
        let not_opened = Part::unknown(reason::SYNCING, "the controller does not run");
        let health = Health {
            accepted: why.clone(),
            watches: not_opened,
            hooks: Part::unknown(reason::NOT_CALLED, "the controller does not run"),
            observes: false,
            troubles: Vec::new(),
        };
        let report = Report {
            health,
            place,
            generation: object.generation(),
            parents: None,
            migration: trial::resting(object, &self.context),
        };
        self.report(name, object, report);
    }

    /// Reports a controller that runs or waits for its caches.
    pub(crate) fn open(
        &self,
        name: &ControllerName,
        object: &Arc<Object>,
        claim: Claim,
        instance: &Instance,
    ) {
        let health = Health {
            accepted: accepted(&instance.hooks, &instance.controller.notes),
            watches: watches_of(instance),
            hooks: hooks(instance, self.context.clock.wall()),
            observes: instance.gate.observes(),
            troubles: instance.troubles.lock().parts(),
        };
        let report = Report {
            health,
            place: self.place(claim, instance.cut.slices()),
            generation: object.generation(),
            parents: instance.parent_count(self.context.clock.now().mono),
            migration: trial::of(instance, object),
        };
        self.report(name, object, report);
    }

    /// This worker's place under an ownership, of a controller that is split into so many slices.
    pub(crate) fn place(&self, claim: Claim, slices: u16) -> Place {
        Place {
            shard: claim.shard,
            replica: self.context.config.replica.clone(),
            epoch: claim.epoch,
            slices,
        }
    }

    fn report(&self, name: &ControllerName, object: &Arc<Object>, report: Report) {
        let now = self.context.clock.now().mono;
        {
            let mut told = self.told.lock();
            let is_due = |at: &MonoTime| now.since(*at) >= TRIED_AGAIN;
            let is_told = told.written.get(name) == Some(&report);
            if (is_told && !told.refused.get(name).is_some_and(is_due))
                || told.pruned.contains(name)
                || !told.writing.insert(name.clone())
            {
                return;
            }
        }
        let (context, told) = (Arc::clone(&self.context), Arc::clone(&self.told));
        let (name, object) = (name.clone(), Arc::clone(object));
        task::spawn("report", async move {
            let before = told.lock().written.get(&name).cloned();
            let written = write(&context, &name, &object, &report, before.as_ref()).await;
            let mut told = told.lock();
            told.writing.remove(&name);
            if !matches!(written, Written::NotNow)
                && let Some(trouble) = report.new_trouble(told.written.get(&name))
            {
                let about = Arc::new(events::About::object(&object));
                context.recorder.record(&about, &trouble);
            }
            match written {
                Written::Kept => {
                    told.refused.remove(&name);
                    told.written.insert(name, report);
                }
                Written::Refused(error) => {
                    if told.refused.insert(name.clone(), now).is_none() {
                        warn!(controller = %name.1, %error, "the controller's status cannot be written; it is tried again");
                    }
                    told.written.insert(name, report);
                }
                Written::Pruned => {
                    debug!(controller = %name.1, "the CRD drops the controller's status; it is not written again");
                    told.pruned.insert(name);
                }
                Written::NotNow => {}
            }
        });
    }
}

impl Report {
    /// The event about caches that cannot be filled, if `before` does not tell of it.
    fn new_trouble(&self, before: Option<&Self>) -> Option<events::Event> {
        let watches = &self.health.watches;
        let is_known = before.is_some_and(|before| before.health.watches == *watches);
        (watches.holds == Some(false) && !is_known).then(|| events::Event {
            is_warning: true,
            reason: event::SYNC_ERROR.into(),
            message: format!("Sync error: {}", watches.message),
        })
    }
}

enum Written {
    Kept,
    /// The API server would have none of it.
    Refused(WriteError),
    Pruned,
    /// To be tried again with what is newer by then.
    NotNow,
}

async fn write(
    context: &Context,
    name: &ControllerName,
    object: &Object,
    report: &Report,
    before: Option<&Report>,
) -> Written {
    let resource = Arc::new(Resource::of_controllers(name.0));
    let mut known = report.health.known(&report.place);
    let said = said(object);
    for type_ in troubles::TYPES {
        let is_told = before.is_some_and(|it| it.health.tells(type_))
            || said.conditions.iter().any(|it| it.type_ == type_);
        if !report.health.tells(type_) && is_told {
            known.push(troubles::calm(type_).known(type_));
        }
    }
    let Place { shard, replica, .. } = &report.place;
    let served = status::Served {
        shard: Some(shard.0),
        worker: Some(replica.as_str()),
        parents: report.parents,
        migration: report.migration.as_ref(),
    };
    let Some(write) = status::write(&resource, object, &known, served, context.clock.wall()) else {
        return Written::Kept;
    };
    let now = context.clock.now();
    let Some(authority) = context.standing.load().authority(*shard, now) else {
        return Written::NotNow;
    };
    match context
        .gate
        .write(&Identity::process(), &authority, &write)
        .await
    {
        Ok(Some(after)) if after.status().is_none_or(|status| status == b"{}") => Written::Pruned,
        Ok(_) | Err(WriteError::Observed) => Written::Kept,
        Err(error @ (WriteError::Forbidden(_) | WriteError::Invalid(_))) => Written::Refused(error),
        Err(_) => Written::NotNow,
    }
}

fn accepted(hooks: &Hooks, notes: &[Finding]) -> Part {
    let refusal = hooks.security().and_then(Security::refusal);
    refusal.unwrap_or_else(|| served(notes))
}

/// A spec that is served, with what of it has no effect.
fn served(notes: &[Finding]) -> Part {
    if notes.is_empty() {
        return Part::good(reason::VALID, "the spec is valid");
    }
    let notes: Vec<_> = notes.iter().map(ToString::to_string).collect();
    Part::good(reason::NO_EFFECT, notes.join(" | "))
}

/// How the last call went, unless the next may go wrong.
fn hooks(instance: &Instance, wall: SystemTime) -> Part {
    let mut part = instance.hook_health.lock().clone();
    let Some(security) = instance.hooks.security() else {
        return part;
    };
    if let Some(degraded) = security.degradation() {
        return degraded;
    }
    if let Some(end) = soonest_end(instance.hooks.endpoints(), wall) {
        part.message = format!("{}; {end}", part.message);
    }
    part
}

fn watches_of(instance: &Instance) -> Part {
    let related = instance.related.as_ref();
    match related.and_then(|related| related.missing()) {
        Some(missing) => Part::bad(reason::RESOURCE_NOT_FOUND, missing),
        None => watches(&instance.controller.missing, &instance.watch_states()),
    }
}

/// The status that an object has; one that cannot be read says nothing.
fn said(object: &Object) -> ControllerStatus {
    serde_json::from_slice(object.status().unwrap_or_default()).unwrap_or_default()
}

/// The caches' part of a controller's health: the first trouble, else whether all have been listed.
fn watches(missing: &[Finding], states: &[ViewState]) -> Part {
    if let Some(finding) = missing.first() {
        return Part::bad(reason::RESOURCE_NOT_FOUND, finding.to_string());
    }
    let trouble = states.iter().find_map(|state| match state {
        ViewState::Failing(trouble) => Some(trouble),
        ViewState::Opening | ViewState::Live => None,
    });
    if let Some(trouble) = trouble {
        let reason = match trouble.kind {
            TroubleKind::Missing => reason::RESOURCE_NOT_FOUND,
            TroubleKind::Forbidden => reason::FORBIDDEN,
            TroubleKind::Unavailable | TroubleKind::Refused => reason::UNAVAILABLE,
        };
        return Part::bad(reason, trouble.message.to_string());
    }
    if states.iter().all(|state| matches!(state, ViewState::Live)) {
        Part::good(reason::SYNCED, "parents and children are watched")
    } else {
        Part::unknown(reason::SYNCING, "the first lists have not come in yet")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_without_effect_are_told_though_the_spec_is_accepted() {
        let note = |field| Finding::no_effect(field, "this hook is never called", "remove it");

        let part = served(&[
            note("spec.hooks.preUpdateChild"),
            note("spec.hooks.postUpdateChild"),
        ]);

        assert_eq!((part.holds, part.reason), (Some(true), "NoEffect"));
        for field in ["preUpdateChild", "postUpdateChild"] {
            assert!(part.message.contains(field), "{}", part.message);
        }
        assert_eq!(served(&[]).reason, "Valid");
    }

    #[test]
    fn one_cache_in_trouble_is_what_people_are_told_of() {
        use metashard_kube::informer::Trouble;
        let trouble = Trouble {
            kind: TroubleKind::Forbidden,
            message: "may not watch v1/secrets".into(),
            synced: true,
        };

        let part = watches(
            &[],
            &[
                ViewState::Live,
                ViewState::Failing(trouble),
                ViewState::Opening,
            ],
        );

        assert_eq!(part.holds, Some(false));
        assert_eq!(part.message, "may not watch v1/secrets");
        assert_eq!(
            watches(&[], &[ViewState::Live, ViewState::Opening]).holds,
            None
        );
        assert_eq!(watches(&[], &[ViewState::Live]).holds, Some(true));
    }
}
