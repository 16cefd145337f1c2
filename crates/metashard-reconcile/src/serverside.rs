//! Server-side apply: what is wanted of a child, whether it has it, and how its fields come from and go to dynamic apply.

use std::sync::Arc;

use bytes::Bytes;
use metashard_api::{
    names::{ANNOTATION_LAST_APPLIED, FIELD_MANAGER, USER_AGENT},
    resource::Resource,
};
use serde_json::{Map, Value, json};

use crate::{
    apply,
    children::{add_owner, change::Change},
    controller::{Apply, UpdateStrategy},
    diff,
    fields::{self, Entry, UPDATE, set},
    lastapplied,
    object::Object,
    write::{Aim, NO_VERSION, Op},
};

/// One desired child under the manager that applies it.
pub(crate) struct Applied<'a> {
    /// How it is applied.
    pub(crate) apply: &'a Apply,
    /// The parent's.
    pub(crate) resource: &'a Resource,
    pub(crate) parent: &'a Object,
    /// As the hook wants it.
    pub(crate) desired: &'a Value,
}

impl Applied<'_> {
    /// What is applied: the desired object with its owner, without nulls and status.
    pub(crate) fn wanted(&self) -> Result<Value, apply::Error> {
        let mut object = self.desired.clone();
        lastapplied::strip(&mut object);
        object
            .as_object_mut()
            .ok_or(apply::Error::Metadata)?
            .remove("status");
        if !object["metadata"].is_object() {
            return Err(apply::Error::Metadata);
        }
        add_owner(&mut object, self.resource, self.parent);
        apply::drop_nulls(&mut object, None);
        Ok(object)
    }

    /// The write that creates it.
    pub(crate) fn create(&self) -> Result<Op, apply::Error> {
        let mut object = self.wanted()?;
        object["metadata"]["resourceVersion"] = NO_VERSION.into();
        Ok(self.op(&object, Aim::Create))
    }

    /// The question whether it could be created, if only nothing of its name existed.
    pub(crate) fn try_create(&self) -> Result<Op, apply::Error> {
        let body = self.wanted()?.to_string().into();
        Ok(Op::TryCreate { body })
    }

    /// The write that applies it to the observed child, or asks what that would come to.
    pub(crate) fn update(&self, child: &Object, aim: Aim) -> Result<Op, apply::Error> {
        let mut object = self.wanted()?;
        object["metadata"]["uid"] = child.uid().into();
        object["metadata"]["resourceVersion"] = child.resource_version().into();
        Ok(self.op(&object, aim))
    }

    fn op(&self, object: &Value, aim: Aim) -> Op {
        Op::Apply {
            body: object.to_string().into(),
            manager: Arc::clone(&self.apply.manager),
            aim,
        }
    }

    /// What is to be done to the observed child. `last`: what the API server had otherwise when it was last written.
    pub(crate) fn change(
        &self,
        strategy: UpdateStrategy,
        child: &Object,
        last: u64,
    ) -> Result<Change, apply::Error> {
        if child.annotation(ANNOTATION_LAST_APPLIED).is_some() {
            let why = "it carries the record of dynamic apply".to_owned();
            let body = self.hand_over(child)?;
            return Ok(Change::HandOver { body, why });
        }
        if strategy == UpdateStrategy::OnDelete {
            return Ok(Change::None { disagreement: 0 });
        }
        let (wanted, observed) = (self.wanted()?, child.to_value()?);
        let entries = fields::entries(child);
        let own = self.own(&entries);
        let found = fields::compare(&wanted, &own, &observed);
        let disagreement = found.disagreement();
        if disagreement == last || found.is_empty() {
            return Ok(Change::None { disagreement });
        }
        let why = found.describe();
        match strategy {
            UpdateStrategy::Recreate if found.values.is_empty() => {
                Ok(Change::None { disagreement })
            }
            UpdateStrategy::Recreate => Ok(Change::Try { why }),
            // The API server keeps what another entry of ours owns too.
            _ if found.has_unwanted && self.has_legacy(&entries, &own) => {
                let body = self.hand_over(child)?;
                Ok(Change::HandOver { body, why })
            }
            _ => Ok(Change::Apply { why }),
        }
    }

    /// A hash of what a child that was just written has otherwise; 0: nothing.
    pub(crate) fn disagreement(&self, stored: &Object) -> u64 {
        let (Ok(wanted), Ok(observed)) = (self.wanted(), stored.to_value()) else {
            return 0;
        };
        let own = self.own(&fields::entries(stored));
        fields::compare(&wanted, &own, &observed).disagreement()
    }

    /// For dynamic apply, of a child without its record that was applied by the server: what was applied last.
    /// `None` if it was not.
    pub(crate) fn last_applied(&self, child: &Object, observed: &Value) -> Option<Last> {
        let own = self.own(&fields::entries(child));
        if own.is_empty() {
            return None;
        }
        let wanted = self.wanted().ok()?;
        let found = fields::compare(&wanted, &own, observed);
        Some(Last {
            is_as_wanted: found.values.is_empty(),
            object: set::extract(observed, &own),
        })
    }

    /// The manager that last took from us what is wanted of a child.
    pub(crate) fn rival(&self, child: &Object) -> Option<String> {
        let wanted = self.wanted().ok()?;
        let manager = &*self.apply.manager;
        let (ours, theirs): (Vec<_>, Vec<_>) = fields::entries(child)
            .into_iter()
            .filter(|entry| entry.subresource.is_empty())
            .partition(|entry| entry.is_applied_by(manager) || self.is_legacy(entry));
        let own = ours
            .iter()
            .fold(set::Set::new(), |own, entry| set::union(own, &entry.fields));
        let has_taken =
            |entry: &Entry| !set::minus(&set::within(&entry.fields, &wanted), &own).is_empty();
        let rivals = theirs.into_iter().filter(has_taken);
        // The times are all in one notation.
        let last = rivals.max_by(|a, b| a.time.cmp(&b.time));
        last.map(|entry| entry.manager)
    }

    /// The fields that our manager has applied, in the version that is wanted.
    fn own(&self, entries: &[Entry]) -> set::Set {
        let manager = &*self.apply.manager;
        let mut applied = entries.iter().filter(|entry| entry.is_applied_by(manager));
        let found = applied.find(|entry| self.desired["apiVersion"] == *entry.api_version);
        found.map(|entry| entry.fields.clone()).unwrap_or_default()
    }

    /// Whether this is an entry of dynamic apply, Metacontroller's or our own.
    fn is_legacy(&self, entry: &Entry) -> bool {
        entry.operation == UPDATE
            && entry.subresource.is_empty()
            && self.desired["apiVersion"] == *entry.api_version
            && [FIELD_MANAGER, USER_AGENT, &self.apply.manager].contains(&entry.manager.as_str())
    }

    fn has_legacy(&self, entries: &[Entry], own: &set::Set) -> bool {
        let mut legacy = entries.iter().filter(|entry| self.is_legacy(entry));
        legacy.any(|entry| set::minus(&entry.fields, own) != entry.fields)
    }

    /// The object without the record of dynamic apply, and with its fields in the hands of our manager. Of what was written
    /// before, only what was recorded as applied or is wanted now changes hands: the rest may have been for another purpose.
    fn hand_over(&self, child: &Object) -> Result<Bytes, apply::Error> {
        let (wanted, observed) = (self.wanted()?, child.to_value()?);
        // A record that cannot be read says nothing.
        let last = lastapplied::read(&observed).ok().flatten();
        let entries = fields::entries(child);
        let mut own = self.own(&entries);
        for entry in entries.iter().filter(|entry| self.is_legacy(entry)) {
            for value in last.iter().chain([&wanted]) {
                own = set::union(own, &set::within(&entry.fields, value));
            }
        }
        let mut replaced = Map::new();
        let manager = &*self.apply.manager;
        let is_of_other_version = |entry: &Entry| {
            entry.is_applied_by(manager) && self.desired["apiVersion"] != *entry.api_version
        };
        if !own.is_empty() && !entries.iter().any(is_of_other_version) {
            let managers = self.managers(child, &own);
            replaced.insert("managedFields".to_owned(), managers);
        }
        if let Value::Object(annotations) = &observed["metadata"]["annotations"] {
            let mut annotations = annotations.clone();
            annotations.remove(ANNOTATION_LAST_APPLIED);
            let left = if annotations.is_empty() {
                Value::Null
            } else {
                annotations.into()
            };
            replaced.insert("annotations".to_owned(), left);
        }
        Ok(child.with_metadata(replaced))
    }

    /// The object's entries, with `own` as ours and taken from those of dynamic apply. Others stay as they are.
    fn managers(&self, child: &Object, own: &set::Set) -> Value {
        let raw: Vec<Value> = child
            .managed_fields()
            .and_then(|raw| serde_json::from_slice(raw).ok())
            .unwrap_or_default();
        let mut managers = Vec::with_capacity(raw.len() + 1);
        let mut time = Value::Null;
        for (mut value, entry) in raw.into_iter().zip(fields::entries(child)) {
            if entry.is_applied_by(&self.apply.manager) {
                time = value["time"].clone();
                continue;
            }
            if self.is_legacy(&entry) {
                if time.is_null() {
                    time = value["time"].clone();
                }
                let rest = set::minus(&entry.fields, own);
                if rest.is_empty() {
                    continue;
                }
                value["fieldsV1"] = rest.into();
            }
            managers.push(value);
        }
        managers.push(json!({
            "manager": &*self.apply.manager,
            "operation": fields::APPLY,
            "apiVersion": self.desired["apiVersion"],
            "time": time,
            "fieldsType": "FieldsV1",
            "fieldsV1": own,
        }));
        Value::Array(managers)
    }
}

/// What server-side apply applied last to a child.
pub(crate) struct Last {
    /// The child has all that is wanted, and nothing that was applied and is wanted no more.
    pub(crate) is_as_wanted: bool,
    pub(crate) object: Value,
}

/// Whether what an apply would come to is what is there: nobody looks at what the API server keeps for itself.
pub(crate) fn is_same(observed: &Object, tried: &Object) -> bool {
    let plain = |object: &Object| {
        let mut value = object.to_value().ok()?;
        value.as_object_mut()?.remove("status");
        let metadata = value.get_mut("metadata")?.as_object_mut()?;
        for field in apply::SYSTEM_FIELDS {
            metadata.remove(field);
        }
        Some(value)
    };
    matches!((plain(observed), plain(tried)), (Some(a), Some(b)) if diff::equal(&a, &b))
}
