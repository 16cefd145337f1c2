//! Every pass of these tests is recorded, and run again from its recording: it must ask for the same, byte for byte.

use std::time::Duration;

use metashard_reconcile::{
    recording::{Origin, Recording, Scribe},
    sync::{Fed, HookKind, Outcome, SyncInput},
    write::Write,
};
use serde_json::Value;

/// The recording of one pass.
pub(crate) struct Tape(Vec<u8>);

impl Tape {
    pub(crate) fn start(input: &SyncInput, now: Option<Duration>) -> Self {
        let origin = Origin {
            at: "",
            replica: "",
            observed: false,
        };
        let mut tape = Vec::new();
        Scribe::default()
            .start(&origin, input, now, &mut tape)
            .unwrap();
        Self(tape)
    }

    pub(crate) fn fed(&mut self, fed: Fed) -> Fed {
        Scribe::default().fed(&fed, &mut self.0).unwrap();
        fed
    }

    /// Runs the pass again, and compares.
    pub(crate) fn end(mut self, outcome: &Outcome, writes: &[Write], calls: &[(HookKind, Value)]) {
        Scribe::default().end(outcome, &mut self.0).unwrap();
        let text = || String::from_utf8_lossy(&self.0).into_owned();
        let recording = Recording::read(&self.0).unwrap_or_else(|error| {
            panic!(
                "{error}: {:?}: {}",
                std::error::Error::source(&error),
                text()
            )
        });
        assert_eq!(recording.verdict.as_deref(), Some(outcome.verdict.as_str()));
        let again = recording.replay();
        assert_eq!(again.departs, None, "{}", text());
        let rewritten: Vec<_> = again.writes.into_iter().map(|(write, _)| write).collect();
        assert_eq!(rewritten, writes, "{}", text());
        let recalled: Vec<_> = again
            .calls
            .iter()
            .map(|call| {
                (
                    call.hook,
                    serde_json::from_slice(&call.request.concat()).unwrap(),
                )
            })
            .collect();
        assert_eq!(recalled, calls);
        assert_eq!(again.outcome.verdict, outcome.verdict);
        assert_eq!(again.outcome.requeue, outcome.requeue);
        let texts = |outcome: &Outcome| format!("{:?}", outcome.events);
        assert_eq!(texts(&again.outcome), texts(outcome));
    }
}
