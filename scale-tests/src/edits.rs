//! Edits of parents at a rate, and when each was sent.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures::{StreamExt, stream};
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams},
};
use parking_lot::Mutex;
use serde_json::json;
use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval_at, timeout},
};

use crate::{bed::Shared, objects};

/// How long an edit may take.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);

/// Edits of a burst that are under way at once.
const AT_ONCE: usize = 64;

/// Edits that go on until they are told to end.
#[derive(Debug)]
pub(crate) struct Edits {
    tasks: JoinSet<()>,
    shared: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    ends: AtomicBool,
    failed: AtomicU64,
    /// By parent: when its values were sent, in their order; the first is of value 1.
    sent: Shared<BTreeMap<String, Vec<Instant>>>,
    /// By parent: the last value that the API server took.
    last: Mutex<BTreeMap<String, u64>>,
}

impl Edits {
    /// Edits each parent every `every`, spread evenly. `weights`: how many parents each controller has.
    pub(crate) fn start(things: &Api<DynamicObject>, weights: &[usize], every: Duration) -> Self {
        let shared = Arc::<State>::default();
        let mut tasks = JoinSet::new();
        let all: usize = weights.iter().sum();
        let mut n = 0_u32;
        for (controller, weight) in weights.iter().enumerate() {
            for parent in 0..*weight {
                let name = objects::parent_name(controller, parent);
                let shift = every * n / u32::try_from(all).unwrap_or(u32::MAX).max(1);
                n += 1;
                let edits = edit(things.clone(), name, (every, shift), Arc::clone(&shared));
                tasks.spawn(edits);
            }
        }
        Self { tasks, shared }
    }

    /// None go on; see [`Self::at_once`].
    pub(crate) fn none() -> Self {
        Self {
            tasks: JoinSet::new(),
            shared: Arc::default(),
        }
    }

    /// Edits each of these parents once, as many at once as may be.
    pub(crate) async fn at_once(&self, things: &Api<DynamicObject>, names: &[String]) {
        let edits = names
            .iter()
            .map(|name| edit_once(things, name, &self.shared));
        stream::iter(edits)
            .buffer_unordered(AT_ONCE)
            .collect::<()>()
            .await;
    }

    /// These parents are about to be created with value 1.
    pub(crate) fn create(&self, names: &[String]) {
        let now = tokio::time::Instant::now().into_std();
        let (mut sent, mut last) = (self.shared.sent.lock(), self.shared.last.lock());
        for name in names {
            sent.insert(name.clone(), vec![now]);
            last.insert(name.clone(), 1);
        }
    }

    /// Ends them; those under way are waited for.
    pub(crate) async fn stop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        while self.tasks.join_next().await.is_some() {}
    }

    /// By parent: the last value that the API server took.
    pub(crate) fn last(&self) -> BTreeMap<String, u64> {
        self.shared.last.lock().clone()
    }

    /// How many there were.
    pub(crate) fn count(&self) -> usize {
        self.shared.sent.lock().values().map(Vec::len).sum()
    }

    /// How many had no answer, or were refused.
    pub(crate) fn failed(&self) -> u64 {
        self.shared.failed.load(Ordering::Relaxed)
    }

    /// When a value of a parent was sent.
    pub(crate) fn sent(&self) -> BTreeMap<String, Vec<Instant>> {
        self.shared.sent.lock().clone()
    }
}

async fn edit(
    things: Api<DynamicObject>,
    name: String,
    (every, shift): (Duration, Duration),
    state: Arc<State>,
) {
    let mut ticks = interval_at(tokio::time::Instant::now() + shift, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !state.ends.load(Ordering::Relaxed) {
        ticks.tick().await;
        edit_once(&things, &name, &state).await;
    }
}

async fn edit_once(things: &Api<DynamicObject>, name: &str, state: &State) {
    let now = tokio::time::Instant::now().into_std();
    let value = {
        let mut sent = state.sent.lock();
        let sent = sent.entry(name.to_owned()).or_default();
        sent.push(now);
        sent.len() as u64
    };
    let patch = Patch::Merge(json!({ "spec": { "value": value.to_string() } }));
    let params = PatchParams::default();
    let patched = timeout(ANSWERED_WITHIN, things.patch(name, &params, &patch)).await;
    if matches!(patched, Ok(Ok(_))) {
        state.last.lock().insert(name.to_owned(), value);
    } else {
        state.failed.fetch_add(1, Ordering::Relaxed);
    }
}
