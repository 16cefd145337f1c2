//! A sync: what the hook is asked, what becomes of its answer, and what that costs.

use anyhow::ensure;
use metashard_api::names::ANNOTATION_LAST_APPLIED;
use serde_json::{Value, json};

use crate::support::{
    BIG_THING, CONFIG_MAP, SECRET, Stage, THING, config_map, data_of, eventually, labelled,
    version_of,
};

/// Names of the children of a group in a request.
fn names(request: &Value, group: &str) -> Vec<String> {
    let children = request["children"][group].as_object();
    children
        .into_iter()
        .flatten()
        .map(|it| it.0.clone())
        .collect()
}

#[tokio::test]
async fn a_child_is_created_with_owner_reference_generated_label_and_record() -> anyhow::Result<()>
{
    let stage = Stage::new("create").await?;
    stage
        .controller()
        .child(CONFIG_MAP, "InPlace")
        .apply()
        .await?;
    let wanted = labelled(config_map("a", json!({ "k": "<1>" })), "app", "demo");
    let parent = stage
        .parent(THING, "p", json!({ "children": [wanted] }))
        .await?;

    let child = stage.objects(CONFIG_MAP).appears("a").await?;

    let uid = parent["metadata"]["uid"].as_str().unwrap();
    let namespace = &stage.namespace;
    assert_eq!(data_of(&child), json!({ "k": "<1>" }));
    assert_eq!(
        child["metadata"]["labels"],
        json!({ "app": "demo", "controller-uid": uid })
    );
    assert_eq!(
        child["metadata"]["ownerReferences"],
        json!([{
            "apiVersion": THING.api_version,
            "kind": "Thing",
            "name": "p",
            "uid": uid,
            "controller": true,
            "blockOwnerDeletion": true,
        }])
    );
    assert_eq!(
        child["metadata"]["annotations"],
        json!({ ANNOTATION_LAST_APPLIED: format!(
            r#"{{"apiVersion":"v1","data":{{"k":"\u003c1\u003e"}},"kind":"ConfigMap","metadata":{{"labels":{{"app":"demo","controller-uid":"{uid}"}},"name":"a","namespace":"{namespace}"}}}}"#
        ) })
    );
    Ok(())
}

#[tokio::test]
async fn a_sync_of_three_new_children_and_a_status_makes_four_writes_and_reads_no_parent()
-> anyhow::Result<()> {
    let stage = Stage::new("writes").await?;
    stage
        .controller()
        .child(CONFIG_MAP, "InPlace")
        .apply()
        .await?;
    let children: Vec<_> = ["a", "b", "c"]
        .map(|name| config_map(name, json!({ "k": "v" })))
        .into();
    let spec = json!({ "children": children, "status": { "phase": "Done" } });

    stage.parent(THING, "p", spec).await?;
    stage.settle(THING, "p").await?;

    let mut writes = stage.writes()?;
    // They are sent at once.
    writes.sort();
    assert_eq!(
        writes,
        [
            "create configmaps",
            "create configmaps",
            "create configmaps",
            "update things/status"
        ]
    );
    let none: [&str; 0] = [];
    assert_eq!(stage.requests_of_replicas(&["get"])?, none);
    Ok(())
}

#[tokio::test]
async fn a_sync_with_the_same_answer_writes_nothing() -> anyhow::Result<()> {
    let stage = Stage::new("same").await?;
    stage
        .controller()
        .child(CONFIG_MAP, "InPlace")
        .child(SECRET, "Recreate")
        .apply()
        .await?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" }, "data": { "k": "dg==" },
    });
    let spec = json!({ "children": [config_map("a", json!({ "k": "v" })), secret], "status": { "n": 1.0 } });
    stage.parent(THING, "p", spec).await?;
    stage.settle(THING, "p").await?;
    let before = (
        stage.objects(CONFIG_MAP).get("a").await?,
        stage.objects(SECRET).get("s").await?,
        stage.writes()?,
    );

    stage.settle(THING, "p").await?;

    let after = (
        stage.objects(CONFIG_MAP).get("a").await?,
        stage.objects(SECRET).get("s").await?,
        stage.writes()?,
    );
    assert_eq!(after, before);
    Ok(())
}

#[tokio::test]
async fn the_status_carries_the_generation_that_the_hook_saw() -> anyhow::Result<()> {
    let stage = Stage::new("status").await?;
    stage.controller().apply().await?;
    let things = stage.objects(THING);
    stage
        .parent(
            THING,
            "p",
            json!({ "status": { "phase": "One", "observedGeneration": 77 } }),
        )
        .await?;
    let status = |wanted: Value| move |thing: &Value| thing["status"] == wanted;

    let first = json!({ "phase": "One", "observedGeneration": 1 });
    things
        .becomes("p", "to have its first status", status(first))
        .await?;
    things
        .patch("p", json!({ "spec": { "status": { "phase": "Two" } } }))
        .await?;
    let second = json!({ "phase": "Two", "observedGeneration": 2 });
    let thing = things
        .becomes("p", "to have its second status", status(second))
        .await?;

    assert_eq!(
        thing["metadata"]["generation"], 2,
        "a status is no change of the spec"
    );
    Ok(())
}

#[tokio::test]
async fn an_answer_without_a_status_empties_it() -> anyhow::Result<()> {
    let stage = Stage::new("no-status").await?;
    stage.controller().apply().await?;
    let things = stage.objects(THING);
    stage
        .parent(THING, "p", json!({ "status": { "phase": "One" } }))
        .await?;
    things
        .becomes("p", "to have a status", |thing| {
            thing["status"]["phase"] == "One"
        })
        .await?;

    things
        .patch("p", json!({ "spec": { "status": null } }))
        .await?;

    let empty = json!({ "observedGeneration": 2 });
    things
        .becomes("p", "to have an empty status", |thing| {
            thing["status"] == empty
        })
        .await?;
    Ok(())
}

#[tokio::test]
async fn a_v1_request_names_children_of_the_parents_namespace_by_name_alone() -> anyhow::Result<()>
{
    let stage = Stage::new("v1").await?;
    let controller = stage
        .controller()
        .child(CONFIG_MAP, "InPlace")
        .child(SECRET, "InPlace")
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

    let mut request = stage.poke(THING, "p").await?;

    let child = stage.objects(CONFIG_MAP).get("a").await?;
    assert_eq!(
        request["children"],
        json!({ "ConfigMap.v1": { "a": child }, "Secret.v1": {} })
    );
    let asked = request["controller"].take();
    assert_eq!(asked["metadata"]["name"], controller["metadata"]["name"]);
    assert_eq!(asked["spec"], controller["spec"]);
    assert_eq!(asked["status"], json!({}));
    assert_eq!(request["parent"]["kind"], "Thing");
    assert_eq!(request["related"], json!({}));
    assert_eq!(request["finalizing"], false);
    Ok(())
}

#[tokio::test]
async fn a_v2_request_names_children_by_namespace_and_name() -> anyhow::Result<()> {
    let stage = Stage::new("v2").await?;
    stage
        .controller()
        .child(CONFIG_MAP, "InPlace")
        .edit(|it| it["spec"]["hooks"]["sync"]["version"] = "v2".into())
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

    let request = stage.poke(THING, "p").await?;

    assert_eq!(
        names(&request, "ConfigMap.v1"),
        [format!("{}/a", stage.namespace)]
    );
    Ok(())
}

#[tokio::test]
async fn a_cluster_scoped_parent_has_children_in_namespaces() -> anyhow::Result<()> {
    let stage = Stage::new("big").await?;
    stage
        .controller()
        .parent(BIG_THING)
        .child(CONFIG_MAP, "InPlace")
        .apply()
        .await?;
    let mut wanted = config_map("a", json!({ "k": "v" }));
    wanted["metadata"]["namespace"] = stage.namespace.as_str().into();
    let name = stage.namespace.as_str();
    let parent = stage
        .parent(BIG_THING, name, json!({ "children": [wanted] }))
        .await?;

    let child = stage.objects(CONFIG_MAP).appears("a").await?;
    let request = stage.poke(BIG_THING, name).await?;

    assert_eq!(
        child["metadata"]["ownerReferences"],
        json!([{
            "apiVersion": BIG_THING.api_version,
            "kind": "BigThing",
            "name": name,
            "uid": parent["metadata"]["uid"],
            "controller": true,
            "blockOwnerDeletion": true,
        }])
    );
    assert_eq!(names(&request, "ConfigMap.v1"), [format!("{name}/a")]);
    Ok(())
}

#[tokio::test]
async fn a_child_that_somebody_deletes_is_created_again() -> anyhow::Result<()> {
    let stage = Stage::new("again").await?;
    stage
        .controller()
        .parent(BIG_THING)
        .child(CONFIG_MAP, "OnDelete")
        .apply()
        .await?;
    let mut wanted = config_map("a", json!({ "k": "v" }));
    wanted["metadata"]["namespace"] = stage.namespace.as_str().into();
    let name = stage.namespace.as_str();
    stage
        .parent(BIG_THING, name, json!({ "children": [wanted] }))
        .await?;
    let children = stage.objects(CONFIG_MAP);
    let first = children.appears("a").await?;

    children.delete("a").await?;

    let second = eventually("another child", async || {
        let child = children.get("a").await?;
        ensure!(
            version_of(&child).0 != version_of(&first).0,
            "it is the same"
        );
        Ok(child)
    })
    .await?;
    assert_eq!(data_of(&second), data_of(&first));
    Ok(())
}

#[tokio::test]
async fn a_large_child_is_created_and_then_left_alone() -> anyhow::Result<()> {
    let stage = Stage::answering(
        "large",
        |_| json!({ "children": [config_map("a", json!({ "k": "x".repeat(700 << 10) }))] }),
    )
    .await?;
    stage
        .controller()
        .child(CONFIG_MAP, "InPlace")
        .apply()
        .await?;
    stage.parent(THING, "p", json!({})).await?;
    let child = stage.objects(CONFIG_MAP).appears("a").await?;

    stage.settle(THING, "p").await?;

    let later = stage.objects(CONFIG_MAP).get("a").await?;
    assert_eq!(version_of(&later), version_of(&child));
    Ok(())
}
