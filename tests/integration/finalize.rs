//! The finalize hook: when it holds a parent, when it is called, and when it lets go.

use anyhow::ensure;
use serde_json::{Value, json};

use crate::support::{
    CONFIG_MAP, CONTROLLER, STAGE, Stage, THING, config_map, data_of, eventually, labelled,
    version_of,
};

/// The finalizer of this stage's controller.
fn finalizer(stage: &Stage) -> String {
    format!("metacontroller.io/compositecontroller-{}", stage.namespace)
}

fn finalizers(object: &Value) -> &Value {
    &object["metadata"]["finalizers"]
}

/// A hook that wants `a` until it finalizes; then it wants `last`, and lets go once the parent says `done`.
fn keeps_a(request: &Value) -> Value {
    if request["finalizing"] == true {
        let is_done = request["parent"]["spec"]["done"] == true;
        let children = if is_done {
            json!([])
        } else {
            json!([config_map("last", json!({}))])
        };
        json!({ "children": children, "finalized": is_done, "status": { "phase": "Finalizing" } })
    } else {
        json!({ "children": [config_map("a", json!({}))], "status": { "phase": "Running" } })
    }
}

/// A stage with such a hook, its parent `p` and the child `a`.
async fn held(claim: &str, ignore_status: bool) -> anyhow::Result<Stage> {
    let stage = Stage::answering(claim, keeps_a).await?;
    stage
        .controller()
        .child(CONFIG_MAP, "InPlace")
        .finalize()
        .edit(|it| it["spec"]["parentResource"]["ignoreStatusChanges"] = ignore_status.into())
        .apply()
        .await?;
    stage.parent(THING, "p", json!({})).await?;
    stage.objects(CONFIG_MAP).appears("a").await?;
    Ok(stage)
}

#[tokio::test]
async fn the_finalizer_is_on_the_parent_before_the_first_call() -> anyhow::Result<()> {
    let stage = held("first", false).await?;

    let first = stage.request("the first request", |_| true).await?;

    assert_eq!(*finalizers(&first["parent"]), json!([finalizer(&stage)]));
    assert_eq!(first["finalizing"], false);
    assert_eq!(stage.hook.calls()[0].path, "/sync");
    Ok(())
}

/// Deletes the parent of a [held] stage and follows it to its end.
async fn finalizes(stage: &Stage) -> anyhow::Result<()> {
    let (things, children) = (stage.objects(THING), stage.objects(CONFIG_MAP));

    things.delete("p").await?;

    children.appears("last").await?;
    children.goes("a").await?;
    let thing = things
        .becomes("p", "to say so", |it| it["status"]["phase"] == "Finalizing")
        .await?;
    assert_eq!(*finalizers(&thing), json!([finalizer(stage)]));
    things
        .patch("p", json!({ "spec": { "done": true } }))
        .await?;
    things.goes("p").await?;
    let calls = stage.hook.calls();
    let is_right = |call: &metashard_testkit::hook::Call| {
        let request = call.json();
        let is_deleting = request["parent"]["metadata"]["deletionTimestamp"].is_string();
        request["finalizing"] == (call.path == "/finalize")
            && (request["finalizing"] == is_deleting)
    };
    assert!(calls.iter().all(is_right));
    Ok(())
}

#[tokio::test]
async fn a_deleted_parent_is_finalized_with_its_children_and_then_goes() -> anyhow::Result<()> {
    let stage = held("delete", false).await?;

    finalizes(&stage).await
}

#[tokio::test]
async fn a_deletion_is_no_change_of_the_status_that_is_ignored() -> anyhow::Result<()> {
    let stage = held("delete-ignore", true).await?;

    finalizes(&stage).await
}

#[tokio::test]
async fn with_foreground_deletion_the_hook_is_called_and_children_are_left_to_the_garbage_collector()
-> anyhow::Result<()> {
    let stage = held("foreground", false).await?;
    let (things, children) = (stage.objects(THING), stage.objects(CONFIG_MAP));
    let child = children.get("a").await?;

    things.delete_in_foreground("p").await?;
    stage
        .request("a finalize call", |it| it["finalizing"] == true)
        .await?;
    things
        .patch("p", json!({ "spec": { "done": true } }))
        .await?;

    // No garbage collector runs here: the parent waits for it, without our finalizer.
    let is_let_go = |it: &Value| *finalizers(it) == json!(["foregroundDeletion"]);
    things.becomes("p", "to be let go", is_let_go).await?;
    stage.settle(THING, "p").await?;
    assert_eq!(version_of(&children.get("a").await?), version_of(&child));
    ensure!(
        children.find("last").await?.is_none(),
        "a child was created"
    );
    Ok(())
}

#[tokio::test]
async fn the_finalizer_goes_when_the_finalize_hook_goes_from_the_spec() -> anyhow::Result<()> {
    let stage = held("dropped", false).await?;
    let hold = "test.metashard.io/hold";
    let both = json!({ "metadata": { "finalizers": [finalizer(&stage), hold] } });
    stage.objects(THING).patch("p", both).await?;

    let patch = json!({ "spec": { "hooks": { "finalize": null } } });
    stage
        .objects(CONTROLLER)
        .patch(&stage.namespace, patch)
        .await?;

    let is_theirs = |it: &Value| *finalizers(it) == json!([hold]);
    stage
        .objects(THING)
        .becomes("p", "to keep the finalizer of others only", is_theirs)
        .await?;
    Ok(())
}

#[tokio::test]
async fn the_finalizer_goes_with_the_finalize_hook_from_a_parent_that_is_not_selected_any_more()
-> anyhow::Result<()> {
    let stage = held("dropped-away", false).await?;
    let things = stage.objects(THING);
    let away = json!({ "metadata": { "labels": { STAGE: "other" } } });
    things.patch("p", away).await?;
    stage
        .request("a finalize call", |it| it["finalizing"] == true)
        .await?;

    let patch = json!({ "spec": { "hooks": { "finalize": null } } });
    stage
        .objects(CONTROLLER)
        .patch(&stage.namespace, patch)
        .await?;

    let is_let_go = |it: &Value| finalizers(it).is_null();
    things.becomes("p", "to be let go", is_let_go).await?;
    Ok(())
}

#[tokio::test]
async fn a_parent_that_is_no_longer_selected_is_finalized_and_let_go() -> anyhow::Result<()> {
    let stage = held("unselected", false).await?;
    let things = stage.objects(THING);

    let away = json!({ "metadata": { "labels": { STAGE: "other" } }, "spec": { "done": true } });
    things.patch("p", away).await?;

    let is_let_go = |it: &Value| finalizers(it).is_null();
    things.becomes("p", "to be let go", is_let_go).await?;
    stage.objects(CONFIG_MAP).goes("a").await?;
    let request = stage
        .request("a finalize call", |it| it["finalizing"] == true)
        .await?;
    assert!(request["parent"]["metadata"]["deletionTimestamp"].is_null());
    Ok(())
}

#[tokio::test]
async fn a_controller_with_a_finalize_hook_alone_calls_nothing_until_a_parent_is_deleted()
-> anyhow::Result<()> {
    let stage = Stage::new("only-finalize").await?;
    stage
        .controller()
        .finalize()
        .edit(|it| it["spec"]["hooks"]["sync"] = Value::Null)
        .apply()
        .await?;
    let things = stage.objects(THING);
    stage
        .parent(THING, "p", json!({ "finalized": true }))
        .await?;
    let ours = json!([finalizer(&stage)]);
    things
        .becomes("p", "to be held", |it| *finalizers(it) == ours)
        .await?;
    assert_eq!(stage.hook.count(), 0);

    things.delete("p").await?;

    things.goes("p").await?;
    assert_eq!(stage.hook.count(), 1);
    assert_eq!(stage.hook.calls()[0].path, "/finalize");
    Ok(())
}

#[tokio::test]
async fn finalized_counts_in_the_answer_of_a_finalize_call_only() -> anyhow::Result<()> {
    let stage = Stage::new("sync-finalized").await?;
    stage.controller().finalize().apply().await?;
    stage
        .parent(THING, "p", json!({ "finalized": true }))
        .await?;

    stage.settle(THING, "p").await?;

    let thing = stage.objects(THING).get("p").await?;
    assert_eq!(*finalizers(&thing), json!([finalizer(&stage)]));
    assert_eq!(stage.writes()?, ["update things", "update things/status"]);
    Ok(())
}

#[tokio::test]
async fn without_a_finalize_hook_the_children_of_a_deleted_parent_are_left_alone()
-> anyhow::Result<()> {
    let stage = Stage::new("plain-delete").await?;
    stage
        .controller()
        .child(CONFIG_MAP, "InPlace")
        .apply()
        .await?;
    let hold = json!({ "metadata": { "finalizers": ["test.metashard.io/hold"] } });
    let child = labelled(config_map("a", json!({ "k": "v" })), "app", "demo");
    stage
        .parent(
            THING,
            "p",
            json!({ "children": [child], "status": { "n": 1 } }),
        )
        .await?;
    let (things, children) = (stage.objects(THING), stage.objects(CONFIG_MAP));
    let child = children.appears("a").await?;
    things.patch("p", hold).await?;

    things.delete("p").await?;
    let none = json!({ "spec": { "children": [], "status": { "n": 2 } } });
    things.patch("p", none).await?;

    // The sync hook is called for it, and its status is kept up.
    things
        .becomes("p", "to have its last status", |it| it["status"]["n"] == 2)
        .await?;
    let request = stage.poke(THING, "p").await?;
    assert_eq!(request["finalizing"], false);
    assert_eq!(data_of(&children.get("a").await?), data_of(&child));
    things
        .patch("p", json!({ "metadata": { "finalizers": null } }))
        .await?;
    things.goes("p").await
}

#[tokio::test]
async fn finalizers_of_others_survive_when_both_write_at_once() -> anyhow::Result<()> {
    let stage = Stage::new("both").await?;
    stage.controller().finalize().apply().await?;
    let things = stage.objects(THING);
    let theirs = "test.metashard.io/theirs";
    let add_theirs = async |name: String| {
        eventually("the finalizer to be added", async || {
            let mut thing = things.get(&name).await?;
            let mut all = finalizers(&thing).as_array().cloned().unwrap_or_default();
            all.push(theirs.into());
            thing["metadata"]["finalizers"] = all.into();
            things.replace(&thing).await
        })
        .await
    };

    for number in 0..10 {
        let name = format!("p{number}");
        stage
            .parent(THING, &name, json!({ "finalized": true }))
            .await?;
        add_theirs(name).await?;
    }

    for number in 0..10 {
        let name = format!("p{number}");
        let has_both = |it: &Value| {
            let mut all: Vec<_> = finalizers(it).as_array().cloned().unwrap_or_default();
            all.sort_unstable_by_key(ToString::to_string);
            all == [json!(finalizer(&stage)), json!(theirs)]
        };
        things
            .becomes(&name, "to have both finalizers", has_both)
            .await?;
        things.delete(&name).await?;
        let has_theirs = |it: &Value| *finalizers(it) == json!([theirs]);
        things.becomes(&name, "to keep theirs", has_theirs).await?;
    }
    Ok(())
}

#[tokio::test]
async fn parents_that_are_deleted_as_soon_as_they_are_made_are_all_let_go() -> anyhow::Result<()> {
    const PARENTS: usize = 20;
    let stage = Stage::new("at-once").await?;
    let controller = stage.controller().finalize().apply().await?;
    stage.event(&controller, "Started", "").await?;
    let things = stage.objects(THING);

    for number in 0..PARENTS {
        let name = format!("p{number}");
        stage
            .parent(THING, &name, json!({ "finalized": true }))
            .await?;
        things.delete(&name).await?;
    }

    for number in 0..PARENTS {
        things.goes(&format!("p{number}")).await?;
    }
    Ok(())
}
