//! The task that feeds one view: list, watch, and again when that ends.

mod request;
mod session;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use metashard_api::resource::Resource;
use metashard_fleet::time::MonoTime;
use metashard_runtime::log::chain;
use tokio::sync::watch;
use tracing::{debug, info, warn};

use self::{
    request::{Form, Requests},
    session::{End, Session},
};
use super::{
    backoff::{Backoff, Failure, random},
    shared::{Listing, Shared},
    view::{Trouble, TroubleKind, ViewState},
};
use crate::{
    client::Clients,
    error::{Error, Refusal},
    metrics::WatchMetrics,
};

/// Feeds one view for as long as it runs.
pub(crate) struct Feed {
    shared: Arc<Shared>,
    clients: Clients,
    requests: Requests,
    metrics: WatchMetrics,
    /// Whether any API server of this process is believed to serve streaming lists.
    streaming: Arc<AtomicBool>,
    /// Whether this resource is listed in pages, since streaming lists of it do not come to an end.
    paged: bool,
    cut_lists: u32,
    retry: watch::Receiver<u64>,
    /// The resourceVersion that the view shows. `None`: list before the next watch.
    position: Option<String>,
    /// The newest wish for a list that a list under way, or complete, fulfils.
    served: u64,
    backoff: Backoff,
    /// Between lists that were asked for and failed, while the watch goes on.
    list_backoff: Backoff,
    list_again_at: MonoTime,
}

impl Feed {
    pub(crate) fn new(
        shared: Arc<Shared>,
        clients: Clients,
        streaming: Arc<AtomicBool>,
        retry: watch::Receiver<u64>,
    ) -> Self {
        let requests = Requests::new(shared.key.clone());
        let metrics = clients.metrics().watch(&shared.key.resource);
        Self {
            shared,
            clients,
            requests,
            metrics,
            streaming,
            paged: false,
            cut_lists: 0,
            retry,
            position: None,
            served: 0,
            backoff: Backoff::default(),
            list_backoff: Backoff::default(),
            list_again_at: MonoTime::default(),
        }
    }

    /// Runs until it is dropped.
    pub(crate) async fn run(mut self) {
        loop {
            self.retry.mark_unchanged();
            let wait = match self.begin(self.must_list()).await {
                Ok(session) => {
                    let (end, lived) = self.follow(session).await;
                    self.after(&end, lived)
                }
                Err(error) => self.after_failure(&error),
            };
            if !wait.is_zero() {
                let clock = self.clients.clock();
                tokio::select! {
                    () = clock.sleep(wait) => {}
                    // It fails only if all informers are dropped, and this task with them.
                    _ = self.retry.changed() => {}
                }
            }
        }
    }

    fn must_list(&self) -> bool {
        self.position.is_none() || *self.shared.wanted().borrow() > self.served
    }

    /// Opens a watch; lists first, or on it, if `list` says so. Leaves everything as it is if that fails.
    async fn begin(&mut self, list: bool) -> Result<Session, Error> {
        if !list && let Some(position) = self.position.clone() {
            return self.open(Form::From(&position), None).await;
        }
        // Whoever asks from here on gets another list.
        let serves = *self.shared.wanted().borrow();
        if !self.paged && self.streaming.load(Ordering::Relaxed) {
            match self.open(Form::StreamingList, Some(serves)).await {
                Err(error) if refuses_streaming(&error) => {
                    info!("the API server serves no streaming lists: listing in pages");
                    self.streaming.store(false, Ordering::Relaxed);
                }
                other => return other,
            }
        }
        let fulfilled = self.served;
        let listed = self.list_in_pages(serves).await;
        if listed.is_err() {
            // The wish is still open, whatever becomes of the watch.
            self.served = fulfilled;
        }
        self.open(Form::From(&listed?), None).await
    }

    async fn open(&mut self, form: Form<'_>, serves: Option<u64>) -> Result<Session, Error> {
        let (call, life) = self.requests.watch(form, random());
        let body = self.clients.watches().stream(call).await?;
        self.shared.heard(self.clients.clock().now().mono);
        let listing = serves.map(|serves| {
            self.metrics.list("streaming");
            self.begin_list(serves)
        });
        if listing.is_none() {
            self.shared.set_state(ViewState::Live);
        }
        Ok(Session::new(
            body,
            life,
            self.clients.clock().now().mono,
            listing,
        ))
    }

    /// From here on the view holds a part of the list, and is complete only with all of it.
    fn begin_list(&mut self, serves: u64) -> Listing {
        self.position = None;
        self.served = serves;
        self.shared.begin_list(serves)
    }

    async fn list_in_pages(&mut self, serves: u64) -> Result<String, Error> {
        self.metrics.list("paged");
        let mut listing = self.begin_list(serves);
        let mut next: Option<String> = None;
        let mut whole = false;
        loop {
            let call = self.requests.page(next.as_deref(), whole);
            self.clients.limit().admit(self.clients.clock()).await;
            let answer = match self.clients.general().call(call).await {
                // The list got too old between two pages: once more, and in one piece.
                Err(error) if next.is_some() && error.refusal().is_some_and(is_gone) => {
                    (next, whole) = (None, true);
                    listing = self.begin_list(serves);
                    continue;
                }
                answer => answer?,
            };
            self.shared.heard(self.clients.clock().now().mono);
            let page = session::take_page(&self.shared, &self.metrics, &answer, &mut listing)?;
            if page.next.is_none() {
                self.complete_list(listing, page.resource_version.clone());
                return Ok(page.resource_version);
            }
            next = page.next;
        }
    }

    /// The view is complete as of `resource_version`.
    fn complete_list(&mut self, listing: Listing, resource_version: String) {
        self.shared.complete_list(listing, &resource_version);
        self.shared.set_state(ViewState::Live);
        self.position = Some(resource_version);
        self.cut_lists = 0;
        self.list_backoff = Backoff::default();
        debug!(view = %self.shared.key, "listed");
    }

    /// What to do after a watch that lasted `lived`, and how long to wait before it.
    fn after(&mut self, end: &End, lived: Duration) -> Duration {
        self.metrics.ended(end.reason());
        debug!(view = %self.shared.key, reason = end.reason(), "watch ended");
        let ended = Failure::Ended(lived);
        match end {
            // The API server ends every watch at the time that was asked for.
            End::Closed { in_time: true } => Duration::ZERO,
            End::Closed { in_time: false } | End::Silent | End::Broken(_) => {
                self.backoff.wait(ended, None, random())
            }
            End::Refused(refusal) if is_gone(refusal) => self.list_soon(lived),
            End::WentBack => self.list_soon(lived),
            End::Refused(refusal) => {
                warn!(view = %self.shared.key, %refusal, "watch refused");
                self.backoff.wait(ended, refusal.retry_after, random())
            }
            End::ListCut => {
                self.cut_lists += 1;
                self.paged |= self.cut_lists > 1;
                self.backoff.wait(ended, None, random())
            }
            End::ListStalled => {
                self.paged = true;
                Duration::ZERO
            }
        }
    }

    /// Lists at once the first time, later with growing waits.
    fn list_soon(&mut self, lived: Duration) -> Duration {
        self.position = None;
        self.backoff.wait(Failure::Ended(lived), None, 0.0)
    }

    fn after_failure(&mut self, error: &Error) -> Duration {
        if error.refusal().is_some_and(is_gone) {
            return self.list_soon(Duration::ZERO);
        }
        let trouble = trouble(error, &self.shared.key.resource, self.shared.is_synced());
        warn!(view = %self.shared.key, error = chain(error), "list or watch failed");
        self.shared.set_state(ViewState::Failing(trouble));
        let asked = error.refusal().and_then(|refusal| refusal.retry_after);
        self.backoff.wait(failure(error), asked, random())
    }
}

/// What a call that brought no result means for the next attempt.
fn failure(error: &Error) -> Failure {
    error.code().map_or(Failure::Unreachable, Failure::Refused)
}

/// How an API server without streaming lists answers the parameters of one.
fn refuses_streaming(error: &Error) -> bool {
    error
        .code()
        .is_some_and(|code| matches!(code.as_u16(), 400 | 405 | 406 | 422))
}

/// The resourceVersion asked for is older than what the API server remembers, or the list's next page is.
fn is_gone(refusal: &Refusal) -> bool {
    refusal.code.as_u16() == 410
}

fn trouble(error: &Error, resource: &Resource, synced: bool) -> Trouble {
    let (kind, message) = match error.refusal() {
        None => (
            TroubleKind::Unavailable,
            format!("list and watch {resource}: {}", chain(error)),
        ),
        Some(refusal) => match refusal.code.as_u16() {
            404 | 405 => (
                TroubleKind::Missing,
                format!(
                    "list and watch {resource}: the API server does not serve it; is its CRD installed?"
                ),
            ),
            403 => (
                TroubleKind::Forbidden,
                format!("list and watch {resource}: {}", refusal.message),
            ),
            _ if error.is_transient() => (
                TroubleKind::Unavailable,
                format!("list and watch {resource}: {refusal}"),
            ),
            _ => (
                TroubleKind::Refused,
                format!("list and watch {resource}: {refusal}"),
            ),
        },
    };
    Trouble {
        kind,
        message: message.into(),
        synced,
    }
}
