//! How many workers the measured work needs: for an autoscaler.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::{MonoTime, Now};

/// How busy workers should be, in thousandths of what they can do.
const TARGET: u64 = 600;

/// More workers are wanted only when those wanted so far would be busier than this.
const TOO_BUSY: u64 = 750;

/// Fewer are wanted only when fewer have been enough for so long.
const PATIENCE: Duration = Duration::from_mins(5);

/// How many workers are wanted.
///
/// The need is `sum of (busy x capacity) / (mean capacity x 0.6)`, rounded up and at least 1. What is wanted goes up to the
/// need as soon as it would make those wanted so far more than 0.75 busy, and down to the greatest need of the last five
/// minutes. In between it stays.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub(crate) struct Demand {
    /// 0: not known.
    wanted: u64,
    /// Since when fewer have been enough, and how many were needed at most since.
    fewer: Option<(MonoTime, u64)>,
}

/// One worker's part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    /// In thousandths of what it can do.
    pub(crate) busy_permille: u32,
    /// In hundredths.
    pub(crate) capacity: u32,
}

impl Demand {
    /// Takes how busy all workers are.
    pub(crate) fn take(&mut self, now: Now, parts: &[Part]) {
        let n = parts.len() as u64;
        let capacity: u64 = parts.iter().map(|it| u64::from(it.capacity)).sum();
        let busy = parts
            .iter()
            .map(|it| u64::from(it.busy_permille) * u64::from(it.capacity));
        let busy: u64 = busy.sum();
        if capacity == 0 {
            return;
        }
        let need_at = |target| (busy * n).div_ceil(capacity * target).max(1);
        let need = need_at(TARGET);
        if self.wanted == 0 || need_at(TOO_BUSY) > self.wanted {
            self.wanted = need;
        }
        if need >= self.wanted {
            self.fewer = None;
            return;
        }
        let (since, most) = self.fewer.get_or_insert((now.mono, need));
        *most = need.max(*most);
        if now.mono.since(*since) >= PATIENCE {
            self.wanted = *most;
            self.fewer = None;
        }
    }

    /// How many workers of mean capacity are wanted; 0 if that is not known.
    pub(crate) fn wanted(&self) -> usize {
        usize::try_from(self.wanted).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Now {
        Now::default().after(Duration::from_secs(seconds))
    }

    fn all(n: usize, busy_permille: u32) -> Vec<Part> {
        let part = Part {
            busy_permille,
            capacity: 100,
        };
        vec![part; n]
    }

    #[test]
    fn wanted_are_so_many_that_each_would_be_six_tenths_busy() {
        for (n, busy, wanted) in [
            (4, 600, 4),
            (4, 900, 6),
            (10, 60, 1),
            (3, 0, 1),
            (4, 610, 5),
        ] {
            let mut demand = Demand::default();
            demand.take(at(0), &all(n, busy));
            assert_eq!(demand.wanted(), wanted, "{n} x {busy}");
        }
    }

    #[test]
    fn worker_of_twice_the_capacity_counts_twice() {
        let mut demand = Demand::default();
        let part = |busy_permille, capacity| Part {
            busy_permille,
            capacity,
        };

        demand.take(at(0), &[part(900, 300), part(300, 100)]);

        // 900 x 3 + 300 of a mean of 2 x 600.
        assert_eq!(demand.wanted(), 3);
    }

    #[test]
    fn load_that_swings_around_a_step_changes_nothing() {
        let mut demand = Demand::default();
        demand.take(at(0), &all(4, 600));
        for n in 0..100 {
            let busy = if n % 2 == 0 { 700 } else { 580 };
            demand.take(at(10 * n), &all(4, busy));
            assert_eq!(demand.wanted(), 4);
        }
    }

    #[test]
    fn more_are_wanted_at_once_and_fewer_after_five_minutes() {
        let mut demand = Demand::default();
        demand.take(at(0), &all(4, 600));
        demand.take(at(10), &all(4, 900));
        assert_eq!(demand.wanted(), 6);

        demand.take(at(20), &all(6, 100));
        demand.take(at(319), &all(6, 200));
        assert_eq!(demand.wanted(), 6);
        demand.take(at(320), &all(6, 100));
        assert_eq!(demand.wanted(), 2, "as many as were needed meanwhile");
    }

    #[test]
    fn without_workers_nothing_is_known() {
        let mut demand = Demand::default();
        demand.take(at(0), &[]);
        assert_eq!(demand.wanted(), 0);
    }
}
