//! Randomness of a seed, one stream of it for each purpose, so that one does not shift another.

use std::time::Duration;

/// Draws numbers. The same seed and purpose draw the same ones.
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64, purpose: &str) -> Self {
        let mixed = purpose.bytes().fold(seed, |mixed, byte| {
            (mixed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(mixed.wrapping_add(seed << 32))
    }

    /// SplitMix64.
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 up to and without `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        let end = end.max(1) as u64;
        usize::try_from(self.draw() % end).expect("it is below a usize")
    }

    /// True in `percent` of cases.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// A length in whole milliseconds.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> Duration {
        let spread = usize::try_from(most.saturating_sub(least)).expect("it is short");
        Duration::from_millis(least + self.below(spread + 1) as u64)
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}
