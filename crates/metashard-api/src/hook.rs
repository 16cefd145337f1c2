//! What is said to hooks and by them: versions, modes, keys of object maps, and the reading of answers.
//!
//! Answers come from tenants' code, so reading them has limits ([`json::MAX_DEPTH`] and its like), never panics,
//! and refuses rather than guesses.

use crate::v1alpha1::webhook::{Hook, HookVersion, ResponseUnmarshalMode};

pub mod answer;
pub mod json;
pub mod keys;

pub use answer::{
    CustomizeAnswer, DecodeError, DecoratorAnswer, Event, RelatedRule, SyncAnswer,
    decode_customize, decode_decorator, decode_sync,
};
pub use keys::{inner_key, outer_key};

/// Version of a hook's bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Version {
    /// Objects are keyed relative to the parent, and a namespaced parent sees its own namespace only. The default.
    #[default]
    V1,
    /// Objects are keyed by `namespace/name`.
    V2,
}

impl Version {
    /// The version that a hook asks for; `None` if that is a word we do not know.
    pub fn of(hook: &Hook) -> Option<Self> {
        match hook.version {
            None | Some(HookVersion::V1) => Some(Self::V1),
            Some(HookVersion::V2) => Some(Self::V2),
            Some(HookVersion::Unknown) => None,
        }
    }

    /// `v1` or `v2`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
        }
    }
}

/// What an unknown or repeated field in an answer means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// A warning.
    Loose,
    /// The answer is refused.
    Strict,
}

impl Mode {
    /// The mode that a hook asks for, or that its version brings; `None` if that is a word we do not know.
    pub fn of(hook: &Hook) -> Option<Self> {
        let asked = hook
            .webhook
            .as_ref()
            .and_then(|webhook| webhook.response_unmarshal_mode);
        match asked {
            Some(ResponseUnmarshalMode::Loose) => Some(Self::Loose),
            Some(ResponseUnmarshalMode::Strict) => Some(Self::Strict),
            Some(ResponseUnmarshalMode::Unknown) => None,
            None => Version::of(hook).map(Self::default_of),
        }
    }

    /// Loose for v1, strict for v2.
    pub const fn default_of(version: Version) -> Self {
        match version {
            Version::V1 => Self::Loose,
            Version::V2 => Self::Strict,
        }
    }
}
