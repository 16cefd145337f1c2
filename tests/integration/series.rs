//! Series of metrics: whose they are, and that they go with their controller.

use anyhow::ensure;

use crate::support::{CONFIG_MAP, CONTROLLER, DecoratorBuilder, Stage, THING, eventually};

/// The series of a replica that tell of the composite controller, or of the decorator, of this stage.
async fn series(stage: &Stage, kind: &str) -> anyhow::Result<Vec<String>> {
    let name = &stage.namespace;
    let text = stage.shared.replica.metrics().await?;
    let ours = text.lines().filter(|line| {
        let is_named = line.contains(&format!("\"{name}\"")) && line.contains(kind);
        is_named || line.contains(&format!("\"{kind}-{name}\""))
    });
    let name_of = |line: &str| line.split('{').next().unwrap_or_default().to_owned();
    let mut names: Vec<_> = ours.map(name_of).collect();
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

#[tokio::test]
async fn controllers_of_one_name_have_series_of_their_own_that_go_with_them() -> anyhow::Result<()>
{
    let stage = Stage::new("series").await?;
    stage
        .controller()
        .child(CONFIG_MAP, "InPlace")
        .apply()
        .await?;
    let name = stage.namespace.clone();
    DecoratorBuilder::new(&stage, "decorate")
        .target(CONFIG_MAP)
        .edit(|it| it["metadata"]["name"] = name.as_str().into())
        .apply()
        .await?;
    stage.parent(THING, "p", serde_json::json!({})).await?;
    stage.settle(THING, "p").await?;
    stage
        .parent(CONFIG_MAP, "decorated", serde_json::json!({}))
        .await?;
    let wanted = [
        "metacontroller_sync_requests_total",
        "metashard_worker_syncs_total",
        "workqueue_adds_total",
    ];
    for kind in ["CompositeController", "DecoratorController"] {
        eventually(&format!("series of the {kind}"), async || {
            let series = series(&stage, kind).await?;
            let is_there = |it: &&str| series.iter().any(|other| other == it);
            ensure!(wanted.iter().all(is_there), "{series:#?}");
            Ok(())
        })
        .await?;
    }

    stage.objects(CONTROLLER).delete(&name).await?;

    eventually("the series of the composite to go", async || {
        let left = series(&stage, "CompositeController").await?;
        ensure!(left.is_empty(), "{left:#?}");
        Ok(())
    })
    .await?;
    let others = series(&stage, "DecoratorController").await?;
    ensure!(
        wanted
            .iter()
            .all(|it| others.iter().any(|other| other == it)),
        "{others:#?}"
    );
    Ok(())
}

#[tokio::test]
#[cfg(debug_assertions)]
async fn the_status_of_a_controller_says_how_many_parents_it_has() -> anyhow::Result<()> {
    let stage = Stage::new("parents").await?;
    let _replica = stage.replica("parents-1", "count-every=1").await?;
    stage.controller().own().apply().await?;
    let controllers = stage.objects(CONTROLLER);
    let has = |count: i64| move |it: &serde_json::Value| it["status"]["parents"] == count;
    controllers
        .becomes(&stage.namespace, "to have none", has(0))
        .await?;

    for name in ["a", "b", "c"] {
        stage.parent(THING, name, serde_json::json!({})).await?;
    }
    let other = serde_json::json!({ "metadata": { "name": "other" } });
    stage.objects(THING).create(other).await?;

    controllers
        .becomes(&stage.namespace, "to have three", has(3))
        .await?;
    Ok(())
}
