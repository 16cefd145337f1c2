//! Why a key is in the queue: for people, never for a decision.

use std::{fmt, ops::BitOr};

/// One reason for a key to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Cause {
    /// The parent was created, edited or deleted.
    Parent,
    /// A child was changed, deleted or appeared, by whomever.
    Child,
    /// A related object changed.
    Related,
    /// Everything is synced again from time to time.
    Resync,
    /// The hook asked to be called again at this time.
    Timer,
    /// The last attempt failed or was out of date.
    Retry,
    /// The controller has begun to run here: its shard moved, or it is new or was edited.
    ShardMove,
    /// Somebody asked for a sync.
    Asked,
    /// A child that is fought over was let be, and is looked at again.
    HotLoop,
}

impl Cause {
    /// All of them, in the order in which they are told.
    pub const ALL: [Self; 9] = [
        Self::Parent,
        Self::Child,
        Self::Related,
        Self::Asked,
        Self::Timer,
        Self::Resync,
        Self::Retry,
        Self::HotLoop,
        Self::ShardMove,
    ];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Parent => "parent",
            Self::Child => "child",
            Self::Related => "related",
            Self::Resync => "resync",
            Self::Timer => "timer",
            Self::Retry => "retry",
            Self::ShardMove => "shard_move",
            Self::Asked => "asked",
            Self::HotLoop => "hot_loop",
        }
    }
}

/// All the reasons that came together until a key was handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Causes(u16);

impl Causes {
    /// Not told.
    pub const NONE: Self = Self(0);

    /// Whether one of them is there.
    pub const fn contains(self, cause: Cause) -> bool {
        self.0 & (1 << cause as u16) != 0
    }

    /// Each of them.
    pub fn iter(self) -> impl Iterator<Item = Cause> {
        Cause::ALL.into_iter().filter(move |it| self.contains(*it))
    }
}

impl From<Cause> for Causes {
    fn from(cause: Cause) -> Self {
        Self(1 << cause as u16)
    }
}

impl BitOr for Causes {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// `parent, retry`.
impl fmt::Display for Causes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = "";
        for cause in self.iter() {
            write!(f, "{before}{}", cause.as_str())?;
            before = ", ";
        }
        Ok(())
    }
}
