//! How children are written: one choice for the whole process, by two flags.

use std::sync::Arc;

use metashard_api::names::FIELD_MANAGER;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Longest name of a field manager, in characters: the API server's limit.
const MAX_MANAGER: usize = 128;

/// How children are written: one choice for the whole process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Apply {
    /// Who merges what is desired into what is there.
    pub strategy: Strategy,
    /// The field manager of server-side apply. Dynamic apply knows by it what was applied by the server before.
    pub manager: Arc<str>,
}

/// Who merges what is desired of a child into what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strategy {
    /// We do, by a record of what was applied last in an annotation.
    #[default]
    Dynamic,
    /// The API server does, by what each manager owns.
    ServerSide,
}

/// Why the value of a flag is no way to write children.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// There is no such strategy; in Metacontroller's words.
    #[error("unknown apply strategy: {0}")]
    Strategy(String),
    /// The API server takes no such field manager.
    #[error("must have 1 to 128 printable characters")]
    Manager,
}

impl Strategy {
    /// The value of `--apply-strategy`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dynamic => "dynamic-apply",
            Self::ServerSide => "server-side-apply",
        }
    }
}

impl Default for Apply {
    fn default() -> Self {
        Self {
            strategy: Strategy::default(),
            manager: FIELD_MANAGER.into(),
        }
    }
}

impl Apply {
    /// By the values of `--apply-strategy`, which may be empty, and of `--apply-strategy-ssa-field-manager`.
    ///
    /// # Errors
    /// Where one of them is none.
    pub fn of_flags(strategy: &str, manager: &str) -> Result<Self, ApplyError> {
        let strategy = match strategy {
            "" => Strategy::default(),
            "dynamic-apply" => Strategy::Dynamic,
            "server-side-apply" => Strategy::ServerSide,
            other => return Err(ApplyError::Strategy(other.to_owned())),
        };
        let is_printable = |c: char| !c.is_control();
        let length = manager.chars().count();
        if !(1..=MAX_MANAGER).contains(&length) || !manager.chars().all(is_printable) {
            return Err(ApplyError::Manager);
        }
        Ok(Self {
            strategy,
            manager: manager.into(),
        })
    }

    /// Tells controllers that write in one way from those that write in another.
    pub(super) fn fingerprint(&self) -> u64 {
        let strategy = match self.strategy {
            Strategy::Dynamic => 0,
            Strategy::ServerSide => 1,
        };
        xxh3_64_with_seed(self.manager.as_bytes(), strategy)
    }
}

impl ApplyError {
    /// The flag whose value it is, without its dashes.
    pub const fn flag(&self) -> &'static str {
        match self {
            Self::Strategy(_) => "apply-strategy",
            Self::Manager => "apply-strategy-ssa-field-manager",
        }
    }
}
