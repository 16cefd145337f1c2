//! Replicas of other versions in a fleet, and maps that such replicas would write.

use anyhow::{Context, ensure};
use metashard_api::names::event;
use metashard_testkit::Replica;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    ALL,
    fleet::Fleet,
    meddled::{is_well, meddle},
};

/// A version whose minor number is `above` that of this one.
fn version(above: u64) -> anyhow::Result<String> {
    let mut parts = env!("CARGO_PKG_VERSION").split('.').map(str::parse::<u64>);
    let mut next = || anyhow::Ok(parts.next().context("a version has three parts")??);
    let (major, minor) = (next()?, next()?);
    Ok(format!("{major}.{}.0", minor + above))
}

/// Starts a replica that says that it is of a version.
async fn of_version(fleet: &Fleet, above: u64, name: &str) -> anyhow::Result<Replica> {
    let faults = format!("version={}", version(above)?);
    fleet.planted_stranger(&faults, name, &[]).await
}

#[tokio::test]
async fn replicas_of_other_versions_and_their_maps_double_nothing_and_are_told_of()
-> anyhow::Result<()> {
    meddle(async |fleet| {
        let newer = of_version(fleet, 1, "newer").await?;
        fleet.warns(event::VERSIONS_MIXED).await?;
        let newest = of_version(fleet, 2, "newest").await?;
        fleet.warns(event::VERSION_SKEW).await?;
        fleet.says("versions are too far apart").await?;
        fleet.is_served().await?;
        for mut other in [newer, newest] {
            other.signal(Signal::TERM)?;
            fleet.is_left_by(other.name()).await?;
            drop(other.kill());
        }
        fleet.warns(event::VERSIONS_ALIKE).await?;
        is_well(fleet).await?;

        newer_format(fleet).await?;
        fleet.is_sound()?;
        other_shard_count(fleet).await
    })
    .await
}

/// Nobody here can read the map: all go on as they are, and nobody leads.
async fn newer_format(fleet: &Fleet) -> anyhow::Result<()> {
    fleet.is_at_rest().await?;
    let before = fleet.map().await?;
    let raise = |map: &mut Value| map["spec"]["format"] = json!(1);
    fleet.edit_map(raise).await?;
    fleet.warns(event::SHARD_MAP_UNREADABLE).await?;
    fleet.says("ShardMap cannot be read").await?;
    fleet.is_led_by_nobody().await?;
    fleet.is_served().await?;

    let undo = |map: &mut Value| {
        if let Some(spec) = map["spec"].as_object_mut() {
            spec.remove("format");
        }
    };
    fleet.edit_map(undo).await?;
    fleet.is_led("").await?;
    is_well(fleet).await?;
    ensure!(fleet.map().await?.shards == before.shards, "a shard moved");
    ensure!(fleet.n_said("membership lost") == 0, "a worker was lost");
    Ok(())
}

/// Under another number of shards every controller belongs elsewhere: nobody serves anything until that is undone.
async fn other_shard_count(fleet: &Fleet) -> anyhow::Result<()> {
    let before = fleet.map().await?;
    let fewer = |map: &mut Value| {
        let seq = map["spec"]["seq"].as_u64().unwrap_or_default();
        map["spec"]["seq"] = json!(seq + 1);
        map["spec"]["shardCount"] = json!(8);
        if let Some(shards) = map["spec"]["shards"].as_array_mut() {
            shards.truncate(8);
        }
    };
    fleet.edit_map(fewer).await?;
    fleet.warns(event::SHARD_MAP_LOST).await?;
    fleet.says("another number of shards").await?;
    is_well(fleet).await?;
    let after = fleet.map().await?;
    ensure!(after.shard_count == before.shard_count, "{after:?}");
    ensure!(after.version() > before.version(), "{after:?}");
    for name in ALL {
        fleet.has_members(name, 1).await?;
    }
    Ok(())
}
