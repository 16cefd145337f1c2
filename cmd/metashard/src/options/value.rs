//! Values of flags as Go writes them.

use std::time::Duration;

use metashard_api::duration;

/// A flag has a value that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Error {
    flag: &'static str,
    problem: String,
}

impl Error {
    /// `flag` without its dashes.
    pub(crate) fn new(flag: &'static str, problem: impl Into<String>) -> Self {
        Self {
            flag,
            problem: problem.into(),
        }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "--{}: {}", self.flag, self.problem)
    }
}

impl std::error::Error for Error {}

/// What Go takes as true and false.
pub(super) fn switch(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("must be true or false".to_owned()),
    }
}

/// A duration above zero, as `30s` or `1h30m`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    match duration::parse(text) {
        Ok(duration) if duration.is_zero() => Err("must be above zero".to_owned()),
        Ok(duration) => Ok(duration),
        Err(_) => Err("must be a duration such as 300ms or 1h30m".to_owned()),
    }
}

/// As [`duration()`], or zero.
pub(super) fn grace(text: &str) -> Result<Duration, String> {
    duration::parse(text).map_err(|_| "must be a duration such as 2s or 1m".to_owned())
}
