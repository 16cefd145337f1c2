//! The variations of a pass for decorators: their answers, and the last write, to the target itself.
//!
//! Attachments come first, so that a target that has changed meanwhile costs them nothing, and our finalizer goes only once
//! all is done that it was there for.

use metashard_api::{
    hook::{DecodeError, Mode, SyncAnswer, decode_decorator, decode_sync},
    id::ControllerKind,
};
use serde_json::Value;

use super::{Stage, Step, SyncMachine, Work};
use crate::{
    decorate::{self, Decoration},
    status,
    write::{Purpose, WriteResult},
};

impl SyncMachine {
    /// Reads an answer. That of a decorator is one with attachments as its children, and with a part about the target.
    pub(super) fn decode(
        &self,
        bytes: &[u8],
        mode: Mode,
    ) -> Result<(SyncAnswer, Option<Decoration>), DecodeError> {
        if self.controller.kind == ControllerKind::Composite {
            return Ok((decode_sync(bytes, mode)?, None));
        }
        let mut answer = decode_decorator(bytes, mode)?;
        let decoration = Decoration::take(&mut answer);
        let answer = SyncAnswer {
            status: answer.status,
            children: answer.attachments,
            resync_after: answer.resync_after,
            finalized: answer.finalized,
            events: answer.events,
            warnings: answer.warnings,
        };
        Ok((answer, Some(decoration)))
    }

    /// Writes what a decorator wants of its target, if that is not so already.
    pub(super) fn decorate(&mut self, mut work: Box<Work>) -> Step {
        let is_done = !self.report.is_stale && self.report.failures.is_empty();
        let Some(decoration) = &mut work.decoration else {
            return self.finish();
        };
        decoration.finalized &= is_done;
        let finalizer = &self.controller.finalizer;
        let write = decorate::plan(
            &self.resource,
            finalizer,
            &self.parent,
            decoration,
            self.status_within(work.status.as_ref()),
        );
        match write {
            Some(write) => {
                self.stage = Stage::WritingTarget(work);
                Step::Write(vec![write])
            }
            None => self.finish(),
        }
    }

    /// The status that goes with the rest of the target, because there is no subresource for it.
    fn status_within<'a>(&self, status: Option<&'a Value>) -> Option<&'a Value> {
        let last = self.memory.status;
        status
            .filter(|_| !self.resource.has_status)
            .filter(|it| status::plan(&self.resource, &self.parent, it, last).is_some())
    }

    pub(super) fn target_written(&mut self, work: &Work, results: Vec<WriteResult>) -> Step {
        let status = self.status_within(work.status.as_ref());
        match self.parent_written(Purpose::Decorate, results) {
            Ok(()) => {
                if let Some(status) = status {
                    self.learn_status(status);
                }
                self.finish()
            }
            Err(error) => {
                let what = format!("can't update {}", self.parent);
                self.parent_not_written(&error, &what)
            }
        }
    }
}
