//! `render`: what a sync would write.

use std::{fs, sync::Arc, time::Duration};

use anyhow::Context;
use metashard_plan::{
    document,
    hook::{Holders, Hook, source_of},
    input,
    render::{Input, Rendered, render},
    replay::{Again, replay},
    show,
};
use metashard_reconcile::{controller::Controller, recording::Recording};
use serde_json::{Value, json};

use super::files::Files;
use crate::{
    Found,
    argv::{Answer, Format, Render},
    output::{Output, complain},
};

/// Longest time for the answer of a command.
const COMMAND_LIMIT: Duration = Duration::from_secs(30);

pub(super) async fn run(flags: &Render, output: &mut Output) -> anyhow::Result<Found> {
    if !flags.recordings.is_empty() {
        return again(flags, output);
    }
    let files = Files::read(&flags.files)?;
    let controller = &input::controller_applying(
        files.controller(flags.controller.as_deref())?,
        &files.resources,
        flags.applying.read()?,
    )?;
    let hook = hook(&flags.answer, controller)?;
    hook.secure(&Holders::of_files(&files.objects, &flags.namespace))?;
    // What hooks are called with is no child of anybody.
    let sources = hook.sources();
    let is_source =
        |it: &Value| source_of(it, &flags.namespace).is_some_and(|it| sources.contains(&it));
    let is_parent = |it: &Value| input::parent_resource(it, controller).is_some();
    let objects = files.objects.into_iter().filter(|it| !is_source(it));
    let (parents, others): (Vec<_>, Vec<_>) = objects.partition(is_parent);
    anyhow::ensure!(
        !parents.is_empty(),
        "the files hold no parent of {}",
        controller.name
    );
    let resources = Arc::new(files.resources);
    let mut all = Vec::with_capacity(parents.len());
    for parent in parents {
        let (resource, parent) = input::parent(parent, controller, &flags.namespace)?;
        let others = input::others(others.clone(), controller, &parent, &resources)?;
        let input = Input {
            controller: Arc::clone(controller),
            resource,
            parent,
            others,
            resources: Arc::clone(&resources),
        };
        all.push(render(input, &hook).await);
    }
    print(&all, flags.output, output)?;
    Ok(if all.iter().any(Rendered::has_failed) {
        Found::Failed
    } else {
        Found::Same
    })
}

/// Runs recorded syncs again.
fn again(flags: &Render, output: &mut Output) -> anyhow::Result<Found> {
    let mut all = Vec::with_capacity(flags.recordings.len());
    for file in &flags.recordings {
        let bytes = fs::read(file).with_context(|| format!("read {}", file.display()))?;
        let recording =
            Recording::read(&bytes).with_context(|| format!("read {}", file.display()))?;
        let Again { rendered, notes } = replay(recording);
        for note in notes {
            complain(&format!("{}: {note}", file.display()));
        }
        all.push(rendered);
    }
    print(&all, flags.output, output)?;
    Ok(if all.iter().any(Rendered::has_failed) {
        Found::Failed
    } else {
        Found::Same
    })
}

/// Who answers.
pub(super) fn hook(answer: &Answer, controller: &Controller) -> anyhow::Result<Hook> {
    if let Some(file) = &answer.recorded {
        return Ok(Hook::recorded(document::read_one(file)?.value.to_string()));
    }
    if !answer.exec.is_empty() {
        return Ok(Hook::Command {
            words: answer.exec.clone(),
            limit: COMMAND_LIMIT,
        });
    }
    Ok(Hook::remote(controller, answer.hook.as_deref())?)
}

/// Prints what was rendered.
pub(super) fn print(all: &[Rendered], format: Format, output: &mut Output) -> anyhow::Result<()> {
    match format {
        Format::Json | Format::Yaml => {
            let values: Vec<_> = all.iter().map(show::value).collect();
            output.value(format, &json!({"syncs": values}))
        }
        Format::Name => {
            for write in all.iter().flat_map(|rendered| &rendered.writes) {
                output.line(&write.to_string())?;
            }
            Ok(())
        }
        Format::Text | Format::Wide => Ok(output.text(&show::text(all))?),
    }
}
