//! How to log: the flags that Metacontroller has from its logging library.

use clap::Args;
use metashard_runtime::log::{
    Encoder, Level, Options as LogOptions, StacktraceLevel, TimeEncoding,
};

use super::value;

/// How to log.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Options {
    /// Log for people at a terminal: console form, level debug.
    #[arg(long = "zap-devel", value_name = "BOOL", default_value = "false", hide_default_value = true, num_args = 0..=1,
          require_equals = true, default_missing_value = "true", value_parser = value::switch)]
    pub(crate) devel: bool,
    /// Form of a line: json or console. Default: json, with --zap-devel console.
    #[arg(long = "zap-encoder", value_name = "FORM")]
    pub(crate) encoder: Option<Encoder>,
    /// Least important level that is logged: debug, info, error, panic, or a number from 1 on, which shows more. Default: info.
    #[arg(long = "zap-log-level", value_name = "LEVEL")]
    pub(crate) level: Option<Level>,
    /// Accepted and without effect: errors are logged with their causes.
    #[arg(long = "zap-stacktrace-level", value_name = "LEVEL")]
    pub(crate) stacktrace_level: Option<StacktraceLevel>,
    /// Form of time stamps: epoch, millis, nano, iso8601, rfc3339 or rfc3339nano. Default: epoch.
    #[arg(long = "zap-time-encoding", value_name = "FORM")]
    pub(crate) time_encoding: Option<TimeEncoding>,
}

impl Options {
    pub(super) fn check(self) -> LogOptions {
        let Self {
            devel,
            encoder,
            level,
            stacktrace_level,
            time_encoding,
        } = self;
        LogOptions {
            devel,
            encoder,
            level,
            stacktrace_level,
            time_encoding,
        }
    }
}
