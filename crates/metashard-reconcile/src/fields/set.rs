//! Sets of fields in the API server's own notation, `fieldsV1`, and what is needed of set algebra.
//!
//! A node without children is a member of the set; one with children is a member if `.` is among them.

use serde_json::{Map, Value};

use crate::diff;

/// A set of fields: `{"f:data": {"f:a": {}}}` holds `data.a`.
pub(crate) type Set = Map<String, Value>;

/// What an item of a list is called in a set.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Key {
    /// `k:{"name":"x"}`: by some of its fields, defaults included.
    Fields(Map<String, Value>),
    /// `v:"x"`: by itself.
    Value(Value),
}

impl Key {
    /// Reads the name of a node; `None` if it is no item of a list, or is called by its place, which nothing sensible can be said of.
    pub(crate) fn read(name: &str) -> Option<Self> {
        match name.split_at_checked(2)? {
            ("k:", json) => serde_json::from_str(json).ok().map(Self::Fields),
            ("v:", json) => serde_json::from_str(json).ok().map(Self::Value),
            _ => None,
        }
    }

    /// The item of this name: one that says all of it, else one that leaves out what has a default.
    pub(crate) fn find(&self, items: &[Value]) -> Option<usize> {
        self.find_where(items, true, |_| true)
            .or_else(|| self.find_where(items, false, |_| true))
    }

    fn find_where(
        &self,
        items: &[Value],
        exact: bool,
        is_free: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let fits = |item: &Value| match self {
            Self::Value(value) => diff::equal(item, value),
            Self::Fields(fields) => item.as_object().is_some_and(|item| {
                fields.iter().all(|(name, value)| match item.get(name) {
                    None | Some(Value::Null) => !exact,
                    Some(found) => diff::equal(found, value),
                })
            }),
        };
        let mut found = items.iter().enumerate();
        found
            .find(|(index, item)| is_free(*index) && fits(item))
            .map(|(index, _)| index)
    }
}

/// The items of a list that a set has, each with its node and the index of the item in `items` that it stands for.
/// Items that say their whole name go first: `{port: 53, protocol: UDP}` is not taken for `{port: 53}`.
pub(crate) fn match_items<'a>(
    set: &'a Set,
    items: &[Value],
) -> Vec<(Key, &'a Value, Option<usize>)> {
    let nodes = set
        .iter()
        .filter_map(|(name, node)| Some((Key::read(name)?, node)));
    let mut matched: Vec<(Key, &Value, Option<usize>)> =
        nodes.map(|(key, node)| (key, node, None)).collect();
    let mut is_free = vec![true; items.len()];
    for exact in [true, false] {
        for (key, _, index) in &mut matched {
            if index.is_none() {
                *index = key.find_where(items, exact, |at| is_free.get(at) == Some(&true));
                if let Some(taken) = index.and_then(|at| is_free.get_mut(at)) {
                    *taken = false;
                }
            }
        }
    }
    matched
}

/// Whether a node itself is in its set.
pub(crate) fn is_member(node: &Set) -> bool {
    node.is_empty() || node.contains_key(".")
}

/// What is in one of two sets.
pub(crate) fn union(mut left: Set, right: &Set) -> Set {
    for (name, theirs) in right {
        match left.get_mut(name) {
            None => {
                left.insert(name.clone(), theirs.clone());
            }
            Some(ours) => {
                let (Some(a), Some(b)) = (ours.as_object_mut(), theirs.as_object()) else {
                    continue;
                };
                let is_in = is_member(a) || is_member(b);
                let mut both = union(std::mem::take(a), b);
                if is_in && !both.is_empty() {
                    both.insert(".".to_owned(), Value::Object(Map::new()));
                }
                *a = both;
            }
        }
    }
    left
}

/// What is in the first set and not in the second. A map or list of which nothing else is left goes with its parts.
pub(crate) fn minus(left: &Set, right: &Set) -> Set {
    let mut rest = Set::new();
    for (name, ours) in left.iter().filter(|(name, _)| *name != ".") {
        let (Some(a), Some(b)) = (ours.as_object(), right.get(name).and_then(Value::as_object))
        else {
            rest.insert(name.clone(), ours.clone());
            continue;
        };
        let stays = is_member(a) && !is_member(b);
        let mut node = minus(a, b);
        if node.is_empty() && (!stays || !a.is_empty()) {
            continue;
        }
        if stays && !node.is_empty() {
            node.insert(".".to_owned(), Value::Object(Map::new()));
        }
        rest.insert(name.clone(), Value::Object(node));
    }
    rest
}

/// The part of a set whose fields a value has. Maps and lists themselves are left out where they have parts, as
/// server-side apply leaves them out.
pub(crate) fn within(set: &Set, value: &Value) -> Set {
    let mut part = Set::new();
    match value {
        Value::Object(map) => {
            for (name, node) in set {
                let value = name.strip_prefix("f:").and_then(|key| map.get(key));
                if let (Some(value), Some(node)) = (value, node.as_object())
                    && !value.is_null()
                {
                    put(&mut part, name, node, value, false);
                }
            }
        }
        Value::Array(items) => {
            for (name, node) in set {
                let item = Key::read(name).and_then(|key| items.get(key.find(items)?));
                if let (Some(item), Some(node)) = (item, node.as_object()) {
                    put(&mut part, name, node, item, true);
                }
            }
        }
        _ => {}
    }
    part
}

fn put(part: &mut Set, name: &str, node: &Set, value: &Value, is_item: bool) {
    let mut inner = within(node, value);
    let is_leaf = node.is_empty();
    if is_item && !is_leaf && is_member(node) && !inner.is_empty() {
        inner.insert(".".to_owned(), Value::Object(Map::new()));
    }
    if is_leaf || !inner.is_empty() {
        part.insert(name.to_owned(), Value::Object(inner));
    }
}

/// The fields of an object that are in a set, with the fields that name the items of its lists.
pub(crate) fn extract(value: &Value, set: &Set) -> Value {
    match value {
        _ if set.is_empty() => value.clone(),
        Value::Object(map) => {
            let kept = map.iter().filter_map(|(key, value)| {
                let node = set.get(&format!("f:{key}"))?.as_object()?;
                Some((key.clone(), extract(value, node)))
            });
            Value::Object(kept.collect())
        }
        Value::Array(items) => {
            let kept = match_items(set, items)
                .into_iter()
                .filter_map(|(key, node, index)| {
                    let mut item = extract(items.get(index?)?, node.as_object()?);
                    if let (Key::Fields(fields), Value::Object(item)) = (key, &mut item) {
                        for (name, value) in fields {
                            item.entry(name).or_insert(value);
                        }
                    }
                    Some(item)
                });
            Value::Array(kept.collect())
        }
        _ => value.clone(),
    }
}
