//! Answers of hooks, read and checked field by field.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Map, Value};

use super::{
    Mode,
    json::{self, Document, Fields, Outermost, type_name},
};

mod related;

pub use related::RelatedRule;

/// Longest time that `resyncAfterSeconds` can ask for.
pub const MAX_RESYNC: Duration = Duration::from_hours(24);

/// Shortest time that `resyncAfterSeconds` can ask for; not a limit on load, only never nothing.
pub const MIN_RESYNC: Duration = Duration::from_millis(1);

/// Most events taken from one answer.
pub const MAX_EVENTS: usize = 10;

/// Longest message of an event, in bytes, as the API server has it.
pub const MAX_EVENT_MESSAGE: usize = 1024;

/// Why an answer is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// It is not JSON, or too large.
    #[error("read the hook's answer")]
    Json(#[from] json::Error),
    /// A field has a value of the wrong type.
    #[error("read field {field} of the hook's answer: {found} in place of {wanted}")]
    WrongType {
        /// Path of the field; `the answer` for the whole.
        field: String,
        /// What it should be.
        wanted: &'static str,
        /// What it is.
        found: &'static str,
    },
    /// An object has no `kind`.
    #[error("read {field} of the hook's answer: an object without a kind")]
    KindMissing {
        /// Path of the object.
        field: String,
    },
    /// Strict mode, and there are fields that are unknown or repeated.
    #[error("{}", odd_fields(unknown, repeated))]
    Strict {
        /// Paths of fields that have no meaning.
        unknown: Vec<String>,
        /// Paths of fields that are given more than once.
        repeated: Vec<String>,
    },
}

/// Answer of a composite sync or finalize hook.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SyncAnswer {
    /// The parent's new status. `None`: absent or null, which means an empty one.
    pub status: Option<Map<String, Value>>,
    /// The children that should exist: objects, each with a text `kind`; all else is unchecked.
    /// `None`: there is no field `children` (null counts as an empty list). Whoever has child rules must then not
    /// delete on doubt: refuse the answer in strict mode, warn in loose mode; an answer that is `finalized` excepted.
    pub children: Option<Vec<Value>>,
    /// When to call again, if nothing happens before.
    pub resync_after: Option<Duration>,
    /// Whether finalizing is done; it counts only in the answer of a finalize hook.
    pub finalized: bool,
    /// Events about the parent.
    pub events: Vec<Event>,
    /// What is odd in the answer and was let through.
    pub warnings: Vec<String>,
}

/// Answer of a decorator's sync or finalize hook.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DecoratorAnswer {
    /// Labels to set on the target, or with `None` to remove.
    pub labels: BTreeMap<String, Option<String>>,
    /// Annotations to set on the target, or with `None` to remove.
    pub annotations: BTreeMap<String, Option<String>>,
    /// The target's new status. `None`: it stays.
    pub status: Option<Map<String, Value>>,
    /// The attachments that should exist, as [`SyncAnswer::children`].
    pub attachments: Option<Vec<Value>>,
    /// When to call again, if nothing happens before.
    pub resync_after: Option<Duration>,
    /// Whether finalizing is done; it counts only in the answer of a finalize hook.
    pub finalized: bool,
    /// Events about the target.
    pub events: Vec<Event>,
    /// What is odd in the answer and was let through.
    pub warnings: Vec<String>,
}

/// Answer of a customize hook.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CustomizeAnswer {
    /// Which other objects the sync hook wants to see.
    pub related: Vec<RelatedRule>,
    /// What is odd in the answer and was let through.
    pub warnings: Vec<String>,
}

/// An event that a hook wants to be recorded.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Event {
    /// Whether its type is `Warning` and not `Normal`.
    pub is_warning: bool,
    /// CamelCase.
    pub reason: String,
    /// For people.
    pub message: String,
}

const SYNC: Fields = Fields {
    known: &[
        "children",
        "events",
        "finalized",
        "resyncAfterSeconds",
        "status",
    ],
    opaque: &["children"],
};

const DECORATOR: Fields = Fields {
    known: &[
        "annotations",
        "attachments",
        "events",
        "finalized",
        "labels",
        "resyncAfterSeconds",
        "status",
    ],
    opaque: &["attachments"],
};

const CUSTOMIZE: Fields = Fields {
    known: &["relatedResources"],
    opaque: &[],
};

/// Reads the answer of a composite sync or finalize hook.
///
/// # Errors
///
/// Where it is refused. Then nothing must be changed.
pub fn decode_sync(bytes: &[u8], mode: Mode) -> Result<SyncAnswer, DecodeError> {
    let mut answer = Answer::read(bytes, SYNC, mode)?;
    Ok(SyncAnswer {
        status: answer.object("status")?,
        children: answer.objects("children")?,
        resync_after: answer.resync_after()?,
        finalized: answer.flag("finalized")?,
        events: answer.events()?,
        warnings: answer.finish(Vec::new())?,
    })
}

/// Reads the answer of a decorator's sync or finalize hook.
///
/// # Errors
///
/// Where it is refused. Then nothing must be changed.
pub fn decode_decorator(bytes: &[u8], mode: Mode) -> Result<DecoratorAnswer, DecodeError> {
    let mut answer = Answer::read(bytes, DECORATOR, mode)?;
    Ok(DecoratorAnswer {
        labels: answer.texts("labels")?,
        annotations: answer.texts("annotations")?,
        status: answer.object("status")?,
        attachments: answer.objects("attachments")?,
        resync_after: answer.resync_after()?,
        finalized: answer.flag("finalized")?,
        events: answer.events()?,
        warnings: answer.finish(Vec::new())?,
    })
}

/// Reads the answer of a customize hook.
///
/// # Errors
///
/// Where it is refused.
pub fn decode_customize(bytes: &[u8], mode: Mode) -> Result<CustomizeAnswer, DecodeError> {
    let mut answer = Answer::read(bytes, CUSTOMIZE, mode)?;
    let mut unknown = Vec::new();
    let related = match answer.take("relatedResources") {
        None => Vec::new(),
        Some(value) => related::rules("relatedResources", value, &mut unknown)?,
    };
    Ok(CustomizeAnswer {
        related,
        warnings: answer.finish(unknown)?,
    })
}

/// The fields of an answer that are not taken yet.
struct Answer {
    document: Document,
    known: &'static [&'static str],
    mode: Mode,
    warnings: Vec<String>,
}

impl Answer {
    fn read(bytes: &[u8], fields: Fields, mode: Mode) -> Result<Self, DecodeError> {
        match json::read(bytes, fields)? {
            Outermost::Object(document) => Ok(Self {
                document,
                known: fields.known,
                mode,
                warnings: Vec::new(),
            }),
            Outermost::Other(found) => Err(DecodeError::WrongType {
                field: "the answer".to_owned(),
                wanted: "an object",
                found,
            }),
        }
    }

    /// A field's value; null counts as absent.
    fn take(&mut self, field: &str) -> Option<Value> {
        self.document
            .fields
            .remove(field)
            .filter(|value| !value.is_null())
    }

    fn object(&mut self, field: &str) -> Result<Option<Map<String, Value>>, DecodeError> {
        self.take(field)
            .map(|value| as_object(field, value))
            .transpose()
    }

    fn flag(&mut self, field: &str) -> Result<bool, DecodeError> {
        match self.take(field) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(other) => Err(wrong_type(field, "true or false", &other)),
        }
    }

    /// A list of objects with kinds. Here null counts as an empty list: the field was thought of.
    fn objects(&mut self, field: &str) -> Result<Option<Vec<Value>>, DecodeError> {
        match self.document.fields.remove(field) {
            None => Ok(None),
            Some(Value::Null) => Ok(Some(Vec::new())),
            Some(Value::Array(objects)) => {
                for (index, object) in objects.iter().enumerate() {
                    check_object(field, index, object)?;
                }
                Ok(Some(objects))
            }
            Some(other) => Err(wrong_type(field, "a list", &other)),
        }
    }

    fn texts(&mut self, field: &str) -> Result<BTreeMap<String, Option<String>>, DecodeError> {
        let Some(entries) = self.object(field)? else {
            return Ok(BTreeMap::new());
        };
        entries
            .into_iter()
            .map(|(key, value)| match value {
                Value::Null => Ok((key, None)),
                Value::String(text) => Ok((key, Some(text))),
                other => Err(wrong_type(
                    &format!("{field}.{key}"),
                    "a text or null",
                    &other,
                )),
            })
            .collect()
    }

    fn resync_after(&mut self) -> Result<Option<Duration>, DecodeError> {
        let field = "resyncAfterSeconds";
        match self.take(field) {
            None => Ok(None),
            Some(Value::Number(seconds)) => Ok(seconds.as_f64().and_then(resync_after)),
            Some(other) => Err(wrong_type(field, "a number", &other)),
        }
    }

    /// Events are an addition: Metacontroller ignores the field in loose mode, so whatever is odd in it is then only warned of.
    fn events(&mut self) -> Result<Vec<Event>, DecodeError> {
        let Some(value) = self.take("events") else {
            return Ok(Vec::new());
        };
        match read_events(value) {
            Ok(mut events) => {
                events.sort_unstable();
                events.dedup();
                if events.len() > MAX_EVENTS {
                    self.warnings.push(format!(
                        "more than {MAX_EVENTS} events: the rest is dropped"
                    ));
                    events.truncate(MAX_EVENTS);
                }
                Ok(events)
            }
            Err(error) if self.mode == Mode::Loose => {
                self.warnings.push(format!("events are dropped: {error}"));
                Ok(Vec::new())
            }
            Err(error) => Err(error),
        }
    }

    /// Judges what is odd, once every known field has been taken.
    fn finish(self, mut unknown: Vec<String>) -> Result<Vec<String>, DecodeError> {
        let known = self.known;
        let left = self.document.fields.into_iter().map(|(field, _)| field);
        unknown.extend(left.filter(|field| !known.contains(&field.as_str())));
        let repeated = self.document.repeated;
        if unknown.is_empty() && repeated.is_empty() {
            return Ok(self.warnings);
        }
        match self.mode {
            Mode::Strict => Err(DecodeError::Strict { unknown, repeated }),
            Mode::Loose => {
                let mut warnings = self.warnings;
                warnings.push(odd_fields(&unknown, &repeated));
                Ok(warnings)
            }
        }
    }
}

/// Zero, negative and unreadable times ask for nothing; too long ones are cut.
fn resync_after(seconds: f64) -> Option<Duration> {
    if seconds.is_nan() || seconds <= 0.0 {
        return None;
    }
    let asked = Duration::try_from_secs_f64(seconds).unwrap_or(MAX_RESYNC);
    Some(asked.clamp(MIN_RESYNC, MAX_RESYNC))
}

fn check_object(field: &str, index: usize, object: &Value) -> Result<(), DecodeError> {
    let path = || format!("{field}[{index}]");
    let Value::Object(fields) = object else {
        return Err(wrong_type(&path(), "an object", object));
    };
    match fields.get("kind") {
        Some(Value::String(kind)) if !kind.is_empty() => Ok(()),
        _ => Err(DecodeError::KindMissing { field: path() }),
    }
}

fn read_events(value: Value) -> Result<Vec<Event>, DecodeError> {
    let Value::Array(items) = value else {
        return Err(wrong_type("events", "a list", &value));
    };
    items
        .into_iter()
        .enumerate()
        .map(|(index, item)| read_event(index, item))
        .collect()
}

fn read_event(index: usize, item: Value) -> Result<Event, DecodeError> {
    let path = |name: &str| format!("events[{index}].{name}");
    let mut fields = as_object(&format!("events[{index}]"), item)?;
    let mut text = |name: &str| match fields.remove(name) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(wrong_type(&path(name), "a text", &other)),
    };
    let (type_, reason, mut message) = (text("type")?, text("reason")?, text("message")?);
    if !is_reason(&reason) {
        return Err(DecodeError::WrongType {
            field: path("reason"),
            wanted: "a CamelCase word of at most 128 letters and digits",
            found: "another text",
        });
    }
    message.truncate(message.floor_char_boundary(MAX_EVENT_MESSAGE));
    match type_.as_str() {
        "" | "Normal" => Ok(Event {
            is_warning: false,
            reason,
            message,
        }),
        "Warning" => Ok(Event {
            is_warning: true,
            reason,
            message,
        }),
        _ => Err(DecodeError::WrongType {
            field: path("type"),
            wanted: "Normal or Warning",
            found: "another text",
        }),
    }
}

fn is_reason(text: &str) -> bool {
    text.len() <= 128
        && text.starts_with(|first: char| first.is_ascii_uppercase())
        && text.chars().all(|c| c.is_ascii_alphanumeric())
}

fn as_object(field: &str, value: Value) -> Result<Map<String, Value>, DecodeError> {
    match value {
        Value::Object(object) => Ok(object),
        other => Err(wrong_type(field, "an object", &other)),
    }
}

fn wrong_type(field: &str, wanted: &'static str, found: &Value) -> DecodeError {
    DecodeError::WrongType {
        field: field.to_owned(),
        wanted,
        found: type_name(found),
    }
}

fn odd_fields(unknown: &[String], repeated: &[String]) -> String {
    let named = |what: &str, fields: &[String]| match fields {
        [] => None,
        fields => Some(format!("{what} {}", fields.join(", "))),
    };
    let parts = [
        named("unknown field", unknown),
        named("repeated field", repeated),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests;
