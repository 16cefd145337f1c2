//! What is told while a move goes on: lines for people; for programs one document at the end, and the lines beside it.

use std::io::{self, IsTerminal};

use metashard_api::v1alpha1::GROUP;
use metashard_plan::migrate::{
    seen::Seen,
    stages::{Ahead, Next, as_seen, as_step, tell},
};
use metashard_runtime::log::chain;
use serde_json::{Map, Value, json};

use crate::{
    Found,
    argv::Format,
    output::{self, Output},
};

/// Whoever tells.
pub(super) struct Telling<'a> {
    output: &'a mut Output,
    format: Format,
    ahead: Vec<Ahead>,
    steps: Vec<Value>,
    /// What it ended with.
    messages: Vec<String>,
}

impl<'a> Telling<'a> {
    /// Nothing is told yet.
    pub(super) fn new(output: &'a mut Output, format: Format) -> Self {
        Self {
            output,
            format,
            ahead: Vec::new(),
            steps: Vec::new(),
            messages: Vec::new(),
        }
    }

    fn is_for_programs(&self) -> bool {
        matches!(self.format, Format::Json | Format::Yaml | Format::Name)
    }

    /// Whether people see what is told, before they are asked.
    pub(super) fn is_seen(&self) -> bool {
        if self.is_for_programs() {
            io::stderr().is_terminal()
        } else {
            io::stdout().is_terminal()
        }
    }

    /// A line for people.
    pub(super) fn line(&mut self, line: &str) -> anyhow::Result<()> {
        if self.is_for_programs() {
            output::complain(line);
        } else {
            self.output.line(line)?;
        }
        Ok(())
    }

    /// Makes it seen.
    pub(super) fn flush(&mut self) -> anyhow::Result<()> {
        Ok(self.output.flush()?)
    }

    /// What is ahead.
    pub(super) fn ahead(&mut self, ahead: &[Ahead]) -> anyhow::Result<()> {
        self.ahead = ahead.to_vec();
        for it in ahead {
            self.line(&it.to_string())?;
        }
        Ok(())
    }

    /// A step that was carried out.
    pub(super) fn step(&mut self, next: &Next, seen: &Seen) -> anyhow::Result<()> {
        for line in tell(next, seen) {
            self.line(&line)?;
        }
        self.steps.extend(as_step(next, seen));
        self.flush()
    }

    /// What is waited for from now on.
    pub(super) fn wait(&mut self, what: &str) -> anyhow::Result<()> {
        self.line(&format!("  waiting for {what}"))?;
        self.steps.push(json!({"step": "wait", "for": what}));
        self.flush()
    }

    /// An end.
    pub(super) fn end(&mut self, lines: &[String]) -> anyhow::Result<()> {
        for line in lines {
            self.line(line)?;
        }
        self.messages = lines.to_vec();
        Ok(())
    }

    /// The document for programs, of how things are at last.
    pub(super) fn close(self, seen: &Seen, ended: &anyhow::Result<Found>) -> anyhow::Result<()> {
        if self.format == Format::Name {
            for it in &seen.controllers {
                let kind = it.kind.to_lowercase();
                let line = format!("{kind}.{GROUP}/{}", it.name);
                self.output.line(&line)?;
            }
        }
        if !matches!(self.format, Format::Json | Format::Yaml) {
            return Ok(());
        }
        let result = match ended {
            Ok(Found::Same) if !self.ahead.is_empty() && self.messages.is_empty() => "planned",
            Ok(Found::Same) => "finished",
            Ok(Found::Differs | Found::Failed) => "stopped",
            Err(_) => "failed",
        };
        let error = ended.as_ref().err().map(|error| chain(error.as_ref()));
        let ahead = self.ahead.iter();
        let ahead: Vec<_> = ahead
            .map(|it| json!({"when": it.when, "what": it.text}))
            .collect();
        let mut document = Map::from_iter([
            ("result".to_owned(), json!(result)),
            ("error".to_owned(), json!(error)),
            ("messages".to_owned(), json!(self.messages)),
            ("ahead".to_owned(), json!(ahead)),
            ("steps".to_owned(), json!(self.steps)),
        ]);
        if let Value::Object(seen) = as_seen(seen) {
            document.extend(seen);
        }
        self.output.value(self.format, &document)
    }
}
