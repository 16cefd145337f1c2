//! Which step of a move is next, from what is seen alone: so a move can be left at any time and gone on with, or back.
//!
//! What keeps two from acting at once, in this order: metashard writes nothing while the record holds it back, and says
//! so for each controller before Metacontroller is started again; Metacontroller has no replicas asked for, no Pods and no
//! live Lease before the record lets metashard act. A Metacontroller cannot be made to let go of single controllers: it
//! forgets one that is relabelled only when it ends. So it is stopped whole.

mod apply;
mod rollback;
mod telling;
mod values;

pub use self::{
    apply::apply,
    rollback::rollback,
    telling::{Ahead, ahead, ahead_back, tell},
    values::{as_seen, as_step},
};
use super::{
    record::{Record, Stage, Workload},
    seen::{ControllerSeen, Seen},
};
use crate::render::many;

/// What whoever moves wants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Names of the controllers to move now; empty: all.
    pub controllers: Vec<String>,
    /// Go on although metashard would write.
    pub accept_writes: bool,
    /// Controllers that are not named may be without anybody who acts on them.
    pub let_others_rest: bool,
    /// End once all is observed.
    pub only_observe: bool,
}

/// The next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Write the record.
    Record(Record),
    /// Set the annotations of a controller: whether it is only observed, and the round; `None`: take both away.
    Mark {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
        /// `None`: it is part of no move any more.
        mark: Option<Mark>,
    },
    /// Have a workload ask for as many replicas as this says.
    Scale(Workload),
    /// Look again: something takes its time.
    Wait(String),
    /// It cannot go on: why, and what helps.
    Stop(Vec<String>),
    /// There is nothing left to do.
    Finished(Vec<String>),
}

/// How a controller is marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// It is only observed.
    pub observe: bool,
    /// Round of the move.
    pub round: u64,
}

/// What helps in the middle of a move.
pub const BOTH_WAYS: &str =
    "`metashardctl migrate apply` goes on from here, `metashardctl migrate rollback` goes back.";

impl Seen {
    /// The workloads with the replicas that they are to have after a rollback: those that they ask for now, or, if they
    /// are stopped, asked for before.
    fn remembered(&self) -> Vec<Workload> {
        let known = self.record.iter().flat_map(|record| &record.workloads);
        let mut all: Vec<Workload> = known.cloned().collect();
        for peer in &self.peers {
            let now = &peer.workload;
            match all.iter_mut().find(|it| it.is_same(now)) {
                Some(known) if now.replicas > 0 => known.replicas = now.replicas,
                Some(_) => {}
                None => all.push(now.clone()),
            }
        }
        all
    }

    /// A record that begins a new round in this stage.
    fn turn(&self, stage: Stage) -> Next {
        Next::Record(Record {
            stage,
            round: self.record.as_ref().map_or(0, |record| record.round) + 1,
            workloads: self.remembered(),
        })
    }

    /// The same record in another stage.
    fn go_to(&self, record: &Record, stage: Stage) -> Next {
        Next::Record(Record {
            stage,
            workloads: self.remembered(),
            ..record.clone()
        })
    }

    /// Has every controller observed in this round; `None`: they all are marked so.
    fn mark_all(&self, round: u64) -> Option<Next> {
        let unmarked = self.controllers.iter().find(|it| !it.is_marked(round))?;
        Some(mark(
            unmarked,
            Some(Mark {
                observe: true,
                round,
            }),
        ))
    }
}

fn mark(controller: &ControllerSeen, mark: Option<Mark>) -> Next {
    Next::Mark {
        kind: controller.kind.clone(),
        name: controller.name.clone(),
        mark,
    }
}

/// `1 parent`, `1,240 parents`.
fn parents(count: u32) -> String {
    many(
        usize::try_from(count).unwrap_or(usize::MAX),
        "parent",
        "parents",
    )
}

/// `a, b, c and 4 more`.
fn some_of(names: impl Iterator<Item = String>) -> String {
    let all: Vec<_> = names.collect();
    let shown = all.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(3) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests;
