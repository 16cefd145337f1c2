//! Logs: one line of JSON, or one for people, on standard error for each event.

mod format;
mod options;

use std::{error::Error as StdError, fmt::Write, io, panic};

use tracing::{Subscriber, level_filters::LevelFilter, subscriber::SetGlobalDefaultError};
use tracing_subscriber::{
    Layer,
    filter::Targets,
    fmt::{self, MakeWriter},
    layer::SubscriberExt,
    registry,
};

use self::format::{Fields, Line};
pub use self::options::{Encoder, Level, Options, ParseError, StacktraceLevel, TimeEncoding};

/// Target of the lines about panics, which no level turns off.
const PANIC_TARGET: &str = "metashard_panic";

/// Logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another subscriber is in place.
    #[error("set up logging")]
    Install {
        /// Why not.
        #[source]
        source: SetGlobalDefaultError,
    },
}

/// Sends log lines of the whole process to standard error from now on, those of panics included.
///
/// # Errors
///
/// If logging was set up before.
pub fn init(options: &Options) -> Result<(), Error> {
    tracing::subscriber::set_global_default(subscriber(options, io::stderr))
        .map_err(|source| Error::Install { source })?;
    panic::set_hook(Box::new(|panic| {
        let message = panic.payload_as_str().unwrap_or("no message");
        let location = panic.location().map(ToString::to_string);
        tracing::error!(target: PANIC_TARGET, location, panic = message, "panic");
    }));
    Ok(())
}

/// An error with its causes, outermost first: `reconcile Widget a/b: call sync hook: connection refused`.
///
/// A cause whose text already ends the text before it is left out: some libraries print their source themselves.
pub fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            // Writing to a String cannot fail.
            let _infallible = write!(text, ": {cause_text}");
        }
        source = cause.source();
    }
    text
}

/// What [`init`] installs, writing to `writer`.
fn subscriber<W>(options: &Options, writer: W) -> impl Subscriber + Send + Sync
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let layer = fmt::layer()
        .event_format(Line::new(options))
        .fmt_fields(Fields)
        .with_writer(writer)
        .with_filter(filter(options.effective_level()));
    registry().with(layer)
}

/// Our own crates log at `level`; libraries, which are chatty below it, at INFO at most.
fn filter(level: LevelFilter) -> Targets {
    Targets::new()
        .with_default(level.min(LevelFilter::INFO))
        .with_target("metashard", level)
        .with_target(PANIC_TARGET, LevelFilter::ERROR)
}

#[cfg(test)]
mod tests;
