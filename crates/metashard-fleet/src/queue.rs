//! The work queue of one worker: de-duplicating, delaying, fair over tenants and over the controllers of each.
//!
//! A *flow* is what one controller has to do; its keys name parents. Shares are measured in time spent, not in keys:
//! start-time fair queueing, on virtual times that advance by the time spent divided by the weight. It shares like
//! deficit round robin but needs no quantum, which costs between a millisecond and a minute would make either
//! unfair or slow, and one that had nothing to do is served at once when it has.

mod backoff;
mod cause;
mod fair;
mod flow;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use metashard_api::id::TenantId;

use crate::time::MonoTime;

use backoff::Jitter;
pub use cause::{Cause, Causes};
use fair::{Share, Turns};
use flow::{Flow, Progress, Taken, Timer};

/// Longest delay between two attempts at a failing key, the peer's.
pub const MAX_BACKOFF: Duration = Duration::from_secs(1000);

/// Delay after the first failure of a key, the peer's; it doubles with each further one.
pub const MIN_BACKOFF: Duration = Duration::from_millis(5);

/// What a queue is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Most keys in progress at once, of all flows together; 0 counts as 1.
    pub concurrency: u32,
    /// Seed of the generator that jitter is drawn from.
    pub seed: u64,
}

/// Names one flow of one queue; never used again after [`Queue::remove_flow`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(u64);

/// What a tenant gets, relative to the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TenantShare {
    /// Time that it gets where tenants compete, relative to the others' weights; default 1, and 0 counts as 1.
    pub weight: u32,
    /// Most keys of it in progress at once; default without bound, and 0 counts as 1.
    pub concurrency: u32,
}

impl Default for TenantShare {
    fn default() -> Self {
        Self {
            weight: 1,
            concurrency: u32::MAX,
        }
    }
}

/// A key handed out; it is in progress until [`Queue::done`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Popped<K> {
    /// The flow that it is of.
    pub flow: FlowId,
    /// The key.
    pub key: K,
    /// How long it was ready before.
    pub waited: Duration,
    /// Failures in a row before this attempt.
    pub failures: u32,
    /// Why it came.
    pub causes: Causes,
}

/// How an attempt ended, and so when the key comes again. A push during the attempt brings it again at once in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It succeeded: the key waits for the next push. Failures are forgotten.
    Await,
    /// It succeeded, and the key comes again after this length. Failures are forgotten.
    After(Duration),
    /// It was put off by the other side, which named the length. Failures are neither counted nor forgotten.
    RetryAfter(Duration),
    /// It failed: the key comes again after its backoff, which grows.
    Backoff,
    /// It could not begin yet: the key comes again after this length for the causes that it came for, failures as they were.
    NotBegun(Duration),
    /// It was cut short and counts as not begun: the key is ready again at once, failures as they were.
    Interrupted,
}

/// Figures of one flow, for metrics and for a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Keys ready to be handed out.
    pub depth: usize,
    /// Keys in progress.
    pub in_progress: u32,
    /// Keys waiting for a time to come.
    pub delayed: usize,
    /// How long the key that has waited longest has been ready; zero if there is none.
    pub oldest_wait: Duration,
    /// Keys made ready since the flow was added.
    pub adds_total: u64,
    /// Failed attempts since the flow was added.
    pub retries_total: u64,
}

/// The queue. Keys need to be unique within their flow only.
///
/// After [`Queue::push`], [`Queue::done`], [`Queue::release_flow`] and at [`Queue::poll_timeout`], call [`Queue::pop`] until
/// it gives nothing.
#[derive(Debug)]
pub struct Queue<K> {
    config: Config,
    jitter: Jitter,
    shares: BTreeMap<TenantId, TenantShare>,
    tenants: BTreeMap<TenantId, Tenant>,
    flows: BTreeMap<FlowId, Flow<K>>,
    next_flow: u64,
    /// Tenants that may be served now.
    turns: Turns<TenantId>,
    /// Earliest timer of each flow that has one.
    timers: BTreeSet<(MonoTime, FlowId)>,
    depth: usize,
    in_progress: u32,
}

/// The flows of one tenant.
#[derive(Debug, Default)]
struct Tenant {
    n_flows: usize,
    in_progress: u32,
    share: Share,
    /// Flows of it that may be served now.
    turns: Turns<FlowId>,
}

impl<K: Ord + Clone> Queue<K> {
    /// An empty queue.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            jitter: Jitter::new(config.seed),
            shares: BTreeMap::new(),
            tenants: BTreeMap::new(),
            flows: BTreeMap::new(),
            next_flow: 0,
            turns: Turns::default(),
            timers: BTreeSet::new(),
            depth: 0,
            in_progress: 0,
        }
    }

    /// Says what `tenant` gets; without it, the default share. It holds also for flows added later.
    pub fn set_tenant(&mut self, tenant: &TenantId, share: TenantShare) {
        self.shares.insert(tenant.clone(), share);
        self.list_tenant(tenant);
    }

    /// Adds the flow of one controller of `tenant`, with at most `concurrency` keys in progress at once (0 counts as 1).
    pub fn add_flow(&mut self, tenant: &TenantId, concurrency: u32) -> FlowId {
        let id = FlowId(self.next_flow);
        self.next_flow += 1;
        self.flows
            .insert(id, Flow::new(tenant.clone(), concurrency));
        self.tenants.entry(tenant.clone()).or_default().n_flows += 1;
        id
    }

    /// Removes a flow: its waiting keys and timers are dropped and later pushes to it ignored. Keys of it in progress
    /// count against the caps until they are done.
    pub fn remove_flow(&mut self, id: FlowId) {
        if let Some(flow) = self.flows.get_mut(&id) {
            self.depth -= flow.depth();
            flow.removed = true;
            flow.clear();
            self.settle(id);
        }
    }

    /// Changes how many keys of a flow may be in progress at once (0 counts as 1).
    pub fn set_concurrency(&mut self, id: FlowId, concurrency: u32) {
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.concurrency = concurrency.max(1);
            self.settle(id);
        }
    }

    /// Stops handing out keys of a flow (suspension, drain). Pushes and timers are still taken in.
    pub fn hold_flow(&mut self, id: FlowId) {
        self.set_held(id, true);
    }

    /// Hands out keys of a flow again.
    pub fn release_flow(&mut self, id: FlowId) {
        self.set_held(id, false);
    }

    /// Makes `key` ready: once however often it is pushed, and if it is in progress, again after that.
    pub fn push(&mut self, now: MonoTime, id: FlowId, key: K) {
        self.push_because(now, id, key, Causes::NONE);
    }

    /// As [`Self::push`], and says why; reasons gather until the key is handed out.
    pub fn push_because(&mut self, now: MonoTime, id: FlowId, key: K, causes: Causes) {
        self.change(id, |flow| flow.push(now, key, causes));
    }

    /// Makes `key` ready after `delay`, or when an earlier such push said so. It stays due if the key is
    /// handed out before.
    pub fn push_after(&mut self, now: MonoTime, id: FlowId, key: K, delay: Duration) {
        self.push_after_because(now, id, key, delay, Cause::Timer);
    }

    /// As [`Self::push_after`], and says why.
    pub fn push_after_because(
        &mut self,
        now: MonoTime,
        id: FlowId,
        key: K,
        delay: Duration,
        cause: Cause,
    ) {
        if delay.is_zero() {
            self.push_because(now, id, key, cause.into());
        } else {
            let timer = Timer::Delayed;
            self.change(id, |flow| {
                flow.push_at(now + delay, key, timer, cause.into());
            });
        }
    }

    /// Hands out the next key, if the caps allow one.
    pub fn pop(&mut self, now: MonoTime) -> Option<Popped<K>> {
        self.fire_timers(now);
        if self.in_progress >= self.config.concurrency.max(1) {
            return None;
        }
        self.turns.advance();
        let tenant_id = self.turns.first()?.clone();
        let weight = self.share_of(&tenant_id).weight;
        let tenant = self.tenants.get_mut(&tenant_id)?;
        tenant.turns.advance();
        let id = *tenant.turns.first()?;
        let flow = self.flows.get_mut(&id)?;

        let charged = flow.estimate.max(1);
        let Taken {
            key,
            since,
            failures,
            causes,
        } = flow.take(charged)?;
        flow.share.charge(charged, 1);
        tenant.share.charge(charged, weight);
        tenant.in_progress += 1;
        self.in_progress += 1;
        self.depth -= 1;
        self.settle(id);
        Some(Popped {
            flow: id,
            key,
            waited: now.since(since),
            failures,
            causes,
        })
    }

    /// Ends an attempt at `key` that took `cost` of time. Does nothing if the key is not in progress.
    pub fn done(&mut self, now: MonoTime, id: FlowId, key: &K, outcome: Outcome, cost: Duration) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        let depth = flow.depth();
        let Some(progress) = flow.finish(now, key) else {
            return;
        };
        if !flow.removed {
            let again = (outcome, progress.causes);
            requeue(flow, &mut self.jitter, now, key, again);
        }
        flow.tidy(key);
        self.depth += flow.depth() - depth;
        self.in_progress -= 1;
        self.settle_cost(id, progress, cost);
        self.settle(id);
    }

    /// When to call [`Self::pop`] next though nothing was pushed or done.
    pub fn poll_timeout(&self) -> Option<MonoTime> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Keys ready to be handed out.
    pub fn len(&self) -> usize {
        self.depth
    }

    /// Whether no key is ready to be handed out; there may be some in progress or delayed.
    pub fn is_empty(&self) -> bool {
        self.depth == 0
    }

    /// Keys in progress.
    pub fn in_progress(&self) -> u32 {
        self.in_progress
    }

    /// Figures of a flow; `None` once it is removed and none of its keys is in progress.
    pub fn counts(&self, id: FlowId, now: MonoTime) -> Option<Counts> {
        self.flows.get(&id).map(|flow| flow.counts(now))
    }

    fn set_held(&mut self, id: FlowId, held: bool) {
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.held = held;
            self.settle(id);
        }
    }

    /// Applies a change that may make keys ready.
    fn change(&mut self, id: FlowId, change: impl FnOnce(&mut Flow<K>)) {
        if let Some(flow) = self.flows.get_mut(&id)
            && !flow.removed
        {
            let depth = flow.depth();
            change(flow);
            self.depth += flow.depth() - depth;
            self.settle(id);
        }
    }

    fn fire_timers(&mut self, now: MonoTime) {
        while let Some((at, id)) = self.timers.first().copied()
            && at <= now
        {
            self.change(id, |flow| flow.fire_timers(now));
        }
    }

    /// Corrects what was charged in advance, and learns from it.
    fn settle_cost(&mut self, id: FlowId, progress: Progress, cost: Duration) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        let weight = self
            .shares
            .get(&flow.tenant)
            .copied()
            .unwrap_or_default()
            .weight;
        let nanos = u64::try_from(cost.as_nanos()).unwrap_or(u64::MAX).max(1);
        flow.share.refund(progress.charged, 1);
        flow.share.charge(nanos, 1);
        flow.estimate = flow.estimate - flow.estimate / 4 + nanos / 4;
        if let Some(tenant) = self.tenants.get_mut(&flow.tenant) {
            tenant.in_progress -= 1;
            tenant.share.refund(progress.charged, weight);
            tenant.share.charge(nanos, weight);
        }
    }

    /// Lists a flow, its timer and its tenant where they belong after any change of it.
    fn settle(&mut self, id: FlowId) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        let next = flow.next_timer();
        if flow.listed_timer != next {
            if let Some(old) = flow.listed_timer {
                self.timers.remove(&(old, id));
            }
            if let Some(at) = next {
                self.timers.insert((at, id));
            }
            flow.listed_timer = next;
        }

        let tenant_id = flow.tenant.clone();
        let is_gone = flow.removed && flow.in_progress == 0;
        if let Some(tenant) = self.tenants.get_mut(&tenant_id) {
            let may_be_served = flow.may_be_served();
            tenant.turns.list(&id, &mut flow.share, may_be_served);
            tenant.n_flows -= usize::from(is_gone);
        }
        if is_gone {
            self.flows.remove(&id);
        }
        self.list_tenant(&tenant_id);
    }

    fn list_tenant(&mut self, id: &TenantId) {
        let concurrency = self.share_of(id).concurrency.max(1);
        let Some(tenant) = self.tenants.get_mut(id) else {
            return;
        };
        let may_be_served = !tenant.turns.is_empty() && tenant.in_progress < concurrency;
        self.turns.list(id, &mut tenant.share, may_be_served);
        if tenant.n_flows == 0 {
            self.tenants.remove(id);
        }
    }

    fn share_of(&self, id: &TenantId) -> TenantShare {
        self.shares.get(id).copied().unwrap_or_default()
    }
}

/// Sets when `key` comes again.
fn requeue<K: Ord + Clone>(
    flow: &mut Flow<K>,
    jitter: &mut Jitter,
    now: MonoTime,
    key: &K,
    (outcome, causes): (Outcome, Causes),
) {
    let retry = Causes::from(Cause::Retry);
    let (delay, because) = match outcome {
        Outcome::Await => {
            flow.forget_failures(key);
            return;
        }
        Outcome::After(delay) => {
            flow.forget_failures(key);
            (delay, retry)
        }
        Outcome::RetryAfter(delay) => (delay, retry),
        Outcome::NotBegun(delay) => (delay, causes),
        Outcome::Backoff => (jitter.delay(flow.fail(key)), retry),
        Outcome::Interrupted => (Duration::ZERO, causes),
    };
    if delay.is_zero() {
        flow.push(now, key.clone(), causes);
        return;
    }
    flow.push_at(now + delay, key.clone(), Timer::Requeue, because);
}
