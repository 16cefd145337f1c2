//! What proves that a worker is over, one worker at a time.

use super::*;
use crate::{
    record::Holder,
    rules::Rule,
    testing::{incarnation, member, record},
};

const DURATION: Duration = Duration::from_secs(4);

fn at(millis: u64) -> Now {
    Now::default().after(Duration::from_millis(millis))
}

fn lease(version: &str, holder: Holder) -> Record {
    Record {
        uid: "uid".to_owned(),
        resource_version: version.to_owned(),
        ..record(holder, DURATION, 7)
    }
}

/// One worker, seen at 1 s, and four others that keep it from being half of all.
fn observed(rules: Rules) -> (Membership, Incarnation) {
    let it = incarnation("it");
    let mut membership = Membership::new(DURATION, rules);
    membership.own_renewal(at(1_000), Some(at(0).mono));
    let seen = Seen::Present(lease("1", member("r", &it)));
    membership.see(at(1_000), &it, seen);
    membership.refresh(at(1_000));
    (membership, it)
}

fn judge(membership: &mut Membership, millis: u64) -> Requests {
    for n in 0..4 {
        let other = incarnation(&format!("other{n}"));
        let seen = lease(&format!("{millis}"), member("o", &other));
        membership.see(at(millis), &other, Seen::Present(seen));
    }
    membership.own_renewal(at(millis), Some(at(0).mono));
    membership.refresh(at(millis));
    let mut requests = Vec::new();
    membership.pursue(at(millis), &mut requests);
    requests
}

fn state(membership: &Membership, it: &Incarnation) -> State {
    membership.worker(it).map(Worker::state).unwrap()
}

#[test]
fn ended_claim_is_read_with_a_quorum_and_then_fenced_over_exactly_that_record() {
    let (mut membership, it) = observed(Rules::default());

    assert_eq!(judge(&mut membership, 4_999), []);
    assert_eq!(judge(&mut membership, 5_000), [(it.clone(), Request::Read)]);
    let seen = lease("1", member("r", &it));
    membership.read(at(5_001), &it, Some(Seen::Present(seen.clone())));

    let fence = Record {
        holder: Holder::Fenced,
        ..seen
    };
    let requests = judge(&mut membership, 5_002);
    assert_eq!(requests, [(it.clone(), Request::Put(fence.clone()))]);
    assert!(!membership.is_over(&it), "not before the answer");
    let written = Record {
        resource_version: "2".to_owned(),
        ..fence
    };
    membership.written(at(5_003), &it, Written::Accepted(written));
    assert!(membership.refresh(at(5_003)));
    assert_eq!(state(&membership, &it), State::Fenced);
}

#[test]
fn mutant_fences_whatever_is_there() {
    let (mut membership, it) = observed(Rules::breaking(Rule::FenceByVersion));
    judge(&mut membership, 5_000);
    let seen = lease("1", member("r", &it));
    membership.read(at(5_001), &it, Some(Seen::Present(seen)));

    let requests = judge(&mut membership, 5_002);

    let put = requests.into_iter().next().map(|(_, request)| request);
    let Some(Request::Put(record)) = put else {
        panic!("no write: {put:?}");
    };
    assert_eq!(record.resource_version, "");
}

#[test]
fn renewal_that_the_quorum_read_shows_starts_the_wait_anew() {
    let (mut membership, it) = observed(Rules::default());
    judge(&mut membership, 5_000);

    let renewed = lease("2", member("r", &it));
    membership.read(at(5_001), &it, Some(Seen::Present(renewed)));

    assert_eq!(judge(&mut membership, 9_000), []);
    assert_eq!(judge(&mut membership, 9_001).len(), 1);
}

#[test]
fn fence_that_gets_a_conflict_is_looked_up() {
    let (mut membership, it) = observed(Rules::default());
    judge(&mut membership, 5_000);
    let seen = lease("1", member("r", &it));
    membership.read(at(5_000), &it, Some(Seen::Present(seen)));
    judge(&mut membership, 5_000);

    membership.written(at(5_010), &it, Written::Conflict);

    assert_eq!(judge(&mut membership, 5_020), [], "not in a hurry");
    assert_eq!(judge(&mut membership, 5_300), [(it, Request::Read)]);
}

#[test]
fn fenced_by_another_leader_is_proof() {
    let (mut membership, it) = observed(Rules::default());

    let seen = Seen::Present(lease("2", Holder::Fenced));
    membership.see(at(1_500), &it, seen);
    membership.refresh(at(1_500));

    assert!(membership.is_over(&it));
}

#[test]
fn evicted_by_another_leader_is_proof_after_its_duration_from_our_first_sight() {
    let (mut membership, it) = observed(Rules::default());
    let seen = Seen::Present(lease("2", Holder::Evicted));
    membership.see(at(1_500), &it, seen);

    membership.refresh(at(5_499));
    assert_eq!(state(&membership, &it), State::Evicting);
    assert_eq!(membership.poll_timeout(), Some(at(5_500).mono));

    membership.refresh(at(5_500));
    assert_eq!(state(&membership, &it), State::Evicted);
}

#[test]
fn what_is_over_never_comes_back() {
    let (mut membership, it) = observed(Rules::default());
    let seen = Seen::Present(lease("2", Holder::Released));
    membership.see(at(1_500), &it, seen);
    membership.refresh(at(1_500));

    let seen = Seen::Present(lease("3", member("r", &it)));
    membership.see(at(1_600), &it, seen);
    membership.refresh(at(1_600));

    assert_eq!(state(&membership, &it), State::Released);
}

#[test]
fn eviction_goes_after_a_live_lease_until_it_is_written() {
    let (mut membership, it) = observed(Rules::default());
    assert!(membership.evict(&it));
    assert!(!membership.evict(&it), "it is wanted already");

    let first = judge(&mut membership, 1_100);
    let evicted = |version| Record {
        holder: Holder::Evicted,
        ..lease(version, Holder::Evicted)
    };
    assert_eq!(first, [(it.clone(), Request::Put(evicted("1")))]);
    membership.written(at(1_200), &it, Written::Conflict);
    assert_eq!(judge(&mut membership, 1_450), [(it.clone(), Request::Read)]);
    let renewed = lease("2", member("r", &it));
    membership.read(at(1_500), &it, Some(Seen::Present(renewed)));
    assert_eq!(
        judge(&mut membership, 1_500),
        [(it, Request::Put(evicted("2")))]
    );
}

#[test]
fn lost_answer_to_a_quorum_read_proves_nothing() {
    let (mut membership, it) = observed(Rules::default());
    membership.see(at(1_500), &it, Seen::Absent);
    assert_eq!(judge(&mut membership, 5_500).len(), 1);

    membership.read(at(6_500), &it, None);
    membership.refresh(at(6_500));

    assert_eq!(state(&membership, &it), State::Missing);
    assert_eq!(judge(&mut membership, 6_800), [(it, Request::Read)]);
}

#[test]
fn workers_that_were_fenced_long_ago_do_not_count_as_half_of_a_fleet() {
    let mut membership = Membership::new(DURATION, Rules::default());
    membership.own_renewal(at(0), Some(at(0).mono));
    for n in 0..9 {
        let old = incarnation(&format!("old{n}"));
        let seen = lease("1", Holder::Fenced);
        membership.see(at(0), &old, Seen::Present(seen));
    }
    let it = incarnation("it");
    let seen = lease("1", member("r", &it));
    membership.see(at(0), &it, Seen::Present(seen));

    let requests = judge(&mut membership, 4_000);

    assert_eq!(requests, [(it, Request::Read)]);
}
