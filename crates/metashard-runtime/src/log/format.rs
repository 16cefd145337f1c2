//! The form of one log line, with the keys that zap uses.

use std::{
    borrow::Cow,
    error::Error,
    fmt::{self, Write},
    time::Duration,
};

use jiff::Timestamp;
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    field::RecordFields,
    fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields, format::Writer},
    registry::{LookupSpan, Scope},
};

use super::{
    chain,
    options::{Encoder, Options, TimeEncoding},
};
use crate::clock::Clock;

/// Writes events as lines.
#[derive(Debug)]
pub(super) struct Line {
    encoder: Encoder,
    time: TimeEncoding,
    colours: bool,
    clock: Clock,
}

/// Writes the fields of spans as `,"name":value` pieces, ready to be put into any object.
#[derive(Debug)]
pub(super) struct Fields;

impl Line {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            encoder: options.effective_encoder(),
            time: options.time_encoding.unwrap_or_default(),
            colours: options.devel,
            clock: Clock::system(),
        }
    }

    #[cfg(test)]
    pub(super) fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    fn write_json(&self, out: &mut Writer<'_>, head: &Head<'_>, fields: &str) -> fmt::Result {
        write!(out, "{{\"level\":\"{}\",\"ts\":", lower(head.level))?;
        match self.time_text() {
            Time::Number(text) => out.write_str(&text)?,
            Time::Text(text) => write_text(out, &text)?,
        }
        out.write_str(",\"logger\":")?;
        write_text(out, &head.logger)?;
        out.write_str(",\"msg\":")?;
        write_text(out, head.message)?;
        out.write_str(fields)?;
        out.write_str("}\n")
    }

    fn write_console(&self, out: &mut Writer<'_>, head: &Head<'_>, fields: &str) -> fmt::Result {
        let (Time::Number(time) | Time::Text(time)) = self.time_text();
        let level = head.level.as_str();
        write!(out, "{time}\t")?;
        if self.colours {
            write!(out, "\u{1b}[{}m{level}\u{1b}[0m", colour(head.level))?;
        } else {
            out.write_str(level)?;
        }
        write!(out, "\t{}\t{}", head.logger, head.message)?;
        if let Some(fields) = fields.strip_prefix(',') {
            write!(out, "\t{{{fields}}}")?;
        }
        out.write_char('\n')
    }

    fn time_text(&self) -> Time {
        let wall = self.clock.wall();
        let since_epoch = wall
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or(Duration::ZERO);
        let stamp = || Timestamp::try_from(wall).unwrap_or(Timestamp::UNIX_EPOCH);
        match self.time {
            TimeEncoding::Epoch => Time::Number(fraction(since_epoch, 9)),
            TimeEncoding::Millis => Time::Number(fraction(since_epoch, 6)),
            TimeEncoding::Nano => Time::Number(since_epoch.as_nanos().to_string()),
            TimeEncoding::Iso8601 => Time::Text(format!("{:.3}", stamp())),
            TimeEncoding::Rfc3339 => Time::Text(format!("{:.0}", stamp())),
            TimeEncoding::Rfc3339Nano => Time::Text(stamp().to_string()),
        }
    }
}

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = String::new();
        for span in context.event_scope().into_iter().flat_map(Scope::from_root) {
            if let Some(formatted) = span.extensions().get::<FormattedFields<N>>() {
                fields.push_str(&formatted.fields);
            }
        }
        let mut visitor = Collect::new(&mut fields);
        event.record(&mut visitor);
        let Collect {
            message, logger, ..
        } = visitor;
        let metadata = event.metadata();
        let head = Head {
            level: *metadata.level(),
            logger: logger.map_or_else(|| logger_of(metadata.target()), Cow::Owned),
            message: &message,
        };
        match self.encoder {
            Encoder::Json => self.write_json(&mut out, &head, &fields),
            Encoder::Console => self.write_console(&mut out, &head, &fields),
        }
    }
}

impl<'writer> FormatFields<'writer> for Fields {
    fn format_fields<R: RecordFields>(
        &self,
        mut writer: Writer<'writer>,
        fields: R,
    ) -> fmt::Result {
        let mut text = String::new();
        fields.record(&mut Collect::new(&mut text));
        writer.write_str(&text)
    }
}

struct Head<'a> {
    level: Level,
    logger: Cow<'a, str>,
    message: &'a str,
}

enum Time {
    Number(String),
    Text(String),
}

/// Appends fields to `fields`, and keeps apart the two that have a place of their own.
struct Collect<'a> {
    fields: &'a mut String,
    message: String,
    logger: Option<String>,
}

impl<'a> Collect<'a> {
    const fn new(fields: &'a mut String) -> Self {
        Self {
            fields,
            message: String::new(),
            logger: None,
        }
    }

    /// Appends a value that is JSON as it stands.
    fn raw(&mut self, field: &Field, value: impl fmt::Display) {
        // Writing to a String cannot fail.
        let _infallible = self.push(field, |out| write!(out, "{value}"));
    }

    fn text(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.message),
            "logger" => self.logger = Some(value.to_owned()),
            _ => {
                let _infallible = self.push(field, |out| write_text(out, value));
            }
        }
    }

    fn push(
        &mut self,
        field: &Field,
        value: impl FnOnce(&mut String) -> fmt::Result,
    ) -> fmt::Result {
        self.fields.push(',');
        write_text(self.fields, field.name())?;
        self.fields.push(':');
        value(self.fields)
    }
}

impl Visit for Collect<'_> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        if value.is_finite() {
            self.raw(field, value);
        } else {
            self.text(field, &value.to_string());
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.raw(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.raw(field, value);
    }

    fn record_i128(&mut self, field: &Field, value: i128) {
        self.raw(field, value);
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        self.raw(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.raw(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.text(field, &chain(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.text(field, &format!("{value:?}"));
    }
}

/// `metashard_worker::reconcile` is the logger `worker.reconcile`.
fn logger_of(target: &str) -> Cow<'_, str> {
    let name = target.strip_prefix("metashard_").unwrap_or(target);
    if name.contains("::") {
        Cow::Owned(name.replace("::", "."))
    } else {
        Cow::Borrowed(name)
    }
}

const fn lower(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

const fn colour(level: Level) -> u8 {
    match level {
        Level::ERROR => 31,
        Level::WARN => 33,
        Level::INFO => 34,
        Level::DEBUG | Level::TRACE => 35,
    }
}

/// Nanoseconds with the point put before the last `digits`: exact, and without zeros at the end.
fn fraction(length: Duration, digits: u32) -> String {
    let nanos = length.as_nanos();
    let unit = 10_u128.pow(digits);
    let text = format!(
        "{}.{:0width$}",
        nanos / unit,
        nanos % unit,
        width = digits as usize
    );
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Writes `text` as a JSON string.
fn write_text(out: &mut dyn Write, text: &str) -> fmt::Result {
    out.write_char('"')?;
    for character in text.chars() {
        match character {
            '"' => out.write_str("\\\"")?,
            '\\' => out.write_str("\\\\")?,
            '\n' => out.write_str("\\n")?,
            '\r' => out.write_str("\\r")?,
            '\t' => out.write_str("\\t")?,
            control if control < ' ' => write!(out, "\\u{:04x}", u32::from(control))?,
            plain => out.write_char(plain)?,
        }
    }
    out.write_char('"')
}
