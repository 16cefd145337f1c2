//! What stands in the way of a controller's writes: refusals and fights, by parent, and the conditions that tell of them.

use std::collections::BTreeMap;

use metashard_api::names::{condition, reason};
use metashard_reconcile::{
    sync::{Outcome, Refused, Verdict},
    write::{Purpose, WriteError},
};

use crate::{conditions::Part, instance::Instance, key::ParentKey};

/// The conditions that are told of here; each is written only once there is something to tell.
pub(crate) const TYPES: [&str; 4] = [
    condition::AUTHORIZED,
    condition::STALLED,
    condition::RECONCILING,
    condition::HOT_LOOP,
];

/// The parents in trouble. Empty for nearly all controllers.
#[derive(Debug, Default)]
pub(crate) struct Troubles {
    parents: BTreeMap<ParentKey, Box<Trouble>>,
    /// The record of the controller, which is no parent's.
    record: Option<Box<Trouble>>,
}

impl Instance {
    /// The parent is not in the cache any more.
    pub(crate) fn lost(&self, key: &ParentKey) {
        self.unrelate(key);
        self.troubles.lock().forget(key);
        if let Some(trial) = &self.trial {
            trial.lock().forget(key);
        }
    }
}

#[derive(Debug, Default)]
struct Trouble {
    refused: Vec<Refused>,
    fights: Vec<Box<str>>,
}

impl Troubles {
    /// Takes in how a pass over a parent ended.
    pub(crate) fn note(&mut self, key: &ParentKey, outcome: &Outcome) {
        let refused = match outcome.verdict {
            Verdict::Gone | Verdict::Unselected => return self.forget(key),
            // It did not get as far as its writes.
            Verdict::HookFailed(_)
            | Verdict::AnswerRefused(_)
            | Verdict::Held(_)
            | Verdict::Throttled
            | Verdict::Paused
            | Verdict::Waiting
            | Verdict::NoAuthority => {
                let before = self.parents.remove(key);
                before.map(|trouble| trouble.refused).unwrap_or_default()
            }
            Verdict::Unchanged
            | Verdict::Changed
            | Verdict::Observed
            | Verdict::Stale
            | Verdict::Failed(_) => outcome.refused.clone(),
        };
        if refused.is_empty() && outcome.fights.is_empty() {
            return self.forget(key);
        }
        let fights = outcome.fights.clone();
        let trouble = Box::new(Trouble { refused, fights });
        self.parents.insert(key.clone(), trouble);
    }

    /// Takes in that the record of the controller's finalizer was refused, or is kept.
    pub(crate) fn set_record(&mut self, refused: Option<Refused>) {
        self.record = refused.map(|refused| {
            Box::new(Trouble {
                refused: vec![refused],
                fights: Vec::new(),
            })
        });
    }

    /// The parent is gone.
    pub(crate) fn forget(&mut self, key: &ParentKey) {
        self.parents.remove(key);
    }

    /// The conditions that are not as they should be.
    pub(crate) fn parts(&self) -> Vec<(&'static str, Part)> {
        TYPES
            .into_iter()
            .filter_map(|type_| Some((type_, self.part(type_)?)))
            .collect()
    }

    fn part(&self, type_: &str) -> Option<Part> {
        let record = self.record.as_ref().and_then(|record| record.text(type_));
        let parents = self.parents.values();
        let mut told = parents.filter_map(|trouble| trouble.text(type_));
        let first = record.or_else(|| told.next())?;
        let text = match told.count() {
            0 => first,
            1 => format!("{first} (and so for 1 other parent)"),
            more => format!("{first} (and so for {more} other parents)"),
        };
        Some(match type_ {
            condition::AUTHORIZED => Part::bad(reason::FORBIDDEN, text),
            condition::STALLED => Part::good(reason::WRITE_REFUSED, text),
            condition::RECONCILING => Part::good(reason::UNAVAILABLE, text),
            _ => Part::good(reason::FOUGHT_OVER, text),
        })
    }
}

impl Trouble {
    fn text(&self, type_: &str) -> Option<String> {
        if type_ == condition::HOT_LOOP {
            return self.fights.first().map(ToString::to_string);
        }
        let told = self.refused.iter().find(|it| is_about(&it.error, type_))?;
        let Refused {
            write,
            purpose,
            error,
        } = told;
        let fix = match type_ {
            condition::AUTHORIZED => "grant this right to the identity that the controller acts as",
            condition::STALLED => mend(*purpose),
            _ => "it is tried again",
        };
        Some(format!("{write}: {error}; {fix}"))
    }
}

/// What is to be done about a write whose content is refused.
fn mend(purpose: Option<Purpose>) -> &'static str {
    match purpose {
        Some(Purpose::UpdateStatus) => {
            "correct the status in the hook's answer, or the schema of the parent's kind"
        }
        Some(Purpose::Decorate) => {
            "correct labels, annotations and status in the hook's answer, or what refuses them"
        }
        Some(
            Purpose::AddFinalizer
            | Purpose::RemoveFinalizer
            | Purpose::AdoptChild
            | Purpose::ReleaseChild
            | Purpose::OrphanChild
            | Purpose::RelabelChild
            | Purpose::CreateRevision
            | Purpose::UpdateRevision
            | Purpose::DeleteRevision,
        ) => "correct the policy or the webhook that refuses it",
        Some(_) | None => "correct the object in the hook's answer",
    }
}

/// Which condition tells of a refusal.
fn is_about(error: &WriteError, type_: &str) -> bool {
    match error {
        // A quota or an admission plug-in answers 403 too, in other words than the authorizer.
        WriteError::Forbidden(why) if why.contains(" cannot ") && why.contains(" resource ") => {
            type_ == condition::AUTHORIZED
        }
        WriteError::Forbidden(_) | WriteError::Invalid(_) => type_ == condition::STALLED,
        WriteError::Unavailable(_) => type_ == condition::RECONCILING,
        WriteError::NotFound
        | WriteError::Conflict
        | WriteError::AlreadyExists
        | WriteError::Observed
        | WriteError::NoAuthority => false,
    }
}

/// A condition that is as it should be again.
pub(crate) fn calm(type_: &str) -> Part {
    let text = "no write is refused, and no child is fought over";
    if type_ == condition::AUTHORIZED {
        Part::good(reason::SETTLED, text)
    } else {
        Part::bad(reason::SETTLED, text)
    }
}
