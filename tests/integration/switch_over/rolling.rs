//! Parents whose children roll, as Metacontroller left them: in the middle of a roll-out, and after one.

use anyhow::ensure;
use metashard_testkit::crds;
use serde_json::{Value, json};

use super::{Left, only_conditions_are_written};
use crate::{
    rolling::{CHILD, REVISION},
    support::{Applying, Kind, Stage, THING, eventually, owner, throughout, version_of},
};

const CHILDREN: [&str; 3] = ["c-0", "c-1", "c-2"];

const ROLLING: [&str; 2] = ["RollingInPlace", "RollingRecreate"];

fn child(name: &str, image: &Value) -> Value {
    json!({
        "apiVersion": CHILD.api_version, "kind": CHILD.kind,
        "metadata": { "name": name }, "spec": { "image": image },
    })
}

fn answer(request: &Value) -> Value {
    let image = &request["parent"]["spec"]["image"];
    json!({ "children": CHILDREN.map(|name| child(name, image)), "status": { "image": image } })
}

/// Name of the revision that has this image. The peer's is a hash too, and is not asked about.
fn revision_name(image: &str) -> String {
    format!("things.{}-{image:0>40}", crds::GROUP)
}

/// A parent at `v2`, whose first children are at it, so many; the others are at `v1`.
struct Scene {
    stage: Stage,
    before: Vec<Value>,
}

impl Scene {
    /// The last child that is at `v2` is not well yet, unless all are.
    async fn new(applying: Applying, method: &str, moved: usize) -> anyhow::Result<Self> {
        let stage = Stage::answering("left-roll", answer).await?;
        applying.start(&stage).await?;
        let parent = stage.parent(THING, "p", json!({ "image": "v2" })).await?;
        let status = json!({
            "image": "v2", "observedGeneration": 1, "conditions": [told(moved)],
        });
        stage.objects(THING).patch_status("p", status).await?;
        let left = Left {
            stage: &stage,
            applying,
            kind: THING,
            parent,
        };
        for (index, name) in CHILDREN.iter().enumerate() {
            let image = if index < moved { "v2" } else { "v1" };
            left.child(CHILD, child(name, &image.into())).await?;
            if index + 1 != moved || moved == CHILDREN.len() {
                heal(&stage, name).await?;
            }
        }
        for (image, names) in [("v2", &CHILDREN[..moved]), ("v1", &CHILDREN[moved..])] {
            if !names.is_empty() {
                revision(&left, image, names).await?;
            }
        }
        let checks = json!({ "conditions": [{ "type": "Ready", "status": "True" }] });
        let before = all_of(&stage).await?;
        stage
            .controller()
            .child(CHILD, method)
            .edit(|it| {
                it["spec"]["childResources"][0]["updateStrategy"]["statusChecks"] = checks;
            })
            .edit(|it| applying.serve(it))
            .apply()
            .await?;
        Ok(Self { stage, before })
    }

    /// Metashard serves the parent, and wrote nothing for that but the conditions of the controller.
    async fn is_taken_over_without_a_write(&self) -> anyhow::Result<()> {
        self.stage.settle(THING, "p").await?;
        throughout("nothing is written", async || {
            let writes = self.stage.writes()?;
            ensure!(writes.is_empty(), "{writes:?}");
            Ok(())
        })
        .await?;
        only_conditions_are_written(&self.stage, &["compositecontrollers"]).await?;
        assert_eq!(all_of(&self.stage).await?, self.before);
        Ok(())
    }

    /// One child moves to `image`, by this way of updating, and the others stay.
    async fn moves(&self, moving: &str, image: &str, method: &str) -> anyhow::Result<()> {
        let children = self.stage.objects(CHILD);
        let what = format!("{moving} to move by {method}");
        let moved = eventually(&what, async || {
            let child = children.get(moving).await?;
            ensure!(child["spec"]["image"] == image, "{child:#}");
            Ok(child)
        })
        .await?;
        throughout("the others stay", async || {
            for before in self.before.iter().filter(|it| it["kind"] == CHILD.kind) {
                let name = before["metadata"]["name"].as_str().unwrap_or_default();
                let now = children.get(name).await?;
                if name == moving {
                    let is_same = now["metadata"]["uid"] == before["metadata"]["uid"];
                    ensure!(is_same == (method == ROLLING[0]), "{now:#}");
                    ensure!(version_of(&now) == version_of(&moved), "{now:#}");
                } else {
                    ensure!(version_of(&now).0 == version_of(before).0, "{now:#}");
                    ensure!(now["spec"] == before["spec"], "{now:#}");
                }
            }
            Ok(())
        })
        .await
    }
}

/// The condition that Metacontroller leaves when so many children have moved.
fn told(moved: usize) -> Value {
    let last = CHILDREN[..moved].last().copied().unwrap_or_default();
    if moved == CHILDREN.len() {
        let message = format!("latest ControllerRevision: {}", revision_name("v2"));
        return json!({
            "type": "Updated", "status": "True", "reason": "OnLatestRevision", "message": message,
        });
    }
    let message = format!(
        "child Multi {last} failed status check: required condition type missing: \"Ready\""
    );
    json!({ "type": "Updated", "status": "False", "reason": "RolloutWaiting", "message": message })
}

async fn revision(left: &Left<'_>, image: &str, names: &[&str]) -> anyhow::Result<()> {
    let parent = &left.parent;
    let labels = json!({
        "controller-uid": parent["metadata"]["uid"],
        "metacontroller.k8s.io/apiGroup": crds::GROUP,
        "metacontroller.k8s.io/resource": THING.plural,
    });
    let revision = json!({
        "metadata": {
            "name": revision_name(image), "labels": labels, "ownerReferences": [owner(THING, parent)],
        },
        "parentPatch": { "spec": { "image": image } },
        "children": [{ "apiGroup": crds::GROUP, "kind": CHILD.kind, "names": names }],
    });
    let revisions = left.stage.objects(REVISION);
    revisions.create_as("metacontroller", revision).await?;
    Ok(())
}

async fn heal(stage: &Stage, name: &str) -> anyhow::Result<()> {
    let children = stage.objects(CHILD);
    let generation = children.get(name).await?["metadata"]["generation"].clone();
    let conditions = json!([{ "type": "Ready", "status": "True" }]);
    let status = json!({ "observedGeneration": generation, "conditions": conditions });
    children.patch_status(name, status).await?;
    Ok(())
}

/// Children and revisions.
async fn all_of(stage: &Stage) -> anyhow::Result<Vec<Value>> {
    let of = async |kind: Kind| stage.objects(kind).list().await;
    Ok([of(CHILD).await?, of(REVISION).await?].concat())
}

async fn in_the_middle(applying: Applying) -> anyhow::Result<()> {
    for method in ROLLING {
        let scene = Scene::new(applying, method, 1).await?;

        scene.is_taken_over_without_a_write().await?;

        heal(&scene.stage, "c-0").await?;
        scene.moves("c-1", "v2", method).await?;
    }
    Ok(())
}

async fn after_it(applying: Applying) -> anyhow::Result<()> {
    for method in ROLLING {
        let scene = Scene::new(applying, method, CHILDREN.len()).await?;

        scene.is_taken_over_without_a_write().await?;

        let edit = json!({ "spec": { "image": "v3" } });
        scene.stage.objects(THING).patch("p", edit).await?;
        scene.moves("c-0", "v3", method).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_roll_out_that_metacontroller_left_half_way_goes_on_and_nothing_else_is_written()
-> anyhow::Result<()> {
    in_the_middle(Applying::Dynamic).await
}

#[tokio::test]
async fn a_roll_out_by_the_server_that_metacontroller_left_half_way_goes_on_likewise()
-> anyhow::Result<()> {
    in_the_middle(Applying::ServerSide).await
}

#[tokio::test]
async fn children_that_metacontroller_has_rolled_out_are_taken_over_without_a_write()
-> anyhow::Result<()> {
    after_it(Applying::Dynamic).await
}

#[tokio::test]
async fn children_that_metacontroller_has_rolled_out_by_the_server_are_taken_over_without_a_write()
-> anyhow::Result<()> {
    after_it(Applying::ServerSide).await
}
