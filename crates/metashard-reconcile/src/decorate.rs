//! What a decorator changes in its target itself: labels, annotations, its finalizer, and a status that has no subresource.

use std::{collections::BTreeMap, sync::Arc};

use metashard_api::{hook::DecoratorAnswer, resource::Resource};
use serde_json::{Map, Value};

use crate::{
    finalize,
    object::Object,
    write::{Op, Purpose, Write},
};

/// Texts to set, or with `None` to remove.
type Texts = BTreeMap<String, Option<String>>;

/// What a hook's answer wants of the target itself. What it does not name stays.
#[derive(Debug, Default)]
pub(crate) struct Decoration {
    pub(crate) labels: Texts,
    pub(crate) annotations: Texts,
    /// Whether our finalizer goes.
    pub(crate) finalized: bool,
}

impl Decoration {
    /// Takes its part out of an answer.
    pub(crate) fn take(answer: &mut DecoratorAnswer) -> Self {
        Self {
            labels: std::mem::take(&mut answer.labels),
            annotations: std::mem::take(&mut answer.annotations),
            finalized: false,
        }
    }
}

/// The write that makes a target as wanted, if one is needed. `ours`: our finalizer. `status`: one that is to be written
/// with the rest, because the resource has no subresource for it.
pub(crate) fn plan(
    resource: &Arc<Resource>,
    ours: &str,
    target: &Object,
    wanted: &Decoration,
    status: Option<&Value>,
) -> Option<Write> {
    let Decoration {
        labels,
        annotations,
        finalized,
    } = wanted;
    let mut why = Vec::new();
    why.extend(differing(labels, |key, wanted| target.label(key) == wanted).map(named("labels")));
    let same = |key: &str, wanted: Option<&str>| target.annotation(key).as_deref() == wanted;
    why.extend(differing(annotations, same).map(named("annotations")));
    let drops = *finalized && target.has_finalizer(ours);
    if drops {
        why.push("finalizers".to_owned());
    }
    if status.is_some() {
        why.push("status".to_owned());
    }
    if why.is_empty() {
        return None;
    }
    let body = target.with_edited_metadata(|metadata| {
        put(metadata, "labels", labels);
        put(metadata, "annotations", annotations);
        if drops {
            let left: Vec<_> = finalize::others(target, ours).collect();
            metadata.insert("finalizers".to_owned(), left.into());
        }
    });
    let body = match status {
        // What was an object with other metadata is one.
        Some(status) => Object::parse(body.clone()).map_or(body, |it| it.with_status(status)),
        None => body,
    };
    Some(Write {
        resource: Arc::clone(resource),
        namespace: target.namespace().map(Into::into),
        name: target.name().into(),
        op: Op::Update { body },
        purpose: Purpose::Decorate,
        why: why.join(", ").into(),
    })
}

/// The keys whose texts are not as wanted.
fn differing(
    wanted: &Texts,
    is_so: impl Fn(&str, Option<&str>) -> bool,
) -> impl Iterator<Item = &String> {
    wanted
        .iter()
        .filter(move |(key, value)| !is_so(key, value.as_deref()))
        .map(|(key, _)| key)
}

fn named(field: &str) -> impl Fn(&String) -> String {
    move |key| format!("metadata.{field}[{key:?}]")
}

fn put(metadata: &mut Map<String, Value>, field: &str, wanted: &Texts) {
    if wanted.is_empty() {
        return;
    }
    let texts = metadata.entry(field).or_insert(Value::Null);
    if !texts.is_object() {
        *texts = Value::Object(Map::new());
    }
    let Value::Object(texts) = texts else { return };
    for (key, value) in wanted {
        match value {
            Some(value) => drop(texts.insert(key.clone(), value.as_str().into())),
            None => drop(texts.remove(key)),
        }
    }
}
