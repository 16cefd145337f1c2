//! Steps of a move, and what is ahead of it, for people.

use std::cmp::Ordering;

use super::{Next, Wishes, apply::would, parents};
use crate::{
    migrate::{
        record::{Record, Stage, Workload},
        seen::{ControllerSeen, Seen},
    },
    render::many,
};

/// What a step that is about to be carried out is told as; nothing for those that only wait or end.
pub fn tell(next: &Next, seen: &Seen) -> Vec<String> {
    match next {
        Next::Record(record) => of_record(record, seen),
        Next::Mark { kind, name, mark } => {
            let what = match mark {
                Some(mark) if mark.observe => "to be observed only",
                Some(_) => "metashard acts on it from now on",
                None => "its marks are taken away",
            };
            vec![format!("  {kind} {name}: {what}")]
        }
        Next::Scale(workload) => {
            let before = seen.peers.iter().find(|it| it.workload.is_same(workload));
            let before = before.map_or(0, |it| it.workload.replicas);
            vec![format!(
                "  {}: scaled from {before} to {}",
                workload.title(),
                workload.replicas
            )]
        }
        Next::Wait(_) | Next::Stop(_) | Next::Finished(_) => Vec::new(),
    }
}

fn of_record(record: &Record, seen: &Seen) -> Vec<String> {
    let workloads = titles(&record.workloads);
    if seen
        .record
        .as_ref()
        .is_some_and(|it| it.stage == record.stage)
    {
        return vec![format!(
            "  {workloads}: what it asks for has changed, and is remembered"
        )];
    }
    let mut told = Vec::new();
    match record.stage {
        Stage::Stopping => {
            told.extend(
                answers(seen, record.round).map(|(it, text)| format!("  {}: {text}", it.title())),
            );
        }
        Stage::Done => told.extend(acted(seen, record.round)),
        _ => {}
    }
    told.push(match record.stage {
        Stage::Observing => format!(
            "observe: metashard looks at {} and writes nothing to their objects; {workloads} goes on",
            many(seen.controllers.len(), "controller", "controllers")
        ),
        Stage::Stopping => format!("stop: {workloads} ends, with its Pods and its Lease"),
        Stage::Moving => "move: metashard acts on one controller after the other".to_owned(),
        Stage::Done => "done".to_owned(),
        Stage::HandingBack => format!(
            "hand back: metashard writes nothing any more, then {workloads} is started"
        ),
        Stage::Back => "back".to_owned(),
    });
    told
}

/// What was answered in this round of each controller that is observed.
fn answers(seen: &Seen, round: u64) -> impl Iterator<Item = (&ControllerSeen, String)> {
    let all = seen.controllers.iter();
    all.filter_map(move |it| Some((it, would(it.answer(round)?))))
}

/// How the controllers did that were moved in this round.
fn acted(seen: &Seen, round: u64) -> impl Iterator<Item = String> {
    seen.controllers.iter().filter_map(move |it| {
        let answer = it.answer(round).filter(|it| it.acts)?;
        Some(format!(
            "  {}: ready, {} of {} synced, {} failing, writes made: {}",
            it.title(),
            answer.synced,
            parents(answer.parents),
            answer.failing,
            answer.writes
        ))
    })
}

/// A stage of a move that is ahead, or behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ahead {
    /// `done`, `now` or `then`.
    pub when: &'static str,
    /// What is done in it, for people.
    pub text: String,
}

/// `  then move: let metashard act on a, b, one after the other`.
impl std::fmt::Display for Ahead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "  {:4} {}", self.when, self.text)
    }
}

/// What is ahead on the way to metashard, and how far it has come.
pub fn ahead(seen: &Seen, wishes: &Wishes) -> Vec<Ahead> {
    let workloads = titles(&seen.remembered());
    let chosen = seen.controllers.iter().filter(|it| wishes.chooses(it));
    let names = chosen
        .map(|it| it.name.clone())
        .collect::<Vec<_>>()
        .join(", ");
    let all = many(seen.controllers.len(), "controller", "controllers");
    let mut steps = vec![
        (
            Stage::Observing,
            format!(
                "observe: mark {all}, and wait until metashard has synced all their parents without writing"
            ),
        ),
        (
            Stage::Stopping,
            format!(
                "stop: scale {workloads} to 0; wait until its Pods are gone and its Lease is not renewed"
            ),
        ),
        (
            Stage::Moving,
            format!("move: let metashard act on {names}, one after the other"),
        ),
        (Stage::Done, "done: take the marks away".to_owned()),
    ];
    if wishes.only_observe {
        steps.truncate(1);
    }
    let at = match seen.record.as_ref().map(|record| record.stage) {
        None | Some(Stage::HandingBack | Stage::Back) => 0,
        Some(stage) => steps.iter().position(|(it, _)| *it == stage).unwrap_or(0),
    };
    let when = |index: usize| match index.cmp(&at) {
        Ordering::Less => "done",
        Ordering::Equal => "now",
        Ordering::Greater => "then",
    };
    let steps = steps.into_iter().enumerate();
    steps
        .map(|(index, (_, text))| Ahead {
            when: when(index),
            text,
        })
        .collect()
}

/// What is ahead on the way back.
pub fn ahead_back(seen: &Seen) -> Vec<Ahead> {
    let replicas = seen.remembered();
    let replicas = replicas
        .iter()
        .map(|it| format!("{} to {}", it.title(), it.replicas));
    let all = many(seen.controllers.len(), "controller", "controllers");
    vec![
        Ahead {
            when: "now",
            text: format!("have metashard only observe {all}, and wait until it says so"),
        },
        Ahead {
            when: "then",
            text: format!("scale {}", replicas.collect::<Vec<_>>().join(", ")),
        },
    ]
}

fn titles(workloads: &[Workload]) -> String {
    let titles: Vec<_> = workloads.iter().map(Workload::title).collect();
    titles.join(", ")
}
