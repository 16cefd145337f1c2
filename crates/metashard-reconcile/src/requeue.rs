//! When a parent is synced again.

use std::time::Duration;

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
}
