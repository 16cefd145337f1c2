//! Each controller is served by exactly one replica while the fleet shrinks and grows.

use std::time::Duration;

use anyhow::ensure;
use metashard_api::names::SYSTEM_NAMESPACE;
use rustix::process::Signal;
use tokio::time::Instant;

use crate::{ALL, ALL_ROLES, fleet::Fleet, turn, while_edited};

/// How long sharing may take after a change of the fleet.
const SHARED_WITHIN: Duration = Duration::from_secs(15);

#[tokio::test]
async fn fleet_that_shrinks_and_grows_under_load_serves_each_controller_once() -> anyhow::Result<()>
{
    let _turn = turn().await;
    let mut fleet = Fleet::start(&ALL.map(|name| (name, ALL_ROLES)), SYSTEM_NAMESPACE).await?;
    let edits = fleet.edit();
    let fleet = &mut fleet;
    let changes = Box::pin(async {
        fleet.is_shared_by(&ALL).await?;
        fleet.forget();
        let mut left = ALL.to_vec();
        for _ in 0..2 {
            let leaver = left.remove(0);
            let began = Instant::now();
            fleet.signal(leaver, Signal::TERM)?;
            fleet.is_left_by(leaver).await?;
            fleet.is_served().await?;
            let took = began.elapsed();
            println!("{} replicas: all served after {took:?}", left.len());
            ensure!(took <= SHARED_WITHIN, "{leaver} left: {took:?}");
            fleet.has_ended(leaver).await?;
        }
        let began = Instant::now();
        for back in ALL.into_iter().take(2) {
            fleet.replace(back, ALL_ROLES).await?;
        }
        fleet.is_shared_by(&ALL).await?;
        fleet.is_served().await?;
        println!("3 replicas again: all shared after {:?}", began.elapsed());
        ensure!(
            began.elapsed() <= 2 * SHARED_WITHIN,
            "{:?}",
            began.elapsed()
        );
        fleet.history().is_exclusive()?;
        fleet.is_sound()
    });
    while_edited(edits, changes).await
}
