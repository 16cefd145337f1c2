//! The lines of a recording.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use metashard_api::resource::Resource;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::{Error, Scribe, hide::hidden};
use crate::{
    controller::{Apply, ApplyError},
    memory,
    object::Object,
    related::{self, Group, Related},
    sync::{Candidates, Fed, HookResult, Unrelated},
    write::{WriteError, WriteResult},
};

/// One line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Line<'a> {
    Start(Box<Start<'a>>),
    Fed(FedForm<'a>),
    End(End),
}

/// What a pass starts from.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Start<'a> {
    pub(super) form: u32,
    pub(super) at: String,
    pub(super) replica: String,
    pub(super) observed: bool,
    pub(super) redacted: bool,
    pub(super) now: Option<Duration>,
    pub(super) apply: ApplyForm,
    pub(super) controller: Raw<'a>,
    /// All that the controller was compiled with.
    pub(super) resources: Vec<Resource>,
    /// Kinds of children that are served no longer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) lost: Vec<Resource>,
    /// The parent's.
    pub(super) resource: Resource,
    pub(super) parent: Raw<'a>,
    pub(super) candidates: Vec<CandidatesForm<'a>>,
    pub(super) revisions: CandidatesForm<'a>,
    pub(super) memory: memory::Form<'a>,
}

/// What a pass came to, for people.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct End {
    pub(super) verdict: String,
    pub(super) message: Option<String>,
    pub(super) requeue: String,
}

/// Bytes, readable where they are JSON on one line; else a text, or a list of numbers.
///
/// What is told takes its form only as it is written, so that there is never a copy of more than one object.
pub(crate) enum Raw<'a> {
    /// To be written, with other texts in place of the values of Secrets, if they are hidden.
    Told(&'a [u8], Option<&'a Hide<'a>>),
    /// As it was read.
    Read(Box<RawValue>),
}

/// What stands for a value of a Secret.
pub(crate) type Hide<'a> = dyn Fn(&str) -> String + 'a;

impl Raw<'_> {
    pub(super) fn bytes(&self) -> Bytes {
        let raw = match self {
            Self::Told(bytes, _) => return Bytes::copy_from_slice(bytes),
            Self::Read(raw) => raw,
        };
        let text = raw.get();
        match text.as_bytes().first() {
            Some(b'"') => serde_json::from_str::<String>(text)
                .unwrap_or_default()
                .into(),
            Some(b'[') => serde_json::from_str::<Vec<u8>>(text)
                .unwrap_or_default()
                .into(),
            _ => Bytes::copy_from_slice(text.as_bytes()),
        }
    }

    pub(crate) fn object(&self) -> Result<Arc<Object>, Error> {
        Ok(Arc::new(Object::parse(self.bytes())?))
    }
}

impl fmt::Debug for Raw<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Raw").finish_non_exhaustive()
    }
}

impl Serialize for Raw<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Read(raw) => raw.serialize(serializer),
            Self::Told(bytes, hide) => match hide.and_then(|hide| hidden(bytes, hide)) {
                Some(hidden) => write(&hidden, serializer),
                None => write(bytes, serializer),
            },
        }
    }
}

impl<'de> Deserialize<'de> for Raw<'_> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Self::Read)
    }
}

fn write<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return serializer.collect_seq(bytes);
    };
    match as_json(text) {
        Some(raw) => raw.serialize(serializer),
        None => serializer.serialize_str(text),
    }
}

/// An object of JSON that can stand in a line byte for byte.
fn as_json(text: &str) -> Option<&RawValue> {
    let fits = text.starts_with('{') && text.ends_with('}') && !text.contains('\n');
    fits.then(|| serde_json::from_str(text).ok())?
}

/// As the flags have it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ApplyForm {
    strategy: String,
    manager: String,
}

impl ApplyForm {
    pub(super) fn of(apply: &Apply) -> Self {
        Self {
            strategy: apply.strategy.as_str().to_owned(),
            manager: apply.manager.to_string(),
        }
    }

    pub(super) fn restore(&self) -> Result<Apply, ApplyError> {
        Apply::of_flags(&self.strategy, &self.manager)
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CandidatesForm<'a> {
    reached: Option<Box<str>>,
    objects: Vec<Raw<'a>>,
}

impl<'a> CandidatesForm<'a> {
    pub(super) fn of(candidates: &'a Candidates, scribe: &Scribe<'a>) -> Self {
        let objects = candidates.objects.iter().map(|it| scribe.object(it));
        Self {
            reached: candidates.reached.clone(),
            objects: objects.collect(),
        }
    }

    pub(super) fn restore(self) -> Result<Candidates, Error> {
        Ok(Candidates {
            objects: objects(&self.objects)?,
            reached: self.reached,
        })
    }
}

fn objects(raw: &[Raw<'_>]) -> Result<Vec<Arc<Object>>, Error> {
    raw.iter().map(Raw::object).collect()
}

/// What came of a step.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum FedForm<'a> {
    Written(Vec<Result<Option<Raw<'a>>, WriteError>>),
    Parent(Result<Option<Raw<'a>>, WriteError>),
    Hook(HookForm<'a>),
    Related(RelatedForm<'a>),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum HookForm<'a> {
    Answer(Raw<'a>),
    TooManyRequests(Option<Duration>),
    Unavailable(String, Duration),
    Failed(String),
    NoAuthority,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum RelatedForm<'a> {
    Found(Vec<(String, Vec<Raw<'a>>)>),
    NotYet,
    /// Plural and apiVersion.
    NotServed(String, String),
    Refused(String),
}

impl<'a> FedForm<'a> {
    pub(super) fn of(fed: &'a Fed, scribe: &Scribe<'a>) -> Self {
        let result = |result: &'a WriteResult| match result {
            Ok(object) => Ok(object.as_ref().map(|it| scribe.object(it))),
            Err(error) => Err(error.clone()),
        };
        match fed {
            Fed::Written(results) => Self::Written(results.iter().map(result).collect()),
            Fed::Parent(found) => Self::Parent(result(found)),
            Fed::Hook(it) => Self::Hook(HookForm::of(it, scribe)),
            Fed::Related(found) => Self::Related(RelatedForm::of(found, scribe)),
        }
    }

    pub(super) fn restore(self) -> Result<Fed, Error> {
        let result = |form: Result<Option<Raw<'_>>, WriteError>| -> Result<WriteResult, Error> {
            Ok(match form {
                Ok(object) => Ok(object.map(|it| it.object()).transpose()?),
                Err(error) => Err(error),
            })
        };
        Ok(match self {
            Self::Written(results) => {
                let results = results.into_iter().map(result);
                Fed::Written(results.collect::<Result<_, Error>>()?)
            }
            Self::Parent(found) => Fed::Parent(result(found)?),
            Self::Hook(form) => Fed::Hook(form.restore()),
            Self::Related(form) => Fed::Related(form.restore()?),
        })
    }
}

impl<'a> HookForm<'a> {
    fn of(result: &'a HookResult, scribe: &Scribe<'a>) -> Self {
        match result {
            HookResult::Answer(body) => Self::Answer(scribe.text(body)),
            HookResult::TooManyRequests { retry_after } => Self::TooManyRequests(*retry_after),
            HookResult::Unavailable { error, retry_after } => {
                Self::Unavailable(error.clone(), *retry_after)
            }
            HookResult::Failed(text) => Self::Failed(text.clone()),
            HookResult::NoAuthority => Self::NoAuthority,
        }
    }

    fn restore(self) -> HookResult {
        match self {
            Self::Answer(body) => HookResult::Answer(body.bytes()),
            Self::TooManyRequests(retry_after) => HookResult::TooManyRequests { retry_after },
            Self::Unavailable(error, retry_after) => HookResult::Unavailable { error, retry_after },
            Self::Failed(text) => HookResult::Failed(text),
            Self::NoAuthority => HookResult::NoAuthority,
        }
    }
}

impl<'a> RelatedForm<'a> {
    fn of(found: &'a Result<Related, Unrelated>, scribe: &Scribe<'a>) -> Self {
        match found {
            Ok(related) => {
                let group = |group: &'a Group| {
                    let objects = group.objects.iter().map(|it| scribe.object(it));
                    (group.key.clone(), objects.collect())
                };
                Self::Found(related.groups().iter().map(group).collect())
            }
            Err(Unrelated::NotYet) => Self::NotYet,
            Err(Unrelated::Refused(related::Error::NotFound {
                resource,
                api_version,
            })) => Self::NotServed(resource.clone(), api_version.clone()),
            Err(Unrelated::Refused(error)) => Self::Refused(error.to_string()),
        }
    }

    fn restore(self) -> Result<Result<Related, Unrelated>, Error> {
        let refused = |error| Ok(Err(Unrelated::Refused(error)));
        match self {
            Self::Found(groups) => {
                let groups = groups.into_iter().map(|(key, raw)| {
                    Ok(Group {
                        key,
                        objects: objects(&raw)?,
                    })
                });
                let groups = groups.collect::<Result<_, Error>>()?;
                Ok(Ok(Related::from_groups(groups)))
            }
            Self::NotYet => Ok(Err(Unrelated::NotYet)),
            Self::NotServed(resource, api_version) => refused(related::Error::NotFound {
                resource,
                api_version,
            }),
            Self::Refused(text) => refused(related::Error::Recorded(text)),
        }
    }
}
