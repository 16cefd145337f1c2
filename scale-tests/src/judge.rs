//! The verdict that all scenarios share: overlaps, lost updates, invariants, shards without an owner.

use std::time::{Duration, Instant};

use metashard_api::id::ShardId;
use metashard_fleet::invariants::Invariant;
use metashard_testkit::history::{Broken, History};

use crate::{
    bed::Bed,
    edits::Edits,
    outcome::{Outcome, percentile},
    plot::Series,
    scrape::Last,
};

/// Reads the audit log and judges all that was recorded. `length`: of the measured part.
pub(crate) fn judge(
    bed: &mut Bed,
    edits: &Edits,
    outcome: &mut Outcome,
    length: Duration,
) -> anyhow::Result<()> {
    let mut logs = vec![bed.cluster.folder().join("audit.log")];
    logs.extend(bed.second.as_ref().map(|it| it.audit_log().to_owned()));
    bed.record.take_audit(&logs)?;
    let history = &bed.record.history;
    let mut findings = history.findings(None);
    // A peer has no shards, and names none: only what is called at once says something of it.
    let is_of_peers = |it: &Broken| matches!(it, Broken::Invariant(Invariant::Exclusive));
    findings.retain(|it| !bed.settings.is_peer || is_of_peers(&it.broken));
    let count =
        |is: &dyn Fn(&Broken) -> bool| number(findings.iter().filter(|it| is(&it.broken)).count());
    let overlaps = count(&|it| *it == Broken::Invariant(Invariant::Exclusive));
    let lost = count(&|it| *it == Broken::LostUpdate);
    let other = count(&|it| !matches!(it, Broken::LostUpdate)) - overlaps;
    outcome.tell("edits", number(edits.count()), "");
    outcome.tell("edits without an answer", number(edits.failed()), "");
    outcome.tell("hook calls", number(history.calls.len()), "");
    outcome.tell("writes", number(history.writes.len()), "");
    outcome.tell("maps", number(history.maps.len()), "");
    outcome.judge("overlaps", overlaps, "", 0.0);
    outcome.judge("lost updates", lost, "", 0.0);
    outcome.judge("other findings in the history", other, "", 0.0);
    for finding in findings {
        outcome.found(finding.to_string());
    }
    of_processes(bed, outcome);
    latency(bed, edits, outcome);
    let per_second = number(bed.record.history.calls.len()) / length.as_secs_f64().max(1.0);
    outcome.tell("hook calls per second", per_second, "/s");
    Ok(())
}

fn of_processes(bed: &Bed, outcome: &mut Outcome) {
    let seen = bed.scraper.seen();
    let sum = |of: &dyn Fn(&Last) -> f64| -> f64 { seen.processes.values().map(of).sum() };
    // That somebody else had the lead is no fault of theirs, once for each time that it was taken.
    let by_hand = sum(&|it| it.contested).min(number(bed.leads_taken));
    let violations = sum(&|it| it.violations) - by_hand;
    outcome.judge("invariant violations, as counted live", violations, "", 0.0);
    for process in seen.processes.values().filter(|_| violations > 0.0) {
        for line in &process.broken {
            outcome.found(format!("{}: {line}", process.name));
        }
    }
    let fenced = sum(&|it| it.fenced_writes);
    outcome.tell("writes held back after authority ended", fenced, "");
    let bound = bed.settings.unowned_bound.as_secs_f64();
    let unowned = seen.unowned_for.as_secs_f64();
    outcome.judge(
        "longest time of a shard unowned, scraped",
        unowned,
        "s",
        bound,
    );
    let most = seen.unowned.iter().map(|it| it.1).fold(0.0, f64::max);
    outcome.tell("most shards unowned at once", most, "");
    let in_map = unowned_in_map(&bed.record.history).as_secs_f64();
    outcome.judge(
        "longest time of a shard unowned, in maps",
        in_map,
        "s",
        bound,
    );
    let calls = number(bed.record.history.calls.len()).max(1.0);
    let measured = bed.record.history.calls.len() - bed.before.calls;
    let cpu = seen.cpu().saturating_sub(bed.before.cpu);
    outcome.tell(
        "CPU per hook call",
        cpu.as_secs_f64() * 1e3 / number(measured).max(1.0),
        "ms",
    );
    outcome.tell(
        "requests per hook call",
        number(bed.record.requests) / calls,
        "",
    );
    let peak = seen.processes.values().map(|it| it.memory.1).max();
    outcome.tell("most memory of a process", number(peak.unwrap_or(0)), "MiB");
}

/// The longest time between two maps in which a shard had no owner, once it had one.
fn unowned_in_map(history: &History) -> Duration {
    let mut longest = Duration::ZERO;
    let count = history.maps.iter().map(|it| it.spec.shard_count).max();
    for shard in (0..count.unwrap_or(0)).map(ShardId) {
        let mut since = None;
        let mut had_one = false;
        for map in &history.maps {
            let is_owned = map.spec.owner(shard).is_some();
            had_one |= is_owned;
            if is_owned {
                let ended = since.take().map(|since| map.at.saturating_sub(since));
                longest = longest.max(ended.unwrap_or_default());
            } else if had_one && since.is_none() {
                since = Some(map.at);
            }
        }
    }
    longest
}

/// From the sending of an edit to the call of the hook that shows it, or a later one.
fn latency(bed: &Bed, edits: &Edits, outcome: &mut Outcome) {
    let mut times: Vec<(Instant, Duration)> = Vec::new();
    for (parent, sent) in edits.sent() {
        let Some(seen) = bed.record.values.get(&parent) else {
            continue;
        };
        for (value, sent) in (1_u64..).zip(sent) {
            let next = seen.partition_point(|(_, shown)| *shown < value);
            if let Some((at, _)) = seen.get(next) {
                times.push((sent, at.saturating_duration_since(sent)));
            }
        }
    }
    times.sort_unstable();
    let all: Vec<Duration> = times.iter().map(|it| it.1).collect();
    for percent in [50, 99, 100] {
        let name = match percent {
            100 => "edit to hook call, max".to_owned(),
            _ => format!("edit to hook call, p{percent}"),
        };
        outcome.tell(&name, percentile(&all, percent).as_secs_f64() * 1e3, "ms");
    }
    let Some((first, _)) = times.first().copied() else {
        return;
    };
    let mut points: Vec<(Duration, f64)> = Vec::new();
    for (sent, took) in times {
        let second = Duration::from_secs(sent.saturating_duration_since(first).as_secs());
        let took = took.as_secs_f64() * 1e3;
        match points.last_mut() {
            Some((at, most)) if *at == second => *most = most.max(took),
            _ => points.push((second, took)),
        }
    }
    "ms from an edit to the call of its hook".clone_into(&mut outcome.plot.unit);
    outcome.plot.series.push(Series {
        name: "slowest edit of each second".to_owned(),
        points,
    });
}

/// A count as a figure.
pub(crate) fn number(count: impl TryInto<u32>) -> f64 {
    f64::from(count.try_into().unwrap_or(u32::MAX))
}
