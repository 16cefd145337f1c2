//! The body of a hook call, put together from cached bytes: nothing is parsed or written anew.

mod related;

use std::sync::Arc;

use bytes::Bytes;
use metashard_api::{
    hook::{Version, inner_key},
    id::ControllerKind,
    v1alpha1::API_VERSION,
};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use crate::{object::Object, related::Related};

/// What all requests of one controller have in common, made once.
#[derive(Debug)]
pub(crate) struct Frame {
    /// From the start to the parent.
    head: Bytes,
    /// The same in a request to a customize hook, which calls the target of a decorator a parent as well.
    customize_head: Bytes,
    /// What the groups of children stand under.
    list: &'static str,
    /// The outer key of each child rule, in the rules' order; then those of groups that are always empty.
    outer: Vec<String>,
    /// Opens the group of an outer key, by its index; in the order of the outer keys.
    groups: Vec<(usize, Bytes)>,
    /// From the last child to the related objects.
    closing: String,
    /// From the last child to the end if nothing is related, without and with `finalizing`.
    tails: [Bytes; 2],
}

/// The parts of a controller object that hooks see.
#[derive(Deserialize)]
struct Parts<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
    #[serde(borrow)]
    spec: &'a RawValue,
}

impl Frame {
    /// `outer`: the outer key of each child rule, in the rules' order.
    pub(crate) fn new(
        kind: ControllerKind,
        controller: &[u8],
        outer: Vec<String>,
    ) -> Result<Self, serde_json::Error> {
        let (parent, list) = match kind {
            ControllerKind::Composite => ("parent", "children"),
            ControllerKind::Decorator => ("object", "attachments"),
        };
        let Parts { metadata, spec } = serde_json::from_slice(controller)?;
        let start = format!(
            r#"{{"controller":{{"apiVersion":"{API_VERSION}","kind":"{kind}","metadata":{metadata},"spec":{spec},"status":{{}}}}"#
        );
        let customize_head = match kind {
            ControllerKind::Composite => None,
            ControllerKind::Decorator => Some(Bytes::from(format!(r#"{start},"parent":"#))),
        };
        let head = Bytes::from(format!(r#"{start},"{parent}":"#));
        let mut frame = Self {
            customize_head: customize_head.unwrap_or_else(|| head.clone()),
            head,
            list,
            outer,
            groups: Vec::new(),
            closing: String::new(),
            tails: [Bytes::new(), Bytes::new()],
        };
        frame.arrange();
        Ok(frame)
    }

    /// Shows hooks an empty group under each of these outer keys as well.
    pub(crate) fn show_empty(&mut self, keys: impl IntoIterator<Item = String>) {
        for key in keys {
            if !self.outer.contains(&key) {
                self.outer.push(key);
            }
        }
        self.arrange();
    }

    fn arrange(&mut self) {
        let list = self.list;
        let mut order: Vec<_> = self.outer.iter().enumerate().collect();
        order.sort_by_key(|(_, key)| *key);
        let mut groups = Vec::with_capacity(order.len());
        for (place, (rule, key)) in order.into_iter().enumerate() {
            let key = Value::from(key.as_str());
            let opening = if place == 0 {
                format!(r#","{list}":{{{key}:{{"#)
            } else {
                format!("}},{key}:{{")
            };
            groups.push((rule, Bytes::from(opening)));
        }
        let closing = if groups.is_empty() {
            format!(r#","{list}":{{}}"#)
        } else {
            "}}".to_owned()
        };
        let closing = format!(r#"{closing},"related":{{"#);
        self.tails = [false, true]
            .map(|finalizing| Bytes::from(format!(r#"{closing}}},"finalizing":{finalizing}}}"#)));
        (self.groups, self.closing) = (groups, closing);
    }

    /// The controller object as hooks see it: all of it that counts.
    pub(crate) fn controller(&self) -> &[u8] {
        let head = self.head.strip_prefix(br#"{"controller":"#);
        let head = head.unwrap_or_default();
        let last = head.iter().rposition(|byte| *byte == b',');
        last.and_then(|at| head.get(..at)).unwrap_or_default()
    }

    /// The body of one call of a customize hook, as pieces.
    pub(crate) fn customize(&self, parent: &Object) -> Vec<Bytes> {
        vec![
            self.customize_head.clone(),
            parent.bytes().clone(),
            Bytes::from_static(b"}"),
        ]
    }

    /// The body of one call, as pieces. `children`: the claimed children of each rule, sorted.
    pub(crate) fn body(
        &self,
        version: Version,
        parent: &Object,
        children: &[Vec<Arc<Object>>],
        related: &Related,
        finalizing: bool,
    ) -> Vec<Bytes> {
        let count: usize = children.iter().map(Vec::len).sum();
        let mut keys = Keys::with_capacity(count);
        for (rule, _) in &self.groups {
            let mut first = true;
            for child in children.get(*rule).into_iter().flatten() {
                first &= !keys.add(version, parent, child, first);
            }
        }
        let mut keys = keys.into_pieces();
        let mut body = Vec::with_capacity(3 + self.groups.len() + 2 * count);
        body.push(self.head.clone());
        body.push(parent.bytes().clone());
        for (rule, opening) in &self.groups {
            body.push(opening.clone());
            for child in children.get(*rule).into_iter().flatten() {
                if let Some(key) = keys.next().flatten() {
                    body.push(key);
                    body.push(child.bytes().clone());
                }
            }
        }
        if !related.is_empty() {
            related::splice(
                &mut body,
                &self.closing,
                version,
                parent,
                related,
                finalizing,
            );
            return body;
        }
        let [plain, finalize] = &self.tails;
        body.push(if finalizing {
            finalize.clone()
        } else {
            plain.clone()
        });
        body
    }
}

/// The inner keys of one request, in one allocation. A child that the hook does not see has none.
struct Keys {
    text: Vec<u8>,
    ends: Vec<Option<usize>>,
}

impl Keys {
    fn with_capacity(count: usize) -> Self {
        Self {
            text: Vec::with_capacity(count * 32),
            ends: Vec::with_capacity(count),
        }
    }

    /// Whether the hook sees the child.
    fn add(&mut self, version: Version, parent: &Object, child: &Object, first: bool) -> bool {
        let (of_parent, of_child) = (parent.namespace(), child.namespace());
        let key = inner_key(
            version,
            of_parent.unwrap_or_default(),
            of_child.unwrap_or_default(),
            child.name(),
        );
        let Some(key) = key else {
            self.ends.push(None);
            return false;
        };
        if !first {
            self.text.push(b',');
        }
        // Writing to a Vec cannot fail.
        let _ok = serde_json::to_writer(&mut self.text, &key);
        self.text.push(b':');
        self.ends.push(Some(self.text.len()));
        true
    }

    fn into_pieces(self) -> impl Iterator<Item = Option<Bytes>> {
        let text = Bytes::from(self.text);
        let mut start = 0;
        self.ends.into_iter().map(move |end| {
            let end = end?;
            let piece = text.slice(start..end);
            start = end;
            Some(piece)
        })
    }
}
