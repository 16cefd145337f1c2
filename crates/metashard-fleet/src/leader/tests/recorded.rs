//! What a leader decided is decided again from its recording, in another process too.

use std::time::Duration;

use super::fleet::Fleet;
use crate::{
    leader::{Action, Leader},
    recording::{Machine, Recording, Replayed},
};

/// A fleet that has lost a worker and gained another.
fn eventful() -> Fleet {
    let mut fleet = Fleet::running(&["a", "b", "c"]);
    fleet.count(3);
    fleet.worker("c").renews = false;
    fleet.run_until(Duration::from_secs(10), |it| it.owned_by("c").is_empty());
    fleet.join("d");
    fleet.run_until(Duration::from_secs(30), |it| !it.owned_by("d").is_empty());
    fleet
}

#[test]
fn a_recording_survives_a_file_and_decides_the_same() {
    let fleet = eventful();

    let text = serde_json::to_string(&fleet.replicas[0].history.recording()).unwrap();
    let read: Recording<Leader> = serde_json::from_str(&text).unwrap();

    let again: Vec<_> = read.replay().collect();
    assert!(again.iter().all(Replayed::is_same));
    let writes = again.iter().flat_map(|it| &it.actions);
    let n_writes = writes
        .filter(|it| matches!(it, Action::WriteMap(_)))
        .count();
    assert!(n_writes >= fleet.maps.len(), "{n_writes}");
}

#[test]
fn a_replay_that_is_told_something_else_is_noticed() {
    let mut recording = eventful().replicas[0].history.recording();
    let told = recording
        .steps
        .iter()
        .position(|it| matches!(it.inputs[..], [crate::leader::Input::ControllersSeen(_)]))
        .unwrap();

    recording.start.handle_all(
        recording.steps[0].now,
        [crate::leader::Input::ShutdownAsked],
        &mut Vec::new(),
    );

    let differs = recording.replay().position(|it| !it.is_same());
    assert!(differs.is_some_and(|it| it <= told), "{differs:?}");
}

#[test]
fn a_history_forgets_the_oldest_and_still_decides_the_same() {
    let mut fleet = eventful();
    let n_before = fleet.replicas[0].history.recording().steps.len();
    let room = fleet.replicas[0].leader.room();

    fleet.run(Duration::from_mins(10));

    let recording = fleet.replicas[0].history.recording();
    let weight: usize = recording
        .steps
        .iter()
        .map(|step| size_of_val(step) + step.inputs.iter().map(Leader::weight).sum::<usize>())
        .sum();
    let begin = Duration::from_secs(100);
    assert!(
        recording.steps[0].now.mono.0 > begin,
        "nothing was forgotten"
    );
    assert!(recording.steps.len() > n_before);
    assert!(weight <= room + room / 8, "{weight} of {room}");
    assert!(weight >= room / 2, "{weight} of {room}");
}
