//! Authorities as a worker machine gives them: by a confirmed Lease and a map.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use metashard_api::{
    id::{Epoch, Incarnation, ReplicaId, Seq, ShardId, Term},
    shard_map::{Member, ShardEntry, ShardMapSpec},
};
use metashard_fleet::{
    lease,
    map::{Map, Seen},
    message::Claim,
    record::{About, Record, Written},
    rules::Rules,
    time::{BootTime, MonoTime, Now},
    worker::{Action, Authority, Config, Input, Worker},
};
use metashard_runtime::clock::Clock;

/// The ownership of all tests.
pub(crate) const CLAIM: Claim = Claim {
    shard: ShardId(0),
    epoch: Epoch(3),
};

const INCARNATION: &str = "6f1c7a52-9a0e-4b5e-8f54-0d7c3b2a1e90";

/// An authority for [`CLAIM`] that is good for some 3.6 s from now.
pub(crate) fn fresh() -> anyhow::Result<Authority> {
    at(Clock::system().now())
}

/// An authority for [`CLAIM`] whose deadline has passed.
pub(crate) fn expired() -> anyhow::Result<Authority> {
    let now = Clock::system().now();
    let earlier = Duration::from_secs(10);
    at(Now {
        boot: BootTime(now.boot.0.saturating_sub(earlier)),
        mono: MonoTime(now.mono.0.saturating_sub(earlier)),
    })
}

fn at(now: Now) -> anyhow::Result<Authority> {
    let config = Config {
        replica: ReplicaId::new("replica-1"),
        about: About::default(),
        lease_duration: Duration::from_secs(4),
        drain_hook_grace: Duration::from_secs(2),
        rules: Rules::default(),
    };
    let mut worker = Worker::new(now, config);
    let mut actions = Vec::new();
    worker.handle_timeout(now, &mut actions);
    worker.handle(now, Input::DispatcherAnswered, &mut actions);
    worker.handle(
        now,
        Input::MapRead(Some(Seen::Present(map(0)))),
        &mut actions,
    );
    worker.handle(
        now,
        Input::IncarnationDrawn(Incarnation::new(INCARNATION)),
        &mut actions,
    );
    let record = actions
        .iter()
        .find_map(requested)
        .context("no Lease was asked for")?;
    let record = Record {
        uid: "lease".to_owned(),
        resource_version: "1".to_owned(),
        ..record
    };
    let answered = Input::LeaseAnswered {
        incarnation: Incarnation::new(INCARNATION),
        answer: lease::Input::Written(Written::Accepted(record)),
    };
    worker.handle(now, answered, &mut actions);
    worker.handle(now, Input::MapSeen(Seen::Present(map(1))), &mut actions);
    worker
        .standing()
        .authority(CLAIM.shard, now)
        .context("the worker has no authority")
}

fn requested(action: &Action) -> Option<Record> {
    match action {
        Action::Lease {
            request: lease::Request::Create(record),
            ..
        } => Some(record.clone()),
        _ => None,
    }
}

fn map(term: u64) -> Arc<Map> {
    Arc::new(Map {
        uid: "map".to_owned(),
        resource_version: (term + 1).to_string(),
        spec: ShardMapSpec {
            format: 0,
            term: Term(term),
            seq: Seq(1),
            leader: None,
            shard_count: 1,
            splits: Vec::new(),
            members: vec![Member {
                replica: "replica-1".to_owned(),
                incarnation: INCARNATION.to_owned(),
            }],
            shards: vec![ShardEntry {
                owner: Some(0),
                epoch: CLAIM.epoch,
            }],
        },
    })
}
