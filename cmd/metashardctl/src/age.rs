//! How old something is, as kubectl says it.

use std::time::SystemTime;

use jiff::Timestamp;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// The time since `then`, an RFC 3339 time stamp; `<unknown>` if it is none.
pub(crate) fn since(then: &str, now: SystemTime) -> String {
    let (Ok(then), Ok(now)) = (then.parse::<Timestamp>(), Timestamp::try_from(now)) else {
        return "<unknown>".to_owned();
    };
    of(now.as_second() - then.as_second())
}

/// So many seconds.
pub(crate) fn of(seconds: i64) -> String {
    let seconds = seconds.max(0);
    match seconds {
        ..120 => format!("{seconds}s"),
        120..600 => two(seconds, MINUTE, "m", 1, "s"),
        600..10_800 => format!("{}m", seconds / MINUTE),
        10_800..28_800 => two(seconds, HOUR, "h", MINUTE, "m"),
        28_800..172_800 => format!("{}h", seconds / HOUR),
        172_800..691_200 => two(seconds, DAY, "d", HOUR, "h"),
        seconds if seconds < 2 * YEAR => format!("{}d", seconds / DAY),
        seconds => two(seconds, YEAR, "y", DAY, "d"),
    }
}

/// As in `5m30s`; the smaller unit only where there is some of it.
fn two(seconds: i64, large: i64, large_name: &str, small: i64, small_name: &str) -> String {
    match seconds % large / small {
        0 => format!("{}{large_name}", seconds / large),
        rest => format!("{}{large_name}{rest}{small_name}", seconds / large),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_age_is_told_as_kubectl_does() {
        let now = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let age = |seconds| since("1970-01-01T00:00:00Z", now(seconds));

        assert_eq!(age(90), "90s");
        assert_eq!(age(330), "5m30s");
        assert_eq!(age(3600), "60m");
        assert_eq!(age(4 * 3600), "4h");
        assert_eq!(age(3 * 86_400 + 3600), "3d1h");
        assert_eq!(age(400 * 86_400), "400d");
        assert_eq!(since("soon", now(1)), "<unknown>");
        assert_eq!(since("2030-01-01T00:00:00Z", now(1)), "0s");
    }
}
