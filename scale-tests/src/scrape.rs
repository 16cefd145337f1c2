//! Asks all processes twice a second for their metrics, and the kernel for their CPU time and memory.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::future::join_all;
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval},
};

use crate::{
    bed::Shared,
    subject::{Contact, total},
};

/// The process of each slot.
pub(crate) type Contacts = Shared<BTreeMap<usize, Contact>>;

/// Rounds of questions, and what came of them.
#[derive(Debug)]
pub(crate) struct Scraper {
    contacts: Contacts,
    seen: Shared<Seen>,
    /// Ends with this value.
    _rounds: JoinSet<()>,
}

/// All that was seen.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    /// By process: what it said last.
    pub(crate) processes: BTreeMap<u32, Last>,
    /// The most shards without a live owner, of each round.
    pub(crate) unowned: Vec<(Instant, f64)>,
    /// The longest time that a shard was without a live owner, as a leader said.
    pub(crate) unowned_for: Duration,
    /// Memory of all, in MiB, of each round.
    pub(crate) memory: Vec<(Instant, f64)>,
}

/// The last of one process.
#[derive(Debug, Clone, Default)]
pub(crate) struct Last {
    pub(crate) name: String,
    pub(crate) violations: f64,
    /// Of these, that somebody else had the lead.
    pub(crate) contested: f64,
    pub(crate) fenced_writes: f64,
    /// Shards that it has moved as the leader, but for those whose load asked for it.
    pub(crate) moves: f64,
    pub(crate) cpu: Duration,
    /// In use, and the most that was, in MiB.
    pub(crate) memory: (u64, u64),
    /// Samples of what was violated.
    pub(crate) broken: Vec<String>,
}

impl Scraper {
    /// Begins at once: one round each `every`.
    pub(crate) fn start(contacts: Contacts, every: Duration) -> Self {
        let seen = Shared::default();
        let mut rounds = JoinSet::new();
        let (asked, noted) = (Arc::clone(&contacts), Arc::clone(&seen));
        rounds.spawn(async move {
            let mut ticks = interval(every);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                round(&asked, &noted).await;
            }
        });
        Self {
            contacts,
            seen,
            _rounds: rounds,
        }
    }

    /// One round now.
    pub(crate) async fn once(&self) {
        round(&self.contacts, &self.seen).await;
    }

    /// All that was seen so far.
    pub(crate) fn seen(&self) -> Seen {
        self.seen.lock().clone()
    }
}

impl Seen {
    /// Shards that were moved so far, but for those whose load asked for it.
    pub(crate) fn moves(&self) -> f64 {
        self.processes.values().map(|it| it.moves).sum()
    }

    /// CPU time of all processes so far.
    pub(crate) fn cpu(&self) -> Duration {
        self.processes.values().map(|it| it.cpu).sum()
    }
}

async fn round(contacts: &Contacts, seen: &Shared<Seen>) {
    let contacts: Vec<Contact> = contacts.lock().values().cloned().collect();
    let answers = join_all(contacts.iter().map(Contact::metrics)).await;
    let now = Instant::now();
    let mut seen = seen.lock();
    let (mut unowned, mut memory) = (0.0_f64, 0);
    for (contact, answer) in contacts.iter().zip(answers) {
        let last = seen.processes.entry(contact.pid).or_default();
        last.name.clone_from(&contact.name);
        last.cpu = contact.cpu().unwrap_or_default().max(last.cpu);
        if let Some(in_use) = contact.memory() {
            last.memory = in_use;
            memory += in_use.0;
        }
        let Ok(text) = answer else { continue };
        let violations = "metashard_fleet_invariant_violations_total";
        last.violations = total(&text, violations);
        let contested = r#"metashard_fleet_invariant_violations_total{id="L1"}"#;
        last.contested = total(&text, contested);
        let moved = |reason: &str| {
            let name = format!("metashard_leader_moves_total{reason}");
            total(&text, &name)
        };
        let for_load = [r#"{reason="balance"}"#, r#"{reason="split"}"#].map(moved);
        last.moves = moved("") - for_load.iter().sum::<f64>();
        last.fenced_writes = total(&text, "metashard_worker_fenced_writes_total");
        let is_broken = |line: &&str| line.starts_with(violations) && !line.ends_with(" 0");
        last.broken = text.lines().filter(is_broken).map(str::to_owned).collect();
        unowned = unowned.max(total(&text, "metashard_leader_unowned_shards"));
        let seconds = total(&text, "metashard_leader_unowned_seconds").max(0.0);
        seen.unowned_for = seen.unowned_for.max(Duration::from_secs_f64(seconds));
    }
    seen.unowned.push((now, unowned));
    let memory = u32::try_from(memory).unwrap_or(u32::MAX);
    seen.memory.push((now, f64::from(memory)));
}
