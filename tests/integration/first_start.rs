//! The first replica of an installation, after the manifests were applied.

use std::time::Duration;

use metashard_testkit::{Replica, replica, shipped};

use crate::support::shared;

/// Much less than the Lease below lasts, which is how long a leader waits where it cannot know that nobody led before.
const AT_ONCE: Duration = Duration::from_secs(30);

async fn starts_at_once(namespace: &str) -> anyhow::Result<()> {
    let cluster = &shared().await?.cluster;
    let options = replica::Options::new(cluster, namespace, namespace)?.flags([
        "--lease-duration=60s",
        "--target-label-selector=nobody=has-it",
    ]);
    let mut replica = Replica::start(cluster.group(), &options)?;
    replica.ready(AT_ONCE).await
}

#[tokio::test]
async fn the_first_replica_in_a_namespace_that_it_makes_waits_for_nobody() -> anyhow::Result<()> {
    starts_at_once("first-start-alone").await
}

#[tokio::test]
async fn with_the_map_of_the_manifests_the_first_replica_waits_for_nobody() -> anyhow::Result<()> {
    let namespace = "first-start-manifests";
    let client = shared().await?.cluster.admin().await?;
    shipped::put_system(&client, namespace).await?;

    starts_at_once(namespace).await
}
