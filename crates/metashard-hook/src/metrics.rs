//! Metacontroller's metrics about hook calls: same names, labels and buckets.
//!
//! One set of series for each controller, hook and URL; they go when the last [`Series`] handle goes.

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use http::{Method, StatusCode};
use metashard_api::id::ControllerKind;
use metashard_reconcile::sync::HookKind;
use metashard_runtime::metrics::{Live, counter_vec, gauge_vec, histogram_vec};
use parking_lot::Mutex;
use prometheus::{
    Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry,
};

use crate::expiry::{DaysLeft, Gauges};

const REQUEST_BUCKETS: [f64; 11] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];
const DNS_BUCKETS: [f64; 4] = [0.005, 0.01, 0.025, 0.05];
const TLS_BUCKETS: [f64; 4] = [0.05, 0.1, 0.25, 0.5];

const DNS_EVENTS: [&str; 2] = ["dns_start", "dns_done"];
const TLS_EVENTS: [&str; 2] = ["tls_handshake_start", "tls_handshake_done"];
const METHODS: [&str; 2] = ["post", "get"];

/// All metrics of this crate. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<Shared>);

/// What tells one set of series from another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) hook: HookKind,
    pub(crate) url: String,
    pub(crate) controller_name: String,
    pub(crate) controller_kind: ControllerKind,
}

/// The series of one hook of one controller. Dropping the last handle takes them out of the registry.
pub(crate) struct Series {
    key: Key,
    shared: Arc<Shared>,
    in_flight: IntGauge,
    /// The histogram of POSTs, which are nearly all: made with the first, so that a hook never called shows none.
    post_seconds: OnceLock<Histogram>,
    /// Counters by method and status that have been needed, which are few.
    requests: Mutex<Vec<(&'static str, StatusCode, IntCounter)>>,
}

/// Counts a call as in flight while it lives.
pub(crate) struct InFlight<'a>(&'a IntGauge);

/// Moments of setting up a connection, timed from the begin of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    DnsStart,
    DnsDone,
    TlsStart,
    TlsDone,
}

#[derive(Debug)]
struct Shared {
    sync: Family,
    finalize: Family,
    customize: Family,
    certificates: Gauges,
    live: Live<Key, Series>,
}

/// The metrics of one hook type.
#[derive(Debug)]
struct Family {
    requests: IntCounterVec,
    seconds: HistogramVec,
    dns_seconds: HistogramVec,
    tls_seconds: HistogramVec,
    in_flight: IntGaugeVec,
}

impl Metrics {
    /// Makes the metrics in `registry`.
    ///
    /// # Errors
    ///
    /// If a name is taken.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        Ok(Self(Arc::new(Shared {
            sync: Family::register(registry, HookKind::Sync)?,
            finalize: Family::register(registry, HookKind::Finalize)?,
            customize: Family::register(registry, HookKind::Customize)?,
            certificates: Gauges::register(registry)?,
            live: Live::default(),
        })))
    }

    /// The series for `key`, shared with whoever has them already.
    pub(crate) fn series(&self, key: Key) -> Arc<Series> {
        self.0.live.get(key, |key| Series {
            in_flight: self
                .0
                .family(key.hook)
                .in_flight
                .with_label_values(&key.labels()),
            key,
            shared: Arc::clone(&self.0),
            post_seconds: OnceLock::new(),
            requests: Mutex::new(Vec::new()),
        })
    }
}

impl Shared {
    const fn family(&self, hook: HookKind) -> &Family {
        match hook {
            HookKind::Sync => &self.sync,
            HookKind::Finalize => &self.finalize,
            HookKind::Customize => &self.customize,
        }
    }
}

impl Family {
    fn register(registry: &Registry, hook: HookKind) -> Result<Self, prometheus::Error> {
        let hook = hook.as_str();
        let name = |rest: &str| format!("metacontroller_{hook}_{rest}");
        let histogram = |rest: &str, help: &str, label: &str, buckets: &[f64]| {
            let labels = [label, "url", "controller_name", "controller_type"];
            histogram_vec(registry, &name(rest), help, &labels, buckets)
        };
        Ok(Self {
            requests: counter_vec(
                registry,
                &name("requests_total"),
                &format!("Answers of {hook} hooks, by status."),
                &[
                    "code",
                    "method",
                    "url",
                    "controller_name",
                    "controller_type",
                ],
            )?,
            seconds: histogram(
                "request_duration_histogram_seconds",
                &format!("Time until a {hook} hook begins to answer."),
                "method",
                &REQUEST_BUCKETS,
            )?,
            dns_seconds: histogram(
                "dns_duration_histogram_seconds",
                &format!("Time from the begin of a {hook} request to steps of resolving the host."),
                "event",
                &DNS_BUCKETS,
            )?,
            tls_seconds: histogram(
                "tls_duration_histogram_seconds",
                &format!("Time from the begin of a {hook} request to steps of the TLS handshake."),
                "event",
                &TLS_BUCKETS,
            )?,
            in_flight: gauge_vec(
                registry,
                &name("in_flight_requests"),
                &format!("Calls of {hook} hooks that have not ended."),
                &["url", "controller_name", "controller_type"],
            )?,
        })
    }
}

impl Key {
    fn labels(&self) -> [&str; 3] {
        [
            &self.url,
            &self.controller_name,
            self.controller_kind.as_str(),
        ]
    }

    fn labels_with<'a>(&'a self, first: &'a str) -> [&'a str; 4] {
        let [url, name, kind] = self.labels();
        [first, url, name, kind]
    }

    fn labels_of_request<'a>(&'a self, method: &'a str, code: &'a str) -> [&'a str; 5] {
        let [url, name, kind] = self.labels();
        [code, method, url, name, kind]
    }
}

impl Series {
    /// Where the days left to the hook's certificates are shown.
    pub(crate) fn days_left(&self) -> DaysLeft {
        let key = &self.key;
        let kind = key.controller_kind.as_str();
        let labels = [&key.controller_name, kind, key.hook.as_str()];
        self.shared.certificates.days_left(labels)
    }

    /// Counts a call as in flight until the guard is dropped.
    pub(crate) fn begin(&self) -> InFlight<'_> {
        self.in_flight.inc();
        InFlight(&self.in_flight)
    }

    /// An answer with `code` began `after` its request.
    pub(crate) fn answered(&self, method: &Method, code: StatusCode, after: Duration) {
        let method = method_label(method);
        let histogram = || {
            let seconds = &self.family().seconds;
            seconds.with_label_values(&self.key.labels_with(method))
        };
        let after = after.as_secs_f64();
        if method == METHODS[0] {
            self.post_seconds.get_or_init(histogram).observe(after);
        } else {
            histogram().observe(after);
        }
        let mut requests = self.requests.lock();
        let known = |entry: &&(&str, StatusCode, _)| entry.0 == method && entry.1 == code;
        if let Some((_, _, counter)) = requests.iter().find(known) {
            counter.inc();
            return;
        }
        let labels = self.key.labels_of_request(method, code.as_str());
        let counter = self.family().requests.with_label_values(&labels);
        counter.inc();
        requests.push((method, code, counter));
    }

    /// `event` came `after` the begin of the request.
    pub(crate) fn connecting(&self, event: Event, after: Duration) {
        let (histogram, label) = match event {
            Event::DnsStart => (&self.family().dns_seconds, DNS_EVENTS[0]),
            Event::DnsDone => (&self.family().dns_seconds, DNS_EVENTS[1]),
            Event::TlsStart => (&self.family().tls_seconds, TLS_EVENTS[0]),
            Event::TlsDone => (&self.family().tls_seconds, TLS_EVENTS[1]),
        };
        histogram
            .with_label_values(&self.key.labels_with(label))
            .observe(after.as_secs_f64());
    }

    fn family(&self) -> &Family {
        self.shared.family(self.key.hook)
    }

    fn remove(&self) {
        let family = self.family();
        // An error says that such a series was never needed.
        for (method, code, _) in &*self.requests.lock() {
            let labels = self.key.labels_of_request(method, code.as_str());
            drop(family.requests.remove_label_values(&labels));
        }
        for (histogram, labels) in [
            (&family.seconds, METHODS),
            (&family.dns_seconds, DNS_EVENTS),
            (&family.tls_seconds, TLS_EVENTS),
        ] {
            for label in labels {
                drop(histogram.remove_label_values(&self.key.labels_with(label)));
            }
        }
        drop(family.in_flight.remove_label_values(&self.key.labels()));
    }
}

impl Drop for Series {
    fn drop(&mut self) {
        self.shared.live.leave(&self.key, self, || self.remove());
    }
}

impl fmt::Debug for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Series").field(&self.key).finish()
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn method_label(method: &Method) -> &'static str {
    if *method == Method::GET {
        METHODS[1]
    } else {
        METHODS[0]
    }
}

#[cfg(test)]
mod tests {
    use prometheus::TextEncoder;

    use super::*;

    fn key(name: &str) -> Key {
        Key {
            hook: HookKind::Sync,
            url: "http://hook/sync".to_owned(),
            controller_name: name.to_owned(),
            controller_kind: ControllerKind::Composite,
        }
    }

    fn text(registry: &Registry) -> String {
        TextEncoder::new()
            .encode_to_string(&registry.gather())
            .unwrap()
    }

    #[test]
    fn names_labels_and_buckets_are_those_of_the_peer() {
        let registry = Registry::new();
        let series = Metrics::register(&registry).unwrap().series(key("web"));

        series.answered(&Method::POST, StatusCode::OK, Duration::from_millis(7));
        series.connecting(Event::DnsDone, Duration::from_millis(6));
        series.connecting(Event::TlsDone, Duration::from_millis(60));
        let _call = series.begin();

        let text = text(&registry);
        let labels = "controller_name=\"web\",controller_type=\"CompositeController\"";
        let url = "url=\"http://hook/sync\"";
        for line in [
            format!(
                "metacontroller_sync_requests_total{{code=\"200\",{labels},method=\"post\",{url}}} 1"
            ),
            format!(
                "metacontroller_sync_request_duration_histogram_seconds_bucket{{{labels},method=\"post\",{url},le=\"0.01\"}} 1"
            ),
            format!(
                "metacontroller_sync_dns_duration_histogram_seconds_bucket{{{labels},event=\"dns_done\",{url},le=\"0.005\"}} 0"
            ),
            format!(
                "metacontroller_sync_tls_duration_histogram_seconds_bucket{{{labels},event=\"tls_handshake_done\",{url},le=\"0.5\"}} 1"
            ),
            format!("metacontroller_sync_in_flight_requests{{{labels},{url}}} 1"),
        ] {
            assert!(text.contains(&line), "{line}\nis not in\n{text}");
        }
    }

    #[test]
    fn series_go_with_their_controller_and_leave_others_alone() {
        let registry = Registry::new();
        let metrics = Metrics::register(&registry).unwrap();
        let (one, other) = (metrics.series(key("one")), metrics.series(key("other")));
        for series in [&one, &other] {
            series.answered(&Method::POST, StatusCode::OK, Duration::ZERO);
            series.answered(&Method::GET, StatusCode::NOT_FOUND, Duration::ZERO);
            series.connecting(Event::TlsStart, Duration::ZERO);
        }

        drop(one);

        let text = text(&registry);
        assert!(!text.contains("\"one\""), "{text}");
        assert!(text.contains("\"other\""), "{text}");
    }

    #[test]
    fn series_outlive_the_handle_of_an_older_spec() {
        let registry = Registry::new();
        let metrics = Metrics::register(&registry).unwrap();
        let old = metrics.series(key("web"));
        old.answered(&Method::POST, StatusCode::OK, Duration::ZERO);
        let new = metrics.series(key("web"));

        drop(old);
        new.answered(&Method::POST, StatusCode::OK, Duration::ZERO);

        let text = text(&registry);
        assert!(
            text.contains("method=\"post\",url=\"http://hook/sync\"} 2"),
            "{text}"
        );
    }
}
