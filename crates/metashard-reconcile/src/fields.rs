//! Which fields a manager owns, as `metadata.managedFields` says, and a desired object held against them.
//!
//! Whoever changes a field takes it from its other managers. So a field that is still ours has not been changed since we
//! applied it, and the API server's own book-keeping tells drift from defaults, without a dry run.

pub(crate) mod set;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::{Map, Value};

use self::set::Set;
use crate::{
    diff::{self, Difference},
    object::Object,
};

/// The word for server-side apply in an entry's `operation`.
pub(crate) const APPLY: &str = "Apply";

/// The word for all other writes.
pub(crate) const UPDATE: &str = "Update";

/// One entry of `metadata.managedFields`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry {
    #[serde(default)]
    pub(crate) manager: String,
    #[serde(default)]
    pub(crate) operation: String,
    #[serde(default)]
    pub(crate) api_version: String,
    #[serde(default)]
    pub(crate) subresource: String,
    #[serde(default)]
    pub(crate) time: String,
    #[serde(default, rename = "fieldsV1")]
    pub(crate) fields: Set,
}

impl Entry {
    /// Whether this is what a manager applied to the main resource.
    pub(crate) fn is_applied_by(&self, manager: &str) -> bool {
        self.operation == APPLY && self.manager == manager && self.subresource.is_empty()
    }
}

/// The entries of an object; none if it has none, or none that can be read.
pub(crate) fn entries(object: &Object) -> Vec<Entry> {
    object
        .managed_fields()
        .and_then(|raw| serde_json::from_slice(raw).ok())
        .unwrap_or_default()
}

/// Where an object is not as one manager wants it.
#[derive(Debug, Default)]
pub(crate) struct Found<'a> {
    /// Fields that differ, and fields that the manager owns and does not want any more.
    pub(crate) values: Vec<(String, Difference<'a>)>,
    /// Fields that are as wanted and not the manager's.
    pub(crate) unowned: Vec<(String, Difference<'a>)>,
    /// Some of `values` are fields that are no longer wanted.
    pub(crate) has_unwanted: bool,
}

impl Found<'_> {
    /// Whether the object is as wanted, and the manager's.
    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty() && self.unowned.is_empty()
    }

    /// A hash of what the object has otherwise; 0 if nothing.
    pub(crate) fn disagreement(&self) -> u64 {
        diff::disagreement(&[self.values.as_slice(), self.unowned.as_slice()].concat())
    }

    /// The paths, as they are told to people.
    pub(crate) fn describe(&self) -> String {
        if self.values.is_empty() {
            diff::describe(&self.unowned)
        } else {
            diff::describe(&self.values)
        }
    }
}

/// Holds `wanted` against what is observed, by what the manager owns of it.
pub(crate) fn compare<'a>(wanted: &'a Value, own: &Set, observed: &'a Value) -> Found<'a> {
    let mut walk = Walk::default();
    if let Value::Object(wanted) = wanted {
        walk.map(wanted, Some(own), observed.as_object());
    }
    walk.found
}

#[derive(Default)]
struct Walk<'a> {
    path: String,
    found: Found<'a>,
}

impl<'a> Walk<'a> {
    fn value(&mut self, wanted: &'a Value, own: Option<&Set>, seen: Option<&'a Value>) {
        let seen = seen.filter(|value| !value.is_null());
        match (own, wanted) {
            (None, Value::Object(wanted)) if !wanted.is_empty() => {
                self.map(wanted, None, seen.and_then(Value::as_object));
            }
            (None, _) if diff::covers(seen, wanted) => {
                let difference = Difference {
                    left: seen,
                    right: Some(wanted),
                };
                self.found.unowned.push((self.path.clone(), difference));
            }
            // A leaf: a scalar, or a map or list that is owned as a whole.
            (Some(own), _) if own.is_empty() => {
                if !seen.map_or_else(|| is_zero(wanted), |seen| diff::equal(seen, wanted)) {
                    self.differs(seen, Some(wanted));
                }
            }
            (Some(own), Value::Object(wanted)) => {
                self.map(wanted, Some(own), seen.and_then(Value::as_object));
            }
            (Some(own), Value::Array(wanted)) => {
                let seen = seen.and_then(Value::as_array);
                self.list(wanted, own, seen.map_or(&[], Vec::as_slice));
            }
            _ => self.differs(seen, Some(wanted)),
        }
    }

    fn map(
        &mut self,
        wanted: &'a Map<String, Value>,
        own: Option<&Set>,
        seen: Option<&'a Map<String, Value>>,
    ) {
        for (key, value) in wanted.iter().filter(|(_, value)| !value.is_null()) {
            if !is_identity(&self.path, key) {
                let own = own.and_then(|own| own.get(&format!("f:{key}")));
                let own = own.and_then(Value::as_object);
                let seen = seen.and_then(|seen| seen.get(key));
                self.within(key, |walk| walk.value(value, own, seen));
            }
        }
        for (key, own) in own.into_iter().flatten() {
            let Some(key) = key.strip_prefix("f:") else {
                continue;
            };
            if wanted.get(key).is_none_or(Value::is_null) {
                let seen = seen.and_then(|seen| seen.get(key));
                self.within(key, |walk| walk.unwanted(own, seen));
            }
        }
    }

    fn list(&mut self, wanted: &'a [Value], own: &Set, seen: &'a [Value]) {
        let matched = set::match_items(own, wanted);
        let mut is_owned = vec![false; wanted.len()];
        for (key, own, index) in matched {
            let seen = key.find(seen).and_then(|index| seen.get(index));
            if let Some((index, value)) =
                index.and_then(|it| wanted.get(it).map(|value| (it, value)))
            {
                if let Some(mark) = is_owned.get_mut(index) {
                    *mark = true;
                }
                self.item(index, |walk| match key {
                    set::Key::Value(_) if seen.is_some() => {}
                    _ => walk.value(value, own.as_object(), seen),
                });
            } else {
                self.item(wanted.len(), |walk| walk.unwanted(own, seen));
            }
        }
        for (index, value) in wanted.iter().enumerate() {
            if is_owned.get(index) == Some(&false) {
                let seen = seen.iter().find(|seen| diff::covers(Some(seen), value));
                self.item(index, |walk| walk.value(value, None, seen));
            }
        }
    }

    /// What is owned and no longer wanted, as far as it is there.
    fn unwanted(&mut self, own: &Value, seen: Option<&'a Value>) {
        let Some(seen) = seen.filter(|value| !value.is_null()) else {
            return;
        };
        let parts = own.as_object().filter(|own| !set::is_member(own));
        match (parts, seen) {
            (Some(parts), Value::Object(seen)) => {
                for (key, own) in parts {
                    if let Some(key) = key.strip_prefix("f:") {
                        self.within(key, |walk| walk.unwanted(own, seen.get(key)));
                    }
                }
            }
            (Some(parts), Value::Array(seen)) => {
                for (key, own) in parts {
                    if let Some(index) = set::Key::read(key).and_then(|key| key.find(seen)) {
                        self.item(index, |walk| walk.unwanted(own, seen.get(index)));
                    }
                }
            }
            _ => {
                self.found.has_unwanted = true;
                self.differs(Some(seen), None);
            }
        }
    }

    fn differs(&mut self, left: Option<&'a Value>, right: Option<&'a Value>) {
        let difference = Difference { left, right };
        self.found.values.push((self.path.clone(), difference));
    }

    fn within(&mut self, key: &str, visit: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        diff::push_key(&mut self.path, key);
        visit(self);
        self.path.truncate(length);
    }

    fn item(&mut self, index: usize, visit: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        let _ok = write!(self.path, "[{index}]");
        visit(self);
        self.path.truncate(length);
    }
}

/// Fields that say which object it is: nobody owns them.
fn is_identity(path: &str, key: &str) -> bool {
    match path {
        "" => matches!(key, "apiVersion" | "kind"),
        "metadata" => matches!(key, "name" | "namespace" | "uid" | "resourceVersion"),
        _ => false,
    }
}

/// What an API server leaves out when it writes an object: the manager's claim on it stays.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.values().all(is_zero),
    }
}
