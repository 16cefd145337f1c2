//! One observed object: the bytes it came in, and a small index over them.
//!
//! Bytes stay bytes: what a sync needs to know of an object is found in one pass and kept as positions in them.

mod edit;
mod index;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, cmp::Ordering, fmt, ops::Range};

use bytes::Bytes;
use xxhash_rust::xxh3::Xxh3;

/// Why bytes are no object.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// They are no JSON, or a field of the metadata has an impossible type.
    #[error("parse object")]
    Json(#[from] serde_json::Error),
    /// A field that every object of an API server has is absent or empty.
    #[error("parse object: {0} is missing")]
    Missing(&'static str),
    /// They are longer than 2 GiB.
    #[error("parse object: {0} bytes are too many")]
    TooLarge(usize),
}

/// Where a piece of an object lies: in its bytes, or (with [`DECODED`] set) in the texts that had escapes. Empty: absent.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Span {
    start: u32,
    len: u32,
}

/// Marks a start in `Object::decoded`.
const DECODED: u32 = 1 << 31;

#[derive(Clone, Copy)]
struct Owner {
    api_version: Span,
    kind: Span,
    name: Span,
    uid: Span,
    controller: bool,
    block_owner_deletion: bool,
}

/// One observed object. Cheap to read, small beside its bytes; share it as `Arc<Object>`.
pub struct Object {
    bytes: Bytes,
    decoded: Box<str>,
    api_version: Span,
    kind: Span,
    namespace: Span,
    name: Span,
    uid: Span,
    resource_version: Span,
    generation: i64,
    deleting: bool,
    labels: Box<[(Span, Span)]>,
    /// Key, and the value as raw JSON.
    annotations: Box<[(Span, Span)]>,
    owners: Box<[Owner]>,
    finalizers: Box<[Span]>,
    spec: Span,
    status: Span,
    managed_fields: Span,
}

/// One entry of `metadata.ownerReferences`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnerReference<'a> {
    /// `group/version` of the owner.
    pub api_version: &'a str,
    /// Kind of the owner.
    pub kind: &'a str,
    /// Name of the owner.
    pub name: &'a str,
    /// Uid of the owner.
    pub uid: &'a str,
    /// Whether the owner is the controller; at most one is.
    pub controller: bool,
    /// Whether a foreground deletion of the owner waits for this object.
    pub block_owner_deletion: bool,
}

impl Object {
    /// Reads the index of one object in one pass over its JSON; nothing else is decoded.
    ///
    /// # Errors
    /// When the bytes are no JSON object with `apiVersion`, `kind`, and a name, uid and resourceVersion in its metadata.
    pub fn parse(bytes: impl Into<Bytes>) -> Result<Self, Error> {
        index::parse(bytes.into())
    }

    /// The JSON text as it came.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// `group/version`, or `version` for the core group.
    pub fn api_version(&self) -> &str {
        self.text(self.api_version)
    }

    /// The kind.
    pub fn kind(&self) -> &str {
        self.text(self.kind)
    }

    /// The namespace; `None` for a cluster-scoped object.
    pub fn namespace(&self) -> Option<&str> {
        (self.namespace.len > 0).then(|| self.text(self.namespace))
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.text(self.name)
    }

    /// The uid, never empty.
    pub fn uid(&self) -> &str {
        self.text(self.uid)
    }

    /// The resourceVersion, never empty.
    pub fn resource_version(&self) -> &str {
        self.text(self.resource_version)
    }

    /// `metadata.generation`; 0 for a kind without one.
    pub fn generation(&self) -> i64 {
        self.generation
    }

    /// Whether `metadata.deletionTimestamp` is set.
    pub fn is_deleting(&self) -> bool {
        self.deleting
    }

    /// All labels, in the order of the bytes.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.labels
            .iter()
            .map(|(key, value)| (self.text(*key), self.text(*value)))
    }

    /// Value of one label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels()
            .find(|(found, _)| *found == key)
            .map(|(_, value)| value)
    }

    /// Value of one annotation, decoded; `None` if it is absent or no text.
    pub fn annotation(&self, key: &str) -> Option<Cow<'_, str>> {
        self.annotations
            .iter()
            .find(|(found, _)| self.text(*found) == key)
            .and_then(|(_, value)| index::decode_text(self.raw(*value)?))
    }

    /// Whether two objects have the same annotations, as raw JSON.
    pub fn same_annotations(&self, other: &Self) -> bool {
        self.annotations.len() == other.annotations.len()
            && self
                .annotations
                .iter()
                .zip(&other.annotations)
                .all(|(ours, theirs)| {
                    self.text(ours.0) == other.text(theirs.0)
                        && self.raw(ours.1) == other.raw(theirs.1)
                })
    }

    /// Whether two objects have the same labels.
    pub fn same_labels(&self, other: &Self) -> bool {
        self.labels.len() == other.labels.len() && self.labels().eq(other.labels())
    }

    /// All owner references, in order.
    pub fn owner_references(&self) -> impl Iterator<Item = OwnerReference<'_>> {
        self.owners.iter().map(|owner| OwnerReference {
            api_version: self.text(owner.api_version),
            kind: self.text(owner.kind),
            name: self.text(owner.name),
            uid: self.text(owner.uid),
            controller: owner.controller,
            block_owner_deletion: owner.block_owner_deletion,
        })
    }

    /// The owner that is marked as controller.
    pub fn controller_owner(&self) -> Option<OwnerReference<'_>> {
        self.owner_references().find(|owner| owner.controller)
    }

    /// All finalizers, in order.
    pub fn finalizers(&self) -> impl Iterator<Item = &str> {
        self.finalizers.iter().map(|span| self.text(*span))
    }

    /// Whether one finalizer is set.
    pub fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers().any(|finalizer| finalizer == name)
    }

    /// The raw JSON of `spec`; `None` if it is absent or null.
    pub fn spec(&self) -> Option<&[u8]> {
        self.raw(self.spec)
    }

    /// The raw JSON of `status`; `None` if it is absent or null.
    pub fn status(&self) -> Option<&[u8]> {
        self.raw(self.status).filter(|raw| *raw != b"null")
    }

    /// The raw JSON of `metadata.managedFields`; `None` if it is absent or null.
    pub(crate) fn managed_fields(&self) -> Option<&[u8]> {
        self.raw(self.managed_fields).filter(|raw| *raw != b"null")
    }

    /// Whether this is a later state than `other` of the same object, by resourceVersion.
    ///
    /// Versions that are no numbers cannot be ordered: then neither is newer. (Kubernetes orders them as numbers, KEP-5504.)
    pub fn is_newer_than(&self, other: &Self) -> bool {
        self.uid() == other.uid()
            && compare_versions(self.resource_version(), other.resource_version())
                == Some(Ordering::Greater)
    }

    /// Adds what identifies this state of this object to a hash.
    pub(crate) fn hash_version(&self, hash: &mut Xxh3) {
        for text in [self.uid(), self.resource_version()] {
            hash.update(text.as_bytes());
            hash.update(&[0]);
        }
    }

    /// Adds what an object is wished to be, as far as its metadata tells without its status, to a hash.
    pub(crate) fn hash_wishes(&self, hash: &mut Xxh3) {
        hash.update(self.uid().as_bytes());
        hash.update(&self.generation.to_le_bytes());
        hash.update(&[u8::from(self.deleting)]);
        for (key, value) in self.labels() {
            for text in [key, value] {
                hash.update(text.as_bytes());
                hash.update(&[0]);
            }
        }
        hash.update(&[1]);
        for (key, value) in &self.annotations {
            hash.update(self.text(*key).as_bytes());
            hash.update(&[0]);
            hash.update(self.raw(*value).unwrap_or_default());
            hash.update(&[0]);
        }
    }

    fn text(&self, span: Span) -> &str {
        if span.start & DECODED == 0 {
            let bytes = self.bytes.get(span.range()).unwrap_or_default();
            std::str::from_utf8(bytes).unwrap_or_default()
        } else {
            let start = (span.start & !DECODED) as usize;
            self.decoded
                .get(start..start + span.len as usize)
                .unwrap_or_default()
        }
    }

    fn raw(&self, span: Span) -> Option<&[u8]> {
        if span.len == 0 {
            None
        } else {
            self.bytes.get(span.range())
        }
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} at {}", self.resource_version())
    }
}

/// `Kind namespace/name`, as events and logs name an object.
impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())?;
        f.write_str(" ")?;
        if let Some(namespace) = self.namespace() {
            write!(f, "{namespace}/")?;
        }
        f.write_str(self.name())
    }
}

impl Span {
    fn range(self) -> Range<usize> {
        let start = self.start as usize;
        start..start + self.len as usize
    }
}

/// Orders two resourceVersions; `None` if one of them is no number.
pub fn compare_versions(left: &str, right: &str) -> Option<Ordering> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (is_number(left) && is_number(right)).then(|| {
        let (left, right) = (left.trim_start_matches('0'), right.trim_start_matches('0'));
        left.len().cmp(&right.len()).then_with(|| left.cmp(right))
    })
}
