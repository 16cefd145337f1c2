//! `/debug/pprof/profile`: where the CPU goes, sampled for a while.

use std::time::Duration;

use pprof::{ProfilerGuard, ProfilerGuardBuilder};

use super::profile::Profile;

/// How long is sampled if nothing else is asked for, as in Go.
const DEFAULT: Duration = Duration::from_secs(30);

/// Longest time: a sampler that nobody waits for any more costs.
const LONGEST: Duration = Duration::from_mins(5);

/// Samples for each second of CPU time, as in Go.
const FREQUENCY: i32 = 100;

/// CPU time that one sample stands for.
const PERIOD: Duration = Duration::from_millis(10);

/// Libraries in whose code no stack is walked: it may hold the locks that walking needs.
const NOT_WITHIN: &[&str] = &["libc", "libgcc", "pthread", "vdso"];

/// How long to sample, from the text of `?seconds=`; `None`: it is not a number of seconds within bounds.
pub(super) fn length(asked: Option<&str>) -> Option<Duration> {
    let Some(asked) = asked else {
        return Some(DEFAULT);
    };
    let length = Duration::from_secs(asked.parse().ok()?);
    (length > Duration::ZERO && length <= LONGEST).then_some(length)
}

/// Starts to sample.
///
/// # Errors
///
/// While another profile is taken: there is one timer for the whole process.
pub(super) fn start() -> pprof::Result<ProfilerGuard<'static>> {
    ProfilerGuardBuilder::default()
        .frequency(FREQUENCY)
        .blocklist(NOT_WITHIN)
        .build()
}

/// What was sampled so far. Looks up the names of functions, which takes seconds: not for a thread that others wait for.
pub(super) fn profile_of(sampled: &ProfilerGuard<'_>) -> pprof::Result<Profile> {
    let report = sampled.report().build()?;
    let mut profile = Profile::new([("samples", "count"), ("cpu", "nanoseconds")]);
    for (stack, count) in &report.data {
        let names: Vec<String> = stack
            .frames
            .iter()
            .flatten()
            .map(pprof::Symbol::name)
            .collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let count = u64::try_from(*count).unwrap_or_default();
        let nanos = u64::try_from(PERIOD.as_nanos()).unwrap_or(u64::MAX);
        profile.add(&names, [count, count.saturating_mul(nanos)]);
    }
    Ok(profile)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_minute_is_sampled_unless_another_time_is_asked_for() {
        assert_eq!(length(None), Some(Duration::from_secs(30)));
        assert_eq!(length(Some("5")), Some(Duration::from_secs(5)));
        for wrong in ["", "0", "-1", "1.5", "x", "301", "99999999999999999999"] {
            assert_eq!(length(Some(wrong)), None, "{wrong}");
        }
    }
}
