//! Bad input from people: what they edit, delete, start twice or send to the wrong port is told of, never doubles a
//! controller, and is over when the cause is.

use std::time::Duration;

use anyhow::ensure;
use metashard_api::names::{SYSTEM_NAMESPACE, event};
use metashard_testkit::wait::throughout;
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, net::TcpStream};

use crate::{ALL, ALL_ROLES, fleet::Fleet, turn, while_edited};

/// How long the cause of something lasts.
const LASTS: Duration = Duration::from_secs(10);

/// Connections with garbage.
const GARBAGE: usize = 30;

/// Meddles with a fleet of which all is well, while its parents are edited.
pub(crate) async fn meddle(
    meddling: impl AsyncFnOnce(&Fleet) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let _turn = turn().await;
    let fleet = Fleet::start(&ALL.map(|name| (name, ALL_ROLES)), SYSTEM_NAMESPACE).await?;
    let faults = Box::pin(async {
        is_well(&fleet).await?;
        meddling(&fleet).await
    });
    while_edited(fleet.edit(), faults).await
}

/// All is well: everybody has a share, everything is called, and nothing was doubled on the way here.
pub(crate) async fn is_well(fleet: &Fleet) -> anyhow::Result<()> {
    fleet.is_shared_by(&ALL).await?;
    fleet.is_served().await?;
    fleet.history().is_exclusive()
}

#[tokio::test]
async fn shard_map_that_is_edited_or_deleted_by_hand_is_mended() -> anyhow::Result<()> {
    meddle(async |fleet| {
        fleet.is_at_rest().await?;
        let before = fleet.map().await?;

        // Nothing of it counts.
        fleet.label_map().await?;
        let give_all_away = |map: &mut Value| {
            for shard in map["spec"]["shards"].as_array_mut().into_iter().flatten() {
                shard["owner"] = json!(0);
            }
        };
        fleet.edit_map(give_all_away).await?;
        fleet.warns(event::SHARD_MAP_EDITED).await?;
        fleet.says("ShardMap edited by hand").await?;
        is_well(fleet).await?;
        ensure!(fleet.map().await?.shards == before.shards, "a shard moved");
        ensure!(fleet.n_said("membership lost") == 0, "a worker was lost");

        // Workers take notice of a higher number.
        let take_all_away = |map: &mut Value| {
            let seq = map["spec"]["seq"].as_u64().unwrap_or_default();
            map["spec"]["seq"] = json!(seq + 1);
            for shard in map["spec"]["shards"].as_array_mut().into_iter().flatten() {
                if let Some(shard) = shard.as_object_mut() {
                    shard.remove("owner");
                }
            }
        };
        fleet.edit_map(take_all_away).await?;
        fleet.warns(event::SHARD_MAP_LOST).await?;
        is_well(fleet).await?;

        // Another leader seems to have written it.
        let name_nobody = |map: &mut Value| {
            let term = map["spec"]["term"].as_u64().unwrap_or_default();
            map["spec"]["term"] = json!(term + 1);
            map["spec"]["leader"] = json!({ "replica": "nobody", "incarnation": "nobody" });
        };
        fleet.edit_map(name_nobody).await?;
        fleet.is_led("nobody").await?;
        is_well(fleet).await?;

        let n_lost = fleet.n_said("ShardMap lost");
        fleet.delete_map().await?;
        fleet.is_made_anew(n_lost).await?;
        is_well(fleet).await?;
        let after = fleet.map().await?;
        ensure!(after.shard_count == before.shard_count, "{after:?}");
        ensure!(after.version() > before.version(), "{after:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn worker_lease_that_is_taken_or_deleted_by_hand_costs_one_membership() -> anyhow::Result<()>
{
    meddle(async |fleet| {
        let victim = fleet.follower().await?;
        fleet.take_lease_of(victim).await?;
        fleet.loses_its_membership(1).await?;
        is_well(fleet).await?;

        fleet.delete_lease_of(victim).await?;
        fleet.loses_its_membership(2).await?;
        is_well(fleet).await?;
        ensure!(fleet.n_said("membership lost") == 2, "more were lost");
        fleet.is_sound()
    })
    .await
}

#[tokio::test]
async fn garbage_on_the_port_of_sessions_changes_nothing() -> anyhow::Result<()> {
    meddle(async |fleet| {
        fleet.is_at_rest().await?;
        let before = fleet.map().await?;
        let address = fleet.address_of_leader().await?;
        let mut open = Vec::new();
        for number in 0..GARBAGE {
            let mut connection = TcpStream::connect(&address).await?;
            let garbage: &[u8] = match number % 3 {
                0 => b"GET /metrics HTTP/1.1\r\nHost: fleet\r\n\r\n",
                1 => &[0xff; 4_096],
                // The begin of a TLS handshake whose end does not come.
                _ => &[0x16, 0x03, 0x01, 0x02, 0x00, 0x01],
            };
            connection.write_all(garbage).await?;
            open.push(connection);
        }
        fleet
            .says("connection refused: no TLS of the fleet")
            .await?;
        is_well(fleet).await?;
        drop(open);

        let now = fleet.map().await?;
        ensure!(now.version() == before.version(), "the map was written");
        ensure!(fleet.n_said("session ended") == 0, "a session broke");
        fleet.is_sound()
    })
    .await
}

#[tokio::test]
async fn two_replicas_of_one_name_are_two_workers_and_told_of() -> anyhow::Result<()> {
    meddle(async |fleet| {
        let mut double = fleet.stranger(ALL[1], &[]).await?;
        fleet.says("two workers have one name").await?;
        fleet.has_members(ALL[1], 2).await?;
        fleet.is_shared_by(&ALL).await?;
        fleet.is_served().await?;
        double.kill()?;
        fleet.says("worker lost").await?;
        is_well(fleet).await?;
        fleet.is_sound()
    })
    .await
}

#[tokio::test]
async fn two_installations_in_one_namespace_double_nothing_and_are_told_of() -> anyhow::Result<()> {
    meddle(async |fleet| {
        let flags = ["--leader-election-id=other"];
        let mut other = fleet.stranger("delta", &flags).await?;
        fleet.warns(event::LEAD_CONTESTED).await?;
        fleet.says("another leader writes the ShardMap").await?;
        throughout(LASTS, "each controller to be called once", async || {
            fleet.history().is_exclusive()
        })
        .await?;
        fleet.is_served().await?;
        other.kill()?;
        fleet.is_led("delta").await?;
        is_well(fleet).await?;
        fleet.is_sound()
    })
    .await
}
