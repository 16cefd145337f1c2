//! What one observed child needs to become as desired, and what is known of it afterwards.

use bytes::Bytes;
use serde_json::Value;

use crate::{
    answer::Desired,
    apply,
    controller::{Strategy, UpdateStrategy},
    diff, lastapplied,
    memory::{Known, hash_version},
    object::Object,
    serverside::Applied,
};

/// What is to be done to one observed child.
#[derive(Debug)]
pub(crate) enum Change {
    /// Nothing; `disagreement` is what the API server has otherwise for good.
    None { disagreement: u64 },
    /// It is updated to this.
    Update { object: Box<Value>, why: String },
    /// It is deleted, to be created anew.
    Recreate { why: String },
    /// The desired object is applied to it by the API server.
    Apply { why: String },
    /// The API server is asked what that would come to: it is deleted if it would change.
    Try { why: String },
    /// It goes from dynamic to server-side apply with this body.
    HandOver { body: Bytes, why: String },
}

impl Change {
    /// Which fields it is for.
    pub(crate) fn why(self) -> String {
        match self {
            Self::None { .. } => String::new(),
            Self::Update { why, .. }
            | Self::Recreate { why }
            | Self::Apply { why }
            | Self::Try { why }
            | Self::HandOver { why, .. } => why,
        }
    }
}

/// What dynamic apply does to a child.
pub(crate) fn dynamic(
    strategy: UpdateStrategy,
    applied: &Applied<'_>,
    child: &Object,
    last: u64,
) -> Result<Change, apply::Error> {
    if strategy == UpdateStrategy::OnDelete {
        return Ok(Change::None { disagreement: 0 });
    }
    let desired = applied.desired;
    let observed = child.to_value()?;
    let recorded = lastapplied::read(&observed)?;
    let by_server = recorded
        .is_none()
        .then(|| applied.last_applied(child, &observed))
        .flatten();
    let recorded = match by_server {
        // A record is written with the first real change.
        Some(last) if last.is_as_wanted => return Ok(Change::None { disagreement: 0 }),
        Some(last) => Some(last.object),
        None => recorded,
    };
    let mut updated = apply::update_from(&observed, recorded.as_ref(), desired)?;
    let parent = applied.parent;
    if updated.changed && keep_owner(&observed, &mut updated.object, parent.uid()) {
        updated.changed = !diff::equal(&observed, &updated.object);
    }
    if !updated.changed {
        return Ok(Change::None { disagreement: 0 });
    }
    let found = diff::differences(&observed, &updated.object);
    let disagreement = diff::disagreement(&found);
    if disagreement == last {
        return Ok(Change::None { disagreement });
    }
    let why = diff::describe(&found);
    drop(found);
    match strategy {
        // A child is not deleted for what the API server added to lists, or left out because it is empty.
        UpdateStrategy::Recreate if updated.same_wish && diff::covers(Some(&observed), desired) => {
            Ok(Change::None { disagreement })
        }
        UpdateStrategy::Recreate => Ok(Change::Recreate { why }),
        _ => Ok(Change::Update {
            object: Box::new(updated.object),
            why,
        }),
    }
}

/// What is known of a child once it is written as desired: what came of it needs no write.
pub(crate) fn learn(applied: &Applied<'_>, desired: &Desired, stored: &Object) -> Known {
    let disagreement = match applied.apply.strategy {
        Strategy::ServerSide => applied.disagreement(stored),
        Strategy::Dynamic => disagreement(&desired.object, stored).unwrap_or(0),
    };
    Known::of(desired, hash_version(stored), disagreement)
}

fn disagreement(desired: &Value, stored: &Object) -> Option<u64> {
    let observed = stored.to_value().ok()?;
    let updated = apply::update(&observed, desired).ok()?;
    let found = diff::differences(&observed, &updated.object);
    Some(diff::disagreement(&found))
}

/// Puts the parent's owner reference back if a merge of lists has lost it. Whether it had.
fn keep_owner(observed: &Value, object: &mut Value, uid: &str) -> bool {
    let of = |owners: &Value| {
        owners
            .as_array()
            .and_then(|all| all.iter().find(|owner| owner["uid"] == uid).cloned())
    };
    let Some(ours) = of(&observed["metadata"]["ownerReferences"]) else {
        return false;
    };
    if of(&object["metadata"]["ownerReferences"]).is_some() {
        return false;
    }
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return false;
    };
    match metadata.entry("ownerReferences").or_insert(Value::Null) {
        Value::Array(owners) => owners.push(ours),
        other => *other = Value::Array(vec![ours]),
    }
    true
}
