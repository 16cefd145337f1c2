//! Where text goes: the standard output, which may end at any line, and what people are told beside it.

use std::{
    env,
    io::{self, BufWriter, StdoutLock, Write},
};

use serde::Serialize;

use crate::argv::Format;

/// Columns where no terminal tells.
const UNBOUNDED: usize = usize::MAX;

/// The standard output.
#[derive(Debug)]
pub(crate) struct Output {
    writer: BufWriter<StdoutLock<'static>>,
    /// Columns of the terminal; [`UNBOUNDED`] if it is none.
    pub(crate) width: usize,
}

impl Output {
    /// The process's own.
    pub(crate) fn stdout() -> Self {
        let size = terminal_size::terminal_size_of(io::stdout());
        let width = size.map(|(width, _)| usize::from(width.0)).or_else(columns);
        Self {
            width: width.unwrap_or(UNBOUNDED),
            writer: BufWriter::new(io::stdout().lock()),
        }
    }

    /// Writes one line.
    pub(crate) fn line(&mut self, line: &str) -> io::Result<()> {
        self.text(line)?;
        self.text("\n")
    }

    /// Writes text as it is.
    pub(crate) fn text(&mut self, text: &str) -> io::Result<()> {
        self.writer.write_all(text.as_bytes())
    }

    /// Makes it seen.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }

    /// Writes a value for programs, as JSON or else as YAML.
    pub(crate) fn value<T: Serialize>(&mut self, format: Format, value: &T) -> anyhow::Result<()> {
        let text = match format {
            Format::Json => serde_json::to_string_pretty(value)? + "\n",
            _ => serde_saphyr::to_string(value)?,
        };
        self.text(&text)?;
        if !text.ends_with('\n') {
            self.text("\n")?;
        }
        Ok(())
    }
}

/// How wide a terminal is that the output does not go to directly, as shells tell their children.
#[expect(
    clippy::disallowed_methods,
    reason = "it is no configuration of the program, but of the terminal"
)]
fn columns() -> Option<usize> {
    let told = env::var("COLUMNS").ok()?;
    told.parse().ok().filter(|it| *it > 0)
}

/// Whether an error says that nobody reads any more.
pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|it| {
        it.downcast_ref::<io::Error>()
            .is_some_and(|it| it.kind() == io::ErrorKind::BrokenPipe)
    })
}

/// Tells people, beside the output.
pub(crate) fn complain(text: &str) {
    // Nowhere is left to complain to.
    drop(writeln!(io::stderr(), "{text}"));
}
