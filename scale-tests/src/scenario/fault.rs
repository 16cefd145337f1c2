//! Faults that a fleet has to live with, and what makes each of them good again.

use anyhow::Context;
use rustix::process::Signal;
use tokio::time::Instant;

use crate::{bed::Bed, network::Link};

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// A replica crashes.
    Kill,
    /// A replica is told to end.
    Terminate,
    /// A replica stands still and goes on later.
    Freeze,
    /// The leader does not reach the API server.
    LeaderCutFromApi,
    /// A worker that does not lead does not reach the API server.
    WorkerCutFromApi,
    /// A worker and the leader do not reach each other.
    WorkerCutFromLeader,
    /// The API server ends and comes back.
    ApiRestart,
    /// The leader's Lease is taken by hand.
    LeadTaken,
    /// A worker's Lease is deleted.
    LeaseDeleted,
    /// The ShardMap is deleted.
    MapDeleted,
    /// Somebody asks for another number of slices of a controller.
    Split,
}

/// What makes a fault good again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cure {
    /// Start a process in the place of one that has ended.
    Replace,
    /// SIGCONT.
    Thaw,
    /// Mend a link.
    Mend(Link),
}

/// A fault that happened.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) fault: Fault,
    /// Name of whom it hit; `None`: nobody in particular.
    pub(crate) victim: Option<String>,
    pub(crate) at: Instant,
    /// When the cause was gone, of those that go by themselves.
    pub(crate) until: Option<Instant>,
}

impl Fault {
    /// Those of `chaos`.
    pub(crate) const CHAOS: [Self; 7] = [
        Self::Kill,
        Self::Terminate,
        Self::Freeze,
        Self::LeaderCutFromApi,
        Self::WorkerCutFromApi,
        Self::WorkerCutFromLeader,
        Self::ApiRestart,
    ];

    /// What `chaos` does besides where it is asked to: what people do to a fleet.
    pub(crate) const MEDDLING: [Self; 4] = [
        Self::LeadTaken,
        Self::LeaseDeleted,
        Self::MapDeleted,
        Self::Split,
    ];

    /// For people.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Kill => "SIGKILL",
            Self::Terminate => "SIGTERM",
            Self::Freeze => "SIGSTOP, SIGCONT",
            Self::LeaderCutFromApi => "leader cut from API",
            Self::WorkerCutFromApi => "worker cut from API",
            Self::WorkerCutFromLeader => "worker cut from leader",
            Self::ApiRestart => "API server restart",
            Self::LeadTaken => "leadership lost",
            Self::LeaseDeleted => "worker's Lease deleted",
            Self::MapDeleted => "ShardMap deleted",
            Self::Split => "split asked for",
        }
    }

    /// On the command line.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Terminate => "term",
            Self::Freeze => "stop",
            Self::LeaderCutFromApi => "leader-api",
            Self::WorkerCutFromApi => "worker-api",
            Self::WorkerCutFromLeader => "worker-leader",
            Self::ApiRestart => "api",
            Self::LeadTaken => "lead",
            Self::LeaseDeleted => "lease",
            Self::MapDeleted => "map",
            Self::Split => "split",
        }
    }

    /// Of `all`, those that were asked for; all if none was.
    pub(crate) fn chosen(all: &[Self], words: &[String]) -> anyhow::Result<Vec<Self>> {
        if words.is_empty() {
            return Ok(all.to_vec());
        }
        let find = |word: &String| {
            let found = all.iter().find(|it| it.word() == word);
            found.copied().with_context(|| format!("no kind {word}"))
        };
        words.iter().map(find).collect()
    }

    /// Whether it hits a process, and has to be made good again.
    pub(crate) const fn hits_a_slot(self) -> bool {
        !matches!(
            self,
            Self::ApiRestart
                | Self::LeadTaken
                | Self::LeaseDeleted
                | Self::MapDeleted
                | Self::Split
        )
    }

    /// Whether it needs links that can be cut.
    pub(crate) const fn needs_links(self) -> bool {
        matches!(
            self,
            Self::LeaderCutFromApi | Self::WorkerCutFromApi | Self::WorkerCutFromLeader
        )
    }

    /// Does it to a slot. Returns the cure, which is to be applied later.
    pub(crate) fn strike(self, bed: &mut Bed, slot: usize) -> anyhow::Result<Cure> {
        let link = |bed: &Bed, link| {
            let network = bed.network.as_ref().context("there are no links to cut")?;
            network.cut(slot, link)?;
            anyhow::Ok(Cure::Mend(link))
        };
        match self {
            Self::Kill => bed.signal(slot, Signal::KILL).map(|()| Cure::Replace),
            Self::Terminate => bed.signal(slot, Signal::TERM).map(|()| Cure::Replace),
            Self::Freeze => bed.signal(slot, Signal::STOP).map(|()| Cure::Thaw),
            Self::LeaderCutFromApi | Self::WorkerCutFromApi => link(bed, Link::Api),
            Self::WorkerCutFromLeader => link(bed, Link::Peers),
            Self::ApiRestart
            | Self::LeadTaken
            | Self::LeaseDeleted
            | Self::MapDeleted
            | Self::Split => anyhow::bail!("it hits no slot"),
        }
    }
}

impl Cure {
    /// Applies it. `false`: not yet.
    pub(crate) fn apply(self, bed: &mut Bed, slot: usize) -> anyhow::Result<bool> {
        match self {
            Self::Replace => {
                if !bed.subject(slot)?.has_ended() {
                    return Ok(false);
                }
                bed.spawn(slot)?;
            }
            Self::Thaw => bed.signal(slot, Signal::CONT)?,
            Self::Mend(link) => {
                let network = bed.network.as_ref().context("there are no links to mend")?;
                network.mend(slot, link)?;
            }
        }
        Ok(true)
    }
}

/// Numbers that follow from a seed.
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `n`, which is at least 1.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        usize::try_from(mixed % (n.max(1) as u64)).unwrap_or_default()
    }

    /// The same values in another order.
    pub(crate) fn shuffled<T: Copy>(&mut self, values: &[T]) -> Vec<T> {
        let mut values = values.to_vec();
        for place in (1..values.len()).rev() {
            values.swap(place, self.below(place + 1));
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_the_order_of_faults_and_none_is_left_out() {
        let deal = |seed| Dice::new(seed).shuffled(&Fault::CHAOS);
        let mut sorted = deal(7);
        sorted.sort_unstable();

        assert_eq!(deal(7), deal(7));
        assert_ne!(deal(7), deal(8));
        assert_eq!(sorted, Fault::CHAOS);
    }
}
