//! How a controller does while it is being moved from Metacontroller: what its syncs would have written, or wrote, and
//! which of them failed. Told in its status, so that whoever moves it sees it without reaching a replica.

use std::collections::{BTreeMap, BTreeSet};

use metashard_api::{
    names::{ANNOTATION_MIGRATION, MIGRATION_RECORD},
    v1alpha1::status::MigrationStatus,
};
use metashard_reconcile::{
    object::Object,
    sync::Verdict,
    write::{Write, WriteError, WriteResult},
};
use parking_lot::Mutex;

use crate::{context::Context, instance::Instance, key::ParentKey};

/// Most examples that are told.
const EXAMPLES: usize = 10;

/// Longest text of one.
const LONGEST: usize = 300;

/// What the syncs of one controller did since it observes, or acts.
#[derive(Debug, Default)]
pub(crate) struct Trial {
    /// Parents whose last sync came to an end that says something.
    seen: BTreeSet<ParentKey>,
    /// For each parent of whose last sync writes were observed: how many, and the first.
    observed: BTreeMap<ParentKey, (u32, Box<str>)>,
    /// The same of syncs that run.
    running: BTreeMap<ParentKey, (u32, Box<str>)>,
    failing: BTreeMap<ParentKey, Box<str>>,
    /// Writes that were made.
    made: u32,
}

impl Trial {
    /// For a controller that is being moved; for others there is none.
    pub(crate) fn for_(object: &Object) -> Option<Mutex<Self>> {
        object
            .annotation(ANNOTATION_MIGRATION)
            .map(|_| Mutex::default())
    }

    /// A sync of this parent begins.
    fn begin(&mut self, key: &ParentKey) {
        self.running.remove(key);
    }

    /// A sync of this parent had these writes.
    fn attempted(&mut self, key: &ParentKey, writes: &[Write], results: &[WriteResult]) {
        for (write, result) in writes.iter().zip(results) {
            match result {
                Err(WriteError::Observed) => {
                    let first = || (0, write.to_string().into());
                    self.running.entry(key.clone()).or_insert_with(first).0 += 1;
                }
                Ok(_) => self.made = self.made.saturating_add(1),
                Err(_) => {}
            }
        }
    }

    /// A sync of this parent ended like this.
    fn note(&mut self, key: &ParentKey, verdict: &Verdict) {
        let running = self.running.remove(key);
        let why = match verdict {
            Verdict::Gone => return self.forget(key),
            // The next sync says more.
            Verdict::Stale | Verdict::Waiting | Verdict::Throttled | Verdict::NoAuthority => return,
            Verdict::HookFailed(why)
            | Verdict::AnswerRefused(why)
            | Verdict::Held(why)
            | Verdict::Failed(why) => Some(why),
            Verdict::Unselected
            | Verdict::Paused
            | Verdict::Unchanged
            | Verdict::Changed
            | Verdict::Observed => None,
        };
        self.seen.insert(key.clone());
        match running {
            Some(running) => self.observed.insert(key.clone(), running),
            None => self.observed.remove(key),
        };
        match why {
            Some(why) => {
                self.failing.insert(key.clone(), shortened(why).into());
            }
            None => {
                self.failing.remove(key);
            }
        }
    }

    /// The parent is gone.
    pub(crate) fn forget(&mut self, key: &ParentKey) {
        self.seen.remove(key);
        self.observed.remove(key);
        self.running.remove(key);
        self.failing.remove(key);
    }

    /// `keys`: of all parents that there are.
    fn status(&self, round: &str, acts: bool, keys: &[ParentKey]) -> MigrationStatus {
        let writes = self.observed.values().map(|(count, _)| *count).sum();
        let would = self.observed.values().map(|(count, first)| match count {
            1 => first.to_string(),
            count => format!("{first}, and {} more", count - 1),
        });
        let failures = self
            .failing
            .iter()
            .map(|(key, why)| format!("{key}: {why}"));
        MigrationStatus {
            round: round.to_owned(),
            acts,
            held: false,
            parents: count(keys.len()),
            synced: count(keys.iter().filter(|key| self.seen.contains(key)).count()),
            failing: count(self.failing.len()),
            writes: if acts { self.made } else { writes },
            examples: failures.chain(would).take(EXAMPLES).collect(),
        }
    }
}

impl Instance {
    /// A sync of this parent begins.
    pub(crate) fn trial_begins(&self, key: &ParentKey) {
        if let Some(trial) = &self.trial {
            trial.lock().begin(key);
        }
    }

    /// A sync of this parent had these writes.
    pub(crate) fn trial_had(&self, key: &ParentKey, writes: &[Write], results: &[WriteResult]) {
        if let Some(trial) = &self.trial {
            trial.lock().attempted(key, writes, results);
        }
    }

    /// A sync of this parent ended like this.
    pub(crate) fn trial_ended(&self, key: &ParentKey, verdict: &Verdict) {
        if let Some(trial) = &self.trial {
            trial.lock().note(key, verdict);
        }
    }
}

/// What a controller that runs here answers, if it is being moved.
pub(crate) fn of(instance: &Instance, object: &Object) -> Option<MigrationStatus> {
    let (round, trial) = (
        object.annotation(ANNOTATION_MIGRATION)?,
        instance.trial.as_ref()?,
    );
    let keys = instance.keys();
    let status = trial
        .lock()
        .status(&round, !instance.gate.observes(), &keys);
    Some(MigrationStatus {
        held: *instance.context.hold.borrow(),
        ..status
    })
}

/// What a controller that does not run here answers, if it is being moved.
pub(crate) fn resting(object: &Object, context: &Context) -> Option<MigrationStatus> {
    let round = object.annotation(ANNOTATION_MIGRATION)?;
    Some(MigrationStatus {
        round: round.into(),
        held: *context.hold.borrow(),
        ..MigrationStatus::default()
    })
}

/// Why a controller is not served while a move is held.
pub(crate) fn held() -> String {
    format!(
        "a move from Metacontroller has not come to this controller, or has gone back: `metashardctl migrate` goes on with it (ConfigMap {MIGRATION_RECORD})"
    )
}

fn count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn shortened(text: &str) -> String {
    text.chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ParentKey {
        ParentKey::new(0, Some("ns"), name)
    }

    #[test]
    fn only_the_last_sync_of_each_parent_counts() {
        let mut trial = Trial::default();
        let keys = [key("a"), key("b")];
        trial.note(&keys[0], &Verdict::HookFailed("no route".to_owned()));

        let first = trial.status("1", false, &keys);
        assert_eq!((first.parents, first.synced, first.failing), (2, 1, 1));
        assert_eq!(first.examples, ["ns/a: no route"]);

        trial.note(&keys[0], &Verdict::Unchanged);
        trial.note(&keys[1], &Verdict::Stale);
        let second = trial.status("1", false, &keys);
        assert_eq!((second.parents, second.synced, second.failing), (2, 1, 0));
        assert!(second.examples.is_empty());
    }
}
