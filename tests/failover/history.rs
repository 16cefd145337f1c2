//! What the hook saw, and what it says of a fail-over: gaps, overlaps, epochs.

use std::{collections::BTreeMap, fmt, time::Duration};

use anyhow::{Context, ensure};
use metashard_api::{
    id::{Epoch, ShardId},
    names::{HEADER_EPOCH, HEADER_SHARD},
};
use metashard_testkit::hook::{Call, gap};
use tokio::time::Instant;

/// Calls of one scenario, by the path of the hook: each controller has its own.
pub(crate) struct History(BTreeMap<String, Vec<Call>>);

/// The longest time without a call, of each controller.
pub(crate) struct Gaps(BTreeMap<String, Duration>);

/// Under which ownership a call was made.
pub(crate) fn ownership(call: &Call) -> anyhow::Result<(ShardId, Epoch)> {
    let number = |header: &str| {
        let value = call.headers.get(header);
        let text = value.and_then(|value| value.to_str().ok());
        text.with_context(|| format!("a call without header {header}"))
    };
    let shard = number(HEADER_SHARD)?.parse().context("read a shard")?;
    let epoch = number(HEADER_EPOCH)?.parse().context("read an epoch")?;
    Ok((ShardId(shard), Epoch(epoch)))
}

impl History {
    /// Sorts calls by controller; within one they stay in the order of their receipt.
    pub(crate) fn new(calls: Vec<Call>) -> Self {
        let mut all: BTreeMap<String, Vec<Call>> = BTreeMap::new();
        for call in calls {
            all.entry(call.path.clone()).or_default().push(call);
        }
        Self(all)
    }

    /// The gaps until `end`; the first calls are from before the fault.
    pub(crate) fn gaps(&self, end: Instant) -> Gaps {
        let longest = |calls: &Vec<Call>| {
            let between = calls.windows(2).map(|pair| gap(&pair[0], &pair[1]));
            let last = calls.last().map(|last| end.into_std() - last.received);
            between.chain(last).max().unwrap_or_default()
        };
        Gaps(
            self.0
                .iter()
                .map(|(path, calls)| (path.clone(), longest(calls)))
                .collect(),
        )
    }

    /// The time from one call of `path` to another, by their numbers.
    pub(crate) fn gap_between(
        &self,
        path: &str,
        one: usize,
        other: usize,
    ) -> anyhow::Result<Duration> {
        let calls = self.0.get(path).context("it was called")?;
        let call = |number| calls.get(number).context("it was called so often");
        Ok(gap(call(one)?, call(other)?))
    }

    /// No two calls of one controller, all of which are about one parent, were under way at the same time; and none came
    /// under an older epoch than one before it.
    pub(crate) fn is_exclusive(&self) -> anyhow::Result<()> {
        for (path, calls) in &self.0 {
            for pair in calls.windows(2) {
                let has_ended = pair[0]
                    .ended()
                    .is_some_and(|ended| ended <= pair[1].received);
                ensure!(has_ended, "two calls of {path} at once: {pair:#?}");
                let (before, after) = (ownership(&pair[0])?, ownership(&pair[1])?);
                ensure!(
                    before.1 <= after.1,
                    "{path} was called under {before:?} and then under {after:?}"
                );
            }
        }
        Ok(())
    }
}

impl Gaps {
    /// The longest gap of the controllers that are `among`.
    pub(crate) fn longest(&self, among: impl Fn(&str) -> bool) -> Duration {
        let gaps = self.0.iter().filter(|(path, _)| among(path));
        gaps.map(|(_, gap)| *gap).max().unwrap_or_default()
    }
}

impl fmt::Display for Gaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (path, gap) in &self.0 {
            write!(f, " {path} {} ms", gap.as_millis())?;
        }
        Ok(())
    }
}
