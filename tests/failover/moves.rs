//! A hot controller among idle ones: it is seen, and moved by hand.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, ensure};
use metashard_api::{id::ControllerUid, shard_map::ShardMapSpec};
use metashard_fleet::shard::Layout;
use metashard_testkit::wait::{eventually, throughout};
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    splits::{HOT, Stage},
    turn,
};

const ALL: [&str; 3] = ["alpha", "beta", "gamma"];

/// How long placing and measuring may take.
const WITHIN: Duration = Duration::from_mins(1);

/// How long a move by hand may take.
const MOVED_WITHIN: Duration = Duration::from_secs(30);

/// How long it is looked at whether it stays.
const STAYS: Duration = Duration::from_secs(12);

/// Parents of the hot controller; the others have one each.
const MANY: usize = 40;

fn owner<'a>(map: &'a ShardMapSpec, uid: &ControllerUid) -> Option<&'a str> {
    map.owner(Layout::of(map).home(uid))
        .map(|(it, _)| it.replica.as_str())
}

/// How many controllers each replica has, as the map says.
async fn counts(stage: &Stage) -> anyhow::Result<BTreeMap<String, usize>> {
    let (map, uids) = (stage.map().await?, stage.uids().await?);
    let mut counts: BTreeMap<String, usize> = ALL.map(|it| (it.to_owned(), 0)).into();
    for uid in uids.values() {
        let owner = owner(&map, uid).context("nobody has it")?;
        *counts.entry(owner.to_owned()).or_default() += 1;
    }
    Ok(counts)
}

/// The shard of the hot controller, as `metashardctl shards` shows it.
async fn shown(stage: &Stage) -> anyhow::Result<(Value, Vec<Value>)> {
    let servers = stage.servers();
    let servers = servers.iter().map(String::as_str);
    let args: Vec<&str> = ["shards", "-o", "json"]
        .into_iter()
        .chain(servers)
        .collect();
    let text = stage.ctl(&args).await?;
    let mut shown: Value = serde_json::from_str(&text)?;
    let Value::Array(shards) = shown["shards"].take() else {
        anyhow::bail!("no shards: {text}");
    };
    let is_its = |it: &&Value| {
        it["names"]
            .as_array()
            .is_some_and(|it| it.contains(&HOT.into()))
    };
    let hot = shards.iter().find(is_its).cloned();
    Ok((hot.context("its shard is not shown")?, shards))
}

/// The shard of a controller has this owner, and goes on having it.
async fn stays(stage: &Stage, uid: &ControllerUid, with: &str) -> anyhow::Result<()> {
    throughout(STAYS, "it to stay", async || {
        let map = stage.map().await?;
        ensure!(owner(&map, uid) == Some(with), "{:?}", owner(&map, uid));
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hot_controller_among_even_ones_is_seen_and_moved_by_hand_within_30_s_and_stays_whoever_leads()
-> anyhow::Result<()> {
    let _turn = turn().await;
    let mut controllers: Vec<_> = (0..29).map(|n| (format!("quiet-{n}"), 1)).collect();
    controllers.push((HOT.to_owned(), 1));
    let stage = Stage::start(&ALL, &controllers).await?;
    // It is to be moved, not split.
    stage.ask(Some(1)).await?;
    stage.is_served(&controllers).await?;
    let counts = eventually(WITHIN, "an even share for each", async || {
        let counts = counts(&stage).await?;
        let (least, most) = (counts.values().min(), counts.values().max());
        let (least, most) = least.zip(most).context("there are replicas")?;
        ensure!(2 * most <= 3 * least, "{counts:?}");
        Ok(counts)
    })
    .await?;
    println!("controllers by replica: {counts:?}");

    stage.add_parents(HOT, 1..MANY).await?;
    let hot = eventually(WITHIN, "the hot one to be seen", async || {
        let (hot, shards) = shown(&stage).await?;
        let cost = |it: &Value| it["costMicros"].as_u64().unwrap_or(0);
        let next = shards.iter().filter(|it| it["shard"] != hot["shard"]);
        let next = next.map(cost).max().unwrap_or(0);
        ensure!(cost(&hot) > 5 * next.max(1), "{} and {next}", cost(&hot));
        let ratio = stage.metric("metashard_leader_imbalance_ratio").await?;
        ensure!(ratio > 1.2, "the gauge is {ratio}");
        Ok(hot)
    })
    .await?;

    let from = hot["owner"].as_str().context("it has an owner")?;
    let to = ALL.into_iter().find(|it| *it != from).context("another")?;
    let began = Instant::now();
    stage
        .ctl(&["shards", "move", HOT, "--to", to, "--wait", "--timeout=30s"])
        .await?;
    let took = began.elapsed();
    println!("{HOT} moved from {from} to {to} in {took:?}");
    ensure!(took < MOVED_WITHIN, "{took:?}");
    let uid = stage.uids().await?;
    let uid = uid.get(HOT).context("it is there")?;
    stays(&stage, uid, to).await?;
    // Who leads next knows of the wish too.
    stage.change_leader().await?;
    stays(&stage, uid, to).await?;
    controllers.pop();
    controllers.push((HOT.to_owned(), MANY));
    stage.is_served(&controllers).await?;
    let calls = stage.assert_never_twice()?;
    println!("{calls} calls, none at once with another one for the same parent");
    Ok(())
}
