//! Hooks whose answers cannot be used: each is refused whole, told of, and asked for again.

use anyhow::ensure;
use metashard_testkit::hook::Answer;
use serde_json::{Value, json};
use tokio::try_join;

use super::{
    fault::{PARENT, Scene, children},
    support::{CONFIG_MAP, NAMESPACE, Objects, SECRET, THING, config_map},
};

/// Reason of the event about an answer that cannot be read.
const SYNC_ERROR: &str = "SyncError";
/// Reason of the event about a child that is asked for and must not be.
const CHILD_REFUSED: &str = "ChildRefused";

/// The answer changes nothing, its fault is told of by `reason` and `text`, and the next good answer counts.
async fn is_refused(claim: &str, answer: Answer, reason: &str, text: &str) -> anyhow::Result<()> {
    let mut scene = Scene::new(claim).await?;

    scene.fail(answer).await?;

    scene.is_told(reason, text).await?;
    scene.is_untouched().await?;
    scene.heals().await
}

#[tokio::test]
async fn a_malformed_answer_is_refused() -> anyhow::Result<()> {
    let answer = Answer::status(200, r#"{"children": [}"#);
    is_refused("malformed", answer, SYNC_ERROR, "malformed JSON at byte 14").await
}

#[tokio::test]
async fn an_empty_answer_is_refused() -> anyhow::Result<()> {
    is_refused(
        "empty",
        Answer::status(200, ""),
        SYNC_ERROR,
        "it is empty; answer with a JSON object",
    )
    .await
}

#[tokio::test]
async fn an_html_page_in_place_of_an_answer_is_refused() -> anyhow::Result<()> {
    let page = "<!DOCTYPE html><html><body><h1>It works!</h1></body></html>";
    let answer = Answer::status(200, page).header("content-type", "text/html");
    is_refused(
        "html",
        answer,
        SYNC_ERROR,
        "it begins as HTML does; answer with a JSON object",
    )
    .await
}

#[tokio::test]
async fn an_answer_that_lacks_its_end_is_refused() -> anyhow::Result<()> {
    let whole = json!({ "children": children("after") }).to_string();
    let (half, _) = whole.split_at(whole.len() / 2);
    let half = half.to_owned();
    let text = format!("malformed JSON at byte {}", half.len());
    is_refused("truncated", Answer::status(200, half), SYNC_ERROR, &text).await
}

#[tokio::test]
async fn an_answer_with_null_among_its_children_is_refused() -> anyhow::Result<()> {
    let answer = Answer::json(&json!({ "children": [null] }));
    let text = "read field children[0] of the hook's answer: null in place of an object";
    is_refused("null", answer, SYNC_ERROR, text).await
}

#[tokio::test]
async fn an_answer_that_is_no_object_is_refused() -> anyhow::Result<()> {
    let answer = Answer::json(&json!([]));
    let text = "read field the answer of the hook's answer: a list in place of an object";
    is_refused("list", answer, SYNC_ERROR, text).await
}

#[tokio::test]
async fn children_of_wrong_types_are_refused() -> anyhow::Result<()> {
    let children = |children: Value| Answer::json(&json!({ "children": children }));
    let kindless = json!([{ "apiVersion": "v1", "metadata": { "name": "edited" } }]);
    try_join!(
        is_refused(
            "map",
            children(json!({})),
            SYNC_ERROR,
            "field children of the hook's answer: an object in place of a list"
        ),
        is_refused(
            "number",
            children(json!([7])),
            SYNC_ERROR,
            "field children[0] of the hook's answer: a number in place of an object"
        ),
        is_refused(
            "kindless",
            children(kindless),
            SYNC_ERROR,
            "children[0] of the hook's answer: an object without a kind"
        ),
    )?;
    Ok(())
}

#[tokio::test]
async fn fields_of_wrong_types_are_refused() -> anyhow::Result<()> {
    let with = |field: &str, value: Value| Answer::json(&json!({ "children": [], field: value }));
    try_join!(
        is_refused(
            "status",
            with("status", json!("fine")),
            SYNC_ERROR,
            "field status of the hook's answer: a text in place of an object"
        ),
        is_refused(
            "resync",
            with("resyncAfterSeconds", json!("5")),
            SYNC_ERROR,
            "field resyncAfterSeconds of"
        ),
        is_refused(
            "finalized",
            with("finalized", json!("yes")),
            SYNC_ERROR,
            "field finalized of"
        ),
    )?;
    Ok(())
}

#[tokio::test]
async fn answers_beyond_all_limits_are_refused() -> anyhow::Result<()> {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let many = format!(r#"{{"children": [{}null]}}"#, "null,".repeat(250_000));
    let large = " ".repeat(9 << 20);
    let number = r#"{"children": [], "status": {"load": 1e999}}"#;
    try_join!(
        is_refused(
            "deep",
            Answer::status(200, deep),
            SYNC_ERROR,
            "more than 64 objects and lists within each other"
        ),
        is_refused(
            "many",
            Answer::status(200, many),
            SYNC_ERROR,
            "more than 200000 values"
        ),
        is_refused(
            "large",
            Answer::status(200, large),
            SYNC_ERROR,
            "response body is longer than 8388608 bytes"
        ),
        is_refused(
            "number",
            Answer::status(200, number),
            SYNC_ERROR,
            "number at byte 36 is out of range"
        ),
    )?;
    Ok(())
}

#[tokio::test]
async fn a_strict_hook_that_forgets_its_children_deletes_none() -> anyhow::Result<()> {
    let mut scene = Scene::with("strict", |controller| {
        controller.edit(|it| {
            it["spec"]["hooks"]["sync"]["webhook"]["responseUnMarshallMode"] = "strict".into();
        })
    })
    .await?;

    scene.fail(Answer::json(&json!({ "status": {} }))).await?;

    scene.is_told(SYNC_ERROR, "no field children").await?;
    scene.is_untouched().await?;
    scene.heals().await
}

/// The parent's own children, the first of them changed, and one that must not be.
fn with(child: &Value) -> Answer {
    let mut all = children("after");
    all.push(child.clone());
    Answer::json(&json!({ "children": all }))
}

#[tokio::test]
async fn a_child_of_a_kind_that_is_not_declared_is_refused() -> anyhow::Result<()> {
    let mut scene = Scene::new("undeclared").await?;
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "stray" } });

    scene.fail(with(&secret)).await?;

    let text = "desired child Secret stray: children[2].kind: Secret in v1 is not declared; \
                list it in spec.childResources of the controller";
    scene.is_told(CHILD_REFUSED, text).await?;
    scene.is_untouched().await?;
    let secrets = scene.stage.objects(SECRET).list().await?;
    ensure!(secrets.is_empty(), "{secrets:#?}");
    scene.heals().await
}

#[tokio::test]
async fn a_child_in_another_namespace_is_refused() -> anyhow::Result<()> {
    let mut scene = Scene::new("elsewhere").await?;
    let other = format!("{}-other", scene.stage.namespace);
    let namespace = json!({ "metadata": { "name": other } });
    scene.stage.objects(NAMESPACE).create(namespace).await?;
    let mut stray = config_map("stray", json!({}));
    stray["metadata"]["namespace"] = other.as_str().into();

    scene.fail(with(&stray)).await?;

    let text = format!(
        "desired child ConfigMap {other}/stray: children[2].metadata.namespace: it is not the parent's namespace"
    );
    scene.is_told(CHILD_REFUSED, &text).await?;
    scene.is_untouched().await?;
    let strays = Objects::new(&scene.stage.client, CONFIG_MAP, &other)
        .list()
        .await?;
    ensure!(strays.is_empty(), "{strays:#?}");
    scene.heals().await
}

#[tokio::test]
async fn a_child_without_a_name_is_refused() -> anyhow::Result<()> {
    let nameless = |metadata: Value| {
        let mut child = config_map("", json!({}));
        child["metadata"] = metadata;
        with(&child)
    };
    let text = "children[2].metadata.name: it is missing; name every child";
    try_join!(
        is_refused("nameless", nameless(json!({})), CHILD_REFUSED, text),
        is_refused(
            "generated",
            nameless(json!({ "generateName": "stray-" })),
            CHILD_REFUSED,
            text
        ),
    )?;
    Ok(())
}

#[tokio::test]
async fn of_a_child_that_is_named_twice_the_last_counts_with_a_warning() -> anyhow::Result<()> {
    let scene = Scene::new("twice").await?;
    let stage = &scene.stage;
    let last = config_map("edited", json!({ "text": "last" }));
    stage.hook.answer_with(move |_| with(&last));

    stage.poke(THING, PARENT).await?;

    let is_last = |it: &Value| it["data"]["text"] == "last";
    let children = stage.objects(CONFIG_MAP);
    children
        .becomes("edited", "to be the last", is_last)
        .await?;
    let text = "desired child ConfigMap edited is returned more than once, and children[2] counts";
    let event = stage.event(&scene.parent, "OddAnswer", text).await?;
    ensure!(event["type"] == "Warning", "{event:#}");
    Ok(())
}

#[tokio::test]
async fn a_parent_whose_hook_gives_bad_answers_only_is_left_as_it_is() -> anyhow::Result<()> {
    let mut scene = Scene::new("parent").await?;
    scene.fail(Answer::status(200, "no")).await?;
    let before = scene.stage.objects(THING).get(PARENT).await?;

    scene.is_retried().await?;

    let after = scene.stage.objects(THING).get(PARENT).await?;
    ensure!(before == after, "it was {before:#} and is {after:#}");
    scene.heals().await
}
