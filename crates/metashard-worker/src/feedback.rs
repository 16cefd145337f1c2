//! Whether a controller's hook cares about the status that it made us write.
//!
//! A status write of our own comes back as an event of the parent. Metacontroller answers it with one more call of the
//! hook, which for nearly all hooks gives the same answer again; but a hook may step through phases that it keeps in
//! the status, and then that call is what moves it on. So it is learnt: the first events of our own are answered with a
//! call, as a probe. While each probe gives the answer that the parent had before, most further ones are spared; the
//! first one that gives another answer ends this for good, and the hook is called each time.

use std::time::Duration;

use metashard_fleet::time::MonoTime;

/// Probes before the first call is spared.
const FIRST_PROBES: u32 = 2;

/// After that, one event in so many is answered with a probe still. Periodic syncs are probes that cost nothing more.
const PROBE_EVERY: u32 = 1024;

/// And the first event after so long without a probe: where parents change one at a time, the hook is called each time.
const PROBE_AFTER: Duration = Duration::from_secs(10);

/// What is known of one controller's hook. Kept as long as the controller's spec stays the same.
#[derive(Debug, Default)]
pub(crate) struct Feedback {
    /// A probe gave another answer: the hook reads the status.
    reads_status: bool,
    /// Probes that gave the same answer.
    alike: u32,
    /// Calls spared since the last probe.
    spared: u32,
    /// When the last probe was asked for.
    asked: Option<MonoTime>,
}

impl Feedback {
    /// Whether the call for an event that shows nothing but our own status write may be spared. `false` asks for a probe.
    pub(crate) fn spare(&mut self, now: MonoTime) -> bool {
        let is_due = |asked: MonoTime| now.since(asked) >= PROBE_AFTER;
        self.spared = (self.spared + 1) % PROBE_EVERY;
        let is_probe = self.reads_status
            || self.alike < FIRST_PROBES
            || self.spared == 0
            || self.asked.is_none_or(is_due);
        if is_probe {
            self.spared = 0;
            self.asked = Some(now);
        }
        !is_probe
    }

    /// Takes in what a probe gave.
    pub(crate) fn probed(&mut self, same_answer: bool) {
        if same_answer {
            self.alike = self.alike.saturating_add(1);
        } else {
            self.reads_status = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: MonoTime = MonoTime(Duration::from_secs(100));

    /// Of a hook that has given the same answers so far.
    fn alike() -> Feedback {
        Feedback {
            alike: FIRST_PROBES,
            asked: Some(NOW),
            ..Feedback::default()
        }
    }

    #[test]
    fn the_first_events_are_answered_with_a_call() {
        let mut feedback = Feedback::default();
        for _ in 0..FIRST_PROBES {
            assert!(!feedback.spare(NOW));
            feedback.probed(true);
        }

        assert!(feedback.spare(NOW));
    }

    #[test]
    fn one_event_in_many_is_answered_still() {
        let mut feedback = alike();

        let called = (0..10 * PROBE_EVERY).filter(|_| !feedback.spare(NOW));

        assert_eq!(called.count(), 10);
    }

    #[test]
    fn where_parents_change_one_at_a_time_the_hook_is_called_each_time() {
        let mut feedback = alike();
        let at = |seconds| NOW + Duration::from_secs(seconds);

        let spared = [3, 9, 10, 11, 20, 21].map(|seconds| feedback.spare(at(seconds)));

        assert_eq!(spared, [true, true, false, true, false, true]);
    }

    #[test]
    fn a_hook_that_steps_through_its_status_is_always_called() {
        let mut feedback = alike();
        feedback.probed(false);
        for _ in 0..3 {
            feedback.probed(true);
        }

        assert!((0..10 * PROBE_EVERY).all(|_| !feedback.spare(NOW)));
    }
}
