//! Start-time fair queueing: whose turn it is among those that compete.

use std::collections::BTreeSet;

/// Virtual time: nanoseconds of service divided by weight, scaled so that a nanosecond of a heavy one is not rounded off.
type Virtual = u128;

/// Virtual time of one nanosecond at weight 1.
const SCALE: u128 = 1 << 16;

/// One competitor's account.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Share {
    /// The service that it has had.
    used: Virtual,
    /// Where it is listed in [`Turns`], if it is.
    listed: Option<Virtual>,
}

/// Those that may be served now, the one that has had least first.
#[derive(Debug)]
pub(super) struct Turns<I> {
    /// Where the last one served stood. Who joins starts there: nobody saves up by being idle.
    clock: Virtual,
    listed: BTreeSet<(Virtual, I)>,
}

impl<I> Default for Turns<I> {
    fn default() -> Self {
        Self {
            clock: 0,
            listed: BTreeSet::new(),
        }
    }
}

impl Share {
    /// Adds service of `nanos` at `weight`.
    pub(super) fn charge(&mut self, nanos: u64, weight: u32) {
        self.used = self.used.saturating_add(virtual_time(nanos, weight));
    }

    /// Takes back service of `nanos` at `weight`.
    pub(super) fn refund(&mut self, nanos: u64, weight: u32) {
        self.used = self.used.saturating_sub(virtual_time(nanos, weight));
    }
}

impl<I: Ord + Clone> Turns<I> {
    pub(super) fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// Whose turn it is.
    pub(super) fn first(&self) -> Option<&I> {
        self.listed.first().map(|(_, id)| id)
    }

    /// Moves the clock to where the one whose turn it is stands.
    pub(super) fn advance(&mut self) {
        if let Some((at, _)) = self.listed.first() {
            self.clock = self.clock.max(*at);
        }
    }

    /// Lists `id` by what it has used if it `may_be_served`, else takes it off.
    pub(super) fn list(&mut self, id: &I, share: &mut Share, may_be_served: bool) {
        if may_be_served && share.listed.is_none() {
            share.used = share.used.max(self.clock);
        }
        let at = may_be_served.then_some(share.used);
        if share.listed == at {
            return;
        }
        if let Some(old) = share.listed {
            self.listed.remove(&(old, id.clone()));
        }
        if let Some(at) = at {
            self.listed.insert((at, id.clone()));
        }
        share.listed = at;
    }
}

fn virtual_time(nanos: u64, weight: u32) -> Virtual {
    u128::from(nanos) * SCALE / u128::from(weight.max(1))
}
