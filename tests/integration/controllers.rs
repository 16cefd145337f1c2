//! Controller objects: what they say of themselves, and when they are refused.

use anyhow::{Context, ensure};
use metashard_testkit::hook::Answer;
use serde_json::{Value, json};

use crate::support::{CONFIG_MAP, CONTROLLER, Stage, THING, condition_of, config_map, eventually};

#[tokio::test]
async fn a_controller_says_in_conditions_and_columns_how_it_is() -> anyhow::Result<()> {
    let stage = Stage::new("conditions").await?;
    let controller = stage
        .controller()
        .child(CONFIG_MAP, "InPlace")
        .apply()
        .await?;
    let generation = &controller["metadata"]["generation"];

    for (type_, status, reason) in [
        ("Accepted", "True", "Valid"),
        ("WatchesReady", "True", "Synced"),
        ("HooksReady", "Unknown", "NotCalled"),
        ("Assigned", "True", "Owned"),
        ("Ready", "True", "Ready"),
    ] {
        let condition = stage.says(type_, status, reason, "").await?;
        assert_eq!(condition["observedGeneration"], *generation, "{type_}");
    }
    stage.parent(THING, "p", json!({})).await?;
    stage.says("HooksReady", "True", "Answered", "").await?;

    let controller = stage.objects(CONTROLLER).get(&stage.namespace).await?;
    assert_eq!(controller["status"]["observedGeneration"], *generation);
    let (header, row) = columns(&stage).await?;
    assert_eq!(
        header,
        [
            "Name", "Ready", "Reason", "Shard", "Worker", "Parents", "Age"
        ]
    );
    assert_eq!(row[1..=2], [json!("True"), json!("Ready")]);
    assert_eq!(row[3], controller["status"]["shard"]);
    assert!(row[3].is_u64());
    assert_eq!(row[4], "shared");
    Ok(())
}

/// What `kubectl get` shows of this stage's controller: names of columns, and cells.
async fn columns(stage: &Stage) -> anyhow::Result<(Vec<String>, Vec<Value>)> {
    let path = format!(
        "/apis/{}/{}/{}",
        CONTROLLER.api_version, CONTROLLER.plural, stage.namespace
    );
    let request = http::Request::get(path)
        .header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Vec::new())?;
    let table: Value = stage.client.request(request).await?;
    let columns = table["columnDefinitions"]
        .as_array()
        .context("no columns")?;
    let header = columns
        .iter()
        .filter_map(|it| it["name"].as_str().map(str::to_owned));
    let row = table["rows"][0]["cells"].as_array().context("no row")?;
    Ok((header.collect(), row.clone()))
}

#[tokio::test]
async fn a_failing_hook_shows_on_parent_and_controller_until_it_works_again() -> anyhow::Result<()>
{
    let stage = Stage::new("failing").await?;
    stage.hook.script(vec![
        Answer::status(500, "<html>broken</html>"),
        Answer::json(&json!({ "children": [], "status": { "ok": true } })),
    ]);
    // The first failure is seen only if the second call is not made at once.
    let controller = stage
        .controller()
        .child(CONFIG_MAP, "InPlace")
        .apply()
        .await?;
    let parent = stage.parent(THING, "p", json!({})).await?;

    let event = stage
        .event(&parent, "SyncError", "unsupported status code: 500")
        .await?;
    assert_eq!(event["type"], "Warning");
    assert!(
        event["message"]
            .as_str()
            .is_some_and(|it| it.starts_with("Sync error: sync hook failed for Thing")),
        "{event:#}"
    );
    let is_ok = |it: &Value| it["status"] == json!({ "ok": true, "observedGeneration": 1 });
    stage
        .objects(THING)
        .becomes("p", "to be synced", is_ok)
        .await?;
    stage.condition("HooksReady", "True").await?;

    stage.hook.answer_with(|_| Answer::status(503, "later"));
    let poke = json!({ "metadata": { "annotations": { "a": "b" } } });
    stage.objects(THING).patch("p", poke).await?;
    stage
        .says("HooksReady", "False", "CallFailed", "503")
        .await?;
    stage.condition("Ready", "False").await?;
    stage
        .hook
        .answer_with(|_| Answer::json(&json!({ "children": [] })));
    stage.condition("Ready", "True").await?;
    assert_eq!(stage.told(&controller, "Stopped").await?, 0);
    Ok(())
}

/// What controllers may ask for and is not served yet: where it goes in the object, and what the refusal calls it.
fn not_served(stage: &Stage) -> Vec<(&'static str, Value, &'static str)> {
    vec![(
        "/spec/serviceAccountRef",
        json!({ "name": "sa", "namespace": stage.namespace }),
        "serviceAccountRef",
    )]
}

#[tokio::test]
async fn a_controller_that_asks_for_what_is_not_served_yet_is_refused_and_not_half_served()
-> anyhow::Result<()> {
    let stage = Stage::new("refused").await?;
    stage
        .parent(
            THING,
            "p",
            json!({ "children": [config_map("a", json!({}))] }),
        )
        .await?;
    let mut controllers = Vec::new();
    for (number, (path, value, field)) in not_served(&stage).into_iter().enumerate() {
        let name = format!("{}-{number}", stage.namespace);
        let controller = stage.controller().child(CONFIG_MAP, "InPlace").edit(|it| {
            it["metadata"]["name"] = name.into();
            let (parent, last) = path.rsplit_once('/').unwrap_or_default();
            if let Some(parent) = it.pointer_mut(parent) {
                parent[last] = value;
            }
        });
        controllers.push((controller.apply().await?, field));
    }

    for (controller, field) in &controllers {
        is_refused(&stage, controller, field).await?;
    }
    assert_eq!(stage.hook.count(), 0);
    Ok(())
}

/// A condition and an event name the field, and the controller has not started.
async fn is_refused(stage: &Stage, controller: &Value, field: &str) -> anyhow::Result<()> {
    let name = controller["metadata"]["name"].as_str().unwrap_or_default();
    let accepted = eventually(&format!("{field} to be refused"), async || {
        let controller = stage.objects(CONTROLLER).get(name).await?;
        let ready = condition_of(&controller, "Ready").context("no condition yet")?;
        ensure!(ready["status"] == "False", "{ready:#}");
        let accepted = condition_of(&controller, "Accepted").context("no condition yet")?;
        ensure!(accepted["status"] == "False", "{accepted:#}");
        Ok(accepted)
    })
    .await?;
    assert_eq!(accepted["reason"], "NotSupported", "{field}");
    let message = accepted["message"].as_str().unwrap_or_default();
    assert!(message.contains(field), "{message}");
    let event = stage.event(controller, "CreateError", field).await?;
    assert_eq!(event["type"], "Warning", "{field}");
    assert_eq!(stage.told(controller, "Started").await?, 0, "{field}");
    Ok(())
}

#[tokio::test]
async fn a_refused_controller_starts_once_its_spec_is_mended() -> anyhow::Result<()> {
    let stage = Stage::new("mended").await?;
    stage
        .controller()
        .edit(|it| it["spec"]["hooks"]["sync"]["webhook"]["url"] = "ftp://hook/".into())
        .apply()
        .await?;
    stage.parent(THING, "p", json!({})).await?;
    stage.condition("Accepted", "False").await?;

    let url = stage.hook.url("/sync");
    let mend = json!({ "spec": { "hooks": { "sync": { "webhook": { "url": url } } } } });
    stage
        .objects(CONTROLLER)
        .patch(&stage.namespace, mend)
        .await?;

    stage.request("a call", |_| true).await?;
    stage.condition("Ready", "True").await?;
    Ok(())
}

#[tokio::test]
async fn one_kind_of_children_that_is_not_installed_does_not_hold_up_the_others()
-> anyhow::Result<()> {
    let stage = Stage::new("missing-kind").await?;
    stage
        .controller()
        .edit(|it| {
            it["spec"]["childResources"] =
                json!([{ "apiVersion": "absent.metashard.io/v1", "resource": "absents" }]);
        })
        .child(CONFIG_MAP, "InPlace")
        .apply()
        .await?;

    stage
        .parent(
            THING,
            "p",
            json!({ "children": [config_map("a", json!({}))] }),
        )
        .await?;

    stage.objects(CONFIG_MAP).appears("a").await?;
    stage
        .says("WatchesReady", "False", "ResourceNotFound", "absents")
        .await?;
    Ok(())
}
