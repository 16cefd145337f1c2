//! What the hook wants to see beside parent and children: its customize hook is asked, and the objects are fetched.

use std::sync::Arc;

use metashard_api::hook::{Mode, RelatedRule, decode_customize};
use xxhash_rust::xxh3::Xxh3;

use super::{HookCall, HookKind, HookResult, Stage, Step, SyncMachine, Unrelated};
use crate::{
    memory::Customized,
    object::Object,
    outcome::Verdict,
    related::{Error, Related},
    requeue::Requeue,
};

/// A call of a sync or finalize hook that waits for the related objects.
#[derive(Debug)]
pub(super) struct Relating {
    pub(super) hook: HookKind,
    /// The claimed children of each rule.
    pub(super) mine: Vec<Vec<Arc<Object>>>,
}

impl SyncMachine {
    /// Calls the hook, with the related objects if the controller asks for such.
    pub(super) fn relate(&mut self, hook: HookKind, mine: Vec<Vec<Arc<Object>>>) -> Step {
        let waiting = Relating { hook, mine };
        if self.controller.customize.is_none() {
            return self.call(waiting.hook, waiting.mine);
        }
        if let Some(rules) = self.memory.customized(state_of(&self.parent)) {
            self.stage = Stage::Relating(waiting);
            return Step::Relate(rules);
        }
        self.stage = Stage::Customizing(waiting);
        let body = self.controller.frame.customize(&self.parent);
        Step::CallHook(HookCall {
            hook: HookKind::Customize,
            body,
            revision: None,
        })
    }

    pub(super) fn customized(&mut self, waiting: Relating, result: HookResult) -> Step {
        let bytes = match result {
            HookResult::Answer(bytes) => bytes,
            result => return self.not_answered(HookKind::Customize, result),
        };
        let mode = self
            .controller
            .customize
            .as_ref()
            .map_or(Mode::Strict, |hook| hook.mode);
        match decode_customize(&bytes, mode) {
            Ok(answer) => {
                self.tell(Vec::new(), answer.warnings, &[]);
                let rules: Arc<[RelatedRule]> = answer.related.into();
                self.memory.customized = Some(Customized {
                    about: state_of(&self.parent),
                    rules: Arc::clone(&rules),
                });
                self.stage = Stage::Relating(waiting);
                Step::Relate(rules)
            }
            Err(error) => self.refuse_rules(&self.unread(HookKind::Customize, &error)),
        }
    }

    pub(super) fn related(&mut self, waiting: Relating, found: Result<Related, Unrelated>) -> Step {
        match found {
            Ok(related) => {
                self.related = related;
                self.call(waiting.hook, waiting.mine)
            }
            Err(Unrelated::NotYet) => self.done(Verdict::Waiting, Requeue::Await),
            // The answer may be right, and its kind be installed later.
            Err(Unrelated::Refused(error @ Error::NotFound { .. })) => {
                let error = self.hook_error(HookKind::Customize, &error.to_string());
                self.fail(error)
            }
            Err(Unrelated::Refused(error)) => self.refuse_rules(&error.to_string()),
        }
    }

    /// Refuses an answer of the customize hook; it is asked again.
    fn refuse_rules(&mut self, error: &str) -> Step {
        self.memory.customized = None;
        let error = self.hook_error(HookKind::Customize, error);
        self.report.sync_error(&error);
        self.done(Verdict::AnswerRefused(error), Requeue::Backoff)
    }
}

/// What of a parent an answer of the customize hook counts for: everything that people and controllers wish of it. A kind
/// without generation does not tell its wishes from its status, so there any change counts.
fn state_of(parent: &Object) -> u64 {
    let mut hash = Xxh3::new();
    if parent.generation() == 0 {
        parent.hash_version(&mut hash);
    } else {
        parent.hash_wishes(&mut hash);
    }
    hash.digest()
}
