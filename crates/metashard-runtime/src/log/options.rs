//! What can be chosen about logs: the peer's `--zap-*` flags.

use std::{num::NonZeroU8, str::FromStr};

use tracing::level_filters::LevelFilter;

/// How to log. The default logs INFO and above as JSON with `ts` in seconds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// `--zap-devel`: defaults for a person at a terminal: console form with colours, DEBUG.
    pub devel: bool,
    /// `--zap-encoder`. Default: JSON, with `devel` console.
    pub encoder: Option<Encoder>,
    /// `--zap-log-level`. Default: INFO, with `devel` DEBUG.
    pub level: Option<Level>,
    /// `--zap-stacktrace-level`. Accepted and without effect: errors carry their causes instead of a stack.
    pub stacktrace_level: Option<StacktraceLevel>,
    /// `--zap-time-encoding`. Default: `epoch`.
    pub time_encoding: Option<TimeEncoding>,
}

/// Form of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoder {
    /// One JSON object.
    Json,
    /// Columns with tabs between, the fields as JSON in the last.
    Console,
}

/// Least important level that is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// `debug`: as verbosity 1.
    Debug,
    /// `info`.
    Info,
    /// `error`.
    Error,
    /// `panic`: nothing but panics, which are logged as errors.
    Panic,
    /// A number: the peer logs sync triggers at 4 and hook bodies at 6. Here 1 to 4 is DEBUG, more is TRACE.
    Verbosity(NonZeroU8),
}

/// From which level on the peer adds stack traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StacktraceLevel {
    /// `info`.
    Info,
    /// `error`.
    Error,
    /// `panic`.
    Panic,
}

/// Form of the time stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimeEncoding {
    /// Seconds since 1970 with a fraction, as a number.
    #[default]
    Epoch,
    /// Milliseconds since 1970 with a fraction, as a number.
    Millis,
    /// Nanoseconds since 1970, as a number.
    Nano,
    /// `2026-01-02T03:04:05.678Z`.
    Iso8601,
    /// `2026-01-02T03:04:05Z`.
    Rfc3339,
    /// `2026-01-02T03:04:05.678901234Z`, without zeros at the end.
    Rfc3339Nano,
}

/// The text of a flag is not one of its values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("parse {text:?}: must be {expected}")]
pub struct ParseError {
    text: String,
    expected: &'static str,
}

impl Options {
    pub(super) fn effective_encoder(&self) -> Encoder {
        self.encoder.unwrap_or(if self.devel {
            Encoder::Console
        } else {
            Encoder::Json
        })
    }

    pub(super) fn effective_level(&self) -> LevelFilter {
        let default = if self.devel {
            Level::Debug
        } else {
            Level::Info
        };
        match self.level.unwrap_or(default) {
            Level::Panic => LevelFilter::OFF,
            Level::Error => LevelFilter::ERROR,
            Level::Info => LevelFilter::INFO,
            Level::Debug => LevelFilter::DEBUG,
            Level::Verbosity(n) if n.get() <= 4 => LevelFilter::DEBUG,
            Level::Verbosity(_) => LevelFilter::TRACE,
        }
    }
}

impl FromStr for Encoder {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text {
            "json" => Ok(Self::Json),
            "console" => Ok(Self::Console),
            _ => Err(ParseError::new(text, "`json` or `console`")),
        }
    }
}

impl FromStr for Level {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let expected = "`debug`, `info`, `error`, `panic` or a number from 1 to 127";
        match text.to_ascii_lowercase().as_str() {
            "debug" => Ok(Self::Debug),
            "info" => Ok(Self::Info),
            "error" => Ok(Self::Error),
            "panic" => Ok(Self::Panic),
            number => match number.parse::<NonZeroU8>() {
                Ok(number) if number.get() <= 127 => Ok(Self::Verbosity(number)),
                _ => Err(ParseError::new(text, expected)),
            },
        }
    }
}

impl FromStr for StacktraceLevel {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text.to_ascii_lowercase().as_str() {
            "info" => Ok(Self::Info),
            "error" => Ok(Self::Error),
            "panic" => Ok(Self::Panic),
            _ => Err(ParseError::new(text, "`info`, `error` or `panic`")),
        }
    }
}

impl FromStr for TimeEncoding {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text {
            "epoch" => Ok(Self::Epoch),
            "millis" => Ok(Self::Millis),
            "nano" => Ok(Self::Nano),
            "iso8601" => Ok(Self::Iso8601),
            "rfc3339" => Ok(Self::Rfc3339),
            "rfc3339nano" => Ok(Self::Rfc3339Nano),
            _ => Err(ParseError::new(
                text,
                "`epoch`, `millis`, `nano`, `iso8601`, `rfc3339` or `rfc3339nano`",
            )),
        }
    }
}

impl ParseError {
    fn new(text: &str, expected: &'static str) -> Self {
        Self {
            text: text.to_owned(),
            expected,
        }
    }
}
