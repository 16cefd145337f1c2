//! How far a controller reaches: the parents that it selects.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    document::{Document, name_of},
    input,
    render::many,
    resources::Resources,
};

/// How many of the parents among some documents a controller selects; `None` if there are none of its kind.
pub(super) fn scope(
    controller: &Value,
    documents: &[Document],
    resources: &Resources,
) -> Option<String> {
    let compiled = input::controller(controller, resources).ok()?;
    let (mut all, mut selected, mut namespaces) = (0, 0, BTreeSet::new());
    for document in documents {
        let value = document.value.clone();
        let Ok((_, parent)) = input::parent(value, &compiled, input::DEFAULT_NAMESPACE) else {
            continue;
        };
        all += 1;
        if compiled.concerns(&parent) {
            selected += 1;
            namespaces.extend(parent.namespace().map(str::to_owned));
        }
    }
    (all > 0).then(|| {
        format!(
            "{}: would sync {} of {} in {}",
            name_of(controller),
            many(selected, "parent", "parents"),
            all,
            many(namespaces.len(), "namespace", "namespaces")
        )
    })
}
