//! An object with a part of it replaced, and an object as a value.

use bytes::{BufMut, Bytes, BytesMut};
use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

use super::{Object, Span};

impl Object {
    /// The whole object as a value, without `metadata.managedFields`: no merge looks at them, and a PUT without them keeps them.
    ///
    /// # Errors
    /// When it is nested deeper than values can be.
    pub(crate) fn to_value(&self) -> Result<Value, serde_json::Error> {
        if self.managed_fields.len == 0 {
            return serde_json::from_slice(&self.bytes);
        }
        let mut value: Value = serde_json::from_slice(&self.splice(self.managed_fields, b"null"))?;
        if let Some(Value::Object(metadata)) = value.get_mut("metadata") {
            metadata.remove("managedFields");
        }
        Ok(value)
    }

    /// The JSON of the object with these fields of its metadata, as it is to be PUT: with uid and resourceVersion,
    /// without `managedFields`, which a PUT without them keeps. All else stays byte for byte.
    pub(crate) fn with_metadata(&self, fields: Map<String, Value>) -> Bytes {
        self.with_edited_metadata(|metadata| metadata.extend(fields))
    }

    /// As [`Self::with_metadata`], with the metadata that `edit` leaves.
    pub(crate) fn with_edited_metadata(&self, edit: impl FnOnce(&mut Map<String, Value>)) -> Bytes {
        // The index has read the metadata before. Were they unreadable here, a PUT of the object as it is changes nothing.
        self.try_with_metadata(edit)
            .unwrap_or_else(|_| self.bytes.clone())
    }

    fn try_with_metadata(
        &self,
        edit: impl FnOnce(&mut Map<String, Value>),
    ) -> Result<Bytes, serde_json::Error> {
        #[derive(Deserialize)]
        struct Top<'a> {
            #[serde(borrow)]
            metadata: &'a RawValue,
        }
        let text = if self.managed_fields.len == 0 {
            self.bytes.clone()
        } else {
            self.splice(self.managed_fields, b"null")
        };
        let Top { metadata } = serde_json::from_slice(&text)?;
        let start = metadata
            .get()
            .as_ptr()
            .addr()
            .wrapping_sub(text.as_ptr().addr());
        let end = start + metadata.get().len();
        let mut map: Map<String, Value> = serde_json::from_str(metadata.get())?;
        map.remove("managedFields");
        edit(&mut map);
        let metadata = Value::Object(map).to_string();
        Ok(joined(&text, start, metadata.as_bytes(), end))
    }

    /// The JSON of the object with another status, as it is to be PUT.
    pub(crate) fn with_status(&self, status: &Value) -> Bytes {
        let status = status.to_string();
        if self.status.len > 0 {
            return self.splice(self.status, status.as_bytes());
        }
        // It has metadata, so that a comma is right before a new field.
        let end = self
            .bytes
            .iter()
            .rposition(|byte| *byte == b'}')
            .unwrap_or_default();
        joined(
            &self.bytes,
            end,
            format!(r#","status":{status}"#).as_bytes(),
            end,
        )
    }

    fn splice(&self, span: Span, piece: &[u8]) -> Bytes {
        let range = span.range();
        joined(&self.bytes, range.start, piece, range.end)
    }
}

/// A text with another piece from `start` to `end`.
fn joined(text: &[u8], start: usize, piece: &[u8], end: usize) -> Bytes {
    let (head, tail) = (
        text.get(..start).unwrap_or_default(),
        text.get(end..).unwrap_or_default(),
    );
    let mut joined = BytesMut::with_capacity(head.len() + piece.len() + tail.len());
    for part in [head, piece, tail] {
        joined.put_slice(part);
    }
    joined.freeze()
}
