//! Tells of a clock that somebody has set: nothing of the fleet goes by it, but people compare what it dates.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use metashard_api::names::event;
use metashard_fleet::{map::Seen, time::Now};
use metashard_kube::{
    events::{Event, Recorder},
    shard_map::ShardMaps,
};
use metashard_runtime::clock::Clock;
use tracing::warn;

/// How often it is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// What is less is how clocks are kept right.
const SET: Duration = Duration::from_secs(10);

/// Watches the calendar time by the clock that nobody can set, and tells of each step, in the log and on the map.
pub(crate) async fn follow(clock: Clock, maps: ShardMaps, recorder: Recorder) {
    let mut calendar = Calendar::begin(clock.now(), clock.wall());
    loop {
        clock.sleep(LOOK).await;
        let Some(step) = calendar.look(clock.now(), clock.wall()) else {
            continue;
        };
        let (seconds, direction) = match step {
            Step::Forward(by) => (by.as_secs(), "forward"),
            Step::Back(by) => (by.as_secs(), "back"),
        };
        warn!(
            seconds,
            direction, "the clock was set: nothing but dates goes by it"
        );
        if let Ok(Seen::Present(map)) = maps.read().await {
            let event = Event {
                is_warning: true,
                reason: event::CLOCK_SET.into(),
                message: format!(
                    "the clock of this replica's machine was set {direction} by {seconds} s: Leases and shards do not go by it; dates in its log, in Events and in status do"
                ),
            };
            recorder.record(&Arc::new(maps.about(&map.uid)), &event);
        }
    }
}

/// What the calendar time should be.
struct Calendar {
    at: Now,
    wall: SystemTime,
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    Forward(Duration),
    Back(Duration),
}

impl Calendar {
    fn begin(at: Now, wall: SystemTime) -> Self {
        Self { at, wall }
    }

    /// By how much the clock was set since the last look.
    fn look(&mut self, now: Now, wall: SystemTime) -> Option<Step> {
        // The clock that goes on while the machine sleeps, as the calendar does.
        let expected = self.wall + now.boot.since(self.at.boot);
        *self = Self::begin(now, wall);
        let step = match wall.duration_since(expected) {
            Ok(ahead) => Step::Forward(ahead),
            Err(behind) => Step::Back(behind.duration()),
        };
        let (Step::Forward(by) | Step::Back(by)) = step;
        (by >= SET).then_some(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    #[test]
    fn a_step_is_told_of_once_and_so_is_the_way_back() {
        let (mut now, mut wall) = (Now::default(), SystemTime::UNIX_EPOCH + 9 * HOUR);
        let mut calendar = Calendar::begin(now, wall);
        let mut look = |set: fn(SystemTime) -> SystemTime| {
            (now, wall) = (now.after(LOOK), set(wall + LOOK));
            calendar.look(now, wall)
        };

        assert_eq!(look(|it| it), None);
        assert_eq!(look(|it| it + HOUR), Some(Step::Forward(HOUR)));
        assert_eq!(look(|it| it), None);
        assert_eq!(look(|it| it - HOUR), Some(Step::Back(HOUR)));
        assert_eq!(look(|it| it - Duration::from_secs(9)), None);
    }

    #[test]
    fn a_machine_that_slept_has_not_had_its_clock_set() {
        let mut calendar = Calendar::begin(Now::default(), SystemTime::UNIX_EPOCH);
        let woken = Now {
            boot: Now::default().after(HOUR).boot,
            ..Now::default()
        };

        assert_eq!(calendar.look(woken, SystemTime::UNIX_EPOCH + HOUR), None);
    }
}
