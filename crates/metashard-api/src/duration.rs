//! Durations as Go writes them: `300ms`, `1.5h`, `2h45m`, `-1m`.

/// Why a text is no duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("read {text:?} as a duration such as 300ms or 1h30m")]
pub struct Error {
    text: String,
}

/// Units and their lengths in nanoseconds. Longer names first where one begins another.
const UNITS: [(&str, i128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Reads a duration: nanoseconds, which may be negative.
///
/// # Errors
///
/// Where a number or unit is missing or unknown, or the length is beyond 64 bits (292 years).
pub fn parse_nanos(text: &str) -> Result<i64, Error> {
    let error = || Error {
        text: text.to_owned(),
    };
    let (is_negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if unsigned == "0" {
        return Ok(0);
    }
    if unsigned.is_empty() {
        return Err(error());
    }
    let mut rest = unsigned;
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let (nanos, after) = parse_part(rest).ok_or_else(error)?;
        total = total.checked_add(nanos).ok_or_else(error)?;
        rest = after;
    }
    let signed = if is_negative { -total } else { total };
    i64::try_from(signed).map_err(|_| error())
}

/// Reads a duration that must not be negative.
///
/// # Errors
///
/// As [`parse_nanos`], and for a negative one.
pub fn parse(text: &str) -> Result<std::time::Duration, Error> {
    let nanos = parse_nanos(text)?;
    let nanos = u64::try_from(nanos).map_err(|_| Error {
        text: text.to_owned(),
    })?;
    Ok(std::time::Duration::from_nanos(nanos))
}

/// One number with its unit, and what follows.
fn parse_part(text: &str) -> Option<(i128, &str)> {
    let (whole, rest) = split_digits(text);
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => split_digits(rest),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let length = rest
        .find(|c: char| c == '.' || c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (name, rest) = rest.split_at(length);
    let (_, unit) = UNITS.iter().find(|(unit, _)| *unit == name)?;
    let whole: i128 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    Some((
        whole
            .checked_mul(*unit)?
            .checked_add(part_of(*unit, fraction)?)?,
        rest,
    ))
}

/// `0.<digits>` of a unit, rounded down. Digits beyond the 18th are less than a nanosecond.
fn part_of(unit: i128, digits: &str) -> Option<i128> {
    let kept: String = digits.chars().take(18).collect();
    if kept.is_empty() {
        return Some(0);
    }
    let scale = 10_i128.checked_pow(u32::try_from(kept.len()).ok()?)?;
    Some(kept.parse::<i128>().ok()?.checked_mul(unit)? / scale)
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(
        text.find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_go_are_read_to_the_nanosecond() {
        let cases = [
            ("0", 0),
            ("-0", 0),
            ("500ms", 500_000_000),
            ("30m", 1_800_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("1.5h", 5_400_000_000_000),
            (".5s", 500_000_000),
            ("5.s", 5_000_000_000),
            ("-1m", -60_000_000_000),
            ("+3s", 3_000_000_000),
            ("1us2µs3μs", 6_000),
            ("0.1ns", 0),
            ("2562047h47m16.854775807s", i64::MAX),
        ];
        for (text, nanos) in cases {
            assert_eq!(parse_nanos(text), Ok(nanos), "{text}");
        }
    }

    #[test]
    fn texts_without_number_or_unit_are_refused() {
        for text in [
            "", "-", "3", "s", ".s", "3x", "1h 2m", "1d", "3.4.5s", "2562048h", "1e3s",
        ] {
            assert!(parse_nanos(text).is_err(), "{text}");
        }
        assert!(parse("-1s").is_err());
    }
}
