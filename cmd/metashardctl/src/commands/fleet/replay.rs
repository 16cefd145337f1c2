//! `fleet replay`: the decisions of a recording, made again.

use std::{
    path::Path,
    time::{Duration, SystemTime},
};

use anyhow::Context;
use jiff::Timestamp;
use metashard_fleet::{
    recording::{Machine, Of, Recording, Taken},
    time::Now,
};
use metashard_plan::document;
use metashard_runtime::build_info;
use serde::Serialize;
use serde_json::{Value, json};

use super::told::Told;
use crate::{
    Found,
    argv::{Format, Replay},
    output::{self, Output},
};

pub(in crate::commands) fn run(flags: &Replay, output: &mut Output) -> anyhow::Result<Found> {
    let taken = read(&flags.file)?;
    if taken.version != build_info::VERSION {
        output::complain(&format!(
            "recorded by version {}, replayed by {}: they may decide differently",
            taken.version,
            build_info::VERSION
        ));
    }
    let clock = Wall {
        taken: taken.unix_time,
        now: taken.now,
    };
    match taken.of {
        Of::Leader(recording) => replay(*recording, &clock, flags, output),
        Of::Worker(recording) => replay(*recording, &clock, flags, output),
    }
}

fn read(file: &Path) -> anyhow::Result<Taken> {
    let text = document::text(file)?;
    serde_json::from_str(&text).with_context(|| {
        let version = serde_json::from_str::<Value>(&text).ok();
        let version = version.and_then(|it| it["version"].as_str().map(str::to_owned));
        match version {
            Some(version) if version != build_info::VERSION => format!(
                "{} was recorded by version {version}: replay it by that one, this is {}",
                file.display(),
                build_info::VERSION
            ),
            _ => format!("{} is no recording of a fleet's machine", file.display()),
        }
    })
}

/// Turns the times of steps into those of the wall clock.
struct Wall {
    taken: Duration,
    now: Now,
}

impl Wall {
    /// RFC 3339, to the millisecond.
    fn at(&self, step: Now) -> String {
        let ago = self.now.mono.since(step.mono);
        let at = SystemTime::UNIX_EPOCH + self.taken.saturating_sub(ago);
        Timestamp::try_from(at).map_or_else(|_| "<unknown>".to_owned(), |it| format!("{it:.3}"))
    }
}

fn replay<M>(
    recording: Recording<M>,
    clock: &Wall,
    flags: &Replay,
    output: &mut Output,
) -> anyhow::Result<Found>
where
    M: Machine<Input: Told + Serialize, Action: Told + Serialize>,
{
    let (mut n_all, mut differing, mut steps) = (0, Vec::new(), Vec::new());
    for again in recording.replay() {
        n_all += 1;
        let at = clock.at(again.step.now);
        let is_same = again.is_same();
        if !is_same {
            differing.push(at.clone());
        }
        let is_shown = flags.all || !is_same || !again.actions.iter().all(Told::is_routine);
        if !is_shown {
            continue;
        }
        match flags.output {
            Format::Json | Format::Yaml => steps.push(json!({
                "at": at, "inputs": again.step.inputs, "actions": again.actions, "same": is_same,
            })),
            Format::Name => output.line(&at)?,
            Format::Text | Format::Wide => {
                output.line(&at)?;
                show(&again.step.inputs, "told", flags, output)?;
                show(&again.actions, "does", flags, output)?;
                if !is_same {
                    output.line("  other  it decided something else when it was recorded")?;
                }
            }
        }
    }
    match flags.output {
        Format::Json | Format::Yaml => {
            let all = json!({"steps": steps, "calls": n_all, "differ": differing.len()});
            output.value(flags.output, &all)?;
        }
        Format::Name => {}
        Format::Text | Format::Wide => output.line(&summary(n_all, &differing))?,
    }
    Ok(if differing.is_empty() {
        Found::Same
    } else {
        Found::Differs
    })
}

fn show<T: Told>(all: &[T], what: &str, flags: &Replay, output: &mut Output) -> anyhow::Result<()> {
    for it in all.iter().filter(|it| flags.all || !it.is_routine()) {
        output.line(&format!("  {what}   {}", it.told()))?;
    }
    Ok(())
}

fn summary(n_all: usize, differing: &[String]) -> String {
    match differing.first() {
        None => format!("{n_all} calls decide what they decided when they were recorded"),
        Some(first) => format!(
            "{} of {n_all} calls decide something else than when they were recorded, the first at {first}",
            differing.len()
        ),
    }
}
