//! DecoratorControllers whose attachments are applied by the API server.

use anyhow::{Context, ensure};
use metashard_api::names::ANNOTATION_LAST_APPLIED;
use serde_json::{Value, json};

use crate::{
    decorators::{mark_of, stage, thing},
    server_side::managers,
    support::{
        Applying, CONFIG_MAP, DecoratorBuilder, Objects, Stage, THING, config_map, data_of,
        eventually, version_of, want,
    },
};

/// A stage with the decorator `one` and a target `t` whose attachment `a` is there.
struct Scene {
    stage: Stage,
    things: Objects,
    maps: Objects,
    target: Value,
    first: Value,
}

/// What a decorator is to attach.
fn attaching(data: Value) -> Value {
    json!({ "attachments": [config_map("a", data)] })
}

/// An object that may be missing for a while, once it is as wanted.
async fn comes(
    objects: &Objects,
    name: &str,
    wanted: impl Fn(&Value) -> bool,
) -> anyhow::Result<Value> {
    eventually(&format!("{name} to come"), async || {
        let found = objects.find(name).await?.context("it is not there")?;
        ensure!(wanted(&found), "it is {found:#}");
        Ok(found)
    })
    .await
}

/// A decorator that the replica serves which applies by the server.
async fn decorator(stage: &Stage, path: &str, method: &str) -> anyhow::Result<Value> {
    DecoratorBuilder::new(stage, path)
        .target(THING)
        .attaching(CONFIG_MAP, method)
        .edit(|it| Applying::ServerSide.serve(it))
        .apply()
        .await
}

impl Scene {
    async fn new(claim: &str, method: &str, data: Value) -> anyhow::Result<Self> {
        let stage = stage(claim).await?;
        Applying::ServerSide.start(&stage).await?;
        decorator(&stage, "one", method).await?;
        let (things, maps) = (stage.objects(THING), stage.objects(CONFIG_MAP));
        let target = thing(&stage, "t", &attaching(data));
        let target = things.create(target).await?;
        let first = maps.appears("a").await?;
        Ok(Self {
            stage,
            things,
            maps,
            target,
            first,
        })
    }

    async fn want(&self, answer: &Value) -> anyhow::Result<()> {
        want(&self.things, "t", "want-one", answer).await?;
        Ok(())
    }

    /// The attachment, once it holds this.
    async fn holds(&self, data: Value) -> anyhow::Result<Value> {
        let what = format!("to hold {data}");
        self.maps
            .becomes("a", &what, |it| data_of(it) == data)
            .await
    }

    /// The decorator has synced its target twice more: what there was to write was written.
    async fn settles(&self) -> anyhow::Result<()> {
        for number in ["1", "2"] {
            let poked = json!({ "metadata": { "annotations": { "poke": number } } });
            self.things.patch("t", poked).await?;
            self.stage
                .request("the request of a poked target", |it| {
                    it["object"]["metadata"]["annotations"]["poke"] == number
                })
                .await?;
        }
        Ok(())
    }
}

#[tokio::test]
async fn an_attachment_is_applied_repaired_and_taken_away_and_keeps_what_others_add()
-> anyhow::Result<()> {
    let scene = Scene::new("dec-ssa", "InPlace", json!({ "k": "1", "l": "1" })).await?;
    let first = &scene.first;
    ensure!(managers(first) == ["metacontroller Apply"], "{first:#}");
    let annotations = &first["metadata"]["annotations"];
    ensure!(
        annotations.get(ANNOTATION_LAST_APPLIED).is_none(),
        "{first:#}"
    );
    assert_eq!(*mark_of(first), format!("{}-one", scene.stage.namespace));
    let owner = &first["metadata"]["ownerReferences"][0];
    assert_eq!(owner["uid"], scene.target["metadata"]["uid"]);
    assert_eq!(owner["controller"], true);

    let theirs = json!({
        "data": { "k": "theirs", "l": null, "m": "theirs" },
        "metadata": { "labels": { "theirs": "t" } },
    });
    scene.maps.patch("a", theirs).await?;
    let repaired = scene
        .holds(json!({ "k": "1", "l": "1", "m": "theirs" }))
        .await?;
    assert_eq!(version_of(&repaired).0, version_of(first).0);

    scene.want(&attaching(json!({ "k": "2" }))).await?;
    let updated = scene.holds(json!({ "k": "2", "m": "theirs" })).await?;
    assert_eq!(version_of(&updated).0, version_of(first).0);
    assert_eq!(updated["metadata"]["labels"], json!({ "theirs": "t" }));
    assert_eq!(mark_of(&updated), mark_of(first));
    scene.settles().await?;
    assert_eq!(
        version_of(&scene.maps.get("a").await?),
        version_of(&updated)
    );

    scene.want(&json!({ "attachments": [] })).await?;
    scene.maps.goes("a").await
}

#[tokio::test]
async fn a_recreated_attachment_is_made_anew_once_what_is_wanted_changes() -> anyhow::Result<()> {
    let scene = Scene::new("dec-ssa-anew", "Recreate", json!({ "k": "1" })).await?;
    let foreign = json!({ "data": { "side": "x" } });
    let added = scene.maps.patch("a", foreign).await?;
    scene.settles().await?;
    assert_eq!(version_of(&scene.maps.get("a").await?), version_of(&added));

    scene.want(&attaching(json!({ "k": "2" }))).await?;

    let is_new = |it: &Value| data_of(it) == json!({ "k": "2" });
    let anew = comes(&scene.maps, "a", is_new).await?;
    assert_ne!(version_of(&anew).0, version_of(&scene.first).0);
    assert_eq!(mark_of(&anew), mark_of(&scene.first));
    Ok(())
}

#[tokio::test]
async fn on_delete_an_attachment_stays_as_it_is_until_it_is_deleted() -> anyhow::Result<()> {
    let scene = Scene::new("dec-ssa-stays", "OnDelete", json!({ "k": "1" })).await?;

    scene.want(&attaching(json!({ "k": "2" }))).await?;
    scene.settles().await?;
    let untouched = scene.maps.get("a").await?;
    assert_eq!(version_of(&untouched), version_of(&scene.first));

    scene.maps.delete("a").await?;
    let is_new = |it: &Value| data_of(it) == json!({ "k": "2" });
    comes(&scene.maps, "a", is_new).await?;
    Ok(())
}

#[tokio::test]
async fn two_decorators_that_apply_by_the_server_never_touch_each_others_attachments()
-> anyhow::Result<()> {
    let stage = stage("dec-ssa-two").await?;
    Applying::ServerSide.start(&stage).await?;
    for path in ["one", "two"] {
        decorator(&stage, path, "InPlace").await?;
    }
    let attached =
        |name: &str, k: &str| json!({ "attachments": [config_map(name, json!({ "k": k }))] });
    let mut target = thing(&stage, "t", &attached("of-one", "1"));
    target["metadata"]["annotations"]["want-two"] = attached("of-two", "1").to_string().into();
    let (things, maps) = (stage.objects(THING), stage.objects(CONFIG_MAP));
    let target = things.create(target).await?;
    let (one, two) = (maps.appears("of-one").await?, maps.appears("of-two").await?);
    assert_ne!(mark_of(&one), mark_of(&two));

    // The first gives up its own, and asks for the other's name: a forced apply would take it over.
    want(&things, "t", "want-one", &attached("of-two", "theirs")).await?;
    maps.goes("of-one").await?;
    stage.event(&target, "ChildConflict", "of-two").await?;
    assert_eq!(version_of(&maps.get("of-two").await?), version_of(&two));

    // Each keeps up its own, and that only.
    want(&things, "t", "want-one", &attached("of-one", "2")).await?;
    let is_back = |it: &Value| data_of(it) == json!({ "k": "2" });
    comes(&maps, "of-one", is_back).await?;
    maps.patch("of-two", json!({ "data": { "k": "theirs" } }))
        .await?;
    let is_mended = |it: &Value| data_of(it) == json!({ "k": "1" });
    let mended = comes(&maps, "of-two", is_mended).await?;
    assert_eq!(mark_of(&mended), mark_of(&two));
    Ok(())
}
