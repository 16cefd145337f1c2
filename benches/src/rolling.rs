//! What one pass in the middle of a roll-out costs, by the number of children.

use std::sync::Arc;

use anyhow::bail;
use bytes::Bytes;
use metashard_reconcile::{
    memory::Memory,
    object::Object,
    sync::{Candidates, Fed, HookResult, Step, SyncInput, SyncMachine},
    write::{Purpose, WriteError},
};
use serde_json::json;

use crate::{
    Bench,
    objects::{
        answer, desired_page, object, observed_page, parent, parents, revision, rolling_controller,
    },
};

const OLD: &str = "<h1>Hi</h1>";
const NEW: &str = "<h1>Hello</h1>";

/// A pass in which the first child has moved and is waited for: the hook is called for both revisions, and nothing is written
/// but the status.
pub(crate) fn roll_out(size: usize) -> anyhow::Result<Bench> {
    let controller = rolling_controller()?;
    let parent = parent()?;
    let children: Vec<_> = (0..size)
        .map(|n| object(&observed_page(n, if n == 0 { NEW } else { OLD })))
        .collect::<anyhow::Result<_>>()?;
    let old_spec = json!({ "replicas": 3, "pages": { "index.html": OLD } });
    let mut revisions = vec![revision(None, 0..1)?];
    if size > 1 {
        revisions.push(revision(Some(old_spec), 1..size)?);
    }
    let answers = [NEW, OLD].map(|page| answer((0..size).map(|n| desired_page(n, page))));
    let mut memory = Some(Memory::default());
    Ok(Bench {
        work: Box::new(move || {
            let pass = SyncMachine::new(SyncInput {
                controller: Arc::clone(&controller),
                resource: parents(),
                parent: Arc::clone(&parent),
                candidates: vec![Candidates::default(), of(&children)],
                revisions: of(&revisions),
                memory: memory.take().unwrap_or_default(),
            });
            let (calls, kept) = drive(pass, &answers)?;
            memory = Some(kept);
            Ok(calls)
        }),
        // Of one child there is nothing left at the old revision.
        expected: size.min(2),
    })
}

fn of(objects: &[Arc<Object>]) -> Candidates {
    Candidates::from(objects.to_vec())
}

/// Answers the hook's calls; the status, which is all that is written, is refused. How many calls there were, and the memory.
fn drive(mut pass: SyncMachine, answers: &[Bytes]) -> anyhow::Result<(usize, Memory)> {
    let mut answers = answers.iter().cloned();
    let mut calls = 0;
    loop {
        match pass.next() {
            Step::CallHook(_) => {
                calls += 1;
                let answer = answers.next().unwrap_or_default();
                pass.feed(Fed::Hook(HookResult::Answer(answer)));
            }
            Step::Write(writes) => match &writes[..] {
                [write] if write.purpose == Purpose::UpdateStatus => {
                    pass.feed(Fed::Written(vec![Err(WriteError::Conflict)]));
                }
                _ => bail!("it writes {writes:?}"),
            },
            Step::Done(outcome) => return Ok((calls, outcome.memory)),
            other => bail!("it asks for more: {other:?}"),
        }
    }
}
