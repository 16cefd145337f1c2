//! All shards, told to whoever asks while this replica leads: as its machine sees them, and how each changed hands last.

use std::{collections::BTreeMap, time::Duration};

use metashard_api::id::ShardId;
use metashard_fleet::{
    leader::{Leader, Report, Why},
    shards::{LastHandOver, Shards},
    time::{MonoTime, Now},
};
use tokio::sync::{mpsc, oneshot};

/// Most questions that wait for their answer at once; to others there is none.
const WAITING: usize = 8;

/// Asks the coordinator. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Asking(mpsc::Sender<Question>);

/// A question, and where the answer goes.
#[derive(Debug)]
pub(crate) struct Question(oneshot::Sender<Shards>);

/// What the coordinator answers from, besides its machine.
#[derive(Debug)]
pub(crate) struct Answering {
    asked: mpsc::Receiver<Question>,
    handed_over: BTreeMap<ShardId, Last>,
}

/// How a shard changed hands.
#[derive(Debug, Clone, Copy)]
struct Last {
    at: MonoTime,
    why: Why,
    took: Duration,
}

/// Both ends.
pub(crate) fn channel() -> (Asking, Answering) {
    let (sender, asked) = mpsc::channel(WAITING);
    let answering = Answering {
        asked,
        handed_over: BTreeMap::new(),
    };
    (Asking(sender), answering)
}

impl Asking {
    /// All shards; `None` while this replica does not lead. Blocks its thread until the coordinator has the time: not for
    /// tasks.
    pub fn ask(&self) -> Option<Shards> {
        let (sender, answer) = oneshot::channel();
        self.0.try_send(Question(sender)).ok()?;
        answer.blocking_recv().ok()
    }
}

impl Answering {
    /// The next question. Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> Option<Question> {
        self.asked.recv().await
    }

    /// Takes notice of what the machine reports.
    pub(crate) fn reported(&mut self, now: Now, report: &Report) {
        match report {
            // What was under another leader is not known.
            Report::LeadGained { .. } => self.handed_over.clear(),
            Report::ShardsAssigned {
                why, claims, took, ..
            } => {
                let last = Last {
                    at: now.mono,
                    why: *why,
                    took: took.total,
                };
                let shards = claims.iter().map(|it| (it.shard, last));
                self.handed_over.extend(shards);
            }
            _ => {}
        }
    }

    /// Answers; who asked may have gone.
    pub(crate) fn answer(&self, now: Now, machine: &mut Leader, question: Question) {
        if let Some(mut shards) = machine.shards(now) {
            for shard in &mut shards.shards {
                let last = self.handed_over.get(&shard.shard);
                shard.last_hand_over = last.map(|it| it.shown(now));
            }
            drop(question.0.send(shards));
        }
    }
}

impl Last {
    fn shown(self, now: Now) -> LastHandOver {
        LastHandOver {
            ago_seconds: now.mono.since(self.at).as_secs(),
            reason: self.why.as_str().to_owned(),
            took_millis: u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX),
        }
    }
}
