//! What a machine was told lately, kept so that its decisions can be made again elsewhere, exactly.
//!
//! The machines read no clock, draw no lots and ask nobody: who has one as it was, and what it was told since, has all
//! that it did. A [`History`] is a bounded memory of that; a [`Recording`] is what is taken from it, to be written to a
//! file and to be replayed by the same version of this code.

mod machines;
pub mod pairs;
#[cfg(test)]
pub(crate) mod testing;

use std::{
    fmt,
    hash::{Hash, Hasher},
    mem,
    time::Duration,
};

use metashard_api::id::ReplicaId;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use crate::{leader::Leader, time::Now, worker::Worker};

/// A machine whose decisions can be made again.
pub trait Machine: Clone + fmt::Debug {
    /// What it is told.
    type Input: Clone + fmt::Debug;
    /// What it decides.
    type Action: Hash + fmt::Debug;

    /// Takes inputs that came at once; without any, acts on time alone. Appends what to do to `out`.
    fn step(&mut self, now: Now, inputs: Vec<Self::Input>, out: &mut Vec<Self::Action>);

    /// About how many bytes it takes to remember an input.
    fn weight(input: &Self::Input) -> usize;

    /// How many bytes of history are worth their memory.
    fn room(&self) -> usize;
}

/// What a machine was told lately.
///
/// It is kept in two stretches, each from a copy of the machine at its beginning: when the newer one has half of the room,
/// it becomes the older one, and what that was is forgotten. So nothing is ever done twice for the sake of memory.
#[derive(Debug)]
pub struct History<M: Machine> {
    older: Option<Recording<M>>,
    newer: Recording<M>,
    weight: usize,
}

/// A machine as it was, and what it was told since.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound(
    serialize = "M: Serialize, M::Input: Serialize",
    deserialize = "M: Deserialize<'de>, M::Input: Deserialize<'de>"
))]
pub struct Recording<M: Machine> {
    /// The machine at the beginning.
    pub start: M,
    /// What it was told, in order.
    pub steps: Vec<Step<M::Input>>,
}

/// One call of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step<I> {
    /// What its clocks showed.
    pub now: Now,
    /// What it was told at once; nothing: time had passed.
    pub inputs: Vec<I>,
    /// Fingerprint of what it decided.
    pub decided: u64,
}

/// A recording with where it is from: the content of a file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Taken {
    /// Version of the program. Another one may decide otherwise, or not read it at all.
    pub version: String,
    /// Whose it is.
    pub replica: ReplicaId,
    /// When it was taken, by the wall clock, since 1970.
    pub unix_time: Duration,
    /// When it was taken, by the clocks of its steps.
    pub now: Now,
    /// What was recorded.
    pub of: Of,
}

/// The machines that are recorded.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Of {
    /// Who leads, and where the shards are.
    Leader(Box<Recording<Leader>>),
    /// What one worker may do.
    Worker(Box<Recording<Worker>>),
}

/// One call of a machine, made again.
#[derive(Debug, Clone)]
pub struct Replayed<M: Machine> {
    /// What it was told, when.
    pub step: Step<M::Input>,
    /// What it decides.
    pub actions: Vec<M::Action>,
}

impl<M: Machine> History<M> {
    /// Of a machine that was told nothing yet.
    pub fn new(machine: &M) -> Self {
        Self {
            older: None,
            newer: Recording::of(machine),
            weight: 0,
        }
    }

    /// Remembers a call: what `machine`, which has taken it, was told, and what it decided.
    pub fn note(&mut self, machine: &M, now: Now, inputs: Vec<M::Input>, actions: &[M::Action]) {
        self.weight += size_of::<Step<M::Input>>();
        self.weight += inputs.iter().map(M::weight).sum::<usize>();
        self.newer.steps.push(Step {
            now,
            inputs,
            decided: fingerprint(actions),
        });
        if self.weight > machine.room() / 2 {
            self.older = Some(mem::replace(&mut self.newer, Recording::of(machine)));
            self.weight = 0;
        }
    }

    /// All that is remembered.
    pub fn recording(&self) -> Recording<M> {
        let Some(older) = &self.older else {
            return self.newer.clone();
        };
        let mut recording = older.clone();
        recording.steps.extend_from_slice(&self.newer.steps);
        recording
    }
}

impl<M: Machine> Recording<M> {
    fn of(machine: &M) -> Self {
        Self {
            start: machine.clone(),
            steps: Vec::new(),
        }
    }

    /// Makes every call again.
    pub fn replay(self) -> impl Iterator<Item = Replayed<M>> {
        let mut machine = self.start;
        self.steps.into_iter().map(move |step| {
            let mut actions = Vec::new();
            machine.step(step.now, step.inputs.clone(), &mut actions);
            Replayed { step, actions }
        })
    }
}

impl<M: Machine> Replayed<M> {
    /// Whether it decides what it decided then.
    pub fn is_same(&self) -> bool {
        fingerprint(&self.actions) == self.step.decided
    }
}

/// Equal for equal actions of one version of this code on one kind of processor.
fn fingerprint<A: Hash>(actions: &[A]) -> u64 {
    let mut hasher = Xxh3::new();
    actions.hash(&mut hasher);
    hasher.finish()
}
