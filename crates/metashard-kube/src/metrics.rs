//! Metrics of the talk with the API server.

use std::time::Duration;

use http::{Method, StatusCode};
use metashard_api::resource::Resource;
use metashard_runtime::metrics::{counter, counter_vec, histogram_vec};
use prometheus::{Error, HistogramVec, IntCounter, IntCounterVec, Registry};

/// Times of writes that matter: a local API server answers in 2 ms, a busy one in some 100 ms, time-outs end at 10 s.
const WRITE_SECONDS: &[f64] = &[
    0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// The counters that this crate keeps. Cheap to clone.
///
/// What caches hold is not kept here but collected when asked for: [`crate::informer::Informers::register`].
#[derive(Debug, Clone)]
pub struct Metrics {
    /// Named and labelled as client-go does: `code` is the status or `<error>`, `method` the HTTP verb.
    requests: IntCounterVec,
    writes: IntCounterVec,
    write_seconds: HistogramVec,
    lists: IntCounterVec,
    watch_events: IntCounterVec,
    watch_ends: IntCounterVec,
    feed_restarts: IntCounterVec,
    events_dropped: IntCounterVec,
    fenced: IntCounter,
}

/// The counters of the lists and watches of one resource.
#[derive(Debug, Clone)]
pub(crate) struct WatchMetrics {
    resource: String,
    applied: IntCounter,
    foreign: IntCounter,
    deleted: IntCounter,
    bookmark: IntCounter,
    unusable: IntCounter,
    lists: IntCounterVec,
    ends: IntCounterVec,
}

impl Metrics {
    /// Creates them in `registry`.
    ///
    /// # Errors
    ///
    /// When one of the names is taken there.
    pub fn register(registry: &Registry) -> Result<Self, Error> {
        Ok(Self {
            requests: counter_vec(
                registry,
                "rest_client_requests_total",
                "Requests to the API server, by status code, host and method.",
                &["code", "host", "method"],
            )?,
            writes: counter_vec(
                registry,
                "metashard_kube_writes_total",
                "Writes that were asked for at the write gate, by verb, outcome and purpose.",
                &["verb", "outcome", "purpose"],
            )?,
            write_seconds: histogram_vec(
                registry,
                "metashard_kube_write_duration_seconds",
                "Time from sending a write to its answer.",
                &["verb"],
                WRITE_SECONDS,
            )?,
            lists: counter_vec(
                registry,
                "metashard_kube_lists_total",
                "Lists begun, by resource and form (streaming or paged).",
                &["resource", "form"],
            )?,
            watch_events: counter_vec(
                registry,
                "metashard_kube_watch_events_total",
                "Lines received on watches, by resource and type; `foreign` for objects that nobody here wants, `unusable` for those that were skipped.",
                &["resource", "type"],
            )?,
            watch_ends: counter_vec(
                registry,
                "metashard_kube_watch_ends_total",
                "Watches that ended, by resource and reason.",
                &["resource", "reason"],
            )?,
            feed_restarts: counter_vec(
                registry,
                "metashard_kube_feed_restarts_total",
                "Feeds of views that panicked and were begun anew, by resource.",
                &["resource"],
            )?,
            events_dropped: counter_vec(
                registry,
                "metashard_kube_events_dropped_total",
                "Kubernetes Events not written, by reason.",
                &["reason"],
            )?,
            fenced: counter(
                registry,
                "metashard_worker_fenced_writes_total",
                "Writes not sent because the right to write had ended: another worker may have the shard by now.",
            )?,
        })
    }

    /// A write was not sent: whoever asked for it may write no more.
    pub fn fenced(&self) {
        self.fenced.inc();
    }

    /// The counters of the lists and watches of one resource.
    pub(crate) fn watch(&self, resource: &Resource) -> WatchMetrics {
        let resource = resource.to_string();
        let event = |kind| {
            self.watch_events
                .with_label_values(&[resource.as_str(), kind])
        };
        WatchMetrics {
            applied: event("applied"),
            foreign: event("foreign"),
            deleted: event("deleted"),
            bookmark: event("bookmark"),
            unusable: event("unusable"),
            lists: self.lists.clone(),
            ends: self.watch_ends.clone(),
            resource,
        }
    }

    /// A write was asked for and ended so.
    pub(crate) fn write(&self, verb: &str, outcome: &str, purpose: &str) {
        self.writes
            .with_label_values(&[verb, outcome, purpose])
            .inc();
    }

    /// A write that was sent took so long.
    pub(crate) fn write_took(&self, verb: &str, length: Duration) {
        self.write_seconds
            .with_label_values(&[verb])
            .observe(length.as_secs_f64());
    }

    /// A feed of a view of `resource` panicked and is begun anew.
    pub(crate) fn feed_restarted(&self, resource: &Resource) {
        let resource = resource.to_string();
        self.feed_restarts
            .with_label_values(&[resource.as_str()])
            .inc();
    }

    /// An Event was not written for this reason.
    pub(crate) fn event_dropped(&self, reason: &str) {
        self.events_dropped.with_label_values(&[reason]).inc();
    }

    pub(crate) fn request(&self, code: Option<StatusCode>, host: &str, method: &Method) {
        let code = code.as_ref().map_or("<error>", StatusCode::as_str);
        self.requests
            .with_label_values(&[code, host, method.as_str()])
            .inc();
    }
}

impl WatchMetrics {
    pub(crate) fn applied(&self) {
        self.applied.inc();
    }

    pub(crate) fn foreign(&self) {
        self.foreign.inc();
    }

    pub(crate) fn deleted(&self) {
        self.deleted.inc();
    }

    pub(crate) fn bookmark(&self) {
        self.bookmark.inc();
    }

    pub(crate) fn unusable(&self) {
        self.unusable.inc();
    }

    /// A list of this form begins.
    pub(crate) fn list(&self, form: &str) {
        self.lists
            .with_label_values(&[self.resource.as_str(), form])
            .inc();
    }

    /// A watch ended for this reason.
    pub(crate) fn ended(&self, reason: &str) {
        self.ends
            .with_label_values(&[self.resource.as_str(), reason])
            .inc();
    }
}
