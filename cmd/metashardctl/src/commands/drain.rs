//! `drain` and `uncordon`: replicas that a Placement cordons.

use std::collections::BTreeSet;

use metashard_api::shard_map::ShardMapSpec;
use metashard_plan::suggest;

use super::placement::Desk;
use crate::{
    Found,
    argv::shards::{Drain, Uncordon},
    cluster::Cluster,
    fleet::Fleet,
    output::Output,
};

pub(super) async fn drain(flags: &Drain, output: &mut Output) -> anyhow::Result<Found> {
    let writing = &flags.asked.writing;
    let cluster = Cluster::connect(&writing.live).await?;
    let fleet = Fleet::one(&cluster, &writing.asking).await?;
    let desk = Desk::open(&cluster, &fleet)?;
    let replica = fleet.named(&flags.replica)?.name.as_str();
    let live: BTreeSet<&str> = fleet.replicas().iter().map(|it| it.name.as_str()).collect();
    let outcome = desk.change(writing.dry_run, |spec| {
        if !spec.cordoned.iter().any(|it| it == replica) {
            spec.cordoned.push(replica.to_owned());
        }
        anyhow::ensure!(
            live.iter()
                .any(|it| !spec.cordoned.iter().any(|name| name == it)),
            "no replica would be left that may have shards: nothing would move"
        );
        Ok(())
    });
    let outcome = outcome.await?;
    outcome.tell(&format!("replica {replica} cordoned"), output)?;
    if !flags.asked.wait || writing.dry_run {
        return Ok(outcome.found());
    }
    desk.wait(flags.asked.timeout, output, async |_| {
        let map = fleet.map_now(&cluster).await?;
        let n = n_owned(&map, replica);
        Ok((n > 0).then(|| format!("replica {replica} still has {n} shards")))
    })
    .await
}

pub(super) async fn uncordon(flags: &Uncordon, output: &mut Output) -> anyhow::Result<Found> {
    let writing = &flags.writing;
    let cluster = Cluster::connect(&writing.live).await?;
    let fleet = Fleet::one(&cluster, &writing.asking).await?;
    let desk = Desk::open(&cluster, &fleet)?;
    let replica = flags.replica.as_str();
    let cordoned = desk.read().await?.spec.cordoned;
    if !cordoned.iter().any(|it| it == replica) {
        let lives = fleet.named(replica);
        let hint = suggest::hint(replica, cordoned.iter().map(String::as_str));
        lives.map_err(|error| match hint.as_str() {
            "" => error,
            hint => anyhow::anyhow!("replica {replica:?} is not cordoned{hint}"),
        })?;
    }
    let outcome = desk.change(writing.dry_run, |spec| {
        spec.cordoned.retain(|it| it != replica);
        Ok(())
    });
    let outcome = outcome.await?;
    outcome.tell(&format!("replica {replica} uncordoned"), output)?;
    Ok(outcome.found())
}

fn n_owned(map: &ShardMapSpec, replica: &str) -> usize {
    let owner = |index: u16| map.members.get(usize::from(index));
    let owners = map.shards.iter().filter_map(|it| owner(it.owner?));
    owners.filter(|it| it.replica == replica).count()
}

#[cfg(test)]
mod tests {
    use metashard_api::shard_map::{Member, ShardEntry};

    use super::*;

    #[test]
    fn shards_of_all_memberships_of_a_replica_count() {
        let member = |replica: &str, incarnation: &str| Member {
            replica: replica.to_owned(),
            incarnation: incarnation.to_owned(),
        };
        let owned_by = |owner| ShardEntry {
            owner,
            ..ShardEntry::default()
        };
        let map = ShardMapSpec {
            members: vec![member("a", "1"), member("a", "2"), member("b", "3")],
            shards: [Some(0), Some(1), Some(2), None].map(owned_by).into(),
            ..ShardMapSpec::default()
        };

        assert_eq!(n_owned(&map, "a"), 2);
        assert_eq!(n_owned(&map, "b"), 1);
        assert_eq!(n_owned(&map, "c"), 0);
    }
}
