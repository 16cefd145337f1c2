//! The ShardMap, and the CRD that it needs.

use std::sync::Arc;

use anyhow::bail;
use metashard_api::{
    crd::shard_maps,
    id::{Seq, Term},
    shard_map::{FORMAT, ShardMapSpec},
};
use metashard_fleet::{
    map::{Map, Seen, Write},
    record::Written,
};
use metashard_kube::{
    crd::{Installed, install, missing},
    shard_map::ShardMaps,
};
use metashard_testkit::{Cluster, cluster::Options};

use crate::kit::{Kit, SOON};

fn spec(term: u64, seq: u64) -> ShardMapSpec {
    ShardMapSpec {
        term: Term(term),
        seq: Seq(seq),
        ..ShardMapSpec::default()
    }
}

fn accepted(written: Written<Arc<Map>>) -> anyhow::Result<Arc<Map>> {
    match written {
        Written::Accepted(map) => Ok(map),
        other => bail!("{other:?}"),
    }
}

#[tokio::test]
async fn the_map_is_written_by_compare_and_swap_once_its_crd_is_installed() -> anyhow::Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let kit = Kit::on(&cluster).await?;
    let maps = ShardMaps::new(&kit.clients, &kit.namespace);
    let crd = shard_maps();

    assert_eq!(
        missing(&kit.clients, std::slice::from_ref(&crd)).await?,
        ["shardmaps.metashard.io"]
    );
    assert_eq!(maps.read().await?, Seen::Absent);
    assert_eq!(install(&kit.clients, &crd).await?, Installed::Created);
    assert_eq!(install(&kit.clients, &crd).await?, Installed::Already);
    assert!(missing(&kit.clients, &[crd]).await?.is_empty());

    let mut watch = maps.watch(&kit.informers);
    let first = Write {
        base: None,
        spec: spec(1, 1),
    };
    let created = accepted(maps.write(&first).await)?;
    assert_eq!(maps.write(&first).await, Written::Conflict);
    let second = Write {
        base: Some(Arc::clone(&created)),
        spec: spec(1, 2),
    };
    let replaced = accepted(maps.write(&second).await)?;
    assert_eq!(
        maps.write(&Write {
            base: Some(created),
            spec: spec(2, 1)
        })
        .await,
        Written::Conflict
    );

    assert_eq!(replaced.spec, spec(1, 2));
    assert_eq!(maps.read().await?, Seen::Present(Arc::clone(&replaced)));
    loop {
        // The first state may have been overtaken.
        let seen = tokio::time::timeout(SOON, watch.next()).await?;
        if seen == Seen::Present(Arc::clone(&replaced)) {
            break;
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_map_of_a_newer_format_is_there_and_cannot_be_read() -> anyhow::Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let kit = Kit::on(&cluster).await?;
    let maps = ShardMaps::new(&kit.clients, &kit.namespace);
    install(&kit.clients, &shard_maps()).await?;
    let mut watch = maps.watch(&kit.informers);
    let newer = Write {
        base: None,
        spec: ShardMapSpec {
            format: FORMAT + 1,
            ..spec(1, 1)
        },
    };

    // It is written, and what the server answers cannot be read either.
    assert_eq!(maps.write(&newer).await, Written::Unknown);

    assert_eq!(maps.read().await?, Seen::Unreadable);
    assert_eq!(
        tokio::time::timeout(SOON, watch.next()).await?,
        Seen::Unreadable
    );
    Ok(())
}

#[tokio::test]
async fn without_the_right_to_install_a_crd_nothing_is_installed() -> anyhow::Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let kit = Kit::with(&cluster, cluster.kubeconfig("nobody")?).await?;

    assert_eq!(
        install(&kit.clients, &shard_maps()).await?,
        Installed::NotAllowed
    );
    Ok(())
}
