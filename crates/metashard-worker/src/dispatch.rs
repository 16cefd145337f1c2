//! Takes keys from the queue and runs a sync for each.
//!
//! The queue decides what comes next; this file only keeps its lock, wakes at its time and starts tasks.

use std::{collections::BTreeMap, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use metashard_api::id::TenantId;
use metashard_fleet::queue::{Cause, Config, Counts, FlowId, Outcome, Popped, Queue};
use metashard_runtime::{clock::Clock, pulse::Pulse, shutdown::Token, task};
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use crate::{instance::Instance, key::ParentKey};

/// The work queue of this worker and the controllers whose keys are in it.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    queue: Mutex<Queue<ParentKey>>,
    flows: RwLock<BTreeMap<FlowId, Arc<Instance>>>,
    /// There may be a key to take.
    ready: Notify,
    /// An attempt has ended.
    ended: Notify,
    clock: Clock,
}

impl Dispatcher {
    /// An empty one.
    pub(crate) fn new(config: Config, clock: Clock) -> Self {
        Self {
            queue: Mutex::new(Queue::new(config)),
            flows: RwLock::default(),
            ready: Notify::new(),
            ended: Notify::new(),
            clock,
        }
    }

    /// Adds the flow of one controller, held until [`Self::release`].
    pub(crate) fn add_flow(&self, tenant: &TenantId, concurrency: u32) -> FlowId {
        let mut queue = self.queue.lock();
        let flow = queue.add_flow(tenant, concurrency);
        queue.hold_flow(flow);
        flow
    }

    /// Names the controller that serves a flow.
    pub(crate) fn serve(&self, flow: FlowId, instance: Arc<Instance>) {
        self.flows.write().insert(flow, instance);
    }

    /// Drops what waits in a flow, and the flow.
    pub(crate) fn remove(&self, flow: FlowId) {
        self.queue.lock().remove_flow(flow);
        self.flows.write().remove(&flow);
    }

    /// Stops taking keys of a flow.
    pub(crate) fn hold(&self, flow: FlowId) {
        self.queue.lock().hold_flow(flow);
    }

    /// Takes keys of a flow again.
    pub(crate) fn release(&self, flow: FlowId) {
        self.queue.lock().release_flow(flow);
        self.ready.notify_one();
    }

    /// Makes keys ready, because of `cause`.
    pub(crate) fn push_all(
        &self,
        flow: FlowId,
        keys: impl IntoIterator<Item = ParentKey>,
        cause: Cause,
    ) {
        let now = self.clock.now().mono;
        let mut queue = self.queue.lock();
        for key in keys {
            queue.push_because(now, flow, key, cause.into());
        }
        drop(queue);
        self.ready.notify_one();
    }

    /// Makes a key ready after `delay`, because of `cause`.
    pub(crate) fn push_after(&self, flow: FlowId, key: ParentKey, delay: Duration, cause: Cause) {
        let now = self.clock.now().mono;
        let mut queue = self.queue.lock();
        queue.push_after_because(now, flow, key, delay, cause);
        drop(queue);
        self.ready.notify_one();
    }

    /// Figures of a flow.
    pub(crate) fn counts(&self, flow: FlowId) -> Counts {
        let now = self.clock.now().mono;
        self.queue.lock().counts(flow, now).unwrap_or_default()
    }

    /// Figures of all flows.
    pub(crate) fn all_counts(&self) -> Vec<(Arc<Instance>, Counts)> {
        let flows = self.flows.read();
        flows
            .iter()
            .map(|(flow, instance)| (Arc::clone(instance), self.counts(*flow)))
            .collect()
    }

    /// Whether keys can be taken: the queue answers. What blocks for good here must not keep a Lease.
    pub(crate) fn is_alive(&self) -> bool {
        self.queue
            .try_lock_for(Duration::from_millis(500))
            .is_some()
    }

    /// Waits until no key of these flows is in progress. Hold them first.
    pub(crate) async fn idle(&self, flows: &[FlowId]) {
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            if flows.iter().all(|flow| self.counts(*flow).in_progress == 0) {
                return;
            }
            ended.await;
        }
    }

    /// Takes keys and starts syncs until `stop`.
    pub(crate) async fn run(self: Arc<Self>, stop: Token) {
        let pulse = Pulse::of("dispatcher", &self.clock);
        loop {
            pulse.beat();
            let (next, wake_at) = {
                let mut queue = self.queue.lock();
                let next = queue.pop(self.clock.now().mono);
                (next, queue.poll_timeout())
            };
            if let Some(popped) = next {
                self.start(popped);
                continue;
            }
            tokio::select! {
                () = self.ready.notified() => {}
                () = self.clock.sleep_until_some(wake_at) => {}
                () = pulse.next() => {}
                () = stop.requested() => return,
            }
        }
    }

    fn start(self: &Arc<Self>, popped: Popped<ParentKey>) {
        let instance = self.flows.read().get(&popped.flow).cloned();
        let Some(instance) = instance else {
            // Removed between the push and now.
            self.finish(&popped, Outcome::Await, Duration::ZERO);
            return;
        };
        let this = Arc::clone(self);
        task::spawn("sync", async move {
            let began = this.clock.now().mono;
            instance.timings.begin(began, popped.waited);
            // In one place of its own: what it is wrapped in would each hold all of it once more.
            let sync = instance.meter.pass(Box::pin(instance.sync(&popped)));
            let outcome = contained(sync, || instance.panicked(&popped.key)).await;
            let cost = this.clock.now().mono.since(began);
            instance.timings.end(began, cost);
            this.finish(&popped, outcome, cost);
        });
    }

    fn finish(&self, popped: &Popped<ParentKey>, outcome: Outcome, cost: Duration) {
        let now = self.clock.now().mono;
        self.queue
            .lock()
            .done(now, popped.flow, &popped.key, outcome, cost);
        self.ready.notify_one();
        self.ended.notify_waiters();
    }
}

/// What a sync came to. A panic in it is its key's failure alone: `on_panic` is called, and it is tried again with a
/// growing delay.
async fn contained(sync: impl Future<Output = Outcome>, on_panic: impl FnOnce()) -> Outcome {
    let outcome = AssertUnwindSafe(sync).catch_unwind().await;
    outcome.unwrap_or_else(|_| {
        on_panic();
        Outcome::Backoff
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_sync_that_panics_is_told_of_and_tried_again_with_a_growing_delay() {
        let mut told = 0;

        let outcome = contained(async { panic!("a poisoned answer") }, || told += 1).await;

        assert_eq!((outcome, told), (Outcome::Backoff, 1));
    }

    #[tokio::test]
    async fn a_sync_that_ends_is_not_told_of() {
        let outcome = contained(async { Outcome::Await }, || panic!("told")).await;

        assert_eq!(outcome, Outcome::Await);
    }
}
