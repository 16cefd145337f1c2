//! The queue against a plain model of it, over random histories.

use proptest::prelude::*;

use super::*;

const FLOWS: usize = 4;
const OVERALL: u32 = 3;
const PER_FLOW: u32 = 2;

#[derive(Debug, Clone)]
enum Op {
    Push(usize, u32),
    PushAfter(usize, u32, u64),
    Pop,
    /// The n-th of those in progress.
    Done(usize, Outcome, u64),
    Pass(u64),
    Hold(usize),
    Release(usize),
    Remove(usize),
}

/// What one key should be in.
#[derive(Debug, Clone, Default)]
struct Key {
    ready: bool,
    in_progress: bool,
    again: bool,
    requeue: Option<MonoTime>,
    delayed: Option<MonoTime>,
    failures: u32,
}

#[derive(Debug, Default, Clone)]
struct PlainFlow {
    keys: BTreeMap<u32, Key>,
    held: bool,
    removed: bool,
}

/// The queue and the model of it, side by side.
struct Pair {
    now: MonoTime,
    queue: Queue<u32>,
    ids: Vec<FlowId>,
    jitter: Jitter,
    flows: Vec<PlainFlow>,
    in_progress: Vec<(usize, u32)>,
}

impl Pair {
    fn new() -> Self {
        let mut queue = Queue::new(Config {
            concurrency: OVERALL,
            seed: 11,
        });
        // Two flows of each of two tenants.
        let ids = (0..FLOWS)
            .map(|n| queue.add_flow(&tenant(if n % 2 == 0 { "a" } else { "b" }), PER_FLOW))
            .collect();
        Self {
            now: MonoTime::default(),
            queue,
            ids,
            jitter: Jitter::new(11),
            flows: vec![PlainFlow::default(); FLOWS],
            in_progress: Vec::new(),
        }
    }

    fn apply(&mut self, op: &Op) {
        let now = self.now;
        match *op {
            Op::Push(flow, key) => {
                self.queue.push(now, self.ids[flow], key);
                self.flows[flow].push(key);
            }
            Op::PushAfter(flow, key, delay) => {
                self.queue
                    .push_after(now, self.ids[flow], key, millis(delay));
                self.flows[flow].push_after(key, now + millis(delay), delay);
            }
            Op::Pop => self.pop(),
            Op::Done(nth, outcome, cost) => self.done(nth, outcome, millis(cost)),
            Op::Pass(length) => self.now = now + millis(length),
            Op::Hold(flow) => {
                self.queue.hold_flow(self.ids[flow]);
                self.flows[flow].held = true;
            }
            Op::Release(flow) => {
                self.queue.release_flow(self.ids[flow]);
                self.flows[flow].held = false;
            }
            Op::Remove(flow) => {
                self.queue.remove_flow(self.ids[flow]);
                self.flows[flow].remove();
            }
        }
        self.check();
    }

    fn pop(&mut self) {
        let popped = self.queue.pop(self.now);
        for flow in &mut self.flows {
            flow.fire(self.now);
        }
        let n_places = OVERALL as usize - self.in_progress.len();
        let Some(popped) = popped else {
            assert!(
                n_places == 0 || self.flows.iter().all(|flow| !flow.may_be_served()),
                "a key could have been handed out"
            );
            return;
        };
        assert!(n_places > 0, "more keys at once than allowed");
        let nth = self.ids.iter().position(|id| *id == popped.flow).unwrap();
        assert!(
            self.flows[nth].may_be_served(),
            "a flow that may not be served"
        );
        let key = self.flows[nth].keys.get_mut(&popped.key).unwrap();
        assert!(key.ready && !key.in_progress, "{key:?} handed out");
        assert_eq!(popped.failures, key.failures);
        *key = Key {
            in_progress: true,
            delayed: key.delayed,
            failures: key.failures,
            ..Key::default()
        };
        self.in_progress.push((nth, popped.key));
    }

    fn done(&mut self, nth: usize, outcome: Outcome, cost: Duration) {
        if self.in_progress.is_empty() {
            return;
        }
        let (flow, key) = self.in_progress.swap_remove(nth % self.in_progress.len());
        self.queue
            .done(self.now, self.ids[flow], &key, outcome, cost);
        let removed = self.flows[flow].removed;
        let state = self.flows[flow].keys.get_mut(&key).unwrap();
        state.in_progress = false;
        if removed {
            return;
        }
        state.ready = std::mem::take(&mut state.again);
        let delay = match outcome {
            Outcome::Await => None,
            Outcome::After(delay) | Outcome::RetryAfter(delay) | Outcome::NotBegun(delay) => {
                Some(delay)
            }
            Outcome::Backoff => Some(self.jitter.delay(state.failures)),
            Outcome::Interrupted => Some(Duration::ZERO),
        };
        match outcome {
            Outcome::Await | Outcome::After(_) => state.failures = 0,
            Outcome::Backoff => state.failures += 1,
            Outcome::RetryAfter(_) | Outcome::NotBegun(_) | Outcome::Interrupted => {}
        }
        match delay {
            Some(Duration::ZERO) => state.ready = true,
            Some(delay) => state.requeue = Some(self.now + delay),
            None => {}
        }
    }

    fn check(&self) {
        let keys = || self.flows.iter().flat_map(|flow| flow.keys.values());
        assert_eq!(self.queue.len(), keys().filter(|key| key.ready).count());
        assert_eq!(self.queue.in_progress() as usize, self.in_progress.len());
        let next = keys()
            .flat_map(|key| [key.requeue, key.delayed])
            .flatten()
            .min();
        assert_eq!(self.queue.poll_timeout(), next);
        assert_eq!(
            self.queue.turns.is_empty(),
            !self.flows.iter().any(PlainFlow::may_be_served)
        );
    }

    /// Serves all there is until nothing is left or an hour has passed.
    fn drain(&mut self) {
        for flow in 0..FLOWS {
            self.apply(&Op::Release(flow));
        }
        for _ in 0..10_000 {
            self.apply(&Op::Pop);
            self.apply(&Op::Done(0, Outcome::Await, 1));
            if self.queue.is_empty() && self.in_progress.is_empty() {
                let Some(next) = self.queue.poll_timeout() else {
                    break;
                };
                self.now = self.now.max(next);
            }
        }
        let left: Vec<&Key> = self
            .flows
            .iter()
            .flat_map(|flow| flow.keys.values())
            .collect();
        assert!(
            left.iter()
                .all(|key| !key.ready && !key.in_progress && key.requeue.is_none())
        );
    }
}

impl PlainFlow {
    fn may_be_served(&self) -> bool {
        let n_in_progress = self.keys.values().filter(|key| key.in_progress).count();
        let any_ready = self.keys.values().any(|key| key.ready);
        !self.held && !self.removed && any_ready && n_in_progress < PER_FLOW as usize
    }

    fn push(&mut self, key: u32) {
        if !self.removed {
            let key = self.keys.entry(key).or_default();
            if key.in_progress {
                key.again = true;
            } else {
                key.ready = true;
            }
        }
    }

    fn push_after(&mut self, key: u32, due: MonoTime, delay: u64) {
        if delay == 0 {
            self.push(key);
        } else if !self.removed {
            let key = self.keys.entry(key).or_default();
            key.delayed = Some(key.delayed.map_or(due, |earlier| earlier.min(due)));
        }
    }

    fn fire(&mut self, now: MonoTime) {
        for key in self.keys.values_mut() {
            for timer in [&mut key.requeue, &mut key.delayed] {
                if timer.take_if(|due| *due <= now).is_some() {
                    key.again |= key.in_progress;
                    key.ready |= !key.in_progress;
                }
            }
        }
    }

    fn remove(&mut self) {
        self.removed = true;
        self.keys.retain(|_, key| key.in_progress);
        for key in self.keys.values_mut() {
            *key = Key {
                in_progress: true,
                ..Key::default()
            };
        }
    }
}

fn outcomes() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        Just(Outcome::Await),
        (0_u64..50).prop_map(|delay| Outcome::After(millis(delay))),
        (0_u64..50).prop_map(|delay| Outcome::RetryAfter(millis(delay))),
        (0_u64..50).prop_map(|delay| Outcome::NotBegun(millis(delay))),
        Just(Outcome::Backoff),
        Just(Outcome::Interrupted),
    ]
}

fn ops() -> impl Strategy<Value = Op> {
    let (flow, key) = (0..FLOWS, 0_u32..6);
    prop_oneof![
        6 => (flow.clone(), key.clone()).prop_map(|(flow, key)| Op::Push(flow, key)),
        2 => (flow.clone(), key, 0_u64..50).prop_map(|(flow, key, delay)| Op::PushAfter(flow, key, delay)),
        8 => Just(Op::Pop),
        6 => (0..3_usize, outcomes(), 0_u64..50).prop_map(|(n, outcome, cost)| Op::Done(n, outcome, cost)),
        4 => (0_u64..30).prop_map(Op::Pass),
        1 => flow.clone().prop_map(Op::Hold),
        1 => flow.clone().prop_map(Op::Release),
        1 => flow.prop_map(Op::Remove),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn nothing_is_lost_nothing_runs_twice_at_once_and_caps_hold(
        history in prop::collection::vec(ops(), 1..150)
    ) {
        let mut pair = Pair::new();

        for op in &history {
            pair.apply(op);
        }

        pair.drain();
    }
}
