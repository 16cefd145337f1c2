//! A recorded pass, run again.

use bytes::Bytes;

use super::Recording;
use crate::{
    sync::{Fed, HookKind, HookResult, Outcome, Step, SyncMachine, Unrelated},
    write::{Write, WriteError, WriteResult},
};

/// What a recorded pass did, and does again.
#[derive(Debug)]
pub struct Replayed {
    /// The calls of hooks, in order.
    pub calls: Vec<Called>,
    /// The writes, in order, and what came of each; `None`: it is not known, as the recording ends before.
    pub writes: Vec<(Write, Option<WriteResult>)>,
    /// What it comes to. A pass that was cut short comes to nothing.
    pub outcome: Outcome,
    /// Where this program goes another way than the one that recorded.
    pub departs: Option<String>,
}

/// One call of a hook.
#[derive(Debug, Clone)]
pub struct Called {
    /// Which.
    pub hook: HookKind,
    /// The request's body.
    pub request: Vec<Bytes>,
    /// What came of it.
    pub result: HookResult,
}

impl Recording {
    /// Runs the pass again: by the same machine, fed with the same.
    pub fn replay(self) -> Replayed {
        let mut machine = SyncMachine::new(self.input);
        if let Some(now) = self.now {
            machine = machine.at(now);
        }
        let mut fed = self.fed.into_iter();
        let (mut calls, mut writes) = (Vec::new(), Vec::new());
        let mut departs = None;
        loop {
            let step = match machine.next() {
                Step::Done(outcome) => {
                    if fed.next().is_some() {
                        departs.get_or_insert_with(|| "it ends before the recording".to_owned());
                    }
                    return Replayed {
                        calls,
                        writes,
                        outcome: *outcome,
                        departs,
                    };
                }
                step => step,
            };
            let next = fed.next();
            if let Some(next) = &next
                && !answers(next, &step)
            {
                departs.get_or_insert_with(|| format!("it asks for {}", name_of(&step)));
            }
            let known = next.is_some();
            let next = next.unwrap_or_else(|| cut(&step));
            match (step, &next) {
                (Step::Write(all), Fed::Written(results)) => {
                    let results = results.iter().cloned().map(|it| known.then_some(it));
                    let results = results.chain(std::iter::repeat(None));
                    writes.extend(all.into_iter().zip(results));
                }
                (Step::Write(all), _) => writes.extend(all.into_iter().map(|it| (it, None))),
                (Step::CallHook(call), Fed::Hook(result)) => calls.push(Called {
                    hook: call.hook,
                    request: call.body,
                    result: result.clone(),
                }),
                _ => {}
            }
            machine.feed(next);
        }
    }
}

/// Whether this is what comes of such a step.
fn answers(fed: &Fed, step: &Step) -> bool {
    match (fed, step) {
        (Fed::Written(results), Step::Write(writes)) => results.len() == writes.len(),
        (Fed::Parent(_), Step::ReadParent)
        | (Fed::Hook(_), Step::CallHook(_))
        | (Fed::Related(_), Step::Relate(_)) => true,
        _ => false,
    }
}

/// What a step comes to after the end of a recording: nothing more is done.
fn cut(step: &Step) -> Fed {
    match step {
        Step::Write(writes) => Fed::Written(
            writes
                .iter()
                .map(|_| Err(WriteError::NoAuthority))
                .collect(),
        ),
        Step::CallHook(_) => Fed::Hook(HookResult::NoAuthority),
        Step::Relate(_) => Fed::Related(Err(Unrelated::NotYet)),
        Step::ReadParent | Step::Done(_) => Fed::Parent(Err(WriteError::NoAuthority)),
    }
}

fn name_of(step: &Step) -> String {
    match step {
        Step::Write(writes) => {
            let writes: Vec<_> = writes.iter().map(ToString::to_string).collect();
            format!("{} writes: {}", writes.len(), writes.join(", "))
        }
        Step::ReadParent => "the parent".to_owned(),
        Step::CallHook(call) => format!("a call of the {} hook", call.hook.as_str()),
        Step::Relate(_) => "related objects".to_owned(),
        Step::Done(_) => "nothing".to_owned(),
    }
}
