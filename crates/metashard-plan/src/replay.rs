//! Passes that a worker has recorded, run again and shown as `render` shows passes.

use std::sync::Arc;

use metashard_reconcile::{
    object::Object,
    recording::{Recording, Replayed},
    sync::Fed,
    write::WriteError,
};

use crate::render::Rendered;

/// A recorded pass, run again.
#[derive(Debug)]
pub struct Again {
    /// As if it were rendered.
    pub rendered: Rendered,
    /// What is to be known of it, for people.
    pub notes: Vec<String>,
}

/// Runs a recorded pass again.
pub fn replay(recording: Recording) -> Again {
    let parent = Arc::clone(&recording.input.parent);
    let others = objects(&recording);
    let mut notes = vec![format!(
        "recorded at {} by replica {}",
        recording.at, recording.replica
    )];
    let mut note = |applies: bool, text: &str| {
        if applies {
            notes.push(text.to_owned());
        }
    };
    note(
        recording.observed,
        "it was only observed: nothing was written",
    );
    note(
        recording.redacted,
        "values of Secrets are hidden in it: what compares them may come out otherwise",
    );
    note(recording.verdict.is_none(), "it was cut short");
    let Replayed {
        calls,
        writes,
        outcome,
        departs,
    } = recording.replay();
    if let Some(departs) = departs {
        notes.push(format!(
            "this program goes another way than the one that recorded: {departs}"
        ));
    }
    let failed = writes.iter().filter_map(|(write, result)| match result {
        Some(Err(WriteError::Observed) | Ok(_)) => None,
        Some(Err(error)) => Some(format!("not done: {write}: {error}")),
        None => Some(format!("not known whether it was done: {write}")),
    });
    notes.extend(failed);
    Again {
        rendered: Rendered {
            parent,
            others,
            related: Vec::new(),
            calls,
            writes: writes.into_iter().map(|(write, _)| write).collect(),
            outcome,
        },
        notes,
    }
}

/// All objects that the pass saw.
fn objects(recording: &Recording) -> Vec<Arc<Object>> {
    let input = &recording.input;
    let candidates = input.candidates.iter().chain([&input.revisions]);
    let related = recording.fed.iter().filter_map(|fed| match fed {
        Fed::Related(Ok(related)) => Some(related.objects()),
        _ => None,
    });
    let own = candidates.flat_map(|it| &it.objects);
    own.chain(related.flatten()).cloned().collect()
}
