//! The services of one replica while they run, and the order in which they end.
//!
//! First the worker hands over what it holds, while the leader of this replica still leads; then the lead is given
//! up; then the rest stops. Nothing ends by itself: if something does, that is an error and all the others end too.

use std::{future::Future, time::Duration};

use metashard_fleet::message::Claim;
use metashard_runtime::{
    clock::Clock,
    log::chain,
    shutdown::{Shutdown, Token},
    task::{self, Tasks},
};
use metashard_status::service::{Listeners, Parts};
use tracing::{error, info, warn};

/// What is kept of the grace period for what comes after the hand-over.
const CLOSING: Duration = Duration::from_secs(2);

const WORKER: &str = "worker";
const LEADER: &str = "leader";

/// The part of a grace period in which the worker hands over.
pub(crate) fn hand_over(grace: Duration) -> Duration {
    grace.saturating_sub(CLOSING)
}

/// The services of one replica. Dropping it aborts them.
pub(crate) struct Services {
    /// Each gives what it leaves undone: ownerships that were not drained.
    running: Tasks<Vec<Claim>>,
    all: Shutdown,
    lead: Shutdown,
    rest: Shutdown,
    /// The service that ended before it was asked to.
    broken: Option<&'static str>,
    unfinished: Vec<Claim>,
}

impl Services {
    /// None yet. They are taken down once `all` is requested.
    pub(crate) fn new(all: Shutdown) -> Self {
        Self {
            running: Tasks::new(),
            all,
            lead: Shutdown::new(),
            rest: Shutdown::new(),
            broken: None,
            unfinished: Vec::new(),
        }
    }

    /// Requested first: when the worker has to hand over.
    pub(crate) fn leaving(&self) -> Token {
        self.all.token()
    }

    /// Requested when the worker is gone: when the lead has to be given up.
    pub(crate) fn lead(&self) -> Token {
        self.lead.token()
    }

    /// Requested last.
    pub(crate) fn rest(&self) -> Token {
        self.rest.token()
    }

    /// Starts the worker, which gives what it could not hand over.
    pub(crate) fn worker(&mut self, worker: impl Future<Output = Vec<Claim>> + Send + 'static) {
        self.running.spawn(WORKER, worker);
    }

    /// Starts the leader.
    pub(crate) fn leader(&mut self, leader: impl Future<Output = ()> + Send + 'static) {
        self.spawn(LEADER, leader);
    }

    /// Starts a service that ends once [`Self::rest`] is requested.
    pub(crate) fn service(
        &mut self,
        name: &'static str,
        service: impl Future<Output = ()> + Send + 'static,
    ) {
        self.spawn(name, service);
    }

    /// Starts what may end or be left at any time.
    pub(crate) fn background(
        &self,
        name: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        let stop = self.rest();
        task::spawn(name, async move {
            tokio::select! {
                () = work => {}
                () = stop.requested() => {}
            }
        });
    }

    /// Starts the status endpoints.
    pub(crate) fn status(&mut self, listeners: Listeners, parts: Parts) {
        let stop = self.rest();
        self.spawn("status", async move {
            if let Err(error) = listeners.serve(parts, stop).await {
                error!(error = chain(&error), "status endpoints ended");
            }
        });
    }

    /// Returns once the services have to be taken down: on request, or because one ended by itself.
    pub(crate) async fn interrupted(&mut self) {
        if self.broken.is_some() {
            return;
        }
        tokio::select! {
            () = self.all.token().into_requested() => {}
            Some(ended) = self.running.join_next() => {
                // One that has nothing to hand over may have ended on the request before we saw it.
                if !self.all.token().is_requested() {
                    self.broken = Some(ended.name);
                }
                self.unfinished.extend(ended.result.unwrap_or_default());
            }
        }
    }

    /// Waits until they have to be taken down, and takes them down within `grace`.
    ///
    /// # Errors
    ///
    /// If one of them ended by itself.
    pub(crate) async fn run(mut self, clock: &Clock, grace: Duration) -> anyhow::Result<()> {
        self.interrupted().await;
        self.all.request();
        let deadline = clock.now().mono + grace;
        loop {
            self.request_next();
            let ended = tokio::select! {
                ended = self.running.join_next() => ended,
                () = clock.sleep_until(deadline) => break,
            };
            let Some(ended) = ended else { break };
            self.unfinished.extend(ended.result.unwrap_or_default());
        }
        self.report();
        match self.broken {
            Some(name) => anyhow::bail!("{name} ended by itself"),
            None => Ok(()),
        }
    }

    fn request_next(&self) {
        let running = self.running.names();
        if running.contains(&WORKER) {
            return;
        }
        self.lead.request();
        if !running.contains(&LEADER) {
            self.rest.request();
        }
    }

    fn report(&self) {
        let still_running = self.running.names();
        if self.unfinished.is_empty() && still_running.is_empty() {
            info!("ended: everything was handed over");
            return;
        }
        let shards: Vec<_> = self.unfinished.iter().map(|claim| claim.shard.0).collect();
        warn!(
            ?shards,
            ?still_running,
            "ended with something left when the grace period was over"
        );
    }

    fn spawn(&mut self, name: &'static str, service: impl Future<Output = ()> + Send + 'static) {
        self.running.spawn(name, async move {
            service.await;
            Vec::new()
        });
    }
}

#[cfg(test)]
mod tests;
