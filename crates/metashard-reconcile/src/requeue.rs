//! When a parent is synced again.

use std::{fmt, time::Duration};

/// When a parent is synced again, if nothing happens before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requeue {
    /// Not before something changes. The key's backoff is forgotten.
    Await,
    /// After this time. The key's backoff is forgotten.
    After(Duration),
    /// Soon, within about 100 ms: what was observed is no longer true, or an answer is asked for twice. No failure, no event.
    /// Several in a row should grow as a backoff does.
    Soon,
    /// After the key's backoff, which grows with each time.
    Backoff,
    /// The same, and after this time as well: something went wrong, and the hook asked for it.
    BackoffAndAfter(Duration),
}

/// When, for people: `after 5s`.
impl fmt::Display for Requeue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Await => f.write_str("when something changes"),
            Self::After(delay) => write!(f, "after {delay:?}"),
            Self::Soon => f.write_str("soon"),
            Self::Backoff => f.write_str("after a backoff"),
            Self::BackoffAndAfter(delay) => write!(f, "after a backoff, and after {delay:?}"),
        }
    }
}
