//! Whether a controller's hook cares about the status that it made us write.
//!
//! A status write of our own comes back as an event of the parent. Metacontroller answers it with one more call of the
//! hook, which for nearly all hooks gives the same answer again; but a hook may step through phases that it keeps in
//! the status, and then that call is what moves it on. So it is learnt: the first events of our own are answered with a
//! call, as a probe. While each probe gives the answer that the parent had before, most further ones are spared; the
//! first one that gives another answer ends this for good, and the hook is called each time.

/// Probes before the first call is spared.
const FIRST_PROBES: u32 = 2;

/// After that, one event in so many is answered with a probe still. Periodic syncs are probes that cost nothing more.
const PROBE_EVERY: u32 = 1024;

/// What is known of one controller's hook. Kept as long as the controller's spec stays the same.
#[derive(Debug, Default)]
pub(crate) struct Feedback {
    /// A probe gave another answer: the hook reads the status.
    reads_status: bool,
    /// Probes that gave the same answer.
    alike: u32,
    /// Calls spared since the last probe.
    spared: u32,
}

impl Feedback {
    /// Whether the call for an event that shows nothing but our own status write may be spared. `false` asks for a probe.
    pub(crate) fn spare(&mut self) -> bool {
        if self.reads_status || self.alike < FIRST_PROBES {
            return false;
        }
        self.spared = (self.spared + 1) % PROBE_EVERY;
        self.spared != 0
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

    #[test]
    fn the_first_events_are_answered_with_a_call() {
        let mut feedback = Feedback::default();
        for _ in 0..FIRST_PROBES {
            assert!(!feedback.spare());
            feedback.probed(true);
        }

        assert!(feedback.spare());
    }

    #[test]
    fn one_event_in_many_is_answered_still() {
        let mut feedback = Feedback {
            alike: FIRST_PROBES,
            ..Feedback::default()
        };

        let called = (0..10 * PROBE_EVERY).filter(|_| !feedback.spare()).count();

        assert_eq!(called, 10);
    }

    #[test]
    fn a_hook_that_steps_through_its_status_is_always_called() {
        let mut feedback = Feedback {
            alike: FIRST_PROBES,
            ..Feedback::default()
        };
        feedback.probed(false);
        for _ in 0..3 {
            feedback.probed(true);
        }

        assert!((0..10 * PROBE_EVERY).all(|_| !feedback.spare()));
    }
}
