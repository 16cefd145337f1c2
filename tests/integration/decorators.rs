//! DecoratorControllers: what they add to objects that exist already, and how they let go of them.

use anyhow::ensure;
use metashard_testkit::{FakeHook, hook::Answer};
use serde_json::{Value, json};

use crate::support::{
    CONFIG_MAP, DECORATOR, DecoratorBuilder, STAGE, Stage, THING, condition_of, config_map,
    data_of, eventually, throughout, version_of, want,
};

const MARK: &str = "metacontroller.k8s.io/decorator-controller";

/// A stage whose hook gives each decorator the answer that its target has in an annotation of the decorator's path.
pub(crate) async fn stage(claim: &str) -> anyhow::Result<Stage> {
    let hook = FakeHook::start(|call| Answer::json(&as_told(&call.path, &call.json())))?;
    Stage::with_hook(claim, hook).await
}

/// `/one` answers what the annotation `want-one` says.
fn as_told(path: &str, request: &Value) -> Value {
    let key = format!("want-{}", path.trim_start_matches('/'));
    let told = request["object"]["metadata"]["annotations"][&key].as_str();
    let told = told.and_then(|text| serde_json::from_str(text).ok());
    told.unwrap_or_else(|| json!({ "attachments": [] }))
}

/// A target that is told what is wanted of it.
pub(crate) fn thing(stage: &Stage, name: &str, answer: &Value) -> Value {
    json!({
        "metadata": {
            "name": name,
            "labels": { STAGE: stage.namespace, "theirs": "1" },
            "annotations": { "want-one": answer.to_string() },
        },
        "spec": {},
    })
}

pub(crate) fn mark_of(object: &Value) -> &Value {
    &object["metadata"]["annotations"][MARK]
}

fn finalizer(decorator: &str) -> String {
    format!("metacontroller.io/decoratorcontroller-{decorator}")
}

/// Section 5, `decorator.TestSyncWebhook`, and rest afterwards.
#[tokio::test]
async fn a_target_gets_labels_annotations_status_and_attachments_and_then_rests()
-> anyhow::Result<()> {
    let stage = stage("decorate").await?;
    let decorator = DecoratorBuilder::new(&stage, "one")
        .target(THING)
        .attaching(CONFIG_MAP, "InPlace")
        .apply()
        .await?;
    let answer = json!({
        "labels": { "a": "b", "theirs": null },
        "annotations": { "x": "y" },
        "status": { "ready": 1 },
        "attachments": [config_map("attached", json!({ "k": "v" }))],
    });
    let things = stage.objects(THING);

    let before = things.create(thing(&stage, "t", &answer)).await?;

    let after = things
        .becomes("t", "to be decorated", |it| {
            it["metadata"]["labels"]["a"] == "b" && it["status"] == json!({ "ready": 1 })
        })
        .await?;
    assert_eq!(
        after["metadata"]["labels"],
        json!({ STAGE: stage.namespace, "a": "b" })
    );
    assert_eq!(after["metadata"]["annotations"]["x"], "y");
    let attached = stage.objects(CONFIG_MAP).appears("attached").await?;
    assert_eq!(*mark_of(&attached), decorator["metadata"]["name"]);
    assert_eq!(
        attached["metadata"]["ownerReferences"],
        json!([{
            "apiVersion": THING.api_version, "kind": "Thing", "name": "t",
            "uid": before["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
        }])
    );
    rests(&stage, "t").await?;
    let mut writes = stage.writes()?;
    writes.sort();
    assert_eq!(
        writes,
        ["create configmaps", "update things", "update things/status"]
    );
    Ok(())
}

/// A Thing is poked until the hook has seen it, and nothing is written for that.
async fn rests(stage: &Stage, name: &str) -> anyhow::Result<()> {
    let things = stage.objects(THING);
    for number in ["1", "2"] {
        let poked = json!({ "metadata": { "annotations": { "poke": number } } });
        let poked = things.patch(name, poked).await?;
        stage
            .request("the request of a poked target", |it| {
                it["object"]["metadata"]["annotations"]["poke"] == number
            })
            .await?;
        assert_eq!(version_of(&things.get(name).await?), version_of(&poked));
    }
    Ok(())
}

#[tokio::test]
async fn a_decorator_is_reported_and_told_of_as_a_composite_controller_is() -> anyhow::Result<()> {
    let stage = stage("reported").await?;
    let decorator = DecoratorBuilder::new(&stage, "one")
        .target(THING)
        .apply()
        .await?;
    let name = decorator["metadata"]["name"].as_str().unwrap_or_default();

    stage
        .event(
            &decorator,
            "Started",
            &format!("Started controller: {name}"),
        )
        .await?;
    stage
        .objects(THING)
        .create(thing(&stage, "t", &json!({})))
        .await?;

    let is_ready = |it: &Value| {
        [
            "Accepted",
            "Assigned",
            "WatchesReady",
            "HooksReady",
            "Ready",
        ]
        .iter()
        .all(|type_| condition_of(it, type_).is_some_and(|it| it["status"] == "True"))
    };
    stage
        .objects(DECORATOR)
        .becomes(name, "to be ready", is_ready)
        .await?;
    stage.objects(DECORATOR).delete(name).await?;
    stage
        .event(
            &decorator,
            "Stopped",
            &format!("Stopped controller: {name}"),
        )
        .await?;
    Ok(())
}

/// Section 5, `decorator.TestResyncAfter`.
#[tokio::test]
async fn a_status_that_is_empty_is_kept_and_the_hook_is_called_again_when_it_asked_for_that()
-> anyhow::Result<()> {
    let stage =
        Stage::answering(
            "resync-after",
            |request| match request["object"]["status"]["start"].as_bool() {
                None if request["object"]["status"].is_null() => json!({ "status": {} }),
                None => json!({ "status": { "start": true }, "resyncAfterSeconds": 0.1 }),
                Some(_) => json!({ "status": { "start": true, "again": true } }),
            },
        )
        .await?;
    DecoratorBuilder::new(&stage, "one")
        .target(THING)
        .apply()
        .await?;

    stage
        .objects(THING)
        .create(thing(&stage, "t", &json!({})))
        .await?;

    stage
        .request("a request with an empty status", |it| {
            it["object"]["status"] == json!({})
        })
        .await?;
    let is_done = |it: &Value| it["status"] == json!({ "start": true, "again": true });
    stage
        .objects(THING)
        .becomes("t", "to be synced again", is_done)
        .await?;
    Ok(())
}

/// Section 5, `decorator.TestSyncWebhookV2`.
#[tokio::test]
async fn a_decorator_that_is_changed_to_v2_sends_its_attachments_by_namespace_and_name()
-> anyhow::Result<()> {
    let stage = stage("v2").await?;
    let decorator = DecoratorBuilder::new(&stage, "one")
        .target(THING)
        .attaching(CONFIG_MAP, "InPlace")
        .apply()
        .await?;
    let answer = json!({ "attachments": [config_map("attached", json!({}))] });
    stage
        .objects(THING)
        .create(thing(&stage, "t", &answer))
        .await?;
    stage
        .request("a v1 request", |it| {
            !it["attachments"]["ConfigMap.v1"]["attached"].is_null()
        })
        .await?;

    let v2 = json!({ "spec": { "hooks": { "sync": { "version": "v2" } } } });
    let name = decorator["metadata"]["name"].as_str().unwrap_or_default();
    stage.objects(DECORATOR).patch(name, v2).await?;

    let key = format!("{}/attached", stage.namespace);
    let request = stage
        .request("a v2 request", |it| {
            !it["attachments"]["ConfigMap.v1"][&key].is_null()
        })
        .await?;
    assert_eq!(
        *mark_of(&request["attachments"]["ConfigMap.v1"][&key]),
        *name
    );
    Ok(())
}

#[tokio::test]
async fn two_decorators_of_one_target_never_touch_each_others_attachments() -> anyhow::Result<()> {
    let stage = stage("two").await?;
    for path in ["one", "two"] {
        DecoratorBuilder::new(&stage, path)
            .target(THING)
            .attaching(CONFIG_MAP, "InPlace")
            .apply()
            .await?;
    }
    let attached = |name: &str| json!({ "attachments": [config_map(name, json!({ "k": "1" }))] });
    let mut target = thing(&stage, "t", &attached("of-one"));
    target["metadata"]["annotations"]["want-two"] = attached("of-two").to_string().into();
    let (things, maps) = (stage.objects(THING), stage.objects(CONFIG_MAP));

    let target = things.create(target).await?;
    let (one, two) = (maps.appears("of-one").await?, maps.appears("of-two").await?);
    assert_ne!(mark_of(&one), mark_of(&two));

    // The first gives up its own, and asks for the other's name.
    want(&things, "t", "want-one", &attached("of-two")).await?;
    maps.goes("of-one").await?;
    stage.event(&target, "ChildConflict", "of-two").await?;
    assert_eq!(version_of(&maps.get("of-two").await?), version_of(&two));
    let of_one = stage.hook.calls_to("/one");
    let sees_two = |it: &Value| !it["attachments"]["ConfigMap.v1"]["of-two"].is_null();
    assert!(!of_one.iter().any(|it| sees_two(&it.json())));

    // An edit of the one's attachment is no news for the other.
    want(&things, "t", "want-one", &json!({ "attachments": [] })).await?;
    let seen = || stage.hook.calls_to("/one").len();
    eventually("the first to be at rest", async || {
        let before = seen();
        throughout("no call comes", async || {
            ensure!(seen() == before, "it was called");
            Ok(())
        })
        .await
    })
    .await?;
    let before = seen();
    maps.patch("of-two", json!({ "data": { "k": "2" } }))
        .await?;
    maps.becomes("of-two", "to be mended", |it| {
        data_of(it) == json!({ "k": "1" })
    })
    .await?;
    throughout("the first is not called", async || {
        ensure!(seen() == before, "it was called");
        Ok(())
    })
    .await
}

/// Section 5, `service-per-pod`: opting out by relabelling, opting in again, and deletion.
#[tokio::test]
async fn a_target_that_opts_out_is_finalized_and_may_opt_in_again() -> anyhow::Result<()> {
    let stage = Stage::answering("opt-out", |request| {
        let left = request["attachments"]["ConfigMap.v1"].as_object();
        if request["finalizing"] == true {
            let is_done = left.is_none_or(serde_json::Map::is_empty);
            json!({ "attachments": [], "finalized": is_done })
        } else {
            json!({ "attachments": [config_map("attached", json!({}))] })
        }
    })
    .await?;
    let decorator = DecoratorBuilder::new(&stage, "one")
        .target(THING)
        .attaching(CONFIG_MAP, "InPlace")
        .finalize()
        .apply()
        .await?;
    let ours = finalizer(decorator["metadata"]["name"].as_str().unwrap_or_default());
    let foreign = "test.metashard.io/hold";
    let (things, maps) = (stage.objects(THING), stage.objects(CONFIG_MAP));
    things.create(thing(&stage, "t", &json!({}))).await?;
    maps.appears("attached").await?;
    let held = things.get("t").await?;
    assert_eq!(held["metadata"]["finalizers"], json!([ours]));

    let label = |value: Value| json!({ "metadata": { "labels": { STAGE: value } } });
    things.patch("t", label(Value::Null)).await?;
    maps.goes("attached").await?;
    let is_free = |it: &Value| it["metadata"]["finalizers"].is_null();
    things.becomes("t", "to be let go", is_free).await?;

    things
        .patch("t", label(stage.namespace.as_str().into()))
        .await?;
    maps.appears("attached").await?;
    let both = json!({ "metadata": { "finalizers": [ours, foreign] } });
    things.patch("t", both).await?;

    things.delete("t").await?;
    maps.goes("attached").await?;
    let is_theirs = |it: &Value| it["metadata"]["finalizers"] == json!([foreign]);
    let going = things.becomes("t", "to be let go", is_theirs).await?;
    assert!(going["metadata"]["deletionTimestamp"].is_string());
    things
        .patch("t", json!({ "metadata": { "finalizers": null } }))
        .await?;
    things.goes("t").await
}

/// C07 and row 49 of what users ask for.
#[tokio::test]
async fn no_hook_is_called_for_an_object_whose_annotations_do_not_match() -> anyhow::Result<()> {
    let stage = stage("annotations").await?;
    let url = "https://x.example/?a=b, c";
    let selector = json!({
        "matchAnnotations": { "ex.io/url": url },
        "matchExpressions": [
            { "key": "ex.io/off", "operator": "DoesNotExist" },
            { "key": "ex.io/tier", "operator": "In", "values": ["a/b", "c d"] },
            { "key": "ex.io/tier", "operator": "NotIn", "values": ["/"] },
            { "key": "want-one", "operator": "Exists" },
        ],
    });
    DecoratorBuilder::new(&stage, "one")
        .target(THING)
        .edit(|it| it["spec"]["resources"][0]["annotationSelector"] = selector)
        .apply()
        .await?;
    let things = stage.objects(THING);
    let decorated = json!({ "labels": { "on": "yes" }, "attachments": [] });
    let with = |name: &str, annotations: Value| {
        let mut object = thing(&stage, name, &decorated);
        for (key, value) in annotations.as_object().into_iter().flatten() {
            object["metadata"]["annotations"][key] = value.clone();
        }
        object
    };
    let right = json!({ "ex.io/url": url, "ex.io/tier": "c d" });

    things.create(with("none", json!({}))).await?;
    things
        .create(with(
            "off",
            json!({ "ex.io/url": url, "ex.io/tier": "c d", "ex.io/off": "" }),
        ))
        .await?;
    things
        .create(with(
            "other",
            json!({ "ex.io/url": "https://x.example/", "ex.io/tier": "c d" }),
        ))
        .await?;
    things.create(with("match", right)).await?;

    let is_on = |it: &Value| it["metadata"]["labels"]["on"] == "yes";
    things.becomes("match", "to be decorated", is_on).await?;
    throughout("no other is asked about", async || {
        for call in stage.hook.calls() {
            let name = call.json()["object"]["metadata"]["name"].clone();
            ensure!(name == "match", "the hook was asked about {name}");
        }
        Ok(())
    })
    .await
}

///
#[tokio::test]
async fn a_target_that_is_deleted_is_nothing_to_fail_at() -> anyhow::Result<()> {
    let stage = stage("deleted").await?;
    DecoratorBuilder::new(&stage, "one")
        .target(THING)
        .apply()
        .await?;
    let things = stage.objects(THING);
    let target = things
        .create(thing(&stage, "t", &json!({ "labels": { "a": "b" } })))
        .await?;
    things
        .becomes("t", "to be decorated", |it| {
            it["metadata"]["labels"]["a"] == "b"
        })
        .await?;

    things.delete("t").await?;
    things.goes("t").await?;
    let calls = stage.hook.count();

    throughout("nothing more is done about it", async || {
        ensure!(
            stage.hook.count() <= calls + 1,
            "the hook is called again and again"
        );
        ensure!(
            stage.told(&target, "SyncError").await? == 0,
            "a failure was told of"
        );
        Ok(())
    })
    .await
}

/// Section 5, `decorator_with_target_label_selector`: the shared replica leaves controllers with this label alone.
#[tokio::test]
async fn a_decorator_that_is_not_selected_is_left_alone() -> anyhow::Result<()> {
    let stage = stage("unselected").await?;
    let own = json!({ crate::support::OWN_REPLICA: "x" });
    DecoratorBuilder::new(&stage, "one")
        .target(THING)
        .edit(|it| it["metadata"]["labels"] = own)
        .apply()
        .await?;

    let target = thing(&stage, "t", &json!({ "labels": { "a": "b" } }));
    stage.objects(THING).create(target).await?;

    throughout("no call comes", async || {
        ensure!(stage.hook.count() == 0, "a call came");
        Ok(())
    })
    .await
}
