//! How long a hook that answers 429 wants to be left alone.
//!
//! Metacontroller's rules, with its overflows and zones put right: seconds, or a date in GMT, within limits.

use std::time::{Duration, SystemTime};

use jiff::{civil::DateTime, tz::TimeZone};

/// Shortest time waited, whatever the hook asks for.
pub const MIN: Duration = Duration::from_secs(1);
/// Longest time waited, whatever the hook asks for.
pub const MAX: Duration = Duration::from_mins(10);

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/// Reads the first `Retry-After` header: whole seconds, or an HTTP date in GMT that is compared with `now`
/// and rounded up to a second. `None`: there is none or it cannot be read, so the normal backoff applies.
pub fn parse(header: &str, now: SystemTime) -> Option<Duration> {
    let header = header.trim();
    let wait = match seconds(header) {
        Some(seconds) => Duration::from_secs(seconds),
        None => whole_seconds(date(header)?.duration_since(now).unwrap_or_default()),
    };
    Some(wait.clamp(MIN, MAX))
}

/// A whole number with an optional sign. Too many digits count as very long, a negative number as nothing.
fn seconds(text: &str) -> Option<u64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(if negative {
        0
    } else {
        digits.parse().unwrap_or(u64::MAX)
    })
}

/// `Fri, 02 Jan 2026 03:04:15 GMT`. As in Metacontroller the name of the day may be the wrong one, and names may be
/// in any case; the zone has to be GMT.
fn date(text: &str) -> Option<SystemTime> {
    let (day_name, rest) = text.split_once(", ")?;
    let mut words = rest.split(' ');
    let (day, month, year, time, zone) = (
        words.next()?,
        words.next()?,
        words.next()?,
        words.next()?,
        words.next()?,
    );
    if zone != "GMT" || words.next().is_some() {
        return None;
    }
    index_of(day_name, &DAYS)?;
    let month = i8::try_from(index_of(month, &MONTHS)? + 1).ok()?;
    let mut parts = time.split(':');
    let (hour, minute, second) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let date = DateTime::new(
        number(year, 4)?,
        month,
        i8::try_from(number(day, 2)?).ok()?,
        i8::try_from(number(hour, 2)?).ok()?,
        i8::try_from(number(minute, 2)?).ok()?,
        i8::try_from(number(second, 2)?).ok()?,
        0,
    )
    .ok()?;
    Some(date.to_zoned(TimeZone::UTC).ok()?.timestamp().into())
}

fn index_of(name: &str, names: &[&str]) -> Option<usize> {
    names
        .iter()
        .position(|known| known.eq_ignore_ascii_case(name))
}

/// Exactly `width` digits.
fn number(text: &str, width: usize) -> Option<i16> {
    let digits = text.len() == width && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok())?
}

fn whole_seconds(length: Duration) -> Duration {
    let up = u64::from(length.subsec_nanos() > 0);
    Duration::from_secs(length.as_secs().saturating_add(up))
}

#[cfg(test)]
mod tests;
