//! Waiting with a deadline: the one polling loop of all tests.

use std::time::Duration;

use anyhow::{Context, bail};
use tokio::time::{Instant, sleep, timeout_at};

/// Time between two probes: short against anything that a test waits for, long against a probe.
const INTERVAL: Duration = Duration::from_millis(20);

/// Asks `probe` until it answers `Ok` and returns that answer.
///
/// A probe says with an error why it is not content yet, for example by `anyhow::ensure!`.
///
/// # Errors
/// After `within`: names `what` was waited for, and carries the last probe's reason.
pub async fn eventually<T>(
    within: Duration,
    what: &str,
    mut probe: impl AsyncFnMut() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let deadline = Instant::now() + within;
    let mut last = None;
    loop {
        match timeout_at(deadline, probe()).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(reason)) => last = Some(reason),
            Err(_) if last.is_none() => {
                bail!("waited {within:?} for {what}: no answer from the probe")
            }
            Err(_) => {}
        }
        if Instant::now() + INTERVAL >= deadline {
            let reason = last.unwrap_or_else(|| anyhow::anyhow!("no reason given"));
            return Err(reason).with_context(|| format!("waited {within:?} for {what}"));
        }
        sleep(INTERVAL).await;
    }
}

/// Asks `probe` again and again for the length of `during`; every answer must be `Ok`.
///
/// For claims that something does *not* happen. It always takes the whole of `during`: keep that short.
///
/// # Errors
/// At the first probe that fails: names `what` should have held, and carries the probe's reason.
pub async fn throughout(
    during: Duration,
    what: &str,
    mut probe: impl AsyncFnMut() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let end = Instant::now() + during;
    loop {
        probe()
            .await
            .with_context(|| format!("did not hold for {during:?}: {what}"))?;
        if Instant::now() >= end {
            return Ok(());
        }
        sleep(INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use anyhow::ensure;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_content_probe_ends_the_wait() -> anyhow::Result<()> {
        let probes = Cell::new(0);

        let answer = eventually(Duration::from_secs(5), "three probes", async || {
            probes.set(probes.get() + 1);
            ensure!(probes.get() == 3, "only {} probes", probes.get());
            Ok("done")
        })
        .await?;

        assert_eq!((answer, probes.get()), ("done", 3));
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn a_missed_deadline_tells_what_was_waited_for_and_why_it_did_not_come() {
        let outcome = eventually(Duration::from_secs(1), "five children", async || {
            ensure!(false, "only 4 children");
            Ok(())
        })
        .await;

        let text = format!("{:#}", outcome.unwrap_err());
        assert_eq!(text, "waited 1s for five children: only 4 children");
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_hangs_does_not_outlive_the_deadline() {
        let outcome: anyhow::Result<()> = eventually(
            Duration::from_secs(1),
            "an answer",
            std::future::pending::<anyhow::Result<()>>,
        )
        .await;

        assert!(format!("{:#}", outcome.unwrap_err()).contains("no answer from the probe"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_that_breaks_half_way_is_reported() {
        let start = Instant::now();

        let outcome = throughout(Duration::from_secs(2), "quiet", async || {
            ensure!(start.elapsed() < Duration::from_secs(1), "one write");
            Ok(())
        })
        .await;

        assert_eq!(
            format!("{:#}", outcome.unwrap_err()),
            "did not hold for 2s: quiet: one write"
        );
    }
}
