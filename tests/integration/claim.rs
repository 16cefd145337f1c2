//! Whose a child is: adoption, release, generated selectors.

use anyhow::ensure;
use serde_json::{Value, json};

use crate::support::{
    CONFIG_MAP, Stage, THING, config_map, data_of, labelled, throughout, version_of,
};

/// The owner references of an object, `null` if there are none.
fn owners(object: &Value) -> &Value {
    &object["metadata"]["ownerReferences"]
}

/// A stage whose parents have selectors of their own; the label that `p` selects by is `app`, with the stage's name.
async fn selecting(claim: &str) -> anyhow::Result<Stage> {
    let stage = Stage::new(claim).await?;
    stage
        .controller()
        .child(CONFIG_MAP, "InPlace")
        .with_selectors_of_parents()
        .apply()
        .await?;
    Ok(stage)
}

/// The spec of a parent that selects by the label `app`.
fn selector(stage: &Stage, children: &[Value]) -> Value {
    json!({
        "selector": { "matchLabels": { "app": stage.namespace } },
        "children": children,
    })
}

#[tokio::test]
async fn an_orphan_that_matches_is_adopted_and_another_is_left_alone() -> anyhow::Result<()> {
    let stage = selecting("adopt").await?;
    let children = stage.objects(CONFIG_MAP);
    let mine = labelled(
        config_map("a", json!({ "k": "old" })),
        "app",
        &stage.namespace,
    );
    let orphan = children.create(mine).await?;
    let other = children
        .create(labelled(config_map("b", json!({})), "app", "other"))
        .await?;

    let wanted = labelled(
        config_map("a", json!({ "k": "new" })),
        "app",
        &stage.namespace,
    );
    let parent = stage
        .parent(THING, "p", selector(&stage, &[wanted]))
        .await?;

    let is_mine = |it: &Value| data_of(it) == json!({ "k": "new" });
    let child = children
        .becomes("a", "to be adopted and updated", is_mine)
        .await?;
    assert_eq!(version_of(&child).0, version_of(&orphan).0);
    assert_eq!(
        owners(&child),
        &json!([{
            "apiVersion": THING.api_version,
            "kind": "Thing",
            "name": "p",
            "uid": parent["metadata"]["uid"],
            "controller": true,
            "blockOwnerDeletion": true,
        }])
    );
    let first = stage.request("the first request", |_| true).await?;
    assert_eq!(first["children"]["ConfigMap.v1"]["a"]["data"]["k"], "old");
    assert_eq!(first["children"]["ConfigMap.v1"]["b"], Value::Null);
    assert_eq!(children.get("b").await?, other);
    Ok(())
}

#[tokio::test]
async fn an_orphan_that_comes_later_is_adopted_and_deleted_if_nobody_wants_it() -> anyhow::Result<()>
{
    let stage = selecting("adopt-later").await?;
    stage.parent(THING, "p", selector(&stage, &[])).await?;
    stage.settle(THING, "p").await?;

    let orphan = labelled(config_map("a", json!({})), "app", &stage.namespace);
    stage.objects(CONFIG_MAP).create(orphan).await?;

    stage.objects(CONFIG_MAP).goes("a").await
}

#[tokio::test]
async fn a_child_that_is_relabelled_is_released_and_survives() -> anyhow::Result<()> {
    let stage = selecting("release").await?;
    let wanted = labelled(
        config_map("a", json!({ "k": "v" })),
        "app",
        &stage.namespace,
    );
    let parent = stage
        .parent(THING, "p", selector(&stage, &[wanted]))
        .await?;
    let children = stage.objects(CONFIG_MAP);
    let child = children.appears("a").await?;

    children
        .patch("a", json!({ "metadata": { "labels": { "app": "other" } } }))
        .await?;

    let is_free = |it: &Value| owners(it).as_array().is_none_or(Vec::is_empty);
    let free = children.becomes("a", "to be released", is_free).await?;
    assert_eq!(version_of(&free).0, version_of(&child).0);
    // The hook wants a child of that name still: people are told why there is none.
    stage.event(&parent, "ChildConflict", "ConfigMap").await?;
    assert_eq!(version_of(&children.get("a").await?), version_of(&free));
    Ok(())
}

#[tokio::test]
async fn an_object_that_is_nobodys_is_not_taken_over_for_its_name() -> anyhow::Result<()> {
    let stage = Stage::new("taken").await?;
    let children = stage.objects(CONFIG_MAP);
    let theirs = children
        .create(config_map("a", json!({ "k": "theirs" })))
        .await?;
    stage
        .controller()
        .child(CONFIG_MAP, "InPlace")
        .apply()
        .await?;

    let wanted = [
        config_map("a", json!({ "k": "ours" })),
        config_map("b", json!({ "k": "ours" })),
    ];
    let parent = stage
        .parent(THING, "p", json!({ "children": wanted }))
        .await?;

    stage
        .event(&parent, "ChildConflict", "rename the child")
        .await?;
    children.appears("b").await?;
    assert_eq!(children.get("a").await?, theirs);
    // Once the name is free, the child is created without anybody's help.
    children.delete("a").await?;
    children
        .becomes("a", "to be created", |it| {
            data_of(it) == json!({ "k": "ours" })
        })
        .await?;
    Ok(())
}

#[tokio::test]
async fn a_parent_with_an_empty_selector_is_refused_and_nothing_is_touched() -> anyhow::Result<()> {
    let stage = selecting("empty").await?;
    let children = stage.objects(CONFIG_MAP);
    children.create(config_map("a", json!({}))).await?;
    children
        .create(labelled(config_map("b", json!({})), "app", "demo"))
        .await?;
    let before = children.list().await?;
    let hint = ".spec.selector must have either matchLabels, matchExpressions, or both";

    let without = stage
        .parent(THING, "without", json!({ "children": [] }))
        .await?;
    let empty = stage
        .parent(THING, "empty", json!({ "selector": {} }))
        .await?;
    let hollow = json!({ "selector": { "matchLabels": {}, "matchExpressions": [] } });
    let hollow = stage.parent(THING, "hollow", hollow).await?;

    for parent in [&without, &empty, &hollow] {
        let event = stage.event(parent, "SyncError", hint).await?;
        assert_eq!(event["type"], "Warning");
    }
    assert_eq!(stage.hook.count(), 0);
    assert_eq!(children.list().await?, before);
    let none: [&str; 0] = [];
    assert_eq!(stage.writes()?, none);
    Ok(())
}

#[tokio::test]
async fn with_generated_selectors_two_parents_of_one_selector_share_no_children()
-> anyhow::Result<()> {
    let stage = Stage::answering("generated", |request| {
        let name = request["parent"]["metadata"]["name"]
            .as_str()
            .unwrap_or_default();
        let child = labelled(config_map(&format!("of-{name}"), json!({})), "app", "demo");
        json!({ "children": [child] })
    })
    .await?;
    let children = stage.objects(CONFIG_MAP);
    let orphan = labelled(config_map("orphan", json!({})), "app", "demo");
    let orphan = children.create(orphan).await?;
    stage
        .controller()
        .child(CONFIG_MAP, "InPlace")
        .apply()
        .await?;
    let spec = json!({ "selector": { "matchLabels": { "app": "demo" } } });

    for name in ["p", "q"] {
        let parent = stage.parent(THING, name, spec.clone()).await?;
        let child = children.appears(&format!("of-{name}")).await?;
        let uid = &parent["metadata"]["uid"];
        assert_eq!(child["metadata"]["labels"]["controller-uid"], *uid);
        assert_eq!(owners(&child)[0]["uid"], *uid);
    }

    for name in ["p", "q"] {
        stage.poke(THING, name).await?;
        let request = stage.poke(THING, name).await?;
        let seen = request["children"]["ConfigMap.v1"].as_object().unwrap();
        let seen: Vec<_> = seen.keys().map(String::as_str).collect();
        assert_eq!(seen, [format!("of-{name}")]);
    }
    assert_eq!(children.get("orphan").await?, orphan);
    Ok(())
}

#[tokio::test]
async fn a_generated_label_that_somebody_takes_away_is_put_back() -> anyhow::Result<()> {
    let stage = Stage::new("stripped").await?;
    stage
        .controller()
        .child(CONFIG_MAP, "OnDelete")
        .apply()
        .await?;
    let spec = json!({ "children": [config_map("a", json!({ "k": "v" }))] });
    let parent = stage.parent(THING, "p", spec).await?;
    let children = stage.objects(CONFIG_MAP);
    let child = children.appears("a").await?;

    children
        .patch("a", json!({ "metadata": { "labels": null } }))
        .await?;

    let uid = &parent["metadata"]["uid"];
    let is_back = |it: &Value| it["metadata"]["labels"]["controller-uid"] == *uid;
    let later = children
        .becomes("a", "to have its label back", is_back)
        .await?;
    assert_eq!(version_of(&later).0, version_of(&child).0);
    assert_eq!(owners(&later), owners(&child));
    Ok(())
}

#[tokio::test]
async fn a_desired_child_that_the_parent_would_not_find_again_is_not_created() -> anyhow::Result<()>
{
    let stage = selecting("unmatched").await?;
    let good = labelled(config_map("good", json!({})), "app", &stage.namespace);
    let bad = labelled(config_map("bad", json!({})), "app", "other");

    let parent = stage
        .parent(THING, "p", selector(&stage, &[good, bad]))
        .await?;

    let text = "labels on desired child ConfigMap bad don't match parent selector";
    stage.event(&parent, "SyncError", text).await?;
    throughout("nothing is created", async || {
        let found = stage.objects(CONFIG_MAP).list().await?;
        ensure!(found.is_empty(), "there is {found:#?}");
        Ok(())
    })
    .await
}
