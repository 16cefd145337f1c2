//! Asking the process to end: by signal or from inside, once.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tracing::{info, warn};

use crate::task;

/// Where a shutdown is asked for. Clones ask for the same one.
#[derive(Debug, Clone, Default)]
pub struct Shutdown(CancellationToken);

/// Tells that a shutdown was asked for. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Token(CancellationToken);

impl Shutdown {
    /// Nothing asked for yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A token for one who wants to know.
    pub fn token(&self) -> Token {
        Token(self.0.clone())
    }

    /// Asks for shutdown. Asking again changes nothing.
    pub fn request(&self) {
        self.0.cancel();
    }

    /// From now on the first SIGTERM or SIGINT asks for shutdown, and the second ends the process at once with code 1.
    ///
    /// # Errors
    ///
    /// If the handlers cannot be installed; the process cannot then be stopped gracefully, so do not start it.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with I/O.
    pub fn on_signals(&self) -> io::Result<()> {
        let signals = Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        };
        task::spawn("signals", follow(signals, self.clone()));
        Ok(())
    }
}

impl Token {
    /// A token of a shutdown that is never asked for.
    pub fn never() -> Self {
        Self(CancellationToken::new())
    }

    /// Waits until shutdown is asked for; ends at once if it has been.
    pub async fn requested(&self) {
        self.0.cancelled().await;
    }

    /// [`Token::requested`] as a future that borrows nothing.
    pub fn into_requested(self) -> WaitForCancellationFutureOwned {
        self.0.cancelled_owned()
    }

    /// Whether shutdown has been asked for.
    pub fn is_requested(&self) -> bool {
        self.0.is_cancelled()
    }

    /// A shutdown of a part: its token also tells of this one, asking for it leaves this one alone.
    pub fn child(&self) -> Shutdown {
        Shutdown(self.0.child_token())
    }
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

async fn follow(mut signals: Signals, shutdown: Shutdown) {
    let first = signals.next().await;
    info!(signal = first, "shutting down; once more to end at once");
    shutdown.request();
    let second = signals.next().await;
    warn!(signal = second, "ended by a second signal");
    #[expect(
        clippy::exit,
        reason = "a second signal asks for the end without any clean-up"
    )]
    std::process::exit(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_token_hears_of_one_request() {
        let shutdown = Shutdown::new();
        let (one, other) = (shutdown.token(), shutdown.token());
        assert!(!one.is_requested());

        shutdown.request();
        shutdown.request();

        one.requested().await;
        other.into_requested().await;
    }

    #[tokio::test]
    async fn shutdown_of_a_part_leaves_the_whole_alone() {
        let whole = Shutdown::new();
        let part = whole.token().child();

        part.request();

        part.token().requested().await;
        assert!(!whole.token().is_requested());
    }

    #[tokio::test]
    async fn shutdown_of_the_whole_reaches_its_parts() {
        let whole = Shutdown::new();
        let part = whole.token().child();

        whole.request();

        part.token().requested().await;
    }

    #[tokio::test]
    async fn sigterm_asks_for_shutdown() {
        let shutdown = Shutdown::new();
        shutdown.on_signals().unwrap();

        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM)
            .unwrap();

        shutdown.token().requested().await;
    }
}
