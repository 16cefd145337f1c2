//! Controllers that are deleted, and the finalizers that they leave on parents.

use anyhow::{Context, ensure};
use metashard_testkit::{Replica, replica};
use serde_json::{Value, json};

use crate::support::{
    CONFIG_MAP, CONTROLLER, OWN_REPLICA, Objects, STAGE, Stage, THING, WITHIN, condition_of,
    eventually, throughout, version_of,
};

const FOREIGN: &str = "test.metashard.io/hold";

fn finalizer(stage: &Stage) -> String {
    format!("metacontroller.io/compositecontroller-{}", stage.namespace)
}

fn finalizers(object: &Value) -> Vec<Value> {
    let finalizers = object["metadata"]["finalizers"].as_array();
    finalizers.cloned().unwrap_or_default()
}

/// A replica for this stage alone, with its own system namespace.
async fn own_replica(stage: &Stage, name: &str, flags: &[&str]) -> anyhow::Result<Replica> {
    let cluster = &stage.shared.cluster;
    let selector = format!("--target-label-selector={OWN_REPLICA}={}", stage.namespace);
    let options = replica::Options::new(cluster, name, &stage.namespace)?
        .flags([selector.as_str()])
        .flags(flags.iter().copied());
    let mut replica = Replica::start(cluster.group(), &options)?;
    replica.ready(WITHIN).await?;
    Ok(replica)
}

/// A controller with a finalize hook for the stage's own replica.
async fn own_controller(stage: &Stage) -> anyhow::Result<Value> {
    stage
        .controller()
        .finalize()
        .edit(|it| it["metadata"]["labels"] = json!({ OWN_REPLICA: stage.namespace }))
        .apply()
        .await
}

/// Parents `p0`, `p1`... that carry the finalizer of this stage's controller.
async fn held(stage: &Stage, count: usize) -> anyhow::Result<()> {
    let ours = json!(finalizer(stage));
    for number in 0..count {
        stage
            .parent(THING, &format!("p{number}"), json!({}))
            .await?;
    }
    for number in 0..count {
        let is_held = |it: &Value| finalizers(it).contains(&ours);
        let things = stage.objects(THING);
        things
            .becomes(&format!("p{number}"), "to be held", is_held)
            .await?;
    }
    Ok(())
}

/// How many parents carry the finalizer of this stage's controller.
async fn count_held(stage: &Stage) -> anyhow::Result<usize> {
    let ours = json!(finalizer(stage));
    let things = stage.objects(THING).list().await?;
    Ok(things
        .iter()
        .filter(|it| finalizers(it).contains(&ours))
        .count())
}

async fn none_is_held(stage: &Stage) -> anyhow::Result<()> {
    eventually("no parent to be held", async || {
        let held = count_held(stage).await?;
        ensure!(held == 0, "{held} are");
        Ok(())
    })
    .await
}

/// The record of a controller in a system namespace.
async fn record(stage: &Stage, system: &str, controller: &Value) -> anyhow::Result<Option<Value>> {
    let uid = controller["metadata"]["uid"].as_str().context("no uid")?;
    let records = Objects::new(&stage.client, CONFIG_MAP, system);
    records.find(&format!("metashard-finalizers-{uid}")).await
}

#[tokio::test]
async fn a_deleted_controllers_finalizer_is_taken_from_all_its_parents_and_no_other()
-> anyhow::Result<()> {
    let stage = Stage::new("departed").await?;
    let controller = stage.controller().finalize().apply().await?;
    held(&stage, 3).await?;
    let (things, ours) = (stage.objects(THING), finalizer(&stage));
    let both = json!({ "metadata": { "finalizers": [FOREIGN, ours] } });
    things.patch("p0", both).await?;
    stage
        .hook
        .answer_with(|_| metashard_testkit::hook::Answer::status(503, "away"));
    things.delete("p1").await?;
    let away = json!({ "metadata": { "labels": { STAGE: "other" } } });
    things.patch("p2", away).await?;
    let system = "metashard-system";
    let kept = record(&stage, system, &controller).await?;
    let kept = kept.context("there is no record")?;
    ensure!(kept["data"]["parents"] == "test.metashard.io/v1/things");

    stage.objects(CONTROLLER).delete(&stage.namespace).await?;

    none_is_held(&stage).await?;
    things.goes("p1").await?;
    ensure!(finalizers(&things.get("p0").await?) == [json!(FOREIGN)]);
    eventually("the record to go", async || {
        let left = record(&stage, system, &controller).await?;
        ensure!(left.is_none(), "{left:#?}");
        Ok(())
    })
    .await?;
    things.delete("p2").await?;
    things.goes("p2").await
}

#[tokio::test]
async fn an_edit_of_a_controller_keeps_the_finalizers_of_its_parents() -> anyhow::Result<()> {
    let stage = Stage::new("departed-edit").await?;
    stage.controller().finalize().apply().await?;
    held(&stage, 2).await?;

    let edit = json!({ "spec": { "resyncPeriodSeconds": 3600 } });
    stage
        .objects(CONTROLLER)
        .patch(&stage.namespace, edit)
        .await?;
    stage.poke(THING, "p0").await?;

    throughout("both are held", async || {
        ensure!(count_held(&stage).await? == 2);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_controller_that_is_made_anew_keeps_the_finalizers_of_its_parents() -> anyhow::Result<()>
{
    let stage = Stage::new("departed-anew").await?;
    stage.controller().finalize().apply().await?;
    held(&stage, 2).await?;

    stage.objects(CONTROLLER).delete(&stage.namespace).await?;
    stage.controller().finalize().apply().await?;

    stage.poke(THING, "p0").await?;
    stage.poke(THING, "p1").await?;
    stage.settle(THING, "p0").await?;
    stage.settle(THING, "p1").await?;
    ensure!(count_held(&stage).await? == 2);
    Ok(())
}

#[tokio::test]
async fn a_controller_that_is_relabelled_away_says_so_and_lets_go_only_when_it_is_deleted()
-> anyhow::Result<()> {
    let stage = Stage::new("departed-label").await?;
    let _replica = own_replica(&stage, &stage.namespace, &[]).await?;
    own_controller(&stage).await?;
    held(&stage, 2).await?;
    stage.condition("Ready", "True").await?;

    let away = json!({ "metadata": { "labels": { OWN_REPLICA: "other" } } });
    let controllers = stage.objects(CONTROLLER);
    controllers.patch(&stage.namespace, away).await?;

    stage.says("Ready", "Unknown", "NotServed", "").await?;
    let said = controllers.get(&stage.namespace).await?;
    ensure!(said["status"].get("worker").is_none(), "{said:#}");
    throughout("both are held", async || {
        ensure!(count_held(&stage).await? == 2);
        Ok(())
    })
    .await?;
    controllers.delete(&stage.namespace).await?;
    none_is_held(&stage).await
}

#[tokio::test]
async fn a_controller_that_is_deleted_while_no_replica_runs_lets_go_when_one_does()
-> anyhow::Result<()> {
    let stage = Stage::new("departed-alone").await?;
    let mut replica = own_replica(&stage, &format!("{}-1", stage.namespace), &[]).await?;
    own_controller(&stage).await?;
    held(&stage, 2).await?;
    replica.kill()?;

    stage.objects(CONTROLLER).delete(&stage.namespace).await?;
    ensure!(count_held(&stage).await? == 2);

    let _replica = own_replica(&stage, &format!("{}-2", stage.namespace), &[]).await?;
    none_is_held(&stage).await
}

#[tokio::test]
async fn a_clean_up_whose_worker_is_killed_is_taken_up_by_the_next() -> anyhow::Result<()> {
    const PARENTS: usize = 40;
    let stage = Stage::new("departed-killed").await?;
    let first = format!("{}-1", stage.namespace);
    let slowly = ["--client-go-qps=8", "--client-go-burst=1"];
    let mut replica = own_replica(&stage, &first, &slowly).await?;
    own_controller(&stage).await?;
    held(&stage, PARENTS).await?;

    stage.objects(CONTROLLER).delete(&stage.namespace).await?;
    let left = eventually("the first parents to be let go", async || {
        let held = count_held(&stage).await?;
        ensure!(held < PARENTS, "none is");
        Ok(held)
    })
    .await?;
    replica.kill()?;
    ensure!(left > 0, "all were let go before the worker was killed");

    let _replica = own_replica(&stage, &format!("{}-2", stage.namespace), &[]).await?;
    none_is_held(&stage).await
}

#[tokio::test]
async fn a_controller_without_finalize_hook_leaves_no_record_and_its_parents_alone()
-> anyhow::Result<()> {
    let stage = Stage::new("departed-plain").await?;
    let controller = stage.controller().apply().await?;
    stage.parent(THING, "p", json!({})).await?;
    stage.settle(THING, "p").await?;
    let before = stage.objects(THING).get("p").await?;

    stage.objects(CONTROLLER).delete(&stage.namespace).await?;
    stage.event(&controller, "Stopped", "").await?;

    ensure!(
        record(&stage, "metashard-system", &controller)
            .await?
            .is_none()
    );
    throughout("the parent is not written", async || {
        let now = stage.objects(THING).get("p").await?;
        ensure!(version_of(&now) == version_of(&before), "{now:#}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_paused_controller_rests_and_says_so_until_it_is_resumed() -> anyhow::Result<()> {
    let stage = Stage::new("paused-controller").await?;
    let controller = stage.controller().apply().await?;
    stage.parent(THING, "p", json!({})).await?;
    stage.settle(THING, "p").await?;
    let controllers = stage.objects(CONTROLLER);

    let pause = json!({ "spec": { "paused": true } });
    controllers.patch(&stage.namespace, pause).await?;

    stage.says("Ready", "False", "Paused", "").await?;
    let told = stage.event(&controller, "Paused", "spec.paused").await?;
    ensure!(told["type"] == "Normal", "{told:#}");
    ensure!(stage.told(&controller, "CreateError").await? == 0);
    stage.is_unserved(THING, "p").await?;
    let said = controllers.get(&stage.namespace).await?;
    ensure!(condition_of(&said, "Accepted").is_some_and(|it| it["reason"] == "Paused"));

    let resume = json!({ "spec": { "paused": false } });
    controllers.patch(&stage.namespace, resume).await?;
    stage.poke(THING, "p").await?;
    stage.condition("Ready", "True").await?;
    Ok(())
}

#[tokio::test]
async fn a_deleted_controller_whose_children_were_to_stay_holds_no_parent() -> anyhow::Result<()> {
    let stage = Stage::new("departed-orphan").await?;
    stage
        .controller()
        .child(CONFIG_MAP, "InPlace")
        .edit(|it| it["spec"]["childResources"][0]["deletionPolicy"] = "Orphan".into())
        .apply()
        .await?;
    held(&stage, 1).await?;

    stage.objects(CONTROLLER).delete(&stage.namespace).await?;

    none_is_held(&stage).await
}
