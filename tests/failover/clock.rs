//! A replica on a machine whose clock is set by an hour.

use anyhow::ensure;
use metashard_api::names::{SYSTEM_NAMESPACE, event};
use metashard_testkit::{calendar::Calendar, tools::skip};

use crate::{ALL, ALL_ROLES, fleet::Fleet, meddled::is_well, turn, while_edited};

const HOUR: i64 = 3600;

#[tokio::test]
async fn clock_that_is_set_by_an_hour_moves_nothing_and_is_told_of() -> anyhow::Result<()> {
    let _turn = turn().await;
    let [others @ .., victim] = ALL;
    let mut fleet = Fleet::start(&others.map(|name| (name, ALL_ROLES)), SYSTEM_NAMESPACE).await?;
    let Some(calendar) = Calendar::new(fleet.folder())? else {
        return skip(
            "clock_that_is_set_by_an_hour_moves_nothing_and_is_told_of",
            "libfaketime is not installed",
        );
    };
    let edits = fleet.edit();
    let fleet = &mut fleet;
    let faults = Box::pin(async {
        fleet
            .replace_in(&calendar.environment(), victim, ALL_ROLES)
            .await?;
        is_well(fleet).await?;
        fleet.is_at_rest().await?;
        let before = fleet.map().await?;

        for (n, ahead) in (1..).zip([HOUR, -HOUR, 0]) {
            calendar.set(ahead)?;
            fleet.has_said(victim, "the clock was set", n).await?;
            if ahead == HOUR {
                // A certificate of a clock that is ahead opens a session with whoever leads next.
                let sessions = fleet.n_said_by(victim, "session open");
                fleet.take_lead_away().await?;
                fleet.has_said(victim, "session open", sessions + 1).await?;
            }
            fleet.is_served().await?;
        }
        fleet.warns(event::CLOCK_SET).await?;

        let after = fleet.map().await?;
        ensure!(after.shards == before.shards, "a shard moved");
        ensure!(fleet.n_said("membership lost") == 0, "a worker was lost");
        ensure!(fleet.n_said("suspended") == 0, "a worker was suspended");
        is_well(fleet).await?;
        fleet.is_sound()
    });
    while_edited(edits, faults).await
}
