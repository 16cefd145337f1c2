//! What a pass started from and what it was fed with, as lines of JSON: with them it can be run again, to the same end.
//!
//! The first line is what the pass started from, each further one what came of one step, the last what it came to. A pass
//! that was cut short has no last line. What it wrote is not in it: that is what running it again says.

mod form;
mod hide;
mod replay;

use std::{io, sync::Arc, time::Duration};

use metashard_api::{
    id::ControllerKind,
    resource::Resource,
    v1alpha1::{composite::CompositeController, decorator::DecoratorController},
};
use serde::de::DeserializeOwned;

use self::form::{ApplyForm, CandidatesForm, End, FedForm, Line, Start};
pub(crate) use self::form::{Hide, Raw};
pub use self::replay::{Called, Replayed};
use crate::{
    controller::{self, Controller},
    memory,
    object::{self, Object},
    sync::{Fed, Outcome, SyncInput},
};

/// The form of the lines. One that reads another refuses.
const VERSION: u32 = 1;

/// Why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A line is none of ours.
    #[error("read line {line} of the recording")]
    Line {
        /// From 1.
        line: usize,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// It does not begin with what the pass started from.
    #[error("read the recording: its first line does not say what the pass started from")]
    NoStart,
    /// Another version of metashard wrote it.
    #[error("read the recording: it has form {0}, and this program reads form {VERSION}")]
    Version(u32),
    /// The controller in it cannot be run.
    #[error("compile the recorded controller")]
    Controller(#[from] controller::Error),
    /// Children cannot be written in the way that is in it.
    #[error("read how children are written")]
    Apply(#[from] controller::ApplyError),
    /// The controller in it is no controller object.
    #[error("read the recorded controller")]
    Unreadable(#[source] serde_json::Error),
    /// Something in it is no object.
    #[error("read a recorded object")]
    Object(#[from] object::Error),
}

/// Where a pass ran, for people.
#[derive(Debug, Clone, Copy)]
pub struct Origin<'a> {
    /// When it began.
    pub at: &'a str,
    /// Name of the replica.
    pub replica: &'a str,
    /// Whether what it writes is only observed.
    pub observed: bool,
}

/// Writes passes as lines, each with its end of line.
#[derive(Clone, Copy, Default)]
pub struct Scribe<'a> {
    /// What stands for a value of a Secret; `None`: the value itself.
    pub hide: Option<&'a Hide<'a>>,
}

impl std::fmt::Debug for Scribe<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scribe").finish_non_exhaustive()
    }
}

impl<'a> Scribe<'a> {
    /// Writes what a pass starts from, and the time that it is told.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn start(
        &self,
        origin: &Origin<'_>,
        input: &'a SyncInput,
        now: Option<Duration>,
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        let controller = &input.controller;
        let parents = controller.parents.iter().map(|rule| &rule.resource);
        let children = controller.children.iter().map(|rule| &rule.resource);
        let start = Start {
            form: VERSION,
            at: origin.at.to_owned(),
            replica: origin.replica.to_owned(),
            observed: origin.observed,
            redacted: self.hide.is_some(),
            now,
            apply: ApplyForm::of(&controller.apply),
            controller: self.text(controller.frame.controller()),
            resources: parents.chain(children).map(|it| (**it).clone()).collect(),
            lost: controller.lost.iter().map(|it| (**it).clone()).collect(),
            resource: (*input.resource).clone(),
            parent: self.object(&input.parent),
            candidates: input
                .candidates
                .iter()
                .map(|it| CandidatesForm::of(it, self))
                .collect(),
            revisions: CandidatesForm::of(&input.revisions, self),
            memory: memory::Form::of(&input.memory, self),
        };
        line(&Line::Start(Box::new(start)), out)
    }

    /// Writes what came of a step.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn fed(&self, fed: &'a Fed, out: &mut dyn io::Write) -> io::Result<()> {
        line(&Line::Fed(FedForm::of(fed, self)), out)
    }

    /// Writes what the pass came to.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn end(&self, outcome: &Outcome, out: &mut dyn io::Write) -> io::Result<()> {
        let message = outcome.verdict.message();
        let end = End {
            verdict: outcome.verdict.as_str().to_owned(),
            message: message.map(ToOwned::to_owned),
            requeue: outcome.requeue.to_string(),
        };
        line(&Line::End(end), out)
    }

    pub(crate) fn object(&self, object: &'a Object) -> Raw<'a> {
        self.text(object.bytes())
    }

    fn text(&self, bytes: &'a [u8]) -> Raw<'a> {
        Raw::Told(bytes, self.hide)
    }
}

fn line(form: &Line<'_>, mut out: &mut dyn io::Write) -> io::Result<()> {
    serde_json::to_writer(&mut out, form)?;
    out.write_all(b"\n")
}

/// A pass that was recorded.
#[derive(Debug)]
pub struct Recording {
    /// When it began.
    pub at: String,
    /// Name of the replica that ran it.
    pub replica: String,
    /// Whether what it wrote was only observed.
    pub observed: bool,
    /// Whether values of Secrets were hidden: what it compares is then not what it compared.
    pub redacted: bool,
    /// What it started from.
    pub input: SyncInput,
    /// The time that it was told, if any.
    pub now: Option<Duration>,
    /// What it was fed with, in order.
    pub fed: Vec<Fed>,
    /// What it came to, for people; `None`: it was cut short.
    pub verdict: Option<String>,
}

impl Recording {
    /// Reads a recording. A last line without an end of line was being written, and is passed over.
    ///
    /// # Errors
    /// When it is none, or of another version, or its controller cannot be run by this program.
    pub fn read(bytes: &[u8]) -> Result<Self, Error> {
        let mut lines = lines(bytes);
        let Some(Line::Start(start)) = lines.next().transpose()? else {
            return Err(Error::NoStart);
        };
        if start.form != VERSION {
            return Err(Error::Version(start.form));
        }
        let (mut fed, mut verdict) = (Vec::new(), None);
        for line in lines {
            match line? {
                Line::Fed(form) => fed.push(form.restore()?),
                Line::End(end) => verdict = Some(end.verdict),
                Line::Start(_) => return Err(Error::NoStart),
            }
        }
        let controller = compile(&start)?;
        let candidates = start.candidates.into_iter().map(CandidatesForm::restore);
        let input = SyncInput {
            controller: Arc::new(controller),
            resource: Arc::new(start.resource),
            parent: start.parent.object()?,
            candidates: candidates.collect::<Result<_, Error>>()?,
            revisions: start.revisions.restore()?,
            memory: start.memory.restore()?,
        };
        Ok(Self {
            at: start.at,
            replica: start.replica,
            observed: start.observed,
            redacted: start.redacted,
            input,
            now: start.now,
            fed,
            verdict,
        })
    }
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = Result<Line<'static>, Error>> {
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
    let whole = bytes.get(..whole).unwrap_or_default();
    whole
        .split(|byte| *byte == b'\n')
        .enumerate()
        .map(|(index, line)| {
            serde_json::from_slice(line).map_err(|source| Error::Line {
                line: index + 1,
                source,
            })
        })
}

fn compile(start: &Start<'_>) -> Result<Controller, Error> {
    let raw = start.controller.bytes();
    let find = |among: &[Resource], api_version: &str, plural: &str| {
        let is_it = |it: &&Resource| it.plural == plural && it.api_version() == api_version;
        among.iter().find(is_it).cloned().map(Arc::new)
    };
    let lookup = |api_version: &str, plural: &str| find(&start.resources, api_version, plural);
    let known = |api_version: &str, plural: &str| find(&start.lost, api_version, plural);
    let composite = format!(r#""kind":"{}""#, ControllerKind::Composite);
    // Of our own making, so this is how it begins.
    let is_composite = raw
        .get(..128)
        .unwrap_or(&raw)
        .windows(composite.len())
        .any(|it| it == composite.as_bytes());
    let controller = if is_composite {
        Controller::compile(&typed::<CompositeController>(&raw)?, &raw, &lookup)
    } else {
        Controller::compile_decorator(&typed::<DecoratorController>(&raw)?, &raw, &lookup)
    };
    Ok(controller?.applying(start.apply.restore()?).showing(&known))
}

fn typed<T: DeserializeOwned>(raw: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(raw).map_err(Error::Unreadable)
}

#[cfg(test)]
mod tests;
