//! Tests of the observer's side.

use std::time::Duration;

use metashard_api::id::{Incarnation, ReplicaId};

use super::*;
use crate::record::{About, Record};

const OWN: Duration = Duration::from_secs(4);
const ALWAYS: Option<MonoTime> = Some(MonoTime(Duration::ZERO));

fn at(seconds: u64) -> Now {
    Now::default().after(Duration::from_secs(seconds))
}

fn present(version: &str, holder: Holder, seconds: u64) -> Seen {
    Seen::Present(Record {
        uid: "uid-1".to_owned(),
        resource_version: version.to_owned(),
        holder,
        duration: Duration::from_secs(seconds),
        attempt: 1,
        about: About::default(),
    })
}

fn member() -> Holder {
    Holder::Member(ReplicaId::new("r2"), Incarnation::new("2"))
}

fn observe(seen: Seen) -> Observation {
    Observation::new(at(100), seen, OWN, Rules::default())
}

#[test]
fn claim_ends_after_the_duration_written_in_its_own_record() {
    for seconds in [2, 4, 15] {
        let observation = observe(present("1", member(), seconds));

        let almost = at(100).after(Duration::from_millis(seconds * 1000 - 1));
        assert!(!observation.has_ended(almost, ALWAYS), "{seconds} s");
        assert!(
            observation.has_ended(at(100 + seconds), ALWAYS),
            "{seconds} s"
        );
    }
}

#[test]
fn each_change_of_the_record_starts_the_wait_anew() {
    let mut observation = observe(present("1", member(), 4));

    assert!(observation.see(at(103), present("2", member(), 4)));

    assert!(!observation.has_ended(at(106), ALWAYS));
    assert!(observation.has_ended(at(107), ALWAYS));
}

#[test]
fn same_record_seen_again_starts_nothing_anew() {
    let mut observation = observe(present("1", member(), 4));

    assert!(!observation.see(at(103), present("1", member(), 4)));

    assert!(observation.has_ended(at(104), ALWAYS));
}

#[test]
fn who_cannot_renew_may_not_judge() {
    let observation = observe(present("1", member(), 4));

    assert!(!observation.has_ended(at(1000), None));
    assert_eq!(observation.ends_at(None), None);
}

#[test]
fn time_before_own_renewals_succeeded_again_does_not_count() {
    let observation = observe(present("1", member(), 4));
    let renewing_since = Some(at(102).mono);

    assert!(!observation.has_ended(at(105), renewing_since));
    assert!(observation.has_ended(at(106), renewing_since));
}

#[test]
fn outage_fences_everybody_if_own_renewals_do_not_matter() {
    let rules = Rules::breaking(Rule::JudgeWhileRenewing);
    let observation = Observation::new(at(100), present("1", member(), 4), OWN, rules);

    assert!(observation.has_ended(at(104), None));
}

#[test]
fn absent_lease_is_waited_out_for_the_longest_duration_seen_there() {
    for (seen_before, wait) in [(2, 4), (4, 4), (15, 15)] {
        let mut observation = observe(present("1", member(), seen_before));

        observation.see(at(101), Seen::Absent);

        assert!(
            !observation.has_ended(at(100 + wait), ALWAYS),
            "{seen_before} s"
        );
        assert!(
            observation.has_ended(at(101 + wait), ALWAYS),
            "{seen_before} s"
        );
    }
}

#[test]
fn what_says_that_it_is_over_needs_no_wait_and_evicted_does() {
    for (holder, is_over) in [
        (Holder::Released, true),
        (Holder::Fenced, true),
        (Holder::Evicted, false),
        (Holder::Foreign("other".to_owned()), false),
    ] {
        let observation = observe(present("1", holder.clone(), 4));

        assert_eq!(observation.has_ended(at(100), None), is_over, "{holder:?}");
        assert!(observation.has_ended(at(104), ALWAYS), "{holder:?}");
    }
}

#[test]
fn another_object_of_the_same_name_is_another_record() {
    let mut observation = observe(present("1", member(), 4));
    let Seen::Present(mut record) = present("1", member(), 4) else {
        panic!("present");
    };
    record.uid = "uid-2".to_owned();

    assert!(observation.see(at(103), Seen::Present(record)));

    assert!(!observation.has_ended(at(106), ALWAYS));
}
