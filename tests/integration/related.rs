//! Related objects: what customize hooks ask for, what hooks see of it, and whom its changes concern.

mod decorated;
mod lifetimes;

use anyhow::{Context, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use metashard_api::names::{condition, event, reason};
use metashard_testkit::{FakeHook, crds, hook::Answer};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{
    CONFIG_MAP, CONTROLLER, ControllerBuilder, Kind, NAMESPACE, Objects, Stage, THING, as_told,
    config_map, eventually, healed_in_time,
};

const LATE: Kind = Kind {
    api_version: crds::API_VERSION,
    kind: "LateRelated",
    plural: "laterelateds",
    namespaced: true,
};

/// A stage whose customize hook asks for what `spec.related` of the parent says.
async fn stage(claim: &str) -> anyhow::Result<Stage> {
    let hook = FakeHook::start(|call| {
        let request = call.json();
        Answer::json(&if call.path == "/customize" {
            json!({ "relatedResources": request["parent"]["spec"]["related"] })
        } else {
            as_told(&request)
        })
    })?;
    Stage::with_hook(claim, hook).await
}

/// A controller whose hooks all have this version.
fn controller<'a>(stage: &'a Stage, version: &str) -> ControllerBuilder<'a> {
    let url = stage.hook.url("/customize");
    stage.controller().edit(|it| {
        let hooks = &mut it["spec"]["hooks"];
        hooks["customize"] = json!({ "version": version, "webhook": { "url": url } });
        hooks["sync"]["version"] = version.into();
    })
}

/// A rule for ConfigMaps.
fn config_maps(mut rule: Value) -> Value {
    rule["apiVersion"] = "v1".into();
    rule["resource"] = "configmaps".into();
    rule
}

async fn parent(stage: &Stage, name: &str, rule: Value) -> anyhow::Result<Value> {
    let parent = stage.parent(THING, name, json!({ "related": [rule] }));
    parent.await
}

/// The first request of the sync hook for a parent whose related objects of `kind` are as wanted.
async fn shown(
    stage: &Stage,
    name: &str,
    kind: &str,
    what: &str,
    wanted: impl Fn(&Value) -> bool,
) -> anyhow::Result<Value> {
    stage
        .request(what, |request| {
            request["parent"]["metadata"]["name"] == name
                && request.get("related").is_some_and(|it| wanted(&it[kind]))
        })
        .await
}

/// Names of the parents for which the sync hook was called.
fn synced(stage: &Stage) -> Vec<String> {
    let calls = stage.hook.calls_to("/sync");
    let names = calls
        .iter()
        .map(|call| call.json()["parent"]["metadata"]["name"].clone());
    names
        .map(|name| name.as_str().unwrap_or_default().to_owned())
        .collect()
}

/// Returns once the hook is called no more, whatever was still under way.
async fn quiet(stage: &Stage) -> anyhow::Result<()> {
    eventually("the calls end", async || stage.no_calls().await).await
}

fn has(text: &str) -> impl Fn(&Value) -> bool {
    move |maps| maps["cfg-a"]["data"]["text"] == text
}

#[tokio::test]
async fn a_change_of_a_related_object_syncs_the_parents_that_asked_for_it_and_no_others()
-> anyhow::Result<()> {
    let stage = stage("related-change").await?;
    let maps = stage.objects(CONFIG_MAP);
    for name in ["cfg-a", "cfg-b"] {
        maps.create(config_map(name, json!({ "text": "old" })))
            .await?;
    }
    controller(&stage, "v1").apply().await?;
    parent(&stage, "a", config_maps(json!({ "names": ["cfg-a"] }))).await?;
    parent(&stage, "b", config_maps(json!({ "names": ["cfg-b"] }))).await?;
    stage.settle(THING, "a").await?;
    stage.settle(THING, "b").await?;
    quiet(&stage).await?;
    stage.hook.forget();

    let text = |text: &str| json!({ "data": { "text": text } });
    maps.patch("cfg-a", text("new")).await?;
    shown(&stage, "a", "ConfigMap.v1", "the new text", has("new")).await?;
    maps.create(config_map("cfg-c", json!({}))).await?;
    maps.delete("cfg-a").await?;
    shown(&stage, "a", "ConfigMap.v1", "its end", |it| {
        *it == json!({})
    })
    .await?;
    maps.create(config_map("cfg-a", json!({ "text": "again" })))
        .await?;
    shown(
        &stage,
        "a",
        "ConfigMap.v1",
        "the one made anew",
        has("again"),
    )
    .await?;

    stage.no_calls().await?;
    assert_eq!(synced(&stage), ["a", "a", "a"]);
    assert_eq!(stage.hook.calls_to("/customize").len(), 0);
    assert_eq!(
        stage.writes()?,
        ["update things/status", "update things/status"]
    );
    Ok(())
}

#[tokio::test]
async fn an_object_that_comes_to_match_or_no_longer_matches_starts_a_sync() -> anyhow::Result<()> {
    let stage = stage("related-labels").await?;
    let maps = stage.objects(CONFIG_MAP);
    maps.create(config_map("cfg-a", json!({}))).await?;
    controller(&stage, "v1").apply().await?;
    let rule = config_maps(json!({ "labelSelector": { "matchLabels": { "app": "x" } } }));
    parent(&stage, "p", rule).await?;
    stage.settle(THING, "p").await?;
    quiet(&stage).await?;
    stage.hook.forget();

    let label = |value: Value| json!({ "metadata": { "labels": { "app": value } } });
    maps.patch("cfg-a", label("x".into())).await?;
    let is_there = |it: &Value| it.get("cfg-a").is_some();
    shown(&stage, "p", "ConfigMap.v1", "what matches now", is_there).await?;
    quiet(&stage).await?;
    stage.hook.forget();
    maps.patch("cfg-a", label("y".into())).await?;
    shown(
        &stage,
        "p",
        "ConfigMap.v1",
        "what matches no longer",
        |it| *it == json!({}),
    )
    .await?;
    Ok(())
}

#[tokio::test]
async fn the_first_request_has_all_related_objects_and_thousands_of_others_start_no_sync()
-> anyhow::Result<()> {
    let stage = stage("related-many").await?;
    let maps = stage.objects(CONFIG_MAP);
    let create = |count: usize, app: &'static str| {
        let maps = &maps;
        let all = stream::iter(0..count).map(move |index| {
            let mut map = config_map(&format!("{app}-{index}"), json!({}));
            map["metadata"]["labels"]["app"] = app.into();
            maps.create(map)
        });
        all.buffer_unordered(32).try_for_each(async |_| Ok(()))
    };
    create(300, "mine").await?;
    parent(
        &stage,
        "p",
        config_maps(json!({ "labelSelector": { "matchLabels": { "app": "mine" } } })),
    )
    .await?;
    controller(&stage, "v1").apply().await?;

    stage.settle(THING, "p").await?;
    let counts: Vec<_> = stage
        .hook
        .calls_to("/sync")
        .iter()
        .map(|call| {
            call.json()["related"]["ConfigMap.v1"]
                .as_object()
                .map(serde_json::Map::len)
        })
        .collect();
    ensure!(counts.iter().all(|count| *count == Some(300)), "{counts:?}");
    quiet(&stage).await?;
    stage.hook.forget();

    create(2000, "other").await?;
    stage.no_calls().await?;
    assert_eq!(synced(&stage), [""; 0]);
    stage.poke(THING, "p").await?;
    Ok(())
}

#[tokio::test]
async fn namespaces_are_followed_by_their_labels() -> anyhow::Result<()> {
    let stage = stage("related-spaces").await?;
    let other = stage.shared.cluster.namespace("related-other").await?;
    let elsewhere = Objects::new(&stage.client, CONFIG_MAP, &other);
    elsewhere.create(config_map("cfg", json!({}))).await?;
    controller(&stage, "v2").apply().await?;
    let team = json!({ "matchLabels": { "team": stage.namespace } });
    let labels = json!({ "matchExpressions": [{ "key": "skip", "operator": "DoesNotExist" }] });
    let rule = json!({ "namespaceSelector": team, "labelSelector": labels });
    parent(&stage, "p", config_maps(rule)).await?;
    stage.settle(THING, "p").await?;
    assert_eq!(
        stage.hook.calls_to("/sync")[0].json()["related"],
        json!({ "ConfigMap.v1": {} })
    );
    quiet(&stage).await?;
    stage.hook.forget();

    let label = |value: Value| json!({ "metadata": { "labels": { "team": value } } });
    let namespaces = stage.objects(NAMESPACE);
    namespaces
        .patch(&other, label(stage.namespace.as_str().into()))
        .await?;
    let key = format!("{other}/cfg");
    let is_there = |it: &Value| it.get(&key).is_some();
    shown(
        &stage,
        "p",
        "ConfigMap.v1",
        "a namespace that matches",
        is_there,
    )
    .await?;

    elsewhere
        .patch("cfg", json!({ "data": { "text": "new" } }))
        .await?;
    let is_new = |it: &Value| it[&key]["data"]["text"] == "new";
    shown(&stage, "p", "ConfigMap.v1", "a change in it", is_new).await?;

    quiet(&stage).await?;
    stage.hook.forget();
    namespaces.patch(&other, label(Value::Null)).await?;
    shown(
        &stage,
        "p",
        "ConfigMap.v1",
        "that it matches no longer",
        |it| *it == json!({}),
    )
    .await?;
    quiet(&stage).await?;
    stage.hook.forget();
    elsewhere
        .patch("cfg", json!({ "data": { "text": "newer" } }))
        .await?;
    stage.no_calls().await
}

#[tokio::test]
async fn a_namespaced_parent_sees_other_namespaces_in_v2_and_is_refused_them_in_v1()
-> anyhow::Result<()> {
    let stage = stage("related-v1").await?;
    let other = stage.shared.cluster.namespace("related-other").await?;
    let elsewhere = Objects::new(&stage.client, CONFIG_MAP, &other);
    elsewhere.create(config_map("cfg", json!({}))).await?;
    controller(&stage, "v1").apply().await?;
    let rule = config_maps(json!({ "namespace": other, "names": ["cfg"] }));
    let refused = parent(&stage, "p", rule).await?;

    let text = format!(
        "requested related object namespace {other} differs from parent object namespace {}",
        stage.namespace
    );
    stage.event(&refused, event::SYNC_ERROR, &text).await?;
    assert_eq!(synced(&stage), [""; 0]);

    let v2 = json!({ "spec": { "hooks": {
        "sync": { "version": "v2" }, "customize": { "version": "v2" },
    } } });
    stage
        .objects(CONTROLLER)
        .patch(&stage.namespace, v2)
        .await?;
    let key = format!("{other}/cfg");
    let is_there = |it: &Value| it.get(&key).is_some();
    shown(&stage, "p", "ConfigMap.v1", "the other namespace", is_there).await?;
    Ok(())
}

#[tokio::test]
async fn a_namespaced_parent_sees_its_own_namespace_object() -> anyhow::Result<()> {
    let stage = stage("related-own").await?;
    controller(&stage, "v1").apply().await?;
    let rule = json!({ "apiVersion": "v1", "resource": "namespaces", "names": [stage.namespace] });
    parent(&stage, "p", rule).await?;

    let name = stage.namespace.as_str();
    let is_there = |it: &Value| it[name]["kind"] == "Namespace";
    shown(&stage, "p", "Namespace.v1", "its namespace", is_there).await?;
    stage.settle(THING, "p").await?;
    quiet(&stage).await?;
    stage.hook.forget();

    let label = json!({ "metadata": { "labels": { "seen": "yes" } } });
    stage.objects(NAMESPACE).patch(name, label).await?;
    let is_labelled = |it: &Value| it[name]["metadata"]["labels"]["seen"] == "yes";
    shown(&stage, "p", "Namespace.v1", "its new label", is_labelled).await?;
    Ok(())
}

#[tokio::test]
async fn a_parent_that_is_wished_otherwise_asks_the_customize_hook_again() -> anyhow::Result<()> {
    let stage = stage("related-again").await?;
    let maps = stage.objects(CONFIG_MAP);
    for name in ["cfg-a", "cfg-b"] {
        maps.create(config_map(name, json!({}))).await?;
    }
    controller(&stage, "v1").apply().await?;
    parent(&stage, "p", config_maps(json!({ "names": ["cfg-a"] }))).await?;
    stage.settle(THING, "p").await?;
    quiet(&stage).await?;
    stage.hook.forget();

    let rule = config_maps(json!({ "names": ["cfg-b"] }));
    let things = stage.objects(THING);
    things
        .patch("p", json!({ "spec": { "related": [rule] } }))
        .await?;
    shown(&stage, "p", "ConfigMap.v1", "only the other one", |it| {
        it.as_object().is_some_and(|it| it.keys().eq(["cfg-b"]))
    })
    .await?;
    assert_eq!(stage.hook.calls_to("/customize").len(), 1);
    stage.settle(THING, "p").await?;
    quiet(&stage).await?;
    stage.hook.forget();

    maps.patch("cfg-a", json!({ "data": { "text": "new" } }))
        .await?;
    stage.no_calls().await?;
    maps.patch("cfg-b", json!({ "data": { "text": "new" } }))
        .await?;
    let is_new = |it: &Value| it["cfg-b"]["data"]["text"] == "new";
    shown(&stage, "p", "ConfigMap.v1", "a change of it", is_new).await?;
    Ok(())
}

#[tokio::test]
async fn a_related_kind_that_is_installed_later_heals_the_parents_that_wait_for_it()
-> anyhow::Result<()> {
    let stage = stage("related-late").await?;
    let controller = controller(&stage, "v1").apply().await?;
    let rule = json!({ "apiVersion": LATE.api_version, "resource": LATE.plural });
    let waiting = parent(&stage, "waiting", rule).await?;
    parent(&stage, "other", config_maps(json!({ "names": ["cfg"] }))).await?;

    // The other parent is served all the same, and people are told of the missing kind, on the parent and on the controller.
    stage.settle(THING, "other").await?;
    let text = "discovery: can't find resource laterelateds in apiVersion test.metashard.io/v1";
    for object in [&waiting, &controller] {
        let told = stage.event(object, event::SYNC_ERROR, text).await?;
        assert_eq!(told["type"], "Warning");
    }
    let (watches, why) = (condition::WATCHES_READY, reason::RESOURCE_NOT_FOUND);
    stage.says(watches, "False", why, text).await?;
    ensure!(
        !synced(&stage).contains(&"waiting".to_owned()),
        "it was synced"
    );

    let since = Instant::now();
    let crd = crds::like_thing(LATE.kind, LATE.plural);
    crds::install_one(&stage.client, &crd).await?;
    stage
        .objects(LATE)
        .create(json!({ "metadata": { "name": "late" }, "spec": {} }))
        .await?;
    let kind = format!("{}.{}", LATE.kind, LATE.api_version);
    let is_there = |it: &Value| it.get("late").is_some();
    shown(
        &stage,
        "waiting",
        &kind,
        "the object of that kind",
        is_there,
    )
    .await?;
    healed_in_time(since)?;
    stage.condition(condition::READY, "True").await?;
    Ok(())
}

#[tokio::test]
async fn what_changes_before_the_first_sync_is_seen_by_it() -> anyhow::Result<()> {
    let stage = stage("related-start").await?;
    let maps = stage.objects(CONFIG_MAP);
    maps.create(config_map("cfg-a", json!({ "text": "old" })))
        .await?;
    parent(&stage, "a", config_maps(json!({ "names": ["cfg-a"] }))).await?;
    controller(&stage, "v1").apply().await?;
    maps.patch("cfg-a", json!({ "data": { "text": "new" } }))
        .await?;

    shown(&stage, "a", "ConfigMap.v1", "the new text", has("new")).await?;
    Ok(())
}

#[tokio::test]
async fn a_child_follows_the_object_that_it_is_made_from() -> anyhow::Result<()> {
    let hook = FakeHook::start(|call| {
        let request = call.json();
        Answer::json(&if call.path == "/customize" {
            json!({ "relatedResources": [config_maps(json!({ "names": ["source"] }))] })
        } else {
            let data = request["related"]["ConfigMap.v1"]["source"]["data"].clone();
            json!({ "children": [config_map("copy", data)] })
        })
    })?;
    let stage = Stage::with_hook("related-copy", hook).await?;
    let maps = stage.objects(CONFIG_MAP);
    maps.create(config_map("source", json!({ "text": "one" })))
        .await?;
    controller(&stage, "v1")
        .child(CONFIG_MAP, "InPlace")
        .apply()
        .await?;
    stage.parent(THING, "p", json!({})).await?;
    let is = |text: &'static str| move |it: &Value| it["data"]["text"] == text;
    let copy = maps.becomes("copy", "to be made", is("one")).await;
    copy.context("a child from a related object")?;

    maps.patch("source", json!({ "data": { "text": "two" } }))
        .await?;

    maps.becomes("copy", "to follow", is("two")).await?;
    Ok(())
}
