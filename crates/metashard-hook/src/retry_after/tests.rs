//! Every recorded case of the peer, judged by the rule that is kept: seconds or a date in GMT, within limits.

use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Case {
    id: String,
    now: String,
    headers: Vec<String>,
    form: String,
    /// Seconds that the peer takes.
    after_second: i64,
}

/// What is to be done, derived from what the peer did and not from the header, except for the zone.
fn expected(case: &Case) -> Option<Duration> {
    let in_gmt = case.headers.first()?.ends_with(" GMT");
    match case.form.as_str() {
        "seconds" | "seconds-out-of-range" => {}
        "date" if in_gmt => {}
        _ => return None,
    }
    let seconds = u64::try_from(case.after_second).unwrap_or_default();
    Some(Duration::from_secs(seconds).clamp(MIN, MAX))
}

#[test]
fn recorded_cases_of_the_peer_are_read_alike_within_limits() {
    let text = include_str!("../../../../tests/vectors/retryafter.jsonl");
    let mut n_waits = 0;
    for line in text.lines() {
        let case: Case = serde_json::from_str(line).unwrap();
        let now: jiff::Timestamp = case.now.parse().unwrap();

        let wait = case
            .headers
            .first()
            .and_then(|header| parse(header, now.into()));

        assert_eq!(wait, expected(&case), "{} {:?}", case.id, case.headers);
        n_waits += usize::from(wait.is_some());
    }
    assert_eq!(text.lines().count(), 54);
    assert_eq!(n_waits, 27);
}

#[test]
fn absurd_waits_are_clamped() {
    let now = SystemTime::UNIX_EPOCH;

    assert_eq!(parse("1000000000000", now), Some(MAX));
    assert_eq!(parse("-7", now), Some(MIN));
    assert_eq!(parse("0", now), Some(MIN));
    assert_eq!(parse("Fri, 02 Jan 2026 03:04:15 GMT", now), Some(MAX));
}

#[test]
fn multibyte_garbage_is_no_wait() {
    for header in ["é", "Fri, 0é Jan 2026 03:04:15 GMT", "–5", "+", "-", ","] {
        assert_eq!(parse(header, SystemTime::UNIX_EPOCH), None, "{header}");
    }
}
