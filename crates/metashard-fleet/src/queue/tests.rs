//! Tests of the queue: single behaviours here, all of them against a plain model in `model`.

mod model;

use super::*;

fn queue(concurrency: u32) -> Queue<u32> {
    Queue::new(Config {
        concurrency,
        seed: 7,
    })
}

fn tenant(name: &str) -> TenantId {
    TenantId::new(name)
}

fn at(millis: u64) -> MonoTime {
    MonoTime(Duration::from_millis(millis))
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Pops one key and ends it at once.
fn serve(queue: &mut Queue<u32>, now: MonoTime, cost: Duration) -> Option<Popped<u32>> {
    let popped = queue.pop(now)?;
    queue.done(now, popped.flow, &popped.key, Outcome::Await, cost);
    Some(popped)
}

/// Lets two competitors with endless work share `concurrency` places for a minute, each attempt of them taking its cost,
/// and gives the time that each was served, in milliseconds.
fn shared_minute(queue: &mut Queue<u32>, flows: [FlowId; 2], costs: [u64; 2]) -> [u64; 2] {
    let mut served = [0, 0];
    let mut running: Vec<(u64, Popped<u32>)> = Vec::new();
    for now in 0..60_000 {
        for (_, popped) in running.extract_if(.., |(end, _)| *end <= now) {
            let who = usize::from(popped.flow == flows[1]);
            served[who] += costs[who];
            queue.done(
                at(now),
                popped.flow,
                &popped.key,
                Outcome::Interrupted,
                millis(costs[who]),
            );
        }
        while let Some(popped) = queue.pop(at(now)) {
            let who = usize::from(popped.flow == flows[1]);
            running.push((now + costs[who], popped));
        }
    }
    served
}

#[test]
fn key_waits_once_however_often_it_is_pushed() {
    let mut queue = queue(10);
    let flow = queue.add_flow(&tenant("a"), 10);

    for now in 0..3 {
        queue.push(at(now), flow, 1);
    }

    assert_eq!(queue.len(), 1);
    let popped = queue.pop(at(10)).unwrap();
    assert_eq!(
        popped,
        Popped {
            flow,
            key: 1,
            waited: millis(10),
            failures: 0,
            causes: Causes::NONE,
        }
    );
    assert_eq!(queue.pop(at(10)), None);
}

#[test]
fn what_could_not_begin_comes_again_for_the_same_causes() {
    let mut queue = queue(10);
    let flow = queue.add_flow(&tenant("a"), 10);
    queue.push_because(at(0), flow, 1, Cause::ShardMove.into());
    queue.pop(at(0)).unwrap();

    queue.done(at(0), flow, &1, Outcome::NotBegun(millis(20)), millis(0));

    assert!(queue.pop(at(19)).is_none());
    assert_eq!(queue.pop(at(20)).unwrap().causes, Cause::ShardMove.into());
    queue.done(at(20), flow, &1, Outcome::RetryAfter(millis(20)), millis(0));
    assert_eq!(queue.pop(at(40)).unwrap().causes, Cause::Retry.into());
}

#[test]
fn causes_gather_until_the_key_is_handed_out_and_outlive_an_interruption() {
    let mut queue = queue(10);
    let flow = queue.add_flow(&tenant("a"), 10);
    let told = |popped: Option<Popped<u32>>| popped.map(|it| it.causes.to_string());

    queue.push_because(at(0), flow, 1, Cause::Child.into());
    queue.push_because(at(0), flow, 1, Cause::Parent.into());
    assert_eq!(told(queue.pop(at(0))).unwrap(), "parent, child");
    queue.done(at(1), flow, &1, Outcome::Interrupted, Duration::ZERO);
    assert_eq!(told(queue.pop(at(1))).unwrap(), "parent, child");
    queue.push_because(at(1), flow, 1, Cause::Resync.into());
    queue.done(at(1), flow, &1, Outcome::Await, Duration::ZERO);
    assert_eq!(told(queue.pop(at(1))).unwrap(), "resync");
    queue.done(at(1), flow, &1, Outcome::Backoff, Duration::ZERO);

    assert_eq!(told(queue.pop(at(5000))).unwrap(), "retry");
}

#[test]
fn key_pushed_while_in_progress_runs_again_after() {
    let mut queue = queue(10);
    let flow = queue.add_flow(&tenant("a"), 10);
    queue.push(at(0), flow, 1);
    queue.pop(at(0)).unwrap();

    queue.push(at(1), flow, 1);

    assert_eq!(queue.pop(at(1)), None);
    queue.done(at(5), flow, &1, Outcome::After(millis(1000)), millis(5));
    let again = queue.pop(at(6)).unwrap();
    assert_eq!((again.key, again.waited), (1, millis(1)));
    // The second attempt supersedes what the first asked for.
    queue.done(at(7), flow, &1, Outcome::Await, millis(1));
    assert_eq!(queue.poll_timeout(), None);
}

#[test]
fn keys_of_a_flow_are_served_in_the_order_of_their_pushes() {
    let mut queue = queue(10);
    let flow = queue.add_flow(&tenant("a"), 10);
    for key in [3, 1, 2] {
        queue.push(at(0), flow, key);
    }

    let keys: Vec<u32> = std::iter::from_fn(|| queue.pop(at(0)))
        .map(|it| it.key)
        .collect();

    assert_eq!(keys, [3, 1, 2]);
}

#[test]
fn delayed_key_comes_at_the_earliest_time_asked_for() {
    let mut queue = queue(10);
    let flow = queue.add_flow(&tenant("a"), 10);
    queue.push_after(at(0), flow, 1, millis(50));
    queue.push_after(at(0), flow, 1, millis(20));
    queue.push_after(at(0), flow, 1, millis(90));

    assert_eq!(queue.poll_timeout(), Some(at(20)));
    assert_eq!(queue.pop(at(19)), None);
    assert_eq!(serve(&mut queue, at(20), millis(1)).unwrap().key, 1);
    assert_eq!(queue.poll_timeout(), None);
}

#[test]
fn delayed_key_says_why_its_timer_was_set() {
    let mut queue = queue(10);
    let flow = queue.add_flow(&tenant("a"), 10);
    queue.push_after(at(0), flow, 1, millis(50));
    queue.push_after_because(at(0), flow, 1, millis(20), Cause::HotLoop);
    queue.push_after(at(0), flow, 1, millis(90));

    let first = serve(&mut queue, at(20), millis(1)).unwrap();
    queue.push_after(at(30), flow, 1, millis(10));
    let second = queue.pop(at(40)).unwrap();

    assert_eq!(first.causes, Cause::HotLoop.into());
    assert_eq!(second.causes, Cause::Timer.into());
}

#[test]
fn delayed_push_stays_due_when_the_key_is_served_before() {
    let mut queue = queue(10);
    let flow = queue.add_flow(&tenant("a"), 10);
    queue.push_after(at(0), flow, 1, millis(50));
    queue.push(at(10), flow, 1);

    serve(&mut queue, at(10), millis(1)).unwrap();

    assert_eq!(queue.poll_timeout(), Some(at(50)));
    assert_eq!(queue.pop(at(50)).unwrap().key, 1);
}

#[test]
fn failures_back_off_until_an_attempt_succeeds() {
    let mut queue = queue(10);
    let flow = queue.add_flow(&tenant("a"), 10);
    let mut now = at(0);
    queue.push(now, flow, 1);

    for failures in 0..12 {
        let popped = queue.pop(now).unwrap();
        assert_eq!(popped.failures, failures);
        queue.done(now, flow, &1, Outcome::Backoff, millis(1));
        let next = queue.poll_timeout().unwrap();
        let full = MIN_BACKOFF * 2_u32.pow(failures);
        assert!(next.since(now) >= full / 2 && next.since(now) <= full);
        now = next;
    }
    queue.pop(now).unwrap();
    queue.done(now, flow, &1, Outcome::RetryAfter(millis(3)), millis(1));
    now = now + millis(3);
    assert_eq!(queue.pop(now).unwrap().failures, 12);
    queue.done(now, flow, &1, Outcome::After(millis(3)), millis(1));
    now = now + millis(3);

    assert_eq!(queue.pop(now).unwrap().failures, 0);
    assert_eq!(queue.counts(flow, now).unwrap().retries_total, 12);
}

#[test]
fn push_overrides_a_backoff() {
    let mut queue = queue(10);
    let flow = queue.add_flow(&tenant("a"), 10);
    queue.push(at(0), flow, 1);
    queue.pop(at(0)).unwrap();
    queue.done(at(0), flow, &1, Outcome::Backoff, millis(1));

    queue.push(at(1), flow, 1);

    assert_eq!(serve(&mut queue, at(1), millis(1)).unwrap().failures, 1);
    assert_eq!(queue.poll_timeout(), None);
}

#[test]
fn caps_of_controller_tenant_and_worker_hold() {
    let mut queue = queue(5);
    let [a, b] = ["a", "b"].map(tenant);
    let flows = [
        queue.add_flow(&a, 2),
        queue.add_flow(&a, 2),
        queue.add_flow(&b, 9),
    ];
    queue.set_tenant(
        &a,
        TenantShare {
            weight: 100,
            concurrency: 3,
        },
    );
    for key in 0..9 {
        for flow in flows {
            queue.push(at(0), flow, key);
        }
    }

    let popped: Vec<Popped<u32>> = std::iter::from_fn(|| queue.pop(at(0))).collect();

    let of = |flow| popped.iter().filter(|it| it.flow == flow).count();
    assert_eq!(
        (popped.len(), of(flows[0]) + of(flows[1]), of(flows[2])),
        (5, 3, 2)
    );
    assert!(of(flows[0]) <= 2 && of(flows[1]) <= 2);
    queue.set_tenant(&a, TenantShare::default());
    queue.done(at(1), flows[2], &0, Outcome::Await, millis(1));
    assert_ne!(queue.pop(at(1)).unwrap().flow, flows[2]);
}

#[test]
fn held_flow_collects_keys_and_gives_none() {
    let mut queue = queue(10);
    let flow = queue.add_flow(&tenant("a"), 10);
    queue.push(at(0), flow, 1);
    queue.hold_flow(flow);
    queue.push(at(0), flow, 2);
    queue.push_after(at(0), flow, 3, millis(5));

    assert_eq!(queue.pop(at(10)), None);
    assert_eq!(queue.poll_timeout(), None);
    let counts = queue.counts(flow, at(10)).unwrap();
    assert_eq!((counts.depth, counts.oldest_wait), (3, millis(10)));
    queue.release_flow(flow);

    assert_eq!(std::iter::from_fn(|| queue.pop(at(10))).count(), 3);
}

#[test]
fn removed_flow_lasts_until_its_keys_in_progress_are_done() {
    let mut queue = queue(1);
    let [a, b] = ["a", "b"].map(tenant);
    let removed = queue.add_flow(&a, 10);
    let other = queue.add_flow(&b, 10);
    queue.push(at(0), removed, 1);
    queue.push(at(0), removed, 2);
    queue.push_after(at(0), removed, 3, millis(5));
    queue.pop(at(0)).unwrap();

    queue.remove_flow(removed);
    queue.push(at(1), removed, 4);
    queue.push(at(1), other, 1);

    assert_eq!(
        (queue.len(), queue.poll_timeout(), queue.pop(at(10))),
        (1, None, None)
    );
    assert_eq!(queue.counts(removed, at(10)).unwrap().in_progress, 1);
    queue.done(at(10), removed, &1, Outcome::Backoff, millis(1));
    assert_eq!(queue.counts(removed, at(10)), None);
    assert_eq!(queue.pop(at(10)).unwrap().flow, other);
    assert_eq!(queue.pop(at(10_000)), None);
}

#[test]
fn done_of_a_key_not_in_progress_changes_nothing() {
    let mut queue = queue(1);
    let flow = queue.add_flow(&tenant("a"), 1);
    queue.push(at(0), flow, 1);

    queue.done(at(0), flow, &1, Outcome::Backoff, millis(1));
    queue.done(at(0), flow, &2, Outcome::Backoff, millis(1));

    assert_eq!(
        (queue.len(), queue.in_progress(), queue.poll_timeout()),
        (1, 0, None)
    );
}

#[test]
fn tenant_with_one_key_does_not_wait_behind_one_hundred_thousand() {
    let mut queue = queue(1);
    let [busy, quiet] = ["busy", "quiet"].map(tenant);
    let busy = [queue.add_flow(&busy, 5), queue.add_flow(&busy, 5)];
    let quiet = queue.add_flow(&quiet, 5);
    for key in 0..50_000 {
        queue.push(at(0), busy[0], key);
        queue.push(at(0), busy[1], key);
    }
    for _ in 0..1_000 {
        serve(&mut queue, at(0), millis(20)).unwrap();
    }

    queue.push(at(0), quiet, 1);

    let turn = std::iter::from_fn(|| serve(&mut queue, at(0), millis(20)))
        .position(|popped| popped.flow == quiet)
        .unwrap();
    assert!(turn <= 1, "served as number {turn}");
    let rest = std::iter::from_fn(|| serve(&mut queue, at(0), millis(20))).count();
    assert_eq!(rest + turn, 99_000);
}

#[test]
fn tenants_share_time_by_weight_whatever_an_attempt_costs() {
    for costs in [[10, 10], [1, 50], [200, 2]] {
        let mut queue = queue(4);
        let tenants = ["a", "b"].map(tenant);
        let flows = [
            queue.add_flow(&tenants[0], 4),
            queue.add_flow(&tenants[1], 4),
        ];
        queue.set_tenant(
            &tenants[0],
            TenantShare {
                weight: 3,
                ..TenantShare::default()
            },
        );
        for flow in flows {
            for key in 0..100 {
                queue.push(at(0), flow, key);
            }
        }

        let [a, b] = shared_minute(&mut queue, flows, costs);

        assert!(a + b > 230_000, "{costs:?}: {a} {b}");
        assert!(a * 10 > b * 26 && a * 10 < b * 34, "{costs:?}: {a} {b}");
    }
}

#[test]
fn controllers_of_a_tenant_share_its_time_evenly() {
    let mut queue = queue(2);
    let a = tenant("a");
    let flows = [queue.add_flow(&a, 2), queue.add_flow(&a, 2)];
    for flow in flows {
        for key in 0..100 {
            queue.push(at(0), flow, key);
        }
    }

    let [slow, quick] = shared_minute(&mut queue, flows, [100, 3]);

    assert!(
        slow * 10 > quick * 9 && slow * 10 < quick * 11,
        "{slow} {quick}"
    );
}

#[test]
fn idle_tenant_saves_up_no_claim() {
    let mut queue = queue(1);
    let [a, b] = ["a", "b"].map(tenant);
    let flows = [queue.add_flow(&a, 1), queue.add_flow(&b, 1)];
    for key in 0..2_000 {
        queue.push(at(0), flows[0], key);
        queue.push_after(at(0), flows[1], key, millis(1));
    }
    for _ in 0..1_000 {
        serve(&mut queue, at(0), millis(20)).unwrap();
    }

    let next: Vec<FlowId> = (0..100)
        .map(|_| serve(&mut queue, at(1), millis(20)).unwrap().flow)
        .collect();

    let of_b = next.iter().filter(|flow| **flow == flows[1]).count();
    assert!((45..=60).contains(&of_b), "{of_b}");
}
