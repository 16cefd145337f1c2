//! Metacontroller's metrics of work queues: one queue for each controller, read when they are asked for.
//!
//! What is kept of a controller between two scrapes is a few numbers in its instance. A registry would keep a kilobyte of
//! series for each, and would have to be told when the controller goes.

use std::{
    collections::BTreeMap,
    ops::Add,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use metashard_fleet::{queue::Counts, time::MonoTime};
use metashard_runtime::clock::Clock;
use parking_lot::Mutex;
use prometheus::{
    core::{Collector, Desc},
    proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType},
};

use crate::dispatch::Dispatcher;

/// Upper bounds in seconds, some of Metacontroller's: one in each power of ten that matters.
const SECONDS: [f64; 7] = [0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0];

/// How long keys of one controller waited and took.
#[derive(Debug, Default)]
pub(crate) struct Timings {
    waited: Timing,
    took: Timing,
    /// When the attempts began that have not ended.
    running: Mutex<Vec<MonoTime>>,
}

/// A histogram of durations.
#[derive(Debug, Default)]
struct Timing {
    /// Below each bound, and the last above them all; not cumulative.
    counts: [AtomicU64; SECONDS.len() + 1],
    nanos: AtomicU64,
}

/// The queue of one controller at the moment of a scrape.
#[derive(Debug)]
struct Row<'a> {
    name: String,
    counts: Counts,
    /// One for each instance of the controller here: several, if it is split.
    timings: Vec<&'a Timings>,
}

impl<'a> Row<'a> {
    fn new(name: String) -> Self {
        Self {
            name,
            counts: Counts::default(),
            timings: Vec::new(),
        }
    }

    /// Adds one instance.
    fn add(&mut self, counts: &Counts, timings: &'a Timings) {
        self.counts.depth += counts.depth;
        self.counts.in_progress += counts.in_progress;
        self.counts.adds_total += counts.adds_total;
        self.counts.retries_total += counts.retries_total;
        self.timings.push(timings);
    }

    /// For how long each attempt runs that has not ended.
    fn running(&self, now: MonoTime) -> Vec<f64> {
        self.timings.iter().flat_map(|it| it.running(now)).collect()
    }

    fn histogram(&self, of: fn(&Timings) -> &Timing) -> Histogram {
        let all: Vec<_> = self.timings.iter().map(|it| of(it)).collect();
        Timing::to_histogram(&all)
    }
}

impl Timings {
    /// An attempt has begun, after its key `waited` for it.
    pub(crate) fn begin(&self, now: MonoTime, waited: Duration) {
        self.waited.observe(waited);
        self.running.lock().push(now);
    }

    /// The attempt that began at `began` has ended.
    pub(crate) fn end(&self, began: MonoTime, took: Duration) {
        self.took.observe(took);
        let mut running = self.running.lock();
        if let Some(index) = running.iter().position(|it| *it == began) {
            running.swap_remove(index);
        }
    }

    /// For how long each attempt runs that has not ended.
    fn running(&self, now: MonoTime) -> Vec<f64> {
        let running = self.running.lock();
        running
            .iter()
            .map(|began| now.since(*began).as_secs_f64())
            .collect()
    }
}

impl Timing {
    fn observe(&self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let bucket = SECONDS
            .iter()
            .position(|bound| seconds <= *bound)
            .unwrap_or(SECONDS.len());
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// All of them together.
    fn to_histogram(all: &[&Self]) -> Histogram {
        let mut total = 0;
        let mut buckets = Vec::with_capacity(SECONDS.len());
        for index in 0..=SECONDS.len() {
            let counts = all.iter().filter_map(|it| it.counts.get(index));
            total += counts
                .map(|count| count.load(Ordering::Relaxed))
                .sum::<u64>();
            if let Some(bound) = SECONDS.get(index) {
                let mut bucket = Bucket::default();
                bucket.set_upper_bound(*bound);
                bucket.set_cumulative_count(total);
                buckets.push(bucket);
            }
        }
        let mut histogram = Histogram::default();
        histogram.set_bucket(buckets);
        histogram.set_sample_count(total);
        let nanos = all.iter().map(|it| it.nanos.load(Ordering::Relaxed));
        let sum = Duration::from_nanos(nanos.sum());
        histogram.set_sample_sum(sum.as_secs_f64());
        histogram
    }
}

/// Shows the queues of a dispatcher.
#[derive(Debug)]
pub(crate) struct QueueMetrics {
    dispatcher: Weak<Dispatcher>,
    clock: Clock,
}

impl QueueMetrics {
    /// Reads from `dispatcher` as long as it lives.
    pub(crate) fn new(dispatcher: &Arc<Dispatcher>, clock: Clock) -> Self {
        Self {
            dispatcher: Arc::downgrade(dispatcher),
            clock,
        }
    }
}

impl Collector for QueueMetrics {
    fn desc(&self) -> Vec<&Desc> {
        Vec::new()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let Some(dispatcher) = self.dispatcher.upgrade() else {
            return Vec::new();
        };
        let all = dispatcher.all_counts();
        let mut rows: BTreeMap<_, Row<'_>> = BTreeMap::new();
        for (instance, counts) in &all {
            let controller = &instance.controller;
            let row = rows.entry((controller.kind, &*controller.name));
            let row =
                row.or_insert_with(|| Row::new(format!("{}-{}", controller.kind, controller.name)));
            row.add(counts, &instance.timings);
        }
        let rows: Vec<_> = rows.into_values().collect();
        families(&rows, self.clock.now().mono)
    }
}

#[expect(clippy::cast_precision_loss, reason = "metrics are floats")]
fn families(rows: &[Row<'_>], now: MonoTime) -> Vec<MetricFamily> {
    let counter = |name, help, value: &dyn Fn(&Row<'_>) -> u64| {
        family(name, help, MetricType::COUNTER, rows, &|row, metric| {
            let mut counter = Counter::default();
            counter.set_value(value(row) as f64);
            metric.set_counter(counter);
        })
    };
    let gauge = |name, help, value: &dyn Fn(&Row<'_>) -> f64| {
        family(name, help, MetricType::GAUGE, rows, &|row, metric| {
            let mut gauge = Gauge::default();
            gauge.set_value(value(row));
            metric.set_gauge(gauge);
        })
    };
    let histogram = |name, help, timing: fn(&Timings) -> &Timing| {
        family(name, help, MetricType::HISTOGRAM, rows, &|row, metric| {
            metric.set_histogram(row.histogram(timing));
        })
    };
    vec![
        gauge("workqueue_depth", "Keys that wait.", &|row| {
            row.counts.depth as f64
        }),
        counter("workqueue_adds_total", "Keys made ready.", &|row| {
            row.counts.adds_total
        }),
        counter("workqueue_retries_total", "Failed attempts.", &|row| {
            row.counts.retries_total
        }),
        gauge("workqueue_in_progress", "Keys in progress.", &|row| {
            f64::from(row.counts.in_progress)
        }),
        histogram(
            "workqueue_queue_duration_seconds",
            "How long keys waited until they were taken.",
            |timings| &timings.waited,
        ),
        histogram(
            "workqueue_work_duration_seconds",
            "How long attempts took, hook included.",
            |timings| &timings.took,
        ),
        gauge(
            "workqueue_unfinished_work_seconds",
            "How long all attempts in progress have been running, together.",
            // The sum of no numbers is -0.
            &|row| row.running(now).into_iter().fold(0.0, Add::add),
        ),
        gauge(
            "workqueue_longest_running_processor_seconds",
            "How long the longest attempt in progress has been running.",
            &|row| row.running(now).into_iter().fold(0.0, f64::max),
        ),
    ]
}

fn family(
    name: &str,
    help: &str,
    type_: MetricType,
    rows: &[Row<'_>],
    set: &dyn Fn(&Row<'_>, &mut Metric),
) -> MetricFamily {
    let metrics = rows.iter().map(|row| {
        let mut label = LabelPair::default();
        label.set_name("name".to_owned());
        label.set_value(row.name.clone());
        let mut metric = Metric::from_label(vec![label]);
        set(row, &mut metric);
        metric
    });
    let mut family = MetricFamily::default();
    family.set_name(name.to_owned());
    family.set_help(help.to_owned());
    family.set_field_type(type_);
    family.set_metric(metrics.collect());
    family
}

#[cfg(test)]
mod tests {
    use prometheus::TextEncoder;

    use super::*;

    fn at(seconds: u64) -> MonoTime {
        MonoTime(Duration::from_secs(seconds))
    }

    fn text(timings: &Timings, counts: Counts, now: MonoTime) -> String {
        let name = "CompositeController-web".to_owned();
        let mut row = Row::new(name);
        row.add(&counts, timings);
        TextEncoder::new()
            .encode_to_string(&families(&[row], now))
            .unwrap()
    }

    #[test]
    fn queues_are_shown_under_metacontrollers_names_types_and_labels() {
        let timings = Timings::default();
        timings.begin(at(10), Duration::from_millis(5));
        timings.end(at(10), Duration::from_secs(2));
        timings.begin(at(20), Duration::from_millis(50));
        timings.begin(at(23), Duration::ZERO);
        let counts = Counts {
            depth: 3,
            adds_total: 7,
            retries_total: 2,
            ..Counts::default()
        };

        let text = text(&timings, counts, at(25));

        for line in [
            "# TYPE workqueue_depth gauge",
            "workqueue_depth{name=\"CompositeController-web\"} 3",
            "# TYPE workqueue_adds_total counter",
            "workqueue_adds_total{name=\"CompositeController-web\"} 7",
            "# TYPE workqueue_retries_total counter",
            "workqueue_retries_total{name=\"CompositeController-web\"} 2",
            "# TYPE workqueue_queue_duration_seconds histogram",
            "workqueue_queue_duration_seconds_bucket{name=\"CompositeController-web\",le=\"0.01\"} 2",
            "workqueue_queue_duration_seconds_bucket{name=\"CompositeController-web\",le=\"+Inf\"} 3",
            "# TYPE workqueue_work_duration_seconds histogram",
            "workqueue_work_duration_seconds_sum{name=\"CompositeController-web\"} 2",
            "workqueue_work_duration_seconds_count{name=\"CompositeController-web\"} 1",
            "# TYPE workqueue_unfinished_work_seconds gauge",
            "workqueue_unfinished_work_seconds{name=\"CompositeController-web\"} 7",
            "# TYPE workqueue_longest_running_processor_seconds gauge",
            "workqueue_longest_running_processor_seconds{name=\"CompositeController-web\"} 5",
        ] {
            assert!(
                text.lines().any(|it| it == line),
                "{line}\nis not in\n{text}"
            );
        }
    }

    #[test]
    fn instances_of_a_split_controller_are_one_queue() {
        let [one, other] = [Timings::default(), Timings::default()];
        for timings in [&one, &other] {
            timings.begin(at(0), Duration::ZERO);
            timings.end(at(0), Duration::from_secs(1));
        }
        let counts = Counts {
            depth: 3,
            ..Counts::default()
        };
        let mut row = Row::new("CompositeController-web".to_owned());
        row.add(&counts, &one);
        row.add(&counts, &other);

        let text = TextEncoder::new()
            .encode_to_string(&families(&[row], at(9)))
            .unwrap();

        for line in [
            "workqueue_depth{name=\"CompositeController-web\"} 6",
            "workqueue_work_duration_seconds_sum{name=\"CompositeController-web\"} 2",
            "workqueue_work_duration_seconds_count{name=\"CompositeController-web\"} 2",
        ] {
            assert!(
                text.lines().any(|it| it == line),
                "{line}\nis not in\n{text}"
            );
        }
    }

    #[test]
    fn a_wait_beyond_all_bounds_is_counted_and_an_attempt_that_ended_runs_no_more() {
        let timings = Timings::default();
        timings.begin(at(0), Duration::from_secs(5000));
        timings.end(at(0), Duration::from_secs(1));

        let text = text(&timings, Counts::default(), at(9));

        for line in [
            "workqueue_queue_duration_seconds_bucket{name=\"CompositeController-web\",le=\"1000\"} 0",
            "workqueue_queue_duration_seconds_count{name=\"CompositeController-web\"} 1",
            "workqueue_unfinished_work_seconds{name=\"CompositeController-web\"} 0",
        ] {
            assert!(
                text.lines().any(|it| it == line),
                "{line}\nis not in\n{text}"
            );
        }
    }
}
