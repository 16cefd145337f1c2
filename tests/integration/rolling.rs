//! Rolling updates: children that move to a new revision of their parent one at a time.

use anyhow::{Context, ensure};
use metashard_api::names::ANNOTATION_LAST_APPLIED;
use metashard_testkit::{FakeHook, Replica, crds, replica};
use serde_json::{Value, json};

use crate::support::{
    Applying, CONFIG_MAP, CONTROLLER, Kind, OWN_REPLICA, Objects, Stage, THING, WITHIN,
    condition_of, data_of, eventually, throughout,
};

/// Children whose health the tests play: a kind with a status of its own.
pub(crate) const CHILD: Kind = Kind {
    api_version: crds::API_VERSION,
    kind: "Multi",
    plural: "multis",
    namespaced: true,
};

pub(crate) const REVISION: Kind = Kind {
    api_version: "metacontroller.k8s.io/v1alpha1",
    kind: "ControllerRevision",
    plural: "controllerrevisions",
    namespaced: true,
};

const CHILDREN: usize = 20;

/// Index of the child whose move the worker does not outlive.
const KILLED_AFTER: usize = 7;

/// Long enough for a busy machine, short enough to wait for.
const LEASE: &str = "--lease-duration=6s";

fn name(index: usize) -> String {
    format!("c-{index:02}")
}

fn children(request: &Value) -> Value {
    let image = &request["parent"]["spec"]["image"];
    let child = |index| {
        json!({
            "apiVersion": CHILD.api_version, "kind": CHILD.kind,
            "metadata": { "name": name(index) }, "spec": { "image": image },
        })
    };
    let all: Vec<_> = (0..CHILDREN).map(child).collect();
    json!({ "children": all, "status": { "image": image } })
}

/// A parent `p` of 20 children that roll, all of them well, served by a replica of its own.
struct Scene {
    stage: Stage,
    children: Objects,
    replica: Replica,
    replicas: u32,
    applying: Applying,
}

impl Scene {
    async fn new(claim: &str, method: &str, applying: Applying) -> anyhow::Result<Self> {
        let stage = Stage::with_hook(claim, FakeHook::json(children)?).await?;
        let checks = json!({ "conditions": [{ "type": "Ready", "status": "True" }] });
        stage
            .controller()
            .child(CHILD, method)
            .edit(|it| it["metadata"]["labels"] = json!({ OWN_REPLICA: stage.namespace }))
            .edit(|it| {
                it["spec"]["childResources"][0]["updateStrategy"]["statusChecks"] = checks;
            })
            .apply()
            .await?;
        stage.parent(THING, "p", json!({ "image": "v1" })).await?;
        let mut scene = Self {
            children: stage.objects(CHILD),
            replica: start(&stage, 0, applying)?,
            replicas: 1,
            applying,
            stage,
        };
        scene.replica.ready(WITHIN).await?;
        for index in 0..CHILDREN {
            scene.children.appears(&name(index)).await?;
            scene.heal(&name(index)).await?;
        }
        scene.updated("OnLatestRevision").await?;
        // A child that is not seen to be well would move before the others.
        let is_well = |it: &&Value| condition_of(it, "Ready").is_some();
        let shown = |it: &Value| {
            let groups = it["children"].as_object().into_iter().flatten();
            let children = groups.flat_map(|group| group.1.as_object().into_iter().flatten());
            children.map(|it| it.1).filter(is_well).count()
        };
        let all_well = |it: &Value| shown(it) == CHILDREN;
        scene.stage.request("all children well", all_well).await?;
        Ok(scene)
    }

    /// Has the controller of a child tell that it is well.
    async fn heal(&self, child: &str) -> anyhow::Result<()> {
        let generation = self.children.get(child).await?["metadata"]["generation"].clone();
        let conditions = json!([{ "type": "Ready", "status": "True" }]);
        let status = json!({ "observedGeneration": generation, "conditions": conditions });
        self.children.patch_status(child, status).await?;
        Ok(())
    }

    /// The children that are there and well; all but one at any time.
    async fn well(&self) -> anyhow::Result<Vec<Value>> {
        let mut all = self.children.list().await?;
        all.retain(|child| {
            child["status"]["observedGeneration"] == child["metadata"]["generation"]
                && condition_of(child, "Ready").is_some_and(|it| it["status"] == "True")
        });
        assert!(all.len() + 1 >= CHILDREN, "only {} are well", all.len());
        Ok(all)
    }

    /// Waits until one child has moved, and no other after it.
    async fn moves(&self, index: usize) -> anyhow::Result<()> {
        let what = format!("{} to move", name(index));
        eventually(&what, async || {
            self.well().await?;
            ensure!(self.moved().await? == index + 1);
            Ok(())
        })
        .await?;
        let child = self.children.get(&name(index)).await?;
        ensure!(child["spec"]["image"] == "v2", "another moved: {child:#}");
        Ok(())
    }

    async fn moved(&self) -> anyhow::Result<usize> {
        let all = self.children.list().await?;
        Ok(all.iter().filter(|it| it["spec"]["image"] == "v2").count())
    }

    /// The children show that they were applied as was asked for.
    async fn is_applied(&self) -> anyhow::Result<()> {
        for child in self.children.list().await? {
            let metadata = &child["metadata"];
            let is_recorded = metadata["annotations"]
                .get(ANNOTATION_LAST_APPLIED)
                .is_some();
            let by_server = metadata["managedFields"].as_array().is_some_and(|all| {
                let is_ours =
                    |it: &Value| it["manager"] == "metacontroller" && it["operation"] == "Apply";
                all.iter().any(is_ours)
            });
            let wanted = self.applying == Applying::ServerSide;
            ensure!(by_server == wanted && is_recorded != wanted, "{child:#}");
        }
        Ok(())
    }

    /// The condition that tells of the roll-out, once it has this reason.
    async fn updated(&self, reason: &str) -> anyhow::Result<Value> {
        let wanted =
            |parent: &Value| condition_of(parent, "Updated").filter(|it| it["reason"] == reason);
        let what = format!("to be {reason}");
        let parents = self.stage.objects(THING);
        let parent = parents
            .becomes("p", &what, |it| wanted(it).is_some())
            .await?;
        wanted(&parent).context("it was just there")
    }

    /// Kills the worker and starts another.
    async fn kill(&mut self) -> anyhow::Result<()> {
        self.replica.kill()?;
        self.replica = start(&self.stage, self.replicas, self.applying)?;
        self.replicas += 1;
        self.replica.ready(WITHIN).await
    }
}

fn start(stage: &Stage, number: u32, applying: Applying) -> anyhow::Result<Replica> {
    let cluster = &stage.shared.cluster;
    let ours = format!("--target-label-selector={OWN_REPLICA}={}", stage.namespace);
    let name = format!("{}-{number}", stage.namespace);
    let options = replica::Options::new(cluster, &name, &stage.namespace)?;
    Replica::start(
        cluster.group(),
        &options.flags([ours.as_str(), LEASE, applying.flag()]),
    )
}

async fn twenty_children(claim: &str, method: &str, applying: Applying) -> anyhow::Result<()> {
    let mut scene = Scene::new(claim, method, applying).await?;
    let image = json!({ "spec": { "image": "v2" } });
    scene.stage.objects(THING).patch("p", image).await?;

    for index in 0..CHILDREN {
        scene.moves(index).await?;
        if index == 3 {
            throughout("nothing moves before it is well", async || {
                scene.well().await?;
                ensure!(scene.moved().await? == index + 1);
                Ok(())
            })
            .await?;
            // That it waits for the one before may be told still.
            eventually("the condition to name the child", async || {
                let waiting = scene.updated("RolloutWaiting").await?;
                let message = waiting["message"].as_str().unwrap_or_default();
                ensure!(message.starts_with("child Multi c-03 "), "{message}");
                Ok(())
            })
            .await?;
        }
        if index == KILLED_AFTER {
            scene.kill().await?;
        }
        scene.heal(&name(index)).await?;
    }

    let done = scene.updated("OnLatestRevision").await?;
    assert_eq!(done["status"], "True");
    let left = eventually("old revisions to go", async || {
        let all = scene.stage.objects(REVISION).list().await?;
        ensure!(all.len() == 1, "there are {}", all.len());
        all.into_iter().next().context("there is one")
    })
    .await?;
    let name = left["metadata"]["name"].as_str().unwrap_or_default();
    assert_eq!(
        done["message"],
        format!("latest ControllerRevision: {name}")
    );
    assert_eq!(left["parentPatch"]["spec"]["image"], "v2");
    scene.is_applied().await
}

#[tokio::test]
async fn twenty_children_are_updated_in_place_one_at_a_time_though_their_worker_is_killed()
-> anyhow::Result<()> {
    twenty_children("roll-in-place", "RollingInPlace", Applying::Dynamic).await
}

#[tokio::test]
async fn twenty_children_are_recreated_one_at_a_time_though_their_worker_is_killed()
-> anyhow::Result<()> {
    twenty_children("roll-recreate", "RollingRecreate", Applying::Dynamic).await
}

#[tokio::test]
async fn twenty_children_are_updated_by_the_server_one_at_a_time_though_their_worker_is_killed()
-> anyhow::Result<()> {
    twenty_children("roll-ssa", "RollingInPlace", Applying::ServerSide).await
}

#[tokio::test]
async fn twenty_children_of_the_server_are_recreated_one_at_a_time_though_their_worker_is_killed()
-> anyhow::Result<()> {
    twenty_children("roll-ssa-anew", "RollingRecreate", Applying::ServerSide).await
}

/// What Metacontroller could not: revisions of such a parent do not match its own selector.
#[tokio::test]
async fn a_parent_without_a_pod_template_rolls_out() -> anyhow::Result<()> {
    let stage = Stage::answering("roll-plain", |request| {
        let data = &request["parent"]["spec"]["data"];
        let child = |name: &str| {
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "data": data,
                "metadata": { "name": name, "labels": { "app": "web" } },
            })
        };
        json!({ "children": [child("a"), child("b"), child("c")] })
    })
    .await?;
    stage
        .controller()
        .child(CONFIG_MAP, "RollingRecreate")
        .with_selectors_of_parents()
        .apply()
        .await?;
    let selector = json!({ "matchLabels": { "app": "web" } });
    let spec = json!({ "selector": selector, "data": { "k": "1" } });
    stage.parent(THING, "p", spec).await?;
    let children = stage.objects(CONFIG_MAP);
    children.appears("c").await?;

    let edit = json!({ "spec": { "data": { "k": "2" } } });
    stage.objects(THING).patch("p", edit).await?;

    for child in ["a", "b", "c"] {
        let wanted = json!({ "k": "2" });
        eventually(&format!("{child} to be made anew"), async || {
            let found = children.find(child).await?;
            ensure!(
                found.as_ref().map(data_of) == Some(wanted.clone()),
                "{found:?}"
            );
            Ok(())
        })
        .await?;
    }
    eventually("old revisions to go", async || {
        let left = stage.objects(REVISION).list().await?;
        ensure!(left.len() == 1, "there are {}", left.len());
        Ok(())
    })
    .await?;
    stage.settle(THING, "p").await?;
    let parent = stage.objects(THING).get("p").await?;
    let updated = condition_of(&parent, "Updated").context("a condition")?;
    assert_eq!(updated["reason"], "OnLatestRevision");
    assert_eq!(stage.told(&parent, "SyncError").await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_controller_of_cluster_scoped_parents_that_roll_is_refused() -> anyhow::Result<()> {
    let stage = Stage::new("roll-cluster").await?;
    let controller = stage
        .controller()
        .parent(crate::support::BIG_THING)
        .child(CONFIG_MAP, "RollingInPlace")
        .apply()
        .await?;

    stage
        .says("Accepted", "False", "NotSupported", "spec.parentResource")
        .await?;
    stage
        .event(&controller, "CreateError", "rolling updates")
        .await?;
    stage.objects(CONTROLLER).delete(&stage.namespace).await?;
    Ok(())
}

#[tokio::test]
async fn hooks_that_are_never_called_are_told_in_a_condition() -> anyhow::Result<()> {
    let stage = Stage::new("never-called").await?;
    stage
        .controller()
        .edit(|it| it["spec"]["hooks"]["preUpdateChild"] = json!({}))
        .apply()
        .await?;

    let text = "spec.hooks.preUpdateChild";
    stage.says("Accepted", "True", "NoEffect", text).await?;
    Ok(())
}
