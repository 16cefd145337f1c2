//! `--target-label-selector`: which controllers a replica serves.

use metashard_testkit::{Replica, replica};
use serde_json::json;

use crate::support::{CONTROLLER, OWN_REPLICA, Stage, THING, WITHIN};

#[tokio::test]
async fn a_replica_serves_the_controllers_of_its_target_selector_until_they_are_relabelled()
-> anyhow::Result<()> {
    let stage = Stage::new("target").await?;
    let cluster = &stage.shared.cluster;
    let name = stage.namespace.as_str();
    let selector = format!("--target-label-selector={OWN_REPLICA}={name}");
    let options = replica::Options::new(cluster, name, name)?.flags([selector.as_str()]);
    let mut replica = Replica::start(cluster.group(), &options)?;
    let label = |value: &str| json!({ "metadata": { "labels": { OWN_REPLICA: value } } });
    let controllers = stage.objects(CONTROLLER);

    let controller = stage
        .controller()
        .edit(|it| it["metadata"]["labels"] = json!({ OWN_REPLICA: "other" }))
        .apply()
        .await?;
    stage.parent(THING, "p", json!({})).await?;
    replica.ready(WITHIN).await?;
    stage.is_unserved(THING, "p").await?;
    controllers.patch(name, label(name)).await?;
    stage.poke(THING, "p").await?;
    let started = stage.event(&controller, "Started", "").await?;
    assert_eq!(started["reportingInstance"], name);

    controllers.patch(name, label("other")).await?;
    stage.event(&controller, "Stopped", "").await?;
    stage.is_unserved(THING, "p").await?;

    controllers.patch(name, label(name)).await?;
    stage.poke(THING, "p").await?;
    Ok(())
}
