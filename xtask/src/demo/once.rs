//! The demo without a person: it says what it does, measures, and ends with a summary.

use std::time::Duration;

use anyhow::{Context, ensure};
use metashard_testkit::wait::eventually;

use super::{
    snapshot::Snapshot, stage::Stage, story::changes, takeover::Takeover, tenants::TENANTS,
};
use crate::talk::{Tone, length, say, toned};

/// Time for everything to converge; in practice seconds.
const CONVERGED_WITHIN: Duration = Duration::from_mins(1);

/// Time for a take-over; the design promises 6 s.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(30);

/// Plays it.
///
/// # Errors
/// If something does not come about in time; the text has the ends of the replicas' logs.
pub(super) async fn play(stage: &mut Stage) -> anyhow::Result<()> {
    let outcome = acts(stage).await;
    outcome.with_context(|| {
        format!(
            "play the demo; the ends of the replicas' logs:\n{}\n",
            stage.logs()
        )
    })
}

async fn acts(stage: &mut Stage) -> anyhow::Result<()> {
    told(
        stage,
        &format!(
            "3 replicas share the controllers of {} tenants: {}",
            TENANTS.len(),
            stage.place
        ),
    );
    let first = stage.converged(CONVERGED_WITHIN).await?;
    let converged = stage.start.elapsed().saturating_sub(stage.took);
    for sentence in changes(&Snapshot::default(), &first) {
        told(stage, &sentence);
    }

    let victim = victim(&first)?;
    let orphans: Vec<String> = first
        .served_by(&victim)
        .into_iter()
        .map(str::to_owned)
        .collect();
    told(
        stage,
        &format!(
            "{victim} is killed by SIGKILL; it served {}",
            orphans.join(", ")
        ),
    );
    let died = stage.kill(&victim)?;
    let edits = stage.edit_all().await?;
    told(
        stage,
        "one parent of each controller is edited; now its Lease must run out before others take over",
    );
    let mut takeover = Takeover::new(&victim, orphans, died, edits);
    let mut before = first.clone();
    eventually(TAKEN_OVER_WITHIN, "all edits to be served", async || {
        let now = stage.read().await?;
        takeover.look(&now);
        for sentence in changes(&before, &now) {
            told(stage, &sentence);
        }
        before = now;
        ensure!(takeover.is_over(), "not yet: {takeover:?}");
        Ok(())
    })
    .await?;
    let last = stage.converged(CONVERGED_WITHIN).await?;
    let again = died.elapsed();
    ensure!(
        last.children == first.children,
        "children were lost or made anew"
    );

    summary(stage, &takeover, converged, again, &last);
    Ok(())
}

/// The replica to kill: one that serves controllers and does not lead, so that only one thing happens at a time.
fn victim(snapshot: &Snapshot) -> anyhow::Result<String> {
    let busy = |it: &&String| !snapshot.served_by(it).is_empty();
    let follows = |it: &&String| snapshot.leader.as_ref() != Some(*it);
    let names = || snapshot.workers.keys().filter(busy);
    let name = names().find(follows).or_else(|| names().next());
    name.cloned()
        .context("find a worker that serves a controller")
}

fn told(stage: &Stage, sentence: &str) {
    let time = format!("{:>6.1} s", stage.start.elapsed().as_secs_f64());
    say(&format!("{}  {sentence}", toned(Tone::Quiet, &time)));
}

fn summary(
    stage: &Stage,
    takeover: &Takeover,
    converged: Duration,
    again: Duration,
    last: &Snapshot,
) {
    let children = last.children.len();
    say("");
    let lines = [
        ("cluster, hooks and replicas started", length(stage.took)),
        ("converged", length(converged)),
        ("served by two replicas again after the kill", length(again)),
        (
            "  controllers of the killed worker resumed after",
            length(takeover.of_orphans()),
        ),
        (
            "  controllers of the others waited at most",
            length(takeover.of_others()),
        ),
        (
            "controllers, parents, children",
            format!("{}, {}, {children}", last.controllers.len(), last.parents()),
        ),
        ("children lost or made anew", "0".to_owned()),
        ("hook calls", last.calls().to_string()),
        ("in all", length(stage.start.elapsed())),
    ];
    for (what, value) in lines {
        say(&format!("  {what:<50} {}", toned(Tone::Good, &value)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::snapshot::{Controller, Worker};

    #[test]
    fn the_victim_serves_controllers_and_does_not_lead() {
        let controller = |worker: &str| Controller {
            worker: Some(worker.to_owned()),
            ..Controller::default()
        };
        let snapshot = Snapshot {
            leader: Some("a".to_owned()),
            workers: ["a", "b", "c"]
                .map(|it| (it.to_owned(), Worker::default()))
                .into(),
            controllers: vec![controller("a"), controller("c")],
            ..Snapshot::default()
        };

        assert_eq!(victim(&snapshot).unwrap(), "c");
    }
}
