//! The one pass over an object's JSON that finds the places of its index.

use std::{borrow::Cow, fmt};

use bytes::Bytes;
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;
use smallvec::SmallVec;

use super::{DECODED, Error, Object, Owner, Span};

/// A text; null reads as the empty one.
#[derive(Default)]
pub(crate) struct Text<'a>(pub(crate) Cow<'a, str>);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Top<'a> {
    #[serde(borrow, default)]
    api_version: Text<'a>,
    #[serde(borrow, default)]
    kind: Text<'a>,
    #[serde(borrow)]
    metadata: Option<Metadata<'a>>,
    #[serde(borrow)]
    spec: Option<&'a RawValue>,
    /// Also where it is null: it has a place then, too.
    #[serde(borrow, default, deserialize_with = "any_raw")]
    status: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow, default)]
    namespace: Text<'a>,
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow, default)]
    uid: Text<'a>,
    #[serde(borrow, default)]
    resource_version: Text<'a>,
    generation: Option<i64>,
    deletion_timestamp: Option<IgnoredAny>,
    #[serde(borrow, default)]
    labels: Pairs<Text<'a>, Text<'a>>,
    #[serde(borrow, default)]
    annotations: Pairs<Text<'a>, &'a RawValue>,
    #[serde(borrow)]
    owner_references: Option<Vec<Reference<'a>>>,
    #[serde(borrow)]
    finalizers: Option<Vec<Text<'a>>>,
    #[serde(borrow)]
    managed_fields: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reference<'a> {
    #[serde(borrow, default)]
    api_version: Text<'a>,
    #[serde(borrow, default)]
    kind: Text<'a>,
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow, default)]
    uid: Text<'a>,
    controller: Option<bool>,
    block_owner_deletion: Option<bool>,
}

/// Unlike an `Option` of raw JSON, this is there for a null.
fn any_raw<'de: 'a, 'a, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// A map in the order of the text; null reads as an empty one.
struct Pairs<K, V>(SmallVec<[(K, V); 6]>);

impl<K, V> Default for Pairs<K, V> {
    fn default() -> Self {
        Self(SmallVec::new())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Text::default())
            }
        }
        deserializer.deserialize_any(TextVisitor)
    }
}

impl<'de, K: Deserialize<'de>, V: Deserialize<'de>> Deserialize<'de> for Pairs<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PairsVisitor<K, V>(std::marker::PhantomData<(K, V)>);
        impl<'de, K: Deserialize<'de>, V: Deserialize<'de>> Visitor<'de> for PairsVisitor<K, V> {
            type Value = Pairs<K, V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Pairs::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = SmallVec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_any(PairsVisitor(std::marker::PhantomData))
    }
}

/// Turns pieces of the bytes into positions; texts that had escapes are collected.
struct Places<'a> {
    base: usize,
    decoded: String,
    bytes: &'a [u8],
}

impl Places<'_> {
    fn text(&mut self, text: &Text<'_>) -> Span {
        if text.0.is_empty() {
            return Span::default();
        }
        match &text.0 {
            Cow::Borrowed(text) => self.piece(text),
            Cow::Owned(text) => {
                let start = self.decoded.len();
                self.decoded.push_str(text);
                Span {
                    start: narrow(start) | DECODED,
                    len: narrow(text.len()),
                }
            }
        }
    }

    fn piece(&self, text: &str) -> Span {
        let start = text.as_ptr().addr().wrapping_sub(self.base);
        debug_assert!(
            start + text.len() <= self.bytes.len(),
            "a borrowed text lies in the bytes"
        );
        Span {
            start: narrow(start),
            len: narrow(text.len()),
        }
    }

    fn raw(&self, value: Option<&RawValue>) -> Span {
        value
            .map(|value| self.piece(value.get()))
            .unwrap_or_default()
    }

    fn owner(&mut self, reference: &Reference<'_>) -> Owner {
        Owner {
            api_version: self.text(&reference.api_version),
            kind: self.text(&reference.kind),
            name: self.text(&reference.name),
            uid: self.text(&reference.uid),
            controller: reference.controller.unwrap_or(false),
            block_owner_deletion: reference.block_owner_deletion.unwrap_or(false),
        }
    }
}

/// Positions are below 2^31, because longer objects are refused.
fn narrow(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(0)
}

pub(super) fn parse(bytes: Bytes) -> Result<Object, Error> {
    if bytes.len() >= DECODED as usize {
        return Err(Error::TooLarge(bytes.len()));
    }
    let mut object = {
        let top: Top<'_> = serde_json::from_slice(&bytes)?;
        let metadata = top.metadata.as_ref().ok_or(Error::Missing("metadata"))?;
        for (text, field) in [
            (&top.api_version, "apiVersion"),
            (&top.kind, "kind"),
            (&metadata.name, "metadata.name"),
            (&metadata.uid, "metadata.uid"),
            (&metadata.resource_version, "metadata.resourceVersion"),
        ] {
            if text.0.is_empty() {
                return Err(Error::Missing(field));
            }
        }
        let places = Places {
            base: bytes.as_ptr().addr(),
            decoded: String::new(),
            bytes: &bytes,
        };
        index(&top, metadata, places)
    };
    object.bytes = bytes;
    Ok(object)
}

/// The index alone; the caller puts the bytes in.
fn index(top: &Top<'_>, metadata: &Metadata<'_>, mut at: Places<'_>) -> Object {
    let labels = metadata
        .labels
        .0
        .iter()
        .map(|(key, value)| (at.text(key), at.text(value)));
    let labels = labels.collect();
    let annotations = metadata
        .annotations
        .0
        .iter()
        .map(|(key, value)| (at.text(key), at.raw(Some(value))));
    let annotations = annotations.collect();
    let owners = metadata
        .owner_references
        .iter()
        .flatten()
        .map(|owner| at.owner(owner));
    let owners = owners.collect();
    let finalizers = metadata
        .finalizers
        .iter()
        .flatten()
        .map(|text| at.text(text));
    let finalizers = finalizers.collect();
    Object {
        api_version: at.text(&top.api_version),
        kind: at.text(&top.kind),
        namespace: at.text(&metadata.namespace),
        name: at.text(&metadata.name),
        uid: at.text(&metadata.uid),
        resource_version: at.text(&metadata.resource_version),
        generation: metadata.generation.unwrap_or(0),
        deleting: metadata.deletion_timestamp.is_some(),
        labels,
        annotations,
        owners,
        finalizers,
        spec: at.raw(top.spec),
        status: at.raw(top.status),
        managed_fields: at.raw(metadata.managed_fields),
        decoded: at.decoded.into_boxed_str(),
        bytes: Bytes::new(),
    }
}

/// Decodes raw JSON that is a text.
pub(super) fn decode_text(raw: &[u8]) -> Option<Cow<'_, str>> {
    if raw.first() != Some(&b'"') {
        return None;
    }
    serde_json::from_slice::<Text<'_>>(raw)
        .ok()
        .map(|text| text.0)
}
