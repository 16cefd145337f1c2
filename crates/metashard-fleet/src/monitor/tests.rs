//! What a monitor sees only with time.

use std::time::Duration;

use metashard_api::id::{Epoch, Incarnation, ReplicaId, ShardId};

use super::*;
use crate::{
    leader::{Action, Config, Leader, MemberSnapshot, Report, Snapshot, Took, Why},
    membership::State,
    message::Claim,
    record::About,
    rules::Rules,
    time::Now,
};

const LEASE: Duration = Duration::from_secs(4);

fn at(seconds: u64) -> Now {
    Now::default().after(Duration::from_secs(seconds))
}

/// What a leader with one worker shows, with a shard that has been unowned for so long.
fn unowned_for(seconds: u64) -> Snapshot {
    let config = Config {
        replica: ReplicaId::new("r"),
        about: About::default(),
        lease_duration: LEASE,
        shards: 8,
        drain_hook_grace: LEASE,
        unix_time: Duration::ZERO,
        rules: Rules::default(),
    };
    let worker = MemberSnapshot {
        replica: Some(ReplicaId::new("w")),
        incarnation: Incarnation::new("w"),
        state: State::Joined,
        leaving: false,
        has_session: true,
        n_shards: 7,
    };
    Snapshot {
        leads: true,
        members: vec![worker],
        unowned_for: Duration::from_secs(seconds),
        ..Leader::new(at(0), config).snapshot(at(0))
    }
}

#[test]
fn a_shard_that_stays_without_an_owner_while_all_is_well_breaks_i7_once() {
    let mut monitor = LeaderMonitor::default();

    assert_eq!(monitor.look_at(at(0), &unowned_for(0), LEASE), [].into());
    assert_eq!(monitor.look_at(at(13), &unowned_for(13), LEASE), [].into());
    let begun = monitor.look_at(at(14), &unowned_for(14), LEASE);
    assert_eq!(begun, [Invariant::Coverage].into());
    assert_eq!(monitor.look_at(at(15), &unowned_for(15), LEASE), [].into());
}

#[test]
fn a_shard_without_an_owner_breaks_nothing_while_there_is_no_worker() {
    let mut monitor = LeaderMonitor::default();
    let nobody = Snapshot {
        members: Vec::new(),
        ..unowned_for(100)
    };

    monitor.look_at(at(0), &nobody, LEASE);
    assert_eq!(monitor.look_at(at(100), &nobody, LEASE), [].into());

    // The time that counts begins with the first one.
    monitor.look_at(at(101), &unowned_for(101), LEASE);
    let soon = monitor.look_at(at(110), &unowned_for(110), LEASE);
    assert_eq!(soon, [].into());
}

#[test]
fn a_shard_that_is_moved_for_balance_twice_within_its_cool_down_breaks_i9() {
    let moved = |why| {
        let shard = ShardId(3);
        [Action::Report(Report::ShardsAssigned {
            to: Incarnation::new("w"),
            why,
            claims: vec![Claim {
                shard,
                epoch: Epoch(1),
            }],
            took: Took::default(),
        })]
    };
    for (why, after, broken) in [
        (Why::Balance, 59, true),
        (Why::Balance, 61, false),
        (Why::Orphaned, 1, false),
    ] {
        let mut monitor = LeaderMonitor::default();
        monitor.look(at(0), None, &[], &moved(Why::Balance));
        let seen = monitor.look(at(after), None, &[], &moved(why));
        assert_eq!(seen.contains(&Invariant::BoundedMove), broken, "{why:?}");
    }
}
