//! Moves of a Metacontroller that runs as a Deployment, and of DecoratorControllers.

use anyhow::{Context, ensure};
use serde_json::json;

use super::{
    peer::DEPLOYMENT,
    scene::{Cast, Says, Scene, scene_of},
};
use crate::support::{CONFIG_MAP, CONTROLLER, DECORATOR, POD, data_of, eventually};

/// A Deployment, a CompositeController `a`, and a DecoratorController `b`.
async fn scene() -> anyhow::Result<Scene> {
    let cast = Cast {
        workload: DEPLOYMENT,
        controllers: [CONTROLLER, DECORATOR],
    };
    scene_of(cast).await
}

fn ends(says: &Says, code: i32, texts: &[&str]) -> anyhow::Result<()> {
    ensure!(says.code == code, "it should end with {code}: {says:?}");
    let mut rest = says.out.as_str();
    for text in texts {
        let found = rest.split_once(text);
        (_, rest) = found.with_context(|| format!("no {text:?} in\n{}", says.out))?;
    }
    Ok(())
}

impl Scene {
    /// Changes the attachment of the decorator.
    async fn attachment(&self, value: &str) -> anyhow::Result<()> {
        let patch = json!({ "data": { "k": value } });
        self.stage.objects(CONFIG_MAP).patch("b", patch).await?;
        Ok(())
    }

    /// Goes on once the Pods are deleted by hand.
    async fn apply_without_pods(&self, args: &[&str]) -> anyhow::Result<Says> {
        let pods = self.stage.objects(POD);
        for pod in pods.list().await? {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            pods.delete(name).await?;
        }
        self.apply(args).await
    }

    /// It is what the hook wants, for metashard acts.
    async fn attachment_is_put_right(&self) -> anyhow::Result<()> {
        let maps = self.stage.objects(CONFIG_MAP);
        maps.becomes("b", "to be put right", |it| data_of(it)["k"] == "v")
            .await?;
        Ok(())
    }
}

#[tokio::test]
async fn a_deployment_and_a_decorator_are_moved_and_go_back() -> anyhow::Result<()> {
    let mut scene = scene().await?;
    let [a, b] = scene.controllers();
    let workload = format!("Deployment {}/mc", scene.ops());
    let plan = scene.ctl(&["migrate", "plan"]).await?;
    let decorator = format!("DecoratorController {b}: differs");
    let texts = [
        &format!("{workload}: 2 replicas of "),
        "its leader Lease is held by mc-0_1",
        &format!("CompositeController {a}: differs"),
        &decorator,
        "rolling methods of attachments mean Recreate and InPlace",
    ];
    ends(&plan, 0, &texts)?;
    scene.start()?;

    // An attachment that differs is told of, and left alone.
    scene.attachment("drifted").await?;
    let would = format!("DecoratorController {b}: 1 parent, writes we would have made: 1");
    let which = format!("  update ConfigMap {}/b", scene.ops());
    ends(&scene.apply(&[]).await?, 1, &[&would, &which])?;
    ensure!(scene.replicas().await? == 2);
    scene.attachment("v").await?;
    eventually("the replica to have seen that", async || {
        ends(&scene.apply(&["--only-observe"]).await?, 0, &[])
    })
    .await?;

    let says = scene.apply(&[]).await?;
    let texts = [
        &format!("  DecoratorController {b}: 1 parent, writes we would have made: 0"),
        &format!("stop: {workload} ends"),
        &format!("  {workload}: scaled from 2 to 0"),
        &format!("  DecoratorController {b}: metashard acts on it from now on"),
        &format!(
            "  DecoratorController {b}: ready, 1 of 1 parent synced, 0 failing, writes made: 0"
        ),
        "Moved: metashard acts on all controllers",
    ];
    ends(&says, 0, &texts)?;
    ensure!(scene.replicas().await? == 0);
    ensure!(scene.marks().await? == [(false, None), (false, None)]);
    scene.attachment("1").await?;
    scene.attachment_is_put_right().await?;
    scene.is_put_right_by_metashard("1").await?;

    let says = scene.rollback(&[]).await?;
    ends(&says, 0, &[&format!("  {workload}: scaled from 0 to 2")])?;
    scene.peer_is_up().await?;
    scene.attachment("2").await?;
    scene.is_left_alone("2").await?;
    let attachment = scene.stage.objects(CONFIG_MAP).get("b").await?;
    ensure!(data_of(&attachment)["k"] == "2", "{attachment:#}");
    let written = scene.never_were_both_at_work()?;
    ensure!(written >= 2, "the log shows {written}");
    Ok(())
}

#[tokio::test]
async fn a_decorator_is_moved_alone_by_its_kind_and_its_name() -> anyhow::Result<()> {
    let mut scene = scene().await?;
    scene.start()?;
    let [_, b] = scene.controllers();

    let other_kind = format!("compositecontroller/{b}");
    let says = scene.apply(&["--controller", &other_kind]).await?;
    ensure!(says.code == 2, "{says:?}");
    let alone = format!("decoratorcontroller.metacontroller.k8s.io/{b}");
    let says = scene
        .apply(&["--controller", &alone, "--let-others-rest"])
        .await?;
    ends(&says, 0, &["Moved. Nobody acts on CompositeController"])?;
    let marks = scene.marks().await?;
    ensure!((marks[0].0, marks[1].0) == (true, false), "{marks:?}");
    scene.attachment("1").await?;
    scene.attachment_is_put_right().await?;
    scene.is_left_alone("1").await
}

#[tokio::test]
async fn a_deployment_that_may_still_make_pods_has_not_ended() -> anyhow::Result<()> {
    let mut scene = scene().await?;
    scene.start()?;
    ends(&scene.apply(&["--only-observe"]).await?, 0, &[])?;
    let cluster = &scene.stage.shared.cluster;

    // It does not see that no replicas are asked for, and would replace a Pod that is gone.
    cluster.hold_controller_manager(true)?;
    let says = scene.apply_without_pods(&["--timeout=15s"]).await;
    let record = scene.record().await;
    cluster.hold_controller_manager(false)?;
    let (says, record) = (says?, record?.context("a record")?);
    ensure!(says.code == 2, "{says:?}");
    let title = format!("Deployment {}/mc", scene.ops());
    let why = format!("kube-controller-manager to see that {title} is to have no Pods");
    ensure!(says.err.contains(&why), "{says:?}");
    ensure!(record["data"]["stage"] == "stopping", "{record:#}");

    ends(&scene.apply(&[]).await?, 0, &["Moved: "])?;
    scene.never_were_both_at_work()?;
    Ok(())
}
