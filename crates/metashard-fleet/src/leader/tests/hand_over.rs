//! Warm, drain, released, assigned: and what goes wrong on the way.

use std::time::Duration;

use metashard_api::id::Seq;

use super::fleet::{DURATION, Fleet, N_SHARDS, last_written, n_moved};
use crate::{
    invariants::Invariant,
    leader::{Input, Report, Why},
    message::{Claim, FromWorker, Order},
    record::Holder,
    rules::{Rule, Rules},
    testing::incarnation,
};

const GRACE: Duration = Duration::from_secs(20);

fn leave(fleet: &mut Fleet, name: &str) {
    fleet.say(name, FromWorker::Leaving { grace: GRACE });
}

#[test]
fn leaving_worker_hands_everything_over_at_once() {
    let mut fleet = Fleet::running(&["a", "b", "c"]);
    fleet.count(1);
    let before = fleet.server.spec().clone();
    let n_owned = fleet.owned_by("c").len();

    leave(&mut fleet, "c");

    assert_eq!(fleet.owned_by("c").len(), 0);
    assert_eq!(n_moved(&before, fleet.server.spec()), n_owned);
    assert!(fleet.worker("c").held.is_empty());
}

#[test]
fn target_is_warm_before_the_owner_is_drained() {
    let mut fleet = Fleet::running(&["a", "b"]);
    fleet.count(1);
    fleet.worker("a").warms = false;

    leave(&mut fleet, "b");

    let warms = fleet.orders("a");
    assert_eq!(warms.len(), 15);
    assert!(warms.iter().all(|it| matches!(it, Order::Warm { .. })));
    assert_eq!(fleet.orders("b").len(), 0);
    let first = fleet.owned_by("b")[0];
    fleet.say("a", FromWorker::WarmReady { shard: first.shard });
    let grace = Duration::from_secs(2);
    let claim = first;
    assert_eq!(fleet.orders("b"), [&Order::Drain { claim, grace }]);
}

#[test]
fn shard_without_a_controller_needs_no_warming() {
    let mut fleet = Fleet::running(&["a", "b"]);

    leave(&mut fleet, "b");

    let warmed = fleet.orders("a").into_iter();
    assert_eq!(
        warmed.filter(|it| matches!(it, Order::Warm { .. })).count(),
        0
    );
    assert_eq!(fleet.owned_by("b").len(), 0);
}

#[test]
fn owner_that_has_not_released_keeps_the_shard() {
    for rules in [Rules::default(), Rules::breaking(Rule::ProofBeforeOwner)] {
        let mut fleet = Fleet::new(1, rules);
        for name in ["a", "b"] {
            fleet.join(name);
        }
        fleet.run(Duration::from_secs(3));
        fleet.worker("b").drains = false;
        let n_owned = fleet.owned_by("b").len();

        leave(&mut fleet, "b");
        fleet.run(Duration::from_secs(1));

        let keeps = fleet.owned_by("b").len() == n_owned;
        assert_eq!(keeps, rules.keep(Rule::ProofBeforeOwner));
        let is_seen = fleet.replicas[0].broken.contains(&Invariant::Exclusive);
        assert_eq!(is_seen, !keeps);
    }
}

#[test]
fn new_owner_is_told_where_the_old_owners_writes_ended() {
    let mut fleet = Fleet::running(&["a", "b"]);
    let claim = fleet.owned_by("b")[0];

    leave(&mut fleet, "b");

    let new = Claim {
        epoch: claim.epoch.next(),
        ..claim
    };
    let assign = Order::Assign {
        claim: new,
        last_written: vec![last_written(claim)],
        splits_as_of: (fleet.server.spec().term, Seq(1)),
    };
    assert!(fleet.orders("a").contains(&&assign));
}

#[test]
fn several_workers_leave_at_the_same_time() {
    let mut fleet = Fleet::running(&["a", "b", "c", "d"]);
    fleet.count(1);
    for name in ["b", "c", "d"] {
        leave(&mut fleet, name);
    }

    fleet.run(Duration::from_millis(300));

    assert_eq!(fleet.owned_by("a").len(), usize::from(N_SHARDS));
}

#[test]
fn last_worker_is_drained_without_a_successor_and_the_next_one_gets_all() {
    let mut fleet = Fleet::running(&["a"]);

    leave(&mut fleet, "a");

    assert!(fleet.worker("a").held.is_empty());
    assert_eq!(fleet.snapshot().n_unowned, usize::from(N_SHARDS));
    fleet.join("b");
    fleet.run(Duration::from_millis(200));
    assert_eq!(fleet.owned_by("b").len(), usize::from(N_SHARDS));
}

#[test]
fn leaving_worker_gets_nothing_even_after_its_session_was_lost() {
    let mut fleet = Fleet::running(&["a", "b", "c"]);
    leave(&mut fleet, "c");
    fleet.disconnect("c");

    fleet.worker("b").renews = false;
    fleet.run(Duration::from_secs(12));

    assert_eq!(fleet.owned_by("a").len(), usize::from(N_SHARDS));
}

#[test]
fn target_that_does_not_get_warm_is_passed_over_and_then_it_goes_without() {
    let mut fleet = Fleet::running(&["a", "b", "c"]);
    fleet.count(1);
    fleet.worker("a").warms = false;
    fleet.worker("b").warms = false;
    let grace = Duration::from_mins(1);

    fleet.say("c", FromWorker::Leaving { grace });
    fleet.run(Duration::from_millis(9_900));
    let n_asked = fleet.orders("a").len() + fleet.orders("b").len();
    assert_eq!(n_asked, 10);
    fleet.run(Duration::from_millis(300));
    let n_asked = fleet.orders("a").len() + fleet.orders("b").len();
    assert_eq!(n_asked, 20, "each at the other one");
    assert_eq!(fleet.owned_by("c").len(), 10);

    fleet.run(Duration::from_secs(10));

    assert_eq!(fleet.owned_by("c").len(), 0);
}

#[test]
fn short_grace_shortens_the_time_for_warming() {
    let mut fleet = Fleet::running(&["a", "b"]);
    fleet.count(1);
    fleet.worker("a").warms = false;
    let grace = Duration::from_secs(4);

    fleet.say("b", FromWorker::Leaving { grace });
    fleet.run(Duration::from_millis(1_200));

    assert_eq!(fleet.owned_by("b").len(), 0, "nobody else could be asked");
}

#[test]
fn target_that_dies_while_the_owner_drains_is_replaced() {
    let mut fleet = Fleet::running(&["a", "b", "c"]);
    fleet.worker("c").drains = false;
    leave(&mut fleet, "c");
    let claims = fleet.owned_by("c");

    fleet.worker("b").renews = false;
    fleet.run(Duration::from_secs(6));
    for claim in claims {
        let last_written = Vec::new();
        fleet.say(
            "c",
            FromWorker::Released {
                claim,
                last_written,
            },
        );
    }

    assert_eq!(fleet.owned_by("a").len(), usize::from(N_SHARDS));
}

#[test]
fn owner_that_dies_while_draining_is_fenced_and_the_target_gets_the_shard() {
    let mut fleet = Fleet::running(&["a", "b"]);
    fleet.worker("b").drains = false;
    leave(&mut fleet, "b");

    fleet.worker("b").renews = false;
    fleet.run(Duration::from_secs(5));

    assert_eq!(fleet.owned_by("a").len(), usize::from(N_SHARDS));
}

#[test]
fn drain_is_told_again_on_a_new_session() {
    let mut fleet = Fleet::running(&["a", "b"]);
    fleet.worker("b").drains = false;
    leave(&mut fleet, "b");
    assert_eq!(fleet.orders("b").len(), 15);

    fleet.disconnect("b");
    fleet.worker("b").has_session = true;
    fleet.worker("b").drains = true;
    fleet.run(Duration::from_millis(200));

    assert_eq!(fleet.owned_by("a").len(), usize::from(N_SHARDS));
}

#[test]
fn release_that_a_hello_repeats_counts() {
    let mut fleet = Fleet::running(&["a", "b"]);
    let claim = fleet.owned_by("b")[0];

    let hello = FromWorker::Hello {
        replica: metashard_api::id::ReplicaId::new("b"),
        incarnation: incarnation("b"),
        held: Vec::new(),
        released: vec![claim],
    };
    fleet.say("b", hello);

    let (_, epoch) = fleet.owner(claim.shard.0).unwrap();
    assert_eq!(epoch, claim.epoch.next());
}

#[test]
fn only_the_owner_can_release_a_shard() {
    let mut fleet = Fleet::running(&["a", "b"]);
    let claim = fleet.owned_by("b")[0];
    let before = fleet.server.spec().clone();

    let released = FromWorker::Released {
        claim,
        last_written: Vec::new(),
    };
    fleet.say("a", released);
    let older = Claim {
        epoch: metashard_api::id::Epoch(claim.epoch.0 - 1),
        ..claim
    };
    let released = FromWorker::Released {
        claim: older,
        last_written: Vec::new(),
    };
    fleet.say("b", released);
    fleet.run(Duration::from_secs(1));

    assert_eq!(fleet.server.spec(), &before);
}

#[test]
fn what_a_worker_owns_and_does_not_hold_is_told_again_at_its_hello() {
    let mut fleet = Fleet::running(&["a", "b"]);
    let claim = fleet.owned_by("b")[0];
    fleet.worker("b").held.remove(&claim);

    fleet.disconnect("b");
    fleet.worker("b").has_session = true;
    fleet.run(Duration::from_millis(100));

    let assign = Order::Assign {
        claim,
        last_written: Vec::new(),
        splits_as_of: (fleet.server.spec().term, Seq(1)),
    };
    assert_eq!(fleet.orders("b"), [&assign]);
}

#[test]
fn worker_that_does_not_release_is_evicted_a_minute_after_its_deadline() {
    let mut fleet = Fleet::running(&["a", "b"]);
    fleet.worker("b").drains = false;
    leave(&mut fleet, "b");

    fleet.run(Duration::from_millis(61_900));
    assert!(matches!(fleet.worker_holder("b"), Holder::Member(..)));

    fleet.run(Duration::from_millis(400));
    assert_eq!(fleet.worker_holder("b"), Holder::Evicted);
    assert_eq!(fleet.owned_by("b").len(), 15, "evicted is no proof yet");
    fleet.run(DURATION);
    assert_eq!(fleet.owned_by("b").len(), 0);
}

#[test]
fn eviction_is_proof_only_after_its_duration() {
    let rules = Rules::breaking(Rule::EvictionWaits);
    let mut fleet = Fleet::new(1, rules);
    for name in ["a", "b"] {
        fleet.join(name);
    }
    fleet.run(Duration::from_secs(3));
    fleet.worker("b").drains = false;
    leave(&mut fleet, "b");

    fleet.run(Duration::from_millis(62_300));

    assert_eq!(fleet.owned_by("b").len(), 0, "the mutant does not wait");
}

#[test]
fn report_says_why_shards_changed_hands() {
    let mut fleet = Fleet::running(&["a", "b"]);

    leave(&mut fleet, "b");

    let why = fleet.reports.iter().find_map(|report| {
        if let Report::ShardsAssigned { why, .. } = report {
            Some(*why)
        } else {
            None
        }
    });
    assert_eq!(why, Some(Why::Leaving));
}

#[test]
fn burst_of_releases_is_written_in_few_maps() {
    let mut fleet = Fleet::running(&["a", "b"]);
    fleet.worker("b").drains = false;
    leave(&mut fleet, "b");
    let claims = fleet.owned_by("b");

    let inputs = claims.iter().map(|claim| {
        let released = FromWorker::Released {
            claim: *claim,
            last_written: Vec::new(),
        };
        Input::FromWorker(incarnation("b"), released)
    });
    let mut actions = Vec::new();
    let now = fleet.now;
    let leader = &mut fleet.replicas[0].leader;
    leader.handle_all(now, inputs.collect::<Vec<_>>(), &mut actions);

    let writes = actions.iter();
    let writes = writes.filter(|it| matches!(it, crate::leader::Action::WriteMap(_)));
    assert_eq!(writes.count(), 1);
}

#[test]
fn shards_with_controllers_are_drained_before_those_without() {
    let mut fleet = Fleet::running(&["a", "b"]);
    let claims = fleet.owned_by("b");
    let claim = claims[7];
    fleet.count_each(&[(claim.shard, 1)].into());
    fleet.worker("b").drains = false;

    leave(&mut fleet, "b");
    let grace = Duration::from_secs(2);
    assert_eq!(fleet.orders("b"), [&Order::Drain { claim, grace }]);

    let last_written = vec![last_written(claim)];
    fleet.say(
        "b",
        FromWorker::Released {
            claim,
            last_written,
        },
    );
    assert_eq!(fleet.orders("b").len(), claims.len());
}

#[test]
fn what_is_released_waits_a_moment_for_the_rest() {
    let mut fleet = Fleet::running(&["a", "b"]);
    fleet.worker("b").drains = false;
    leave(&mut fleet, "b");
    let claims = fleet.owned_by("b");
    let release = |fleet: &mut Fleet, claim| {
        let last_written = Vec::new();
        fleet.say(
            "b",
            FromWorker::Released {
                claim,
                last_written,
            },
        );
    };

    release(&mut fleet, claims[0]);
    assert_eq!(fleet.maps.len(), 0, "the others may come soon");
    fleet.run(Duration::from_millis(100));
    assert_eq!(fleet.maps.len(), 1, "they did not");
    for claim in &claims[1..] {
        release(&mut fleet, *claim);
    }

    assert_eq!(fleet.maps.len(), 2, "nobody is left to wait for");
    assert_eq!(fleet.owned_by("a").len(), usize::from(N_SHARDS));
}

#[test]
fn leader_that_ends_first_gives_away_what_is_being_released() {
    let mut fleet = Fleet::running(&["a", "b"]);
    fleet.worker("b").drains = false;
    leave(&mut fleet, "b");
    let claims = fleet.owned_by("b");

    fleet.tell(0, Input::ShutdownAsked);
    assert_eq!(fleet.leaders(), [0]);
    for claim in claims {
        let last_written = Vec::new();
        fleet.say(
            "b",
            FromWorker::Released {
                claim,
                last_written,
            },
        );
    }

    assert_eq!(fleet.owned_by("a").len(), usize::from(N_SHARDS));
    assert!(fleet.replicas[0].has_finished);
}

#[test]
fn leader_that_ends_does_not_wait_for_a_worker_that_does_not_release() {
    let mut fleet = Fleet::running(&["a", "b"]);
    fleet.worker("b").drains = false;
    leave(&mut fleet, "b");

    fleet.tell(0, Input::ShutdownAsked);
    fleet.run(Duration::from_millis(1_400));
    assert!(!fleet.replicas[0].has_finished);
    fleet.run(Duration::from_millis(200));

    assert!(fleet.replicas[0].has_finished);
}

#[test]
fn leader_of_nobody_ends_at_once() {
    let mut fleet = Fleet::running(&["a"]);
    leave(&mut fleet, "a");

    fleet.tell(0, Input::ShutdownAsked);

    assert!(fleet.replicas[0].has_finished);
}
