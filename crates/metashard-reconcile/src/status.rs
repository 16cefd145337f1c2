//! The parent's status: what a hook wants it to be, and whether that needs a write.

use std::sync::Arc;

use metashard_api::resource::Resource;
use serde_json::{Map, Value};
use xxhash_rust::xxh3::Xxh3;

use crate::{
    diff,
    memory::StatusWrite,
    object::Object,
    write::{Op, Purpose, Write},
};

/// The status that a hook's answer asks for. `generation` is that of the parent which the hook saw.
pub(crate) fn wanted(answer: Option<Map<String, Value>>, generation: i64) -> Value {
    let mut status = answer.unwrap_or_default();
    status.insert("observedGeneration".to_owned(), generation.into());
    Value::Object(status)
}

/// The write that a parent's status needs, if any. `last`: what the last write wanted, and what came of it:
/// a status that the API server keeps otherwise than it was written is not written again and again.
pub(crate) fn plan(
    resource: &Arc<Resource>,
    parent: &Object,
    wanted: &Value,
    last: Option<StatusWrite>,
) -> Option<Write> {
    let observed = observed(parent);
    let found = diff::differences(&observed, wanted);
    let is_there = parent.status().is_some();
    if (found.is_empty() && is_there)
        || last
            == Some(StatusWrite {
                wanted: hash(wanted),
                stored: hash(&observed),
            })
    {
        return None;
    }
    Some(Write {
        resource: Arc::clone(resource),
        namespace: parent.namespace().map(Into::into),
        name: parent.name().into(),
        op: Op::UpdateStatus {
            body: parent.with_status(wanted),
        },
        purpose: Purpose::UpdateStatus,
        why: diff::describe(&found).into(),
    })
}

/// What is to be remembered of a status write, and the fields that the API server kept otherwise than written.
pub(crate) fn written(parent: &Object, wanted: &Value) -> (StatusWrite, Option<String>) {
    let stored = observed(parent);
    let found = diff::differences(&stored, wanted);
    let lost = (!found.is_empty()).then(|| diff::describe(&found));
    (
        StatusWrite {
            wanted: hash(wanted),
            stored: hash(&stored),
        },
        lost,
    )
}

/// The status in the cache; none is an empty one.
fn observed(parent: &Object) -> Value {
    let empty = || Value::Object(Map::new());
    parent
        .status()
        .and_then(|raw| serde_json::from_slice(raw).ok())
        .filter(|value: &Value| !value.is_null())
        .unwrap_or_else(empty)
}

fn hash(value: &Value) -> u64 {
    let mut hasher = Xxh3::new();
    diff::hash(value, &mut hasher);
    hasher.digest()
}
