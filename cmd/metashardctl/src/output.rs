//! Where text goes: the standard output, which may end at any line, and what people are told beside it.

use std::{
    borrow::Cow,
    env,
    io::{self, BufWriter, StdoutLock, Write},
};

use serde::Serialize;

use crate::{argv::Format, table::Table};

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

    /// Writes a table, as wide as the terminal or, where all was asked for, as wide as it is.
    pub(crate) fn table(&mut self, table: &Table, format: Format) -> io::Result<()> {
        let width = match format {
            Format::Wide => UNBOUNDED,
            _ => self.width,
        };
        for line in table.lines(width) {
            self.line(&line)?;
        }
        Ok(())
    }

    /// Writes text for people.
    pub(crate) fn text(&mut self, text: &str) -> io::Result<()> {
        self.exactly(&harmless(text))
    }

    /// Writes text as it is.
    fn exactly(&mut self, text: &str) -> io::Result<()> {
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
        self.exactly(&text)?;
        if !text.ends_with('\n') {
            self.exactly("\n")?;
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
    drop(writeln!(io::stderr(), "{}", harmless(text)));
}

/// Text that only shows on a terminal, and does nothing to it: messages are written by hooks and by whoever makes objects.
fn harmless(text: &str) -> Cow<'_, str> {
    let is_harmful = |it: char| it.is_control() && !matches!(it, '\n' | '\t');
    if text.contains(is_harmful) {
        text.replace(is_harmful, "\u{fffd}").into()
    } else {
        text.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_do_something_to_a_terminal_is_shown_instead() {
        assert_eq!(harmless("a\tb\n"), "a\tb\n");
        assert_eq!(
            harmless("a\u{1b}[2Jb\r\u{9b}"),
            "a\u{fffd}[2Jb\u{fffd}\u{fffd}"
        );
    }
}
