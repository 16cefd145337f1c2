//! One watch, from its opening to its end.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use metashard_fleet::time::MonoTime;
use metashard_reconcile::object::{Object, compare_versions};
use metashard_runtime::fault;
use tokio::sync::watch;
use tracing::{debug, warn};

use super::{Feed, failure};
use crate::{
    client::Answer,
    error::{Cause, Error, Refusal},
    informer::{
        backoff::random,
        frames::{Frame, Lines},
        page::Page,
        shared::{Listing, Shared},
    },
    metrics::WatchMetrics,
    store::namespace_of,
};

/// Nothing for so long, not even a bookmark (one a minute): the connection is dead.
const SILENCE: Duration = Duration::from_secs(90);
/// A streaming list that pauses for so long is none: the server took it for a plain watch.
const LIST_SILENCE: Duration = Duration::from_secs(10);
/// A watch that goes on for so long after its time is ended here.
const OVERTIME: Duration = Duration::from_secs(15);

/// A watch that ends up to so long before its time ends in time.
const PUNCTUAL: Duration = Duration::from_secs(5);

/// A watch under way.
pub(super) struct Session {
    body: Incoming,
    lines: Lines,
    life: Duration,
    since: MonoTime,
    /// When something came last.
    heard: MonoTime,
    /// The streaming list that it began with, until that is complete.
    listing: Option<Listing>,
}

/// Why a watch ended.
#[derive(Debug)]
pub(super) enum End {
    /// The API server closed it: `in_time`, as it was asked to.
    Closed { in_time: bool },
    /// Nothing came for too long.
    Silent,
    /// The connection broke, or what came is no watch.
    Broken(String),
    /// The API server said why.
    Refused(Refusal),
    /// It shows an older state than was seen before: the database was restored.
    WentBack,
    /// It ended in the middle of a streaming list.
    ListCut,
    /// A streaming list did not come to its end.
    ListStalled,
}

/// What a page said beside its objects.
pub(super) struct PageEnd {
    pub(super) resource_version: String,
    pub(super) next: Option<String>,
}

impl End {
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Closed { in_time: true } => "in_time",
            Self::Closed { in_time: false } => "closed",
            Self::Silent => "silent",
            Self::Broken(_) => "broken",
            Self::Refused(refusal) if refusal.code == StatusCode::GONE => "gone",
            Self::Refused(_) => "refused",
            Self::WentBack => "went_back",
            Self::ListCut => "list_cut",
            Self::ListStalled => "list_stalled",
        }
    }
}

impl Session {
    pub(super) fn new(
        body: Incoming,
        life: Duration,
        since: MonoTime,
        listing: Option<Listing>,
    ) -> Self {
        Self {
            body,
            lines: Lines::default(),
            life,
            since,
            heard: since,
            listing,
        }
    }

    /// When the connection counts as dead if nothing comes. A failed list does not put it off.
    fn silent_at(&self) -> MonoTime {
        let silence = if self.listing.is_some() {
            LIST_SILENCE
        } else {
            SILENCE
        };
        self.heard + silence
    }
}

impl Feed {
    /// Takes what the watch brings until it ends; returns how it ended and how long it lasted.
    pub(super) async fn follow(&mut self, mut session: Session) -> (End, Duration) {
        let mut wanted = self.shared.wanted();
        loop {
            let may_list = session.listing.is_none();
            let silent_at = session.silent_at();
            let again_at = self.list_again_at;
            let asked = asked_to_list(
                &mut wanted,
                self.served,
                self.clients.clock().sleep_until(again_at),
            );
            let end = tokio::select! {
                chunk = next_chunk(&mut session) => match chunk {
                    Ok(chunk) => self.take(&mut session, &chunk),
                    Err(end) => Some(end),
                },
                () = self.clients.clock().sleep_until(silent_at) => Some(End::Silent),
                () = asked, if may_list => {
                    // What the old watch brings is not taken from here on, so the view never shows an older state.
                    self.replace(&mut session).await;
                    None
                }
            };
            let lived = self.clients.clock().now().mono.since(session.since);
            let end = end.or_else(|| {
                (lived > session.life + OVERTIME).then_some(End::Closed { in_time: true })
            });
            if let Some(end) = end {
                return (self.judged(end, &session, lived), lived);
            }
        }
    }

    /// Replaces a running watch by one that begins with a list. If that fails, the old one goes on.
    async fn replace(&mut self, session: &mut Session) {
        match self.begin(true).await {
            Ok(fresh) => *session = fresh,
            Err(error) => {
                debug!(view = %self.shared.key, %error, "list that was asked for failed");
                let wait = self.list_backoff.wait(failure(&error), None, random());
                self.list_again_at = self.clients.clock().now().mono + wait;
            }
        }
    }

    /// An end in the middle of a streaming list means something else than later.
    fn judged(&self, end: End, session: &Session, lived: Duration) -> End {
        match end {
            End::Silent if session.listing.is_some() => End::ListStalled,
            End::Closed { .. } | End::Broken(_) if session.listing.is_some() => End::ListCut,
            End::Closed { .. } => End::Closed {
                in_time: lived + PUNCTUAL >= session.life,
            },
            End::Broken(why) => {
                debug!(view = %self.shared.key, why, "watch broke");
                End::Broken(why)
            }
            end => end,
        }
    }

    /// Takes one chunk of the body; returns why the watch is over, if it is.
    fn take(&mut self, session: &mut Session, chunk: &Bytes) -> Option<End> {
        fault::panic_at("feed", &self.shared.key);
        session.heard = self.clients.clock().now().mono;
        self.shared.heard(session.heard);
        let Session { lines, listing, .. } = session;
        let mut end = None;
        let pushed = lines.push(chunk, |line| {
            if end.is_none() {
                end = self.line(line, listing);
            }
        });
        if let Some(position) = &self.position {
            self.shared.set_version(position);
        }
        end.or_else(|| pushed.err().map(|error| End::Broken(error.to_string())))
    }

    fn line(&mut self, line: &[u8], listing: &mut Option<Listing>) -> Option<End> {
        match Frame::parse(line)? {
            Frame::Applied(object) => {
                let object = usable(&self.shared, &self.metrics, object)?;
                let end = self.advance(object.resource_version(), listing.is_some());
                if self.shared.apply(object, listing.as_mut()) {
                    self.metrics.applied();
                } else {
                    self.metrics.foreign();
                }
                end
            }
            Frame::Deleted(object) => {
                let object = usable(&self.shared, &self.metrics, object)?;
                self.metrics.deleted();
                let end = self.advance(object.resource_version(), listing.is_some());
                self.shared.delete(namespace_of(&object), object.name());
                end
            }
            Frame::Bookmark {
                resource_version,
                ends_list,
            } => {
                self.metrics.bookmark();
                match listing.take() {
                    Some(listing) if ends_list => {
                        self.complete_list(listing, resource_version);
                        None
                    }
                    unfinished => {
                        *listing = unfinished;
                        self.advance(&resource_version, listing.is_some())
                    }
                }
            }
            Frame::Failed(status) => Some(End::Refused(Refusal::of_watch(status))),
            Frame::Unusable(why) => {
                self.metrics.unusable();
                warn!(view = %self.shared.key, why, "line of a watch skipped");
                None
            }
        }
    }

    /// The watch has come to `resource_version`, which does not count within a list: its objects come in any order.
    fn advance(&mut self, resource_version: &str, listing: bool) -> Option<End> {
        if listing {
            return None;
        }
        let went_back = self.position.as_deref().is_some_and(|position| {
            compare_versions(resource_version, position).is_some_and(std::cmp::Ordering::is_lt)
        });
        if went_back {
            warn!(view = %self.shared.key, "the API server shows an older state than before: listing anew");
            return Some(End::WentBack);
        }
        self.position = Some(resource_version.to_owned());
        None
    }
}

/// Takes one page of a list.
pub(super) fn take_page(
    shared: &Shared,
    metrics: &WatchMetrics,
    answer: &Answer,
    listing: &mut Listing,
) -> Result<PageEnd, Error> {
    let page = Page::parse(&answer.body).map_err(|error| Error {
        method: answer.method.clone(),
        path: answer.path.clone(),
        cause: Cause::Answer(error.to_string()),
    })?;
    for object in page.objects(&shared.key.resource) {
        match object {
            Ok(object) => _ = shared.apply(object, Some(listing)),
            Err(error) => skip(shared, metrics, &error),
        }
    }
    Ok(PageEnd {
        resource_version: page.resource_version,
        next: page.next,
    })
}

/// The object in an allocation of its own; `None` for one that cannot be read, which must not stop the others.
fn usable(shared: &Shared, metrics: &WatchMetrics, object: &[u8]) -> Option<Object> {
    Object::parse(Bytes::copy_from_slice(object))
        .inspect_err(|error| skip(shared, metrics, error))
        .ok()
}

fn skip(shared: &Shared, metrics: &WatchMetrics, error: &metashard_reconcile::object::Error) {
    metrics.unusable();
    warn!(view = %shared.key, %error, "object skipped");
}

async fn next_chunk(session: &mut Session) -> Result<Bytes, End> {
    loop {
        return match session.body.frame().await {
            None => Err(End::Closed { in_time: false }),
            Some(Err(error)) => Err(End::Broken(error.to_string())),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(chunk) => Ok(chunk),
                Err(_trailers) => continue,
            },
        };
    }
}

/// Returns when there is a wish newer than `served`, and `not_before` has passed.
async fn asked_to_list(
    wanted: &mut watch::Receiver<u64>,
    served: u64,
    not_before: impl Future<Output = ()>,
) {
    if wanted.wait_for(|&wanted| wanted > served).await.is_err() {
        std::future::pending::<()>().await;
    }
    not_before.await;
}
