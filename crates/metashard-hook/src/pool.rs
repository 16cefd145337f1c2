//! Connections that are open and idle, of one endpoint.

use std::{
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use metashard_fleet::time::MonoTime;
use metashard_runtime::{clock::Clock, task};
use parking_lot::Mutex;

use crate::{connection::Connection, endpoint::Origin};

/// A connection is used for new calls this long, so that a Pod that joins a Service gets its share.
const MAX_AGE: Duration = Duration::from_mins(1);
/// An idle connection is closed after this time.
const IDLE_LIMIT: Duration = Duration::from_secs(30);
/// Most idle connections of one endpoint; calls at a time are bounded elsewhere.
const MAX_IDLE: usize = 64;

/// Idle connections.
pub(crate) struct Pool {
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Used from the end, so that those not needed grow old.
    idle: Vec<Idle>,
    /// Whether a task looks after the idle ones.
    swept: bool,
    /// Connections of other generations are not taken back.
    generation: u64,
}

struct Idle {
    open: Open,
    since: MonoTime,
}

/// A connection that is in use.
pub(crate) struct Open {
    pub(crate) connection: Connection,
    pub(crate) origin: Arc<Origin>,
    pub(crate) opened: MonoTime,
    /// Of the TLS material that it was made with.
    pub(crate) generation: u64,
}

impl Pool {
    pub(crate) fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            clock,
            state: Mutex::default(),
        })
    }

    /// A connection to `origin` that may still be good.
    pub(crate) fn take(&self, origin: &Origin) -> Option<Open> {
        let now = self.clock.now().mono;
        let mut state = self.state.lock();
        let mut index = state.idle.len();
        while index > 0 {
            index -= 1;
            let idle = state.idle.get_mut(index)?;
            if *idle.open.origin != *origin {
                continue;
            }
            if idle.is_over(now) {
                state.idle.remove(index);
            } else if let Some(shared) = idle.open.share() {
                idle.since = now;
                return Some(shared);
            } else {
                return Some(state.idle.remove(index).open);
            }
        }
        None
    }

    /// Takes back a connection whose last answer has been read to its end. One that cannot be used again is closed.
    pub(crate) fn put(self: &Arc<Self>, mut open: Open) {
        let (is_good, is_shared) = match &mut open.connection {
            Connection::Http1(http1) => (http1.is_reusable(), false),
            Connection::Http2(http2) => (http2.is_open(), true),
        };
        if !is_good {
            return;
        }
        let since = self.clock.now().mono;
        let mut state = self.state.lock();
        if open.generation != state.generation {
            return;
        }
        let is_there = is_shared
            && state
                .idle
                .iter()
                .any(|idle| *idle.open.origin == *open.origin);
        if is_there || state.idle.len() >= MAX_IDLE {
            return;
        }
        state.idle.push(Idle { open, since });
        if !state.swept {
            state.swept = true;
            drop(task::spawn(
                "hook-idle",
                sweep(Arc::downgrade(self), self.clock.clone()),
            ));
        }
    }

    /// Closes all idle connections: one has shown that what is at the other end is gone.
    pub(crate) fn clear(&self) {
        let idle = std::mem::take(&mut self.state.lock().idle);
        // Closed without holding the lock.
        drop(idle);
    }

    /// From now on connections have to be of `generation`: idle ones are closed, and those in use when they are put back.
    pub(crate) fn renew(&self, generation: u64) {
        let idle = {
            let mut state = self.state.lock();
            state.generation = generation;
            std::mem::take(&mut state.idle)
        };
        // Closed without holding the lock.
        drop(idle);
    }

    /// Closes what is over. Whether anything is left.
    fn close_over(&self) -> bool {
        let now = self.clock.now().mono;
        let mut state = self.state.lock();
        let over: Vec<_> = state
            .idle
            .extract_if(.., |idle| idle.is_over(now))
            .collect();
        state.swept = !state.idle.is_empty();
        let is_left = state.swept;
        drop(state);
        drop(over);
        is_left
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("idle", &self.state.lock().idle.len())
            .finish_non_exhaustive()
    }
}

impl Open {
    /// Another handle to the same connection, if it carries many calls at a time.
    pub(crate) fn share(&self) -> Option<Self> {
        let Connection::Http2(http2) = &self.connection else {
            return None;
        };
        Some(Self {
            connection: Connection::Http2(http2.clone()),
            origin: Arc::clone(&self.origin),
            opened: self.opened,
            generation: self.generation,
        })
    }
}

impl Idle {
    fn is_over(&self, now: MonoTime) -> bool {
        let is_closed =
            matches!(&self.open.connection, Connection::Http2(http2) if !http2.is_open());
        is_closed || now.since(self.open.opened) >= MAX_AGE || now.since(self.since) >= IDLE_LIMIT
    }
}

async fn sweep(pool: Weak<Pool>, clock: Clock) {
    loop {
        clock.sleep(IDLE_LIMIT).await;
        match pool.upgrade() {
            Some(pool) if pool.close_over() => {}
            _ => return,
        }
    }
}
