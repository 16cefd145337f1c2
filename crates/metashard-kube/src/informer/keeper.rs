//! Keeps a view fed: a feed that panics is begun anew, with growing waits between.

use std::sync::{Arc, atomic::AtomicBool};

use metashard_runtime::task;
use tokio::sync::watch;
use tracing::error;

use super::{
    backoff::{Backoff, Failure, random},
    feed::Feed,
    shared::Shared,
    view::{Trouble, TroubleKind, ViewState},
};
use crate::client::Clients;

/// What a feed is made of, again and again.
pub(super) struct Keeper {
    pub(super) shared: Arc<Shared>,
    pub(super) clients: Clients,
    pub(super) streaming: Arc<AtomicBool>,
    pub(super) retry: watch::Receiver<u64>,
}

impl Keeper {
    /// Runs until it is dropped.
    pub(super) async fn run(mut self) {
        let clock = self.clients.clock().clone();
        let mut backoff = Backoff::default();
        loop {
            self.retry.mark_unchanged();
            let began = clock.now().mono;
            let feed = Feed::new(
                Arc::clone(&self.shared),
                self.clients.clone(),
                Arc::clone(&self.streaming),
                self.retry.clone(),
            );
            if task::contained("informer", feed.run()).await.is_ok() {
                return;
            }
            self.panicked();
            let lived = clock.now().mono.since(began);
            let wait = backoff.wait(Failure::Ended(lived), None, random());
            tokio::select! {
                () = clock.sleep(wait) => {}
                // It fails only if all informers are dropped, and this task with them.
                _ = self.retry.changed() => {}
            }
        }
    }

    /// What the feed held may be half done: nothing of it counts until a list has shown it again.
    fn panicked(&self) {
        let resource = &self.shared.key.resource;
        error!(view = %self.shared.key, "feed of a view panicked: it is begun anew");
        self.clients.metrics().feed_restarted(resource);
        self.shared.distrust();
        self.shared.set_state(ViewState::Failing(Trouble {
            kind: TroubleKind::Unavailable,
            message: format!("list and watch {resource}: metashard panicked over it (see its log); it is listed anew")
                .into(),
            synced: self.shared.is_synced(),
        }));
    }
}
