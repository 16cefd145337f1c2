//! The lines of a recording.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use metashard_api::resource::Resource;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Error, Scribe};
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
pub(super) enum Line {
    Start(Box<Start>),
    Fed(FedForm),
    End(End),
}

/// What a pass starts from.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Start {
    pub(super) form: u32,
    pub(super) at: String,
    pub(super) replica: String,
    pub(super) observed: bool,
    pub(super) redacted: bool,
    pub(super) now: Option<Duration>,
    pub(super) apply: ApplyForm,
    pub(super) controller: Raw,
    /// All that the controller was compiled with.
    pub(super) resources: Vec<Resource>,
    /// Kinds of children that are served no longer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) lost: Vec<Resource>,
    /// The parent's.
    pub(super) resource: Resource,
    pub(super) parent: Raw,
    pub(super) candidates: Vec<CandidatesForm>,
    pub(super) revisions: CandidatesForm,
    pub(super) memory: memory::Form,
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
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Raw(Box<RawValue>);

impl Raw {
    pub(super) fn of(bytes: &[u8]) -> Self {
        let raw = match std::str::from_utf8(bytes) {
            Ok(text) => as_json(text).or_else(|| serde_json::value::to_raw_value(text).ok()),
            Err(_) => serde_json::value::to_raw_value(bytes).ok(),
        };
        Self(raw.unwrap_or_else(|| RawValue::NULL.to_owned()))
    }

    pub(super) fn bytes(&self) -> Bytes {
        let text = self.0.get();
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

/// An object of JSON that can stand in a line byte for byte.
fn as_json(text: &str) -> Option<Box<RawValue>> {
    let fits = text.starts_with('{') && text.ends_with('}') && !text.contains('\n');
    fits.then(|| RawValue::from_string(text.to_owned()).ok())?
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
pub(super) struct CandidatesForm {
    reached: Option<Box<str>>,
    objects: Vec<Raw>,
}

impl CandidatesForm {
    pub(super) fn of(candidates: &Candidates, scribe: &Scribe<'_>) -> Self {
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

fn objects(raw: &[Raw]) -> Result<Vec<Arc<Object>>, Error> {
    raw.iter().map(Raw::object).collect()
}

/// What came of a step.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum FedForm {
    Written(Vec<Result<Option<Raw>, WriteError>>),
    Parent(Result<Option<Raw>, WriteError>),
    Hook(HookForm),
    Related(RelatedForm),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum HookForm {
    Answer(Raw),
    TooManyRequests(Option<Duration>),
    Unavailable(String, Duration),
    Failed(String),
    NoAuthority,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum RelatedForm {
    Found(Vec<(String, Vec<Raw>)>),
    NotYet,
    /// Plural and apiVersion.
    NotServed(String, String),
    Refused(String),
}

impl FedForm {
    pub(super) fn of(fed: &Fed, scribe: &Scribe<'_>) -> Self {
        let result = |result: &WriteResult| match result {
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
        let result = |form: Result<Option<Raw>, WriteError>| -> Result<WriteResult, Error> {
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

impl HookForm {
    fn of(result: &HookResult, scribe: &Scribe<'_>) -> Self {
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

impl RelatedForm {
    fn of(found: &Result<Related, Unrelated>, scribe: &Scribe<'_>) -> Self {
        match found {
            Ok(related) => {
                let group = |group: &Group| {
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
