//! `metashardctl migrate`: a Metacontroller that runs, replicas of metashard beside it, and the way there and back.
//!
//! The Metacontroller is what the API server shows of one: a StatefulSet or Deployment with its image and arguments, the Pods
//! that kube-controller-manager makes of it, and a Lease that is renewed while replicas are asked for.

mod answers;
mod decorated;
mod left;
mod peer;
mod samples;
mod scene;

use std::sync::atomic::Ordering;

use anyhow::{Context, ensure};
use serde_json::json;

use self::scene::scene;
use super::support::{CONTROLLER, condition_of, eventually, throughout};

#[tokio::test]
async fn a_plan_finds_the_metacontroller_and_says_what_differs_for_each_controller()
-> anyhow::Result<()> {
    let scene = scene().await?;
    let name = scene.controllers()[0].clone();
    let says = scene.ctl(&["migrate", "plan"]).await?;

    assert_eq!(says.code, 0, "{says:?}");
    for text in [
        format!(
            "StatefulSet {}/mc: 2 replicas of ghcr.io/metacontroller/metacontroller:v4.17.2",
            scene.ops()
        ),
        "  arguments: --leader-election --workers=3".to_owned(),
        "  its leader Lease is held by mc-0_1".to_owned(),
        format!("CompositeController {name}: differs"),
        "a child that lost its label controller-uid gets it back".to_owned(),
        "metashardctl migrate apply --dry-run".to_owned(),
    ] {
        assert!(says.out.contains(&text), "no {text:?} in {}", says.out);
    }

    // One that would not be served is what a plan is for; so is a flag that is none.
    let bad = json!({ "spec": { "parentResource": { "resource": "thingz" } } });
    scene.stage.objects(CONTROLLER).patch(&name, bad).await?;
    scene
        .workload(json!({ "spec": { "template": { "spec": { "containers": [{
            "name": "mc", "image": peer::IMAGE, "args": ["--debug-addr=:1"],
        }] } } } }))
        .await?;
    let says = scene.ctl(&["migrate", "plan", "-o", "json"]).await?;
    assert_eq!(says.code, 1, "{says:?}");
    let plan: serde_json::Value = serde_json::from_str(&says.out)?;
    let told = plan["metacontrollers"][0]["flagProblems"].to_string();
    assert!(told.contains("use --metrics-address"), "{told}");
    let told = plan["controllers"].to_string();
    assert!(
        told.contains("thingz") && told.contains("\"served\":false"),
        "{told}"
    );
    Ok(())
}

#[tokio::test]
async fn a_move_observes_stops_metacontroller_and_moves_one_controller_after_the_other_and_goes_back()
-> anyhow::Result<()> {
    let mut scene = scene().await?;
    let plan = scene.apply(&["--dry-run"]).await?;
    assert_eq!(plan.code, 0, "{plan:?}");
    assert!(
        plan.out.contains("now  observe") && plan.out.contains("then stop"),
        "{plan:?}"
    );
    assert!(scene.record().await?.is_none());
    scene.start()?;

    let says = scene.apply(&[]).await?;
    assert_eq!(says.code, 0, "{says:?}");
    let [a, b] = scene.controllers();
    let steps = [
        format!(
            "observe: metashard looks at 2 controllers and writes nothing to their objects; StatefulSet {}/mc goes on",
            scene.ops()
        ),
        format!("  CompositeController {a}: 1 parent, writes we would have made: 0"),
        format!("  CompositeController {b}: 1 parent, writes we would have made: 0"),
        format!("  StatefulSet {}/mc: scaled from 2 to 0", scene.ops()),
        "move: metashard acts on one controller after the other".to_owned(),
        format!("  CompositeController {a}: metashard acts on it from now on"),
        format!("  CompositeController {b}: metashard acts on it from now on"),
        format!(
            "  CompositeController {b}: ready, 1 of 1 parent synced, 0 failing, writes made: 0"
        ),
        "Moved: metashard acts on all controllers, and Metacontroller is stopped.".to_owned(),
    ];
    let mut rest = says.out.as_str();
    for step in &steps {
        let found = rest.split_once(step.as_str());
        (_, rest) = found.with_context(|| format!("no {step:?} in\n{}", says.out))?;
    }
    assert_eq!(scene.replicas().await?, 0);
    assert_eq!(scene.marks().await?, [(false, None), (false, None)]);
    scene.is_put_right_by_metashard("1").await?;

    let again = scene.apply(&[]).await?;
    assert_eq!(again.code, 0, "{again:?}");

    let says = scene.rollback(&[]).await?;
    assert_eq!(says.code, 0, "{says:?}");
    assert!(says.out.contains("scaled from 0 to 2"), "{says:?}");
    assert_eq!(scene.replicas().await?, 2);
    scene.peer_is_up().await?;
    scene.is_left_alone("2").await?;
    let written = scene.never_were_both_at_work()?;
    assert!(written > 0, "the log shows none");
    Ok(())
}

#[tokio::test]
async fn a_write_that_metashard_would_make_stops_a_move_until_it_is_accepted() -> anyhow::Result<()>
{
    let mut scene = scene().await?;
    scene.start()?;
    scene.drift("drifted").await?;

    let says = scene.apply(&[]).await?;
    assert_eq!(says.code, 1, "{says:?}");
    assert!(
        says.out.contains("writes we would have made: 1"),
        "{says:?}"
    );
    let child = format!("update ConfigMap {}/a", scene.stage.namespace);
    assert!(says.out.contains(&child), "{says:?}");
    assert_eq!(scene.replicas().await?, 2);
    scene.is_left_alone("drifted again").await?;

    let says = scene.apply(&["--accept-writes"]).await?;
    assert_eq!(says.code, 0, "{says:?}");
    scene.never_were_both_at_work()?;
    Ok(())
}

#[tokio::test]
async fn a_move_that_is_killed_in_each_stage_goes_on() -> anyhow::Result<()> {
    let mut scene = scene().await?;
    scene.start()?;
    for stage in ["observing", "stopping", "moving"] {
        scene.killed_in(stage).await?;
    }
    let says = scene.apply(&[]).await?;
    assert_eq!(says.code, 0, "{says:?}");
    scene.is_put_right_by_metashard("1").await?;
    scene.never_were_both_at_work()?;
    Ok(())
}

#[tokio::test]
async fn a_move_goes_back_from_each_stage() -> anyhow::Result<()> {
    let mut scene = scene().await?;
    scene.start()?;
    for stage in ["observing", "stopping", "moving"] {
        scene.killed_in(stage).await?;
        let says = scene.rollback(&[]).await?;
        assert_eq!(says.code, 0, "from {stage}: {says:?}");
        assert_eq!(scene.replicas().await?, 2, "from {stage}");
        scene.peer_is_up().await?;
        scene.is_left_alone(stage).await?;
        scene.drift("").await?;
    }
    scene.never_were_both_at_work()?;
    Ok(())
}

#[tokio::test]
async fn metashard_that_is_killed_in_the_middle_is_not_needed_to_go_back() -> anyhow::Result<()> {
    let mut scene = scene().await?;
    scene.start()?;
    let says = scene.apply(&[]).await?;
    assert_eq!(says.code, 0, "{says:?}");
    scene.replica.take().context("a replica")?.kill()?;

    let says = scene.rollback(&[]).await?;
    assert_eq!(says.code, 0, "{says:?}");
    assert_eq!(scene.replicas().await?, 2);
    // Started anew beside Metacontroller, it writes nothing.
    scene.start()?;
    scene.is_left_alone("1").await
}

#[tokio::test]
async fn nothing_is_moved_while_somebody_renews_metacontrollers_lease() -> anyhow::Result<()> {
    let mut scene = scene().await?;
    scene.start()?;
    scene.peer.keeps_lease.store(true, Ordering::SeqCst);
    // What takes its time on a busy machine is over then.
    let says = scene.apply(&["--only-observe"]).await?;
    assert_eq!(says.code, 0, "{says:?}");

    let says = scene.apply(&["--timeout=10s"]).await?;
    assert_eq!(says.code, 2, "{says:?}");
    assert!(says.err.contains("mc-0_1 still renews it"), "{says:?}");
    scene.is_left_alone("1").await?;

    scene.peer.keeps_lease.store(false, Ordering::SeqCst);
    let says = scene.apply(&["--accept-writes"]).await?;
    assert_eq!(says.code, 0, "{says:?}");
    Ok(())
}

#[tokio::test]
async fn a_controller_that_degrades_stops_the_move_before_the_next() -> anyhow::Result<()> {
    let mut scene = scene().await?;
    scene.start()?;
    scene.breaks.store(true, Ordering::SeqCst);

    let says = scene.apply(&[]).await?;
    assert_eq!(says.code, 1, "{says:?}");
    let [a, _] = scene.controllers();
    let why = format!("CompositeController {a} is not ready: HooksReady");
    assert!(says.out.contains(&why), "{says:?}");
    let marks = scene.marks().await?;
    assert_eq!((marks[0].0, marks[1].0), (false, true));

    scene.breaks.store(false, Ordering::SeqCst);
    let heals = || async {
        let ready = scene.condition_of_first().await?;
        ensure!(ready["status"] == "True", "{ready:#}");
        Ok(())
    };
    eventually("the controller to heal", heals).await?;
    let says = scene.apply(&[]).await?;
    assert_eq!(says.code, 0, "{says:?}");
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_guaranteed_is_refused_and_nothing_is_written() -> anyhow::Result<()> {
    let scene = scene().await?;
    let [a, _] = scene.controllers();

    // Some controllers alone.
    let typo = format!("{a}x");
    let says = scene.apply(&["--controller", &typo]).await?;
    assert_eq!(says.code, 2, "{says:?}");
    assert!(says.err.contains(&format!("did you mean {a}?")), "{says:?}");

    // A Pod that no workload accounts for.
    let stray = scene.pod("stray", json!({ "app": "other" })).await?;
    let says = scene.apply(&[]).await?;
    assert_eq!(says.code, 1, "{says:?}");
    assert!(
        says.out
            .contains("stray runs Metacontroller and belongs to no"),
        "{says:?}"
    );
    stray.delete().await?;

    // Nobody to ask, and nobody who is asked.
    let says = scene
        .ctl(&["migrate", "apply", "--system-namespace", scene.ops()])
        .await?;
    assert_eq!(says.code, 2, "{says:?}");
    assert!(
        says.err.contains("there is no terminal to ask at"),
        "{says:?}"
    );
    let says = scene.rollback(&[]).await?;
    assert_eq!(says.code, 1, "{says:?}");
    assert!(says.out.contains("no move is recorded"), "{says:?}");

    assert!(scene.record().await?.is_none());
    assert_eq!(scene.marks().await?, [(false, None), (false, None)]);
    assert_eq!(scene.replicas().await?, 2);

    // Somebody without rights.
    let says = scene.as_stranger(&[]).await?;
    assert_eq!(says.code, 2, "{says:?}");
    assert!(
        says.err
            .contains("cannot get resource \"customresourcedefinitions\""),
        "{says:?}"
    );
    scene.stranger_may_read().await?;
    eventually("rights to count", async || {
        let says = scene.as_stranger(&[]).await?;
        ensure!(says.code == 2, "{says:?}");
        for right in [
            "patch compositecontrollers.metacontroller.k8s.io".to_owned(),
            format!("patch statefulsets.apps in namespace {}", scene.ops()),
            format!("create, patch configmaps in namespace {}", scene.ops()),
        ] {
            ensure!(says.err.contains(&right), "no {right:?} in {says:?}");
        }
        Ok(())
    })
    .await?;
    assert!(scene.record().await?.is_none());
    Ok(())
}

#[tokio::test]
async fn one_controller_alone_is_moved_only_if_the_others_may_rest() -> anyhow::Result<()> {
    let mut scene = scene().await?;
    scene.start()?;
    let [a, b] = scene.controllers();

    let says = scene.apply(&["--controller", &b]).await?;
    assert_eq!(says.code, 1, "{says:?}");
    let why = format!("nobody would act on CompositeController {a}");
    assert!(says.out.contains(&why), "{says:?}");
    assert_eq!(scene.replicas().await?, 2);

    let says = scene
        .apply(&["--controller", &b, "--let-others-rest"])
        .await?;
    assert_eq!(says.code, 0, "{says:?}");
    let marks = scene.marks().await?;
    assert_eq!((marks[0].0, marks[1].0), (true, false));
    scene.is_left_alone("1").await?;

    let says = scene.apply(&["--accept-writes"]).await?;
    assert_eq!(says.code, 0, "{says:?}");
    scene.is_put_right_by_metashard("2").await
}

#[tokio::test]
async fn a_controller_that_is_made_during_a_move_is_not_acted_on_before_metacontroller_is_stopped()
-> anyhow::Result<()> {
    let mut scene = scene().await?;
    scene.peer.elects.store(false, Ordering::SeqCst);
    scene.start_held().await?;
    let says = scene.apply(&["--only-observe"]).await?;
    assert_eq!(says.code, 0, "{says:?}");

    let late = scene.controller("late", "/late").await?;
    let reason = async || {
        let object = scene.stage.objects(CONTROLLER).get(&late).await?;
        let accepted = condition_of(&object, "Accepted");
        let accepted = accepted.context("no condition yet")?;
        ensure!(accepted["reason"] == "Held", "{accepted:#}");
        Ok(())
    };
    eventually("the new controller to rest", reason).await?;
    throughout("its hook is not called", async || {
        let calls = scene.stage.hook.calls();
        ensure!(!calls.iter().any(|it| it.path == "/late"), "it was");
        Ok(())
    })
    .await?;
    // Its child is not there yet, which is a write.
    let says = scene.apply(&["--accept-writes"]).await?;
    assert_eq!(says.code, 0, "{says:?}");
    let acts = async || {
        let calls = scene.stage.hook.calls();
        ensure!(calls.iter().any(|it| it.path == "/late"));
        Ok(())
    };
    eventually("the new controller to be served", acts).await?;
    scene.never_were_both_at_work()?;
    Ok(())
}
