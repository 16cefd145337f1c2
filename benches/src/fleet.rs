//! What placement and the queue cost.

use std::time::Duration;

use anyhow::ensure;
use metashard_api::id::{ReplicaId, TenantId};
use metashard_fleet::{
    placement::{Assignment, Level, Member, Problem, Shard, hottest_percent, place},
    queue::{Config, Outcome, Queue},
    time::MonoTime,
};

use crate::Bench;

/// Members that shards are placed on.
const MEMBERS: u16 = 20;

fn problem(members: u16, shards: usize) -> Problem {
    let member = |n: u16| Member {
        replica: ReplicaId::new(format!("replica-{n}")),
        capacity: 0,
        retiring: false,
    };
    // Most shards are light and a few heavy, as measured costs are.
    let shard = |n: u64| Shard {
        weight: 1 + 1000 / (1 + n % 97),
        ..Shard::default()
    };
    Problem {
        members: (0..members).map(member).collect(),
        shards: (0..).map(shard).take(shards).collect(),
        budget: shards,
        level: Level::Rest,
    }
}

fn placed(assignment: &Assignment) -> usize {
    assignment.owners.iter().flatten().count()
}

/// All shards, none of which has a member yet.
pub(crate) fn placement(size: usize) -> anyhow::Result<Bench> {
    let problem = problem(MEMBERS, size);
    let none = Assignment::empty(size);
    if size > 1000 {
        let hottest = hottest_percent(&problem, &place(&problem, &none));
        ensure!(
            hottest <= 110,
            "the hottest member has {hottest} % of the mean"
        );
    }
    Ok(Bench {
        work: Box::new(move || Ok(placed(&place(&problem, &none)))),
        expected: size,
    })
}

/// One more member: all shards have one of the others.
pub(crate) fn join(size: usize) -> anyhow::Result<Bench> {
    let before = place(&problem(MEMBERS, size), &Assignment::empty(size));
    let problem = problem(MEMBERS + 1, size);
    Ok(Bench {
        work: Box::new(move || Ok(placed(&place(&problem, &before)))),
        expected: size,
    })
}

/// Keys of ten controllers of five tenants: pushed, handed out, done.
pub(crate) fn queue(size: usize) -> anyhow::Result<Bench> {
    let mut queue = Queue::new(Config {
        concurrency: 20,
        seed: 1,
    });
    let mut flows = Vec::new();
    for n in 0..10 {
        let tenant = TenantId::new(format!("tenant-{}", n % 5));
        flows.push(queue.add_flow(&tenant, 10));
    }
    let now = MonoTime::default();
    Ok(Bench {
        work: Box::new(move || {
            for (key, flow) in (0..size).zip(flows.iter().cycle()) {
                queue.push(now, *flow, key);
            }
            let mut done = 0;
            while let Some(popped) = queue.pop(now) {
                let cost = Duration::from_millis(5);
                queue.done(now, popped.flow, &popped.key, Outcome::Await, cost);
                done += 1;
            }
            Ok(done)
        }),
        expected: size,
    })
}
