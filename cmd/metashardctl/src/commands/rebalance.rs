//! `rebalance`: the load levelled once, as a Placement asks; or what would move.

use anyhow::Context;
use jiff::Timestamp;
use metashard_fleet::placement::Level;

use super::{
    placement::Desk,
    shards::{simulate, view::View},
};
use crate::{Found, argv::shards::Rebalance, cluster::Cluster, fleet::Fleet, output::Output};

pub(super) async fn run(flags: &Rebalance, output: &mut Output) -> anyhow::Result<Found> {
    let writing = &flags.writing;
    let cluster = Cluster::connect(&writing.live).await?;
    if writing.dry_run {
        let view = View::of(&cluster, &flags.server, &writing.asking).await?;
        let simulated = view.shards.simulated(None, Level::Fine);
        return simulate::tell(&simulated, flags.output, output);
    }
    let fleet = Fleet::one(&cluster, &writing.asking).await?;
    let desk = Desk::open(&cluster, &fleet)?;
    let now = Timestamp::try_from(cluster.clock.wall()).context("tell the time")?;
    let reason = flags.reason.clone().unwrap_or_else(|| format!("{now:.0}"));
    let outcome = desk
        .change(false, |spec| {
            spec.rebalance = Some(reason.clone());
            Ok(())
        })
        .await?;
    outcome.tell(&format!("a levelling is asked for: {reason}"), output)?;
    if !flags.wait {
        return Ok(outcome.found());
    }
    desk.wait(flags.timeout, output, async |seen| {
        let is_done = seen.status.observed_rebalance.as_ref() == Some(&reason);
        Ok((!is_done).then(|| "the load is being levelled".to_owned()))
    })
    .await
}
