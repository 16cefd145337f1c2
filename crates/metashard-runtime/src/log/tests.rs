//! Log lines as they come out.

use std::{
    io,
    sync::Arc,
    time::{Duration, SystemTime},
};

use metashard_fleet::time::Now;
use parking_lot::Mutex;
use tracing::{debug, error, info, info_span, trace, warn};

use super::*;
use crate::clock::ManualClock;

/// 2026-01-02T03:04:05.678901234Z
const WALL: Duration = Duration::new(1_767_323_045, 678_901_234);

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What `log` writes with `options`, on a clock that stands at [`WALL`].
fn lines(options: &Options, log: impl FnOnce()) -> Vec<String> {
    let lines = Lines::default();
    let writer = lines.clone();
    let clock = ManualClock::new(Now::default(), SystemTime::UNIX_EPOCH + WALL).clock();
    let layer = fmt::layer()
        .event_format(Line::new(options).with_clock(clock))
        .fmt_fields(Fields)
        .with_writer(move || writer.clone())
        .with_filter(filter(options.effective_level()));
    tracing::subscriber::with_default(registry().with(layer), log);
    let bytes = lines.0.lock().clone();
    let text = String::from_utf8(bytes).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn line_is_json_with_the_keys_of_zap() {
    let written = lines(&Options::default(), || {
        info!(
            controller = "web",
            parents = 3,
            ratio = 0.5,
            done = true,
            "synced \"a\"\n"
        );
    });

    assert_eq!(
        written,
        [
            r#"{"level":"info","ts":1767323045.678901234,"logger":"runtime.log.tests","msg":"synced \"a\"\n","controller":"web","parents":3,"ratio":0.5,"done":true}"#
        ]
    );
}

#[test]
fn fields_of_the_spans_around_come_first() {
    let written = lines(&Options::default(), || {
        let outer = info_span!("reconcile", controller = "web");
        let _outer = outer.enter();
        let inner = info_span!("call", attempt = 2);
        let _inner = inner.enter();
        warn!(logger = "composite.web", hook = "sync", "slow");
    });

    assert_eq!(
        written,
        [
            r#"{"level":"warn","ts":1767323045.678901234,"logger":"composite.web","msg":"slow","controller":"web","attempt":2,"hook":"sync"}"#
        ]
    );
}

#[test]
fn error_field_shows_its_causes() {
    #[derive(Debug, thiserror::Error)]
    #[error("call hook")]
    struct Outer(#[source] io::Error);
    let cause = Outer(io::Error::other("refused"));

    let written = lines(&Options::default(), || {
        error!(error = &cause as &dyn StdError, "sync failed");
    });

    assert!(
        written[0].ends_with(r#""error":"call hook: refused"}"#),
        "{written:?}"
    );
}

#[test]
fn time_has_the_form_that_was_chosen() {
    for (encoding, expected) in [
        ("epoch", "1767323045.678901234"),
        ("millis", "1767323045678.901234"),
        ("nano", "1767323045678901234"),
        ("iso8601", "\"2026-01-02T03:04:05.678Z\""),
        ("rfc3339", "\"2026-01-02T03:04:05Z\""),
        ("rfc3339nano", "\"2026-01-02T03:04:05.678901234Z\""),
    ] {
        let options = Options {
            time_encoding: Some(encoding.parse().unwrap()),
            ..Options::default()
        };

        let written = lines(&options, || info!("hello"));

        assert!(
            written[0].contains(&format!("\"ts\":{expected},")),
            "{written:?}"
        );
    }
}

#[test]
fn console_line_has_columns() {
    let options = Options {
        encoder: Some(Encoder::Console),
        time_encoding: Some(TimeEncoding::Rfc3339),
        ..Options::default()
    };

    let written = lines(&options, || {
        info!("plain");
        info!(shard = 7, "assigned");
    });

    assert_eq!(
        written,
        [
            "2026-01-02T03:04:05Z\tINFO\truntime.log.tests\tplain",
            "2026-01-02T03:04:05Z\tINFO\truntime.log.tests\tassigned\t{\"shard\":7}",
        ]
    );
}

#[test]
fn developers_see_colours_and_debug_lines() {
    let options = Options {
        devel: true,
        ..Options::default()
    };

    let written = lines(&options, || debug!("here"));

    assert!(
        written[0].contains("\u{1b}[35mDEBUG\u{1b}[0m"),
        "{written:?}"
    );
}

#[test]
fn level_lets_through_what_it_should() {
    for (level, expected) in [
        (None, 3),
        (Some("panic"), 0),
        (Some("error"), 1),
        (Some("info"), 3),
        (Some("DEBUG"), 4),
        (Some("4"), 4),
        (Some("6"), 5),
    ] {
        let options = Options {
            level: level.map(|text| text.parse().unwrap()),
            ..Options::default()
        };

        let written = lines(&options, || {
            error!("1");
            warn!("2");
            info!("3");
            debug!("4");
            trace!("5");
        });

        assert_eq!(written.len(), expected, "{level:?}: {written:?}");
    }
}

#[test]
fn no_level_hides_a_panic() {
    let options = Options {
        level: Some(Level::Panic),
        ..Options::default()
    };

    let written = lines(&options, || {
        error!(target: PANIC_TARGET, "panic");
    });

    assert_eq!(written.len(), 1, "{written:?}");
}

#[test]
fn libraries_never_log_below_info() {
    let options = Options {
        level: Some("9".parse().unwrap()),
        ..Options::default()
    };

    let written = lines(&options, || {
        debug!(target: "hyper::proto", "noise");
        info!(target: "kube_client", "news");
    });

    assert_eq!(written.len(), 1, "{written:?}");
}

#[test]
fn flag_values_outside_their_list_are_refused_with_the_list() {
    assert!("yaml".parse::<Encoder>().is_err());
    assert!("0".parse::<Level>().is_err());
    assert!("-3".parse::<Level>().is_err());
    assert!("debug".parse::<StacktraceLevel>().is_err());
    assert_eq!(
        "unix".parse::<TimeEncoding>().unwrap_err().to_string(),
        "parse \"unix\": must be `epoch`, `millis`, `nano`, `iso8601`, `rfc3339` or `rfc3339nano`"
    );
}

#[test]
fn chain_says_each_cause_once() {
    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Repeats(#[source] io::Error);
    let error = Repeats(io::Error::other("refused"));

    assert_eq!(chain(&error), "refused");
}
